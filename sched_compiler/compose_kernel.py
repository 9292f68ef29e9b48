"""A kernel of the user's own in the composed form: short forms written out, and one way to write what has several."""

from __future__ import annotations

import re
from typing import Any

from sched_compiler.faults import Faults, close_match, described
from sched_compiler.files import normal
from sched_compiler.source import Data, Path

#: What a kernel may have none of, which is the same as to say nothing of it.
_LISTS = ("headers", "schedules", "defines", "options")


def composed_kernel(kernel: Data, faults: Faults) -> Any:
    """Write out the short forms of a kernel's block and arguments, and in one way what can be written in several."""
    if not isinstance(kernel, dict):
        if kernel != "trace":
            mend = close_match(kernel, ("trace",)) if isinstance(kernel, str) else None
            mend = mend or "write `kernel: trace`, or `kernel: {source: ..., entry: ..., block: ..., arguments: [...]}`"
            expected, found = "trace, or a mapping", described(kernel)
            faults.add("E012", ("kernel",), "there is no such kernel", found=found, expected=expected, mend=mend)
        return "trace"
    result: dict[str, Any] = {key: value for key, value in kernel.items() if value is not None}
    block = result.get("block")
    if isinstance(block, int) and not isinstance(block, bool):
        result["block"] = (block, 1, 1)
        faults.origin[("kernel", "block", 0)] = ("kernel", "block")
    elif isinstance(block, list) and 1 <= len(block) <= 3:
        result["block"] = (*block, *[1] * (3 - len(block)))
    if isinstance(arguments := result.get("arguments"), list):
        result["arguments"] = _named_arguments(arguments, faults)
    if isinstance(source := result.get("source"), str):
        result["source"] = normal(source)
    if isinstance(schedules := result.get("schedules"), list):
        result["schedules"] = [normal(name) if isinstance(name, str) else name for name in schedules]
    for key in ("headers", "options"):
        if isinstance(words := result.get(key), list):
            result[key] = _word_set(words, ("kernel", key), faults)
    if isinstance(defines := result.get("defines"), dict):
        result["defines"] = {name: _number(value) for name, value in sorted(defines.items(), key=lambda d: str(d[0]))}
    return {key: value for key, value in result.items() if key not in _LISTS or value not in ([], {})}


def _word_set(words: list[Any], path: Path, faults: Faults) -> list[Any]:
    """Words whose order has no meaning, in the order of the alphabet."""
    places: dict[str, int] = {}
    for n, word in enumerate(words):
        if not isinstance(word, str):
            return words
        if word in places:
            faults.add("E012", (*path, n), f"`{word[:60]}` stands twice", found=word[:60], mend="remove one of the two")
        places.setdefault(word, n)
    for n, word in enumerate(sorted(places)):
        faults.origin[*path, n] = (*path, places[word])
    return sorted(places)


def _number(value: Any) -> Any:
    """An integer that is written as text, as the integer."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value, re.ASCII) else value


def _named_arguments(arguments: list[Any], faults: Faults) -> dict[str, Any]:
    """A list of `name: type` as one mapping."""
    result: dict[str, Any] = {}
    for n, argument in enumerate(arguments):
        path: Path = ("kernel", "arguments", n)
        if not isinstance(argument, dict) or len(argument) != 1:
            message, expected = "an argument is its name and its type", "`name: type`, as `A: f32*`"
            faults.add("E012", path, message, found=described(argument), expected=expected)
            continue
        ((name, kind),) = argument.items()
        if name in result:
            message = f"the argument `{name}` stands twice"
            faults.add("E013", (*path, name), message, mend="choose another name", key=True)
            continue
        faults.origin["kernel", "arguments", name] = (*path, name)
        result[name] = kind
    return result
