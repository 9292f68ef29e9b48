"""Running the header on the host: refusals are told apart from faults of the header."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.cuda.host import Harness
from sched_compiler.registry import BackendError, ToolMissingError, TraceRequest
from tests.backends.test_cuda_emitter import needs_cxx, program_of

SPEC = {"version": 1, "name": "x", "space": {"m": 5, "n": 2}, "dispatch": {"static": {"workers": 3}}}


@needs_cxx
def test_rows_hold_coordinates_bounds_index_and_inverse() -> None:
    with Harness([program_of(SPEC)]) as harness:
        ((first, last),) = harness.run([(0, TraceRequest({}, 3, [0, 2]))])
    assert first.tolist() == [[0, 0, 1, 0, 0], [1, 1, 1, 3, 3], [3, 0, 1, 6, 6], [4, 1, 1, 9, 9]]
    assert last.tolist() == [[1, 0, 1, 2, 2], [2, 1, 1, 5, 5], [4, 0, 1, 8, 8]]


@needs_cxx
def test_programs_of_one_name_stand_side_by_side_and_runs_may_repeat() -> None:
    other = {**SPEC, "space": {"m": 1, "n": 1}}
    requests = [(n, TraceRequest({}, 3, [0])) for n in (1, 0, 1)]
    with Harness([program_of(SPEC), program_of(other)]) as harness:
        assert [len(rows) for (rows,) in harness.run(requests)] == [1, 4, 1]


@needs_cxx
def test_nobody_to_follow_gives_nothing() -> None:
    with Harness([program_of(SPEC)]) as harness:
        assert harness.run([(0, TraceRequest({}, 3, []))]) == [[]]


@needs_cxx
def test_large_parameters_arrive_whole() -> None:
    top = 2**63 - 1
    spec = {
        "version": 1,
        "name": "x",
        "params": {"big": {"min": top - 9, "max": top}, "low": {"min": -(2**62), "max": -1}},
        "space": {"m": "big % 7", "n": "low % 5"},
        "dispatch": {"static": {"workers": 1}},
    }
    with Harness([program_of(spec)]) as harness:
        ((rows,),) = harness.run([(0, TraceRequest({"big": top, "low": -(2**62)}, 1, [0]))])
    assert len(rows) == top % 7 * (-(2**62) % 5)


@needs_cxx
def test_its_directory_is_gone_afterwards() -> None:
    with Harness([program_of(SPEC)]) as harness:
        directory = Path(harness._directory.name)
        assert directory.is_dir()
    assert not directory.exists()


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolMissingError, match="C\\+\\+ compiler"):
        Harness([program_of(SPEC)])


@needs_cxx
def test_what_the_compiler_refuses_is_shown() -> None:
    with pytest.raises(BackendError, match="no-such-option"):
        Harness([program_of(SPEC)], ("--no-such-option",))
