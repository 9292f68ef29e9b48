"""What the hardware's queue is said to have answered: read from a file, and held to what a queue can answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sched_compiler.protocol import NONE_LEFT

#: Bytes of a file of responses.
MOST_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class ResponseFault:
    """What no queue answers."""

    message: str
    found: str
    expected: str


def read_responses(path: Path) -> Any:
    """The JSON of a file. Raises OSError, and ValueError for what is no JSON."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as e:
        raise ValueError(f"it is not JSON: {e}") from None


def fault_of(responses: Any, items: int, ctas: int) -> ResponseFault | None:
    """The first fault of `responses`: for each worker a list of CTA ids, in clusters of `ctas`, for `items` clusters.

    Each cluster but the workers' own is answered once, and `NONE_LEFT` once to each worker, at last. Where there are no
    clusters there are no workers.
    """
    form = f"for each worker a list of CTA ids, {NONE_LEFT} at the end"
    if responses == [] and items == 0:
        return None
    if not isinstance(responses, list) or not responses or not all(isinstance(answers, list) for answers in responses):
        return ResponseFault("the responses are no list of lists", _shown(responses), form)
    workers = len(responses)
    if workers > items:
        return ResponseFault("there are more workers than clusters", f"{workers} workers", f"at most {items}")
    first = ctas * workers
    seen: dict[int, str] = {}
    for w, answers in enumerate(responses):
        for n, answer in enumerate(answers):
            place = f"worker {w}, response {n + 1}"
            if not isinstance(answer, int) or isinstance(answer, bool):
                return ResponseFault("a response is an integer", f"{_shown(answer)} ({place})", "a CTA id")
            if answer == NONE_LEFT:
                if n + 1 < len(answers):
                    found = f"{place} of {len(answers)}"
                    return ResponseFault("a worker asks no more once nothing is left", found, f"{NONE_LEFT} at the end")
                continue
            found = f"{answer} ({place})"
            if not 0 <= answer < items * ctas:
                return ResponseFault("a response is no CTA of the grid", found, f"0 to {items * ctas - 1}")
            if answer % ctas:
                expected = f"a multiple of {ctas}: the first CTA of a cluster"
                return ResponseFault("a response is no cluster's first CTA", found, expected)
            if answer < first:
                return ResponseFault("a response is a cluster that runs already", found, f"{first} or more")
            if answer in seen:
                return ResponseFault("a cluster is cancelled twice", f"{found}, and {seen[answer]}", "each once")
            seen[answer] = place
        if not answers or answers[-1] != NONE_LEFT:
            return ResponseFault("a worker's walk does not end", f"the responses of worker {w}", f"{NONE_LEFT} at last")
    missing = next((a for a in range(first, items * ctas, ctas) if a not in seen), None)
    if missing is not None:
        others = items - workers - len(seen) - 1
        found = f"{missing}, and {others} more" if others else str(missing)
        return ResponseFault("a cluster is neither started nor cancelled", found, "each in a response")
    return None


def _shown(value: Any) -> str:
    kinds = {list: "a list", dict: "a mapping", str: "text", bool: "true or false", type(None): "null"}
    return "an empty list" if value == [] else kinds.get(type(value), str(value)[:40])
