"""Traces as text."""

from __future__ import annotations

import json
from typing import Any

from sched_compiler.drawing import MOST_TILES, MOST_WORKERS, trace_text
from sched_compiler.driver import trace


def drawn(space: dict[str, int], workers: int, follow: list[int] | None = None, **more: Any) -> list[str]:
    spec = {"version": 1, "name": "x", "space": space, "dispatch": {"static": {"workers": workers}}, **more}
    return trace_text(trace(json.dumps(spec), follow=follow), follow).splitlines()


def test_a_plane_shows_the_order() -> None:
    order = {"split": {"m": 2}, "loops": ["m.outer", "n", "m.inner"]}
    assert drawn({"m": 3, "n": 2}, 2, order=order) == [
        "      n=0 n=1",
        "m=0     0   2",
        "m=1     1   3",
        "m=2     4   5",
        "",
        "6 tiles (m, n) for 2 workers",
        "worker 0: (0, 0) (0, 1) (2, 0)",
        "worker 1: (1, 0) (1, 1) (2, 1)",
    ]


def test_padding_is_marked_and_explained() -> None:
    lines = drawn({"m": 3}, 2, cluster={"m": 2})
    assert lines == [
        "4 tiles (m) for 2 workers, 1 of them padding",
        "worker 0: (0) (1)",
        "worker 1: (2) (3)*",
        "* padding: scheduled, but outside the space",
    ]


def test_long_lists_are_cut_and_say_so() -> None:
    lines = drawn({"m": 3000}, MOST_WORKERS + 5)
    assert lines[-1] == "... 5 more workers"
    assert lines[1].endswith("more")
    assert lines[1].count("(") == MOST_TILES
    assert len(lines) == MOST_WORKERS + 2


def test_followed_workers_keep_their_numbers() -> None:
    assert drawn({"m": 4, "n": 1}, 4, [3, 1]) == [
        "2 tiles (m, n) for 4 workers",
        "worker 3: (3, 0)",
        "worker 1: (1, 0)",
    ]


def test_large_and_empty_planes_are_listed_only() -> None:
    assert drawn({"m": 100, "n": 2}, 1)[0].startswith("200 tiles")
    assert drawn({"m": 0, "n": 2}, 1) == ["0 tiles (m, n) for 1 workers", "worker 0:"]


def test_no_line_ends_in_blanks() -> None:
    assert all(line == line.rstrip() for line in drawn({"m": 2, "n": 2}, 5))
