"""Tables: read in every form, held to the same rules in the spec, at launch, and by the emitted validator."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sched_compiler import driver
from sched_compiler.diagnostics import SpecError
from sched_compiler.tables import BLOCK, TableError, check_indices, check_points, check_ranges, read_table
from tests.support.engines import Case, assert_engines_agree, run_cuda

LATE = """
version: 1
name: late
params: {items: {min: 0, max: 100}}
tables: {rows: {length: items}, columns: {length: items}, bounds: {length: 4}, picked: {length: items}}
space: {m: 6, n: 5}
order: {points: {m: rows, n: columns}, subset: true}
dispatch: {table: {indptr: bounds, indices: picked}}
"""


def write(path: Path, values: list[int]) -> None:
    if path.suffix == ".npy":
        np.save(path, np.array(values, dtype=np.int32))
    elif path.suffix == ".json":
        path.write_text(json.dumps(values, indent=len(values) % 3 or None))
    else:
        path.write_text("\n".join(map(str, values)) if len(values) % 2 else ", ".join(map(str, values)) + "\n")


@pytest.mark.parametrize("name", ["t.npy", "t.json", "t.csv", "t.txt"])
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_every_form_gives_the_numbers(tmp_path: Path, name: str, count: int) -> None:
    values = [random.Random(count).randint(-(2**31), 2**31 - 1) for _ in range(count)]
    write(tmp_path / name, values)
    assert read_table(name, tmp_path).tolist() == values


def test_a_text_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    values = list(range(BLOCK // 5))
    (tmp_path / "t.json").write_text(json.dumps(values))
    told: list[float] = []
    assert read_table("t.json", tmp_path, lambda what, part: told.append(part)).tolist() == values
    assert len(told) > 2
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", b"1,2,x", "'x' is not an integer"),
        ("t.csv", b"1.5", "'1.5' is not an integer"),
        ("t.csv", b"9223372036854775808", "is not an integer of 64 bits"),
        ("t.csv", b"\xff\x00", "is not an integer"),
        ("t.json", b"{}", "one list of integers"),
        ("t.json", b"[1, 2", "not closed"),
        ("t.json", b"[1] 2", "something follows"),
        ("t.json", b"[1, [2]]", "something follows"),
        ("t.json", b"[true]", "is not an integer"),
        ("t.json", b"", "not closed"),
        ("t.npy", b"", "."),
        ("t.npy", b"\x93NUMPY\x01\x00", "."),
        ("t.npy", b"not an array at all", "magic"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=reason):
        read_table(name, tmp_path)


def test_arrays_of_other_shapes_and_types_are_refused(tmp_path: Path) -> None:
    for array in (np.zeros((2, 2), dtype=int), np.zeros(3), np.array([2**63], dtype=np.uint64), np.array([True])):
        np.save(tmp_path / "t.npy", array)
        with pytest.raises(TableError):
            read_table("t.npy", tmp_path)
    np.save(tmp_path / "t.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(TableError):
        read_table("t.npy", tmp_path)


@pytest.mark.parametrize("name", ["../secret.csv", "/etc/hostname", "link.csv", "missing.csv", "directory.csv", "a\0b"])
def test_files_elsewhere_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.csv").write_text("1")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.csv").symlink_to(tmp_path / "secret.csv")
    (inside / "directory.csv").mkdir()
    with pytest.raises(TableError):
        read_table(name, inside)
    with pytest.raises(TableError):
        read_table(name, None)


def test_a_spec_reads_tables_beside_it_and_the_key_knows_what_is_in_them(tmp_path: Path) -> None:
    text = "{version: 1, name: x, space: {m: 4}, dispatch: {table: {indptr: {file: p.csv}}}}"
    (tmp_path / "p.csv").write_text("0\n1\n4\n")
    found = driver.trace(text, directory=tmp_path)
    assert found.tiles == [[[0]], [[1], [2], [3]]]
    request = driver.CompileRequest(text, "x", "sm_90a", directory=str(tmp_path))
    first = driver.artifact_key(request)
    (tmp_path / "p.csv").write_text("0\n2\n4\n")
    assert driver.artifact_key(request) != first
    (tmp_path / "p.csv").write_text("0\n2\n5\n")
    (d,) = driver.check_text(text, directory=tmp_path).diagnostics
    assert (d.code, d.span.line) == ("E046", 1)
    assert "element 2" in (d.found or "")
    (d,) = driver.check_text(text).diagnostics
    assert d.code == "E047"


# -- the rules --------------------------------------------------------------------------------------------------


def wrong_points(m: list[int], n: list[int], extents: list[int], subset: bool) -> str | None:
    """The rules again, plainly."""
    if len(m) != len(n):
        return "E046"
    for table, extent in ((m, extents[0]), (n, extents[1])):
        if any(not 0 <= v < extent for v in table):
            return "E062"
    points = list(zip(m, n, strict=True))
    if len(set(points)) < len(points):
        return "E061"
    return None if subset or len(points) == extents[0] * extents[1] else "E060"


def test_points_are_judged_as_by_the_plain_rules() -> None:
    chance = random.Random(1)
    seen = set()
    for _ in range(2000):
        extents = [chance.randint(0, 3), chance.randint(1, 3)]
        box = [(a, b) for a in range(extents[0]) for b in range(extents[1])]
        points = chance.sample(box, chance.choice([len(box), chance.randint(0, len(box))]))
        m, n = [p[0] for p in points], [p[1] for p in points]
        if points and chance.random() < 0.3:
            m[chance.randrange(len(m))] = chance.randint(-1, 3)
        if chance.random() < 0.1:
            n.append(0)
        subset = chance.random() < 0.5
        fault = check_points(["m", "n"], [np.array(m, int), np.array(n, int)], ["m", "n"], extents, subset)
        code = None if fault is None else fault.code
        assert code == wrong_points(m, n, extents, subset)
        seen.add(code)
    assert seen == {None, "E046", "E060", "E061", "E062"}


@pytest.mark.parametrize(
    ("indptr", "length", "subset", "element"),
    [
        ([0, 3, 3], 3, False, -1), ([0], 0, False, -1), ([1, 2], 3, True, -1), ([0, 0, 0], 0, False, -1),
        ([], 0, False, None), ([1, 3], 3, False, 0), ([-1, 3], 3, True, 0), ([0, 2, 1, 3], 3, False, 2),
        ([0, 4], 3, False, 1), ([0, 2], 3, False, 1), ([0, 4], 3, True, 1),
    ],
)  # fmt: skip
def test_ranges(indptr: list[int], length: int, subset: bool, element: int | None) -> None:
    fault = check_ranges("p", np.array(indptr, dtype=int), length, subset)
    assert (fault is None) == (element == -1)
    if fault is not None:
        assert fault.element == element


def test_the_first_repetition_is_told() -> None:
    fault = check_indices("p", np.array([3, 1, 2, 1, 3]), 5, False)
    assert fault is not None
    assert (fault.code, fault.element, fault.found) == ("E061", 3, "elements 1 and 3")


# -- at launch --------------------------------------------------------------------------------------------------


def launch(chance: random.Random) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Parameters and tables for LATE, some of them wrong in one place."""
    items = chance.randint(0, 12)
    points = chance.sample([(a, b) for a in range(6) for b in range(5)], items)
    bounds = [0, *sorted(chance.randint(0, items) for _ in range(2)), items]
    tables = {
        "rows": [p[0] for p in points], "columns": [p[1] for p in points], "bounds": bounds,
        "picked": chance.sample(range(items), items),
    }  # fmt: skip
    if chance.random() < 0.6:
        table = tables[chance.choice(list(tables))]
        if table and chance.random() < 0.9:
            table[chance.randrange(len(table))] = chance.choice([-1, 0, 3, 5, 6, items, items + 1])
        else:
            table.append(0)
    return {"items": items}, tables


def test_the_emitted_validator_says_what_the_python_one_does(
    tmp_path: Path, compiler: Callable[[Path, Path], None]
) -> None:
    """The same verdict for the same tables, at the same table and element."""
    checked = driver.check(LATE)
    names = [t.name for t in checked.schedule.tables]
    reads = "".join(f"    std::cin >> n; std::vector<int> {t}(n); for (auto& v : {t}) std::cin >> v;\n" for t in names)
    passed = ", ".join(f"{t}.data(), (long long){t}.size()" for t in names)
    main = (
        '#include <iostream>\n#include <vector>\n#include "late.h"\nint main() {\n  int cases, items, n;\n'
        f"  std::cin >> cases;\n  while (cases--) {{\n    std::cin >> items;\n{reads}"
        f"    const auto fault = sched::late_validate(items, {passed});\n"
        '    std::cout << (fault ? fault.table : "none") << " " << fault.element << "\\n";\n  }\n}\n'
    )
    (tmp_path / "late.h").write_text(driver.emit_text(checked, "validator"))
    (tmp_path / "main.cpp").write_text(main)
    compiler(tmp_path / "main.cpp", tmp_path / "main")
    chance = random.Random(3)
    cases = [launch(chance) for _ in range(1500)]
    words: list[int] = [len(cases)]
    for values, tables in cases:
        words.append(values["items"])
        for name in names:
            words += [len(tables[name]), *tables[name]]
    done = subprocess.run(
        [str(tmp_path / "main")], input=" ".join(map(str, words)), capture_output=True, text=True, check=True
    )
    found = done.stdout.splitlines()
    right = 0
    for (values, tables), line in zip(cases, found, strict=True):
        faults = driver.validate_tables(checked, tables, values)
        right += not faults
        table = line.split()[0]
        assert (table == "none") == (not faults), (values, tables, faults, line)
        if faults:
            assert faults[0].message.startswith(f"{table}:"), (values, tables, faults, line)
        if not faults:
            request: dict[str, Any] = {"values": values, "tables": tables}
            assert sum(len(t) for t in driver.trace(LATE, **request).tiles) == values["items"]
        else:
            with pytest.raises(SpecError):
                driver.trace(LATE, values=values, tables=tables)
    assert 0 < right < len(cases)


@pytest.fixture
def compiler() -> Callable[[Path, Path], None]:
    def compile_(source: Path, binary: Path) -> None:
        warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
        subprocess.run(["g++", "-std=c++17", *warnings, str(source), "-o", str(binary)], check=True)

    return compile_


def test_tables_at_launch_are_complete_and_known() -> None:
    tables = {"rows": [0], "columns": [0], "bounds": [0, 0, 0, 1], "picked": [0]}
    values = {"items": 1}
    assert driver.trace(LATE, values=values, tables=tables).tiles == [[], [], [[0, 0]]]
    for wrong in (
        {k: v for k, v in tables.items() if k != "rows"},
        {**tables, "others": [0]},
        {**tables, "rows": [0.5]},
        {**tables, "rows": [[0]]},
        {**tables, "rows": [0, 1]},
    ):
        with pytest.raises(SpecError):
            driver.trace(LATE, values=values, tables=wrong)


def test_engines_agree_and_read_nothing_outside() -> None:
    """The header runs with the host's address sanitizer, on tables that end where their memory does."""
    chance = random.Random(5)
    spec = {
        "version": 1, "name": "late", "params": {"items": {"min": 0, "max": 100}},
        "tables": {"rows": {"length": "items"}, "columns": {"length": "items"}, "bounds": {"length": 4}},
        "space": {"m": 6, "n": 5}, "order": {"points": {"m": "rows", "n": "columns"}, "subset": True},
        "dispatch": {"table": {"indptr": "bounds"}},
    }  # fmt: skip
    cases: list[Case] = []
    while len(cases) < 12:
        values, tables = launch(chance)
        case = Case(spec, values, tables={k: np.array(v, int) for k, v in tables.items() if k != "picked"})
        given = dict(case.tables or {})
        if not driver.validate_tables(case.checked, given, values):
            cases.append(case)
    empty = {"rows": np.zeros(0, int), "columns": np.zeros(0, int), "bounds": np.zeros(4, int)}
    cases.append(Case(spec, {"items": 0}, tables=empty))
    end = {"rows": np.array([0, 1, 2]), "columns": np.array([0, 1, 2]), "bounds": np.array([0, 3, 3, 3])}
    cases.append(Case(spec, {"items": 3}, tables=end))
    assert_engines_agree(cases)
    run_cuda(cases, ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))


@pytest.mark.parametrize("most", [0, 1])
@pytest.mark.parametrize("dispatch", ["single", "dynamic", {"static": {"workers": 3}}, {"table": {"indptr": [0, 0]}}])
def test_no_table_is_read_where_there_may_be_no_item(most: int, dispatch: Any) -> None:
    """An index with one possible value is a literal, but the element is read only where it is."""
    spec = {
        "version": 1, "name": "few", "params": {"items": {"min": 0, "max": most}}, "space": {"m": 6, "n": 5},
        "tables": {"rows": {"length": "items"}, "columns": {"length": "items"}}, "dispatch": dispatch,
        "order": {"points": {"m": "rows", "n": "columns"}, "subset": True},
    }  # fmt: skip
    if isinstance(dispatch, dict) and "table" in dispatch:
        spec["dispatch"] = {"table": {**dispatch["table"], "subset": True}}
    none = np.zeros(0, dtype=np.int64)
    cases = [Case(spec, {"items": 0}, 2, tables={"rows": none, "columns": none})]
    if most:
        cases.append(Case(spec, {"items": 1}, 2, tables={"rows": np.array([4]), "columns": np.array([3])}))
    assert_engines_agree(cases)
    run_cuda(cases, ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))


@pytest.mark.parametrize("text", ["0,,1", "0, ,1", ",0", "0,1,", "0,\n1", "0;1"])
def test_missing_elements_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text + "\n")
    with pytest.raises(TableError):
        read_table("t.csv", tmp_path)


def test_a_mark_of_byte_order_and_suffixes_in_capitals_are_known(tmp_path: Path) -> None:
    (tmp_path / "t.CSV").write_bytes(b"\xef\xbb\xbf0\r\n7\r\n")
    assert read_table("t.CSV", tmp_path).tolist() == [0, 7]
    with (tmp_path / "t.NPY").open("wb") as file:
        np.save(file, np.array([5]))
    assert read_table("t.NPY", tmp_path).tolist() == [5]


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(TableError, match="regular"):
        read_table("t.csv", tmp_path)


def test_a_table_of_a_million_entries_is_checked_and_progress_told(tmp_path: Path) -> None:
    count = 1_000_000
    order = np.random.default_rng(0).permutation(count).astype(np.int32)
    np.save(tmp_path / "order.npy", order)
    text = "{version: 1, name: x, space: {m: 1000000}, order: {points: {m: {file: order.npy}}}, dispatch: single}"
    told: list[str] = []
    assert driver.check_text(text, "x", tmp_path, lambda what, part: told.append(what)).ok
    assert told
    order[17] = order[400_000]
    np.save(tmp_path / "order.npy", order)
    (d,) = driver.check_text(text, "x", tmp_path).diagnostics
    assert d.code == "E061"
    assert "17" in (d.found or "")


def test_what_arrives_at_launch_is_said_and_no_fault() -> None:
    report = driver.check_text(LATE)
    assert report.ok
    assert not report.diagnostics
    assert {v.property for v in report.verdicts if v.status == "launch"} == {"coverage", "bounds", "dispatch"}
