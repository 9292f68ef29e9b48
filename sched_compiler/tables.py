"""Tables: lists of integers that a schedule reads on the device. Read from files here, and checked.

The checks take plain arrays, so that a table that stands in a spec and one that arrives at launch are held to the
same rules. They need memory for one 64-bit number for each element, and time that grows as sorting does.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from sched_compiler.files import Beside, FileError, Files, normal
from sched_compiler.loader import Progress

Elements: TypeAlias = "npt.NDArray[Any]"

#: Elements that are looked at in one step; progress is told after each.
STEP = 1 << 20
#: Bytes of a text that are read in one step.
BLOCK = 1 << 22
#: Characters of a table in text, after which a number may end.
_SEPARATORS = bytes.maketrans(b"\n\r\t ", b",,,,")
#: Two commas with nothing between them, or, but for JSON, one before the end of a line.
_EMPTY = re.compile(rb",[ \t]*,")
_EMPTY_IN_LINES = re.compile(rb",[ \t]*(?:,|\r?\n)|(?:^|\n)[ \t]*,")


class TableError(Exception):
    """A table that cannot be read, and why."""

    def __init__(self, message: str, mend: str | None = None) -> None:
        self.mend = mend
        super().__init__(message)


def read_table(name: str, directory: Beside, progress: Progress | None = None) -> Elements:
    """The integers in a file beside the spec: NPY (one dimension), JSON (one list), or CSV and other text.

    Raises TableError, also for a file that is not below `directory`.
    """
    if directory is None:
        raise TableError("no files are read here", "write its elements into the spec, or give its length")
    if isinstance(directory, Mapping):
        return _sent(name, directory, progress)
    path = directory / name
    try:
        if not path.resolve().is_relative_to(directory.resolve()):
            raise TableError("it is not beside the spec or below it", "move it there")
        if not path.is_file():
            raise TableError("there is no such file" if not path.exists() else "it is no regular file")
        suffix = path.suffix.lower()
        if suffix == ".npy":
            return _mapped(path)
        with path.open("rb") as file:
            size = path.stat().st_size
            parts = list(_numbers(file, size, suffix == ".json", f"reading {name}", progress))
    except OSError as e:
        raise TableError(e.strerror or "it is no table") from None
    except (ValueError, EOFError) as e:
        raise TableError(str(e)) from None
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _sent(name: str, texts: Mapping[str, str], progress: Progress | None) -> Elements:
    """The integers in one of the texts that came with the spec."""
    try:
        data = Files(texts).text(normal(name)).encode()
        json = name.lower().endswith(".json")
        parts = list(_numbers(io.BytesIO(data), len(data), json, f"reading {name}", progress))
    except FileError as e:
        raise TableError(str(e), "send it in `files`, by this path") from None
    except ValueError as e:
        raise TableError(str(e)) from None
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _mapped(path: Path) -> Elements:
    """The array in an NPY file, whose elements are read when they are looked at."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read:
            raise ValueError(f"NPY of version {version[0]}.{version[1]}")
        shape, _, dtype = read[version](file)
        offset = file.tell()
    if len(shape) != 1:
        raise TableError(f"an array of {len(shape)} dimensions is no list", "save one dimension")
    if dtype.kind not in "iu":
        raise TableError(f"its elements are {dtype}, not integers", "save it as int32 or int64")
    if not shape[0]:
        return np.zeros(0, dtype=np.int64)
    if path.stat().st_size < offset + shape[0] * dtype.itemsize:
        raise ValueError("the file is shorter than its header says")
    array = np.memmap(path, dtype, "r", offset, shape)
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 1 << 63:
        raise TableError("an element does not fit 64 bits with a sign")
    return array


def _numbers(
    file: BinaryIO, size: int, json: bool, what: str, progress: Progress | None
) -> Iterator[npt.NDArray[np.int64]]:
    """The integers of a text, block by block: separated by commas, blanks or line ends, for JSON in brackets."""
    left, done, opened, closed, started = b"", 0, not json, False, False
    while True:
        block = file.read(BLOCK)
        done += len(block)
        if not started and block.startswith(codecs.BOM_UTF8):
            block = block[len(codecs.BOM_UTF8) :]
        started = True
        # a search is as long as the text, and most lists of lines have no comma
        if b"," in block and (_EMPTY if json else _EMPTY_IN_LINES).search(left + block):
            raise ValueError("an element is missing: two separators have nothing between them")
        text = (left + block).translate(_SEPARATORS)
        if not opened:
            text = text.lstrip(b",")
            if text and not text.startswith(b"["):
                raise ValueError("JSON of a table is one list of integers")
            opened, text = bool(text), text[1:]
        if json and b"]" in text:
            text, _, rest = text.partition(b"]")
            if closed or rest.strip(b","):
                raise ValueError("something follows the list")
            closed = True
        if block and not closed:  # the last number may go on in the next block
            text, _, left = text.rpartition(b",")
        else:
            left = b""
        if text:
            yield _integers(text)
        if progress is not None:
            progress(what, done / max(size, 1))
        if not block:
            if json and not closed:
                raise ValueError("the list is not closed")
            return


def _integers(text: bytes) -> npt.NDArray[np.int64]:
    """The numbers of a text that has commas alone between them. Raises ValueError, naming what is none."""
    text = text.replace(b",", b" ")
    words = text.split()
    if not text.translate(None, b"0123456789- "):
        # NumPy reads on where a number ends too early, and stops at the largest where it is too large
        found = np.fromstring(text, dtype=np.int64, sep=" ")
        if len(found) == len(words) and not np.abs(found).max(initial=0) >= np.iinfo(np.int64).max:
            return found
    for word in words:
        if not re.fullmatch(rb"-?[0-9]{1,19}", word) or not -(1 << 63) <= int(word) < 1 << 63:
            shown = word[:40].decode(errors="replace")
            raise ValueError(f"{shown!r} is not an integer of 64 bits")
    return np.array([int(word) for word in words], dtype=np.int64)


# -- checks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a table: at which element, if it is one."""

    table: str
    element: int | None
    code: str
    message: str
    found: str
    expected: str


def _outside(array: Elements, low: int, high: int, told: Callable[[float], None]) -> int | None:
    """The first element that is not between `low` and `high`."""
    for begin in range(0, len(array), STEP):
        part = array[begin : begin + STEP]
        if int(part.min()) < low or int(part.max()) > high:
            return begin + int(np.flatnonzero((part < low) | (part > high))[0])
        told((begin + len(part)) / len(array))
    return None


def _silent(what: str, part: float) -> None:
    pass


def check_points(
    names: Sequence[str],
    tables: Sequence[Elements],
    axes: Sequence[str],
    extents: Sequence[int],
    subset: bool,
    progress: Progress | None = None,
) -> Fault | None:
    """Whether the listed points lie in the box, none twice and, unless `subset`, all of them are there."""
    progress = progress or _silent
    count = len(tables[0])
    for name, table in zip(names, tables, strict=True):
        if len(table) != count:
            found, expected = f"{len(table)} elements", f"{count}, as {names[0]} has"
            return Fault(name, None, "E046", "the tables of the points differ in length", found, expected)
    for name, table, axis, extent in zip(names, tables, axes, extents, strict=True):
        k = _outside(table, 0, extent - 1, lambda part, name=name: progress(f"checking {name}", part))  # type: ignore[misc]
        if k is not None:
            message = f"a tile outside the space is listed: {axis}={int(table[k])}"
            return Fault(name, k, "E062", message, f"{int(table[k])}", f"0 <= {axis} < {extent}")
    linear = np.zeros(count, dtype=np.int64)
    if prod(extents) > np.iinfo(np.int64).max:
        return Fault(names[0], None, "E063", "the space is too large to check", f"{prod(extents)} tiles", "below 2^63")
    for table, extent in zip(tables, extents, strict=True):
        linear *= extent
        linear += table
    fault = _each_once(linear, prod(extents), subset, lambda part: progress("looking for repetitions", part))
    if fault is None:
        return None
    value, first, second = fault

    def tile(number: int) -> str:
        at = [int(v) for v in np.unravel_index(number, [max(e, 1) for e in extents])]
        return "(" + ", ".join(f"{axis}={v}" for axis, v in zip(axes, at, strict=True)) + ")"

    if second is not None:
        message = f"a tile is listed more than once: {tile(value)}"
        return Fault(names[0], second, "E061", message, f"elements {first} and {second}", "every tile at most once")
    message = f"a tile is not listed: {tile(value)}"
    found = f"{count} of {prod(extents)} tiles"
    return Fault(names[0], None, "E060", message, found, "every tile, or `subset: true`")


def _each_once(
    values: npt.NDArray[np.int64], count: int, subset: bool, told: Callable[[float], None]
) -> tuple[int, int | None, int | None] | None:
    """(value, first place, second place) of a repetition, (value, None, None) of a missing value, or None.

    `values` lie between 0 and below `count`. The earliest repetition in the list is found, else the smallest value.
    """
    ordered = np.sort(values)
    told(0.7)
    if len(ordered) > 1 and bool((ordered[1:] == ordered[:-1]).any()):
        places = np.argsort(values, kind="stable")
        same = np.flatnonzero(values[places[1:]] == values[places[:-1]])
        k = int(same[np.argmin(places[same + 1])])
        return int(values[places[k]]), int(places[k]), int(places[k + 1])
    told(1.0)
    if not subset and len(ordered) < count:
        gaps = np.flatnonzero(ordered != np.arange(len(ordered)))
        return (int(gaps[0]) if gaps.size else len(ordered)), None, None
    return None


def check_ranges(name: str, indptr: Elements, length: int, subset: bool) -> Fault | None:
    """Whether `indptr` gives ranges one after another, that lie in 0 to `length` and, unless `subset`, fill it."""
    if not len(indptr):
        return Fault(name, None, "E046", "indptr has an element for each worker, and one more", "none", "at least one")
    first, last = int(indptr[0]), int(indptr[-1])
    if first < 0 or (first != 0 and not subset):
        return Fault(name, 0, "E046", "the first range does not begin at 0", str(first), "0")
    for begin in range(0, len(indptr) - 1, STEP):
        part = indptr[begin : begin + STEP + 1]
        falls = np.flatnonzero(part[1:] < part[:-1])
        if falls.size:
            k = begin + int(falls[0]) + 1
            message = f"the range of worker {k - 1} ends before it begins"
            return Fault(name, k, "E046", message, f"{int(indptr[k])} after {int(indptr[k - 1])}", "no falling element")
    if last > length or (last != length and not subset):
        more = "at most " if subset else ""
        message = "the ranges end past the items" if last > length else "items are in no range"
        return Fault(name, len(indptr) - 1, "E046", message, str(last), f"{more}{length}")
    return None


def check_indices(
    name: str, indices: Elements, items: int, subset: bool, progress: Progress | None = None
) -> Fault | None:
    """Whether `indices` lists work indices below `items`, none twice and, unless `subset`, all of them."""
    progress = progress or _silent
    k = _outside(indices, 0, items - 1, lambda part: progress(f"checking {name}", part))
    if k is not None:
        return Fault(name, k, "E062", "there is no such item", str(int(indices[k])), f"0 <= index < {items}")
    values = np.asarray(indices, dtype=np.int64)
    fault = _each_once(values, items, subset, lambda part: progress("looking for repetitions", part))
    if fault is None:
        return None
    value, first, second = fault
    if second is not None:
        message = f"item {value} is listed more than once"
        return Fault(name, second, "E061", message, f"elements {first} and {second}", "every item at most once")
    found = f"{len(indices)} of {items} items"
    return Fault(name, None, "E060", f"item {value} is not listed", found, "every item, or `subset: true`")
