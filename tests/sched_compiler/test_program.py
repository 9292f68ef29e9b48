"""The Program: what a backend sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from sched_compiler.driver import check
from sched_compiler.expr import Expr, topological
from sched_compiler.program import Program, identifier_of, place
from sched_compiler.schedule import DRAWN, INDEX, RANK, WORKER, WORKERS

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


def program_of(path: Path) -> Program:
    return place(check(path.read_text()).schedule)


def inputs(*roots: Expr) -> set[str]:
    return {str(node.attr) for node in topological(roots) if node.op == "var"}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_each_part_depends_only_on_what_is_known_there(path: Path) -> None:
    program = program_of(path)
    schedule = program.schedule
    params = {p.name for p in schedule.params} | ({WORKERS} if not schedule.dispatch.fixed else set())
    tile = {str(t.attr) for t in schedule.tile if t.op == "var"}
    assert inputs(program.items, program.workers) <= params
    assert inputs(*program.invariants) <= params
    state = {str(v.attr) for v in program.state} | {INDEX}
    assert inputs(*program.start) <= params | {WORKER}
    assert inputs(program.valid) <= params | state
    assert inputs(*program.advance) <= params | ({DRAWN} if schedule.dispatch.queue else state)
    assert inputs(*program.coords) <= params | {INDEX, RANK}
    assert inputs(*program.tile) <= params | state | {RANK}
    assert inputs(program.in_bounds) <= params | tile
    if program.inverse is not None:
        assert inputs(program.inverse) <= params | tile
        assert program.inverse.dtype is schedule.index_type


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_types_are_those_of_the_state(path: Path) -> None:
    program = program_of(path)
    kept = (program.schedule.index_type, *(v.dtype for v in program.state))
    assert tuple(e.dtype for e in program.start) == tuple(e.dtype for e in program.advance) == kept
    assert {c.dtype for c in program.coords} == {program.coord_type}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_invariants_are_all_that_is_computed_before_the_loop(path: Path) -> None:
    """What is left for each tile holds no computation on parameters alone."""
    program = program_of(path)
    known = {e.id for e in program.invariants}
    assert len(known) == len(program.invariants)
    params = {p.name for p in program.schedule.params} | {WORKERS}
    stack, seen = [program.valid, *program.advance, *program.coords], set[int]()
    while stack:
        node = stack.pop()
        if node.id in seen or node.id in known:
            continue
        seen.add(node.id)
        own = inputs(node)
        half = node.op == "cast" and node.args[0].id in known  # free
        assert half or not (node.args and own and own <= params), repr(node)
        stack += node.args


@pytest.mark.parametrize(
    ("name", "identifier"), [("gemm", "gemm"), ("a-b.c", "a_b_c"), ("A9", "A9"), ("x_y", "x_y"), ("a.-.b", "a___b")]
)
def test_identifiers(name: str, identifier: str) -> None:
    assert identifier_of(name) == identifier
    text = f"version: 1\nname: {name}\nspace: {{m: 4}}\ndispatch: single\n"
    assert place(check(text).schedule).entry == f"{identifier}_trace"
