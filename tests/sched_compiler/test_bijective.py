"""Proofs about formulas with run-time parameters: what is right is proven, what is wrong is refuted by the smallest."""

from __future__ import annotations

import functools
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sched_compiler import bijective, driver, smt, tried
from sched_compiler.bijective import Clash, Prover
from sched_compiler.build import build
from sched_compiler.diagnostics import SpecError
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import PRED, topological
from sched_compiler.linear import Atoms, Encoding
from sched_compiler.loader import load
from sched_compiler.polynomial import add, atom, constant, divided, multiply, number, text
from sched_compiler.prove import small_values
from sched_compiler.schedule import INDEX, RANK, Schedule
from sched_compiler.smt import Solver
from service.settings import Settings
from tests.support.random_specs import RandomChoices
from tests.test_random_specs import composed, mapped

pytest.importorskip("z3")

ROOT = Path(__file__).parents[2]

SIDE = (1, 65536)
M_N = {"M": SIDE, "N": SIDE}
HEADS = {"B": (1, 1024), "H": (1, 256), "Q": SIDE}
GROUP = "max(min(M - i // (8 * N) * 8, 8), 1)"
ANY_GROUP = "max(min(M - i // (G * N) * G, G), 1)"
SECTION = "(S if i // (S * Q) < B * H // S else max(B * H % S, 1))"
HEAD = f"(i // (S * Q) * S + i % (S * Q) % {SECTION})"

MAPS = 10
Formulas = tuple[dict[str, Any], dict[str, str], dict[str, tuple[int, int]]]


def sides(m: str, n: str, **more: tuple[int, int]) -> Formulas:
    return {"m": "M", "n": "N"}, {"m": m, "n": n}, {**M_N, **more}


RIGHT: dict[str, Formulas] = {
    "rows": sides("i // N", "i % N"),
    "columns": sides("i % M", "i // M"),
    "rows that may be none": sides("i // max(N, 1)", "i % max(N, 1)", M=(0, 65536), N=(0, 65536)),
    "boustrophedon": sides("i // N", "i % N if i // N % 2 == 0 else N - 1 - i % N"),
    "rotated": sides("i // N", "(i % N + i // N) % N"),
    "diagonal": sides("(i // N + i % N) % M", "i % N"),
    "backwards": sides("M - 1 - i // N", "N - 1 - i % N"),
    "halves": sides("i // N if i // N < M // 2 else M - 1 - (i // N - M // 2)", "i % N"),
    "grouped": sides(f"i // (8 * N) * 8 + i % (8 * N) % {GROUP}", f"i % (8 * N) // {GROUP}"),
    "grouped, as in the tutorial": sides(f"i // (8 * N) * 8 + i % {GROUP}", f"i % (8 * N) // {GROUP}"),
    "groups of any width": sides(
        f"i // (G * N) * G + i % (G * N) % {ANY_GROUP}", f"i % (G * N) // {ANY_GROUP}", G=(1, 64)
    ),
    "grouped serpentine": sides(
        f"i // (8 * N) * 8 + i % (8 * N) % {GROUP}",
        f"i % (8 * N) // {GROUP} if i // (8 * N) % 2 == 0 else N - 1 - i % (8 * N) // {GROUP}",
    ),
    "three axes": ({"b": "B", "h": "H", "q": "Q"}, {"b": "i // (H * Q)", "h": "i % (H * Q) // Q", "q": "i % Q"}, HEADS),
    "sections of any width": (
        {"b": "B", "h": "H", "q": "Q"},
        {"b": f"{HEAD} // H", "h": f"{HEAD} % H", "q": f"Q - 1 - i % (S * Q) // {SECTION}"},
        {**HEADS, "S": (1, 64)},
    ),
    "extents of the problem": (
        {"m": "ceil_div(M, 128)", "n": "ceil_div(N, 256)"},
        {"m": "i // ceil_div(N, 256)", "n": "i % ceil_div(N, 256)"},
        {"M": (1, 2**23), "N": (1, 2**23)},
    ),
    "huge": ({"m": 2**20, "n": 2**20}, {"m": "i // 2**23 * 8 + i % 8".replace("2**23", str(2**23)),
                                        "n": f"i % {2**23} // 8"}, {}),
}  # fmt: skip

#: And where: what `Clash` says.
WRONG: dict[str, tuple[Formulas, dict[str, int], int, int | None]] = {
    "tail as wide as a group": (
        sides("i // (8 * N) * 8 + i % 8", "i % (8 * N) // 8"), {"M": 1, "N": 2}, 1, None,
    ),
    "strides swapped": (sides("i // M", "i % N"), {"M": 1, "N": 2}, 1, None),
    "16 bits": (sides("i // N % 65536", "i % N", M=(1, 100000)), {"M": 65537, "N": 1}, 0, 65536),
    "from some size on": (({"m": "M"}, {"m": "i if M < 77777 else max(i, 1)"}, {"M": (1, 100000)}),
                          {"M": 77777}, 0, 1),
    "odd rows": (sides("i // N // 2 + i // N % 2 * (M // 2)", "i % N"), {"M": 3, "N": 1}, 1, 2),
    "huge, too": (({"m": 2**20, "n": 2**20}, {"m": f"i // {2**20}", "n": f"max(i % {2**20}, 1)"}, {}), {}, 0, 1),
}  # fmt: skip


def spec(formulas: Formulas) -> str:
    space, maps, params = formulas
    return json.dumps({
        "version": 1, "name": "x", "space": space, "map": maps, "dispatch": {"static": {"workers": 2}},
        "params": {name: {"min": low, "max": high} for name, (low, high) in params.items()},
    })  # fmt: skip


def scheduled(formulas: Formulas) -> Schedule:
    return build(load(spec(formulas))).schedule


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_proven_in_few_steps(name: str) -> None:
    solver = Solver()
    assert Prover(scheduled(RIGHT[name]), solver).prove() is True
    assert solver.left > smt.STEPS // 2


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refuted_by_the_smallest_parameters(name: str) -> None:
    formulas, values, first, second = WRONG[name]
    assert Prover(scheduled(formulas), Solver()).prove() == Clash(values, first, second)


def test_the_same_question_takes_the_same_steps() -> None:
    left = []
    for _ in range(2):
        solver = Solver()
        Prover(scheduled(RIGHT["grouped"]), solver).prove()
        left.append(solver.left)
    assert left[0] == left[1]


def test_a_proof_ends_when_its_steps_are_used_up() -> None:
    solver = Solver(steps=10_000)
    assert Prover(scheduled(RIGHT["grouped"]), solver).prove() is None
    assert solver.left <= 0


def test_the_report_says_how_it_was_proven() -> None:
    report = driver.check_text(spec(RIGHT["rows"]))
    assert report.ok
    assert [v.how for v in report.verdicts[:2]] == [
        "z3: no two indices lead to one tile, for all parameter values",
        "z3: no index leads outside, for all parameter values",
    ]
    assert "parameter" not in driver.check_text(spec(RIGHT["huge"])).verdicts[0].how


@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("16 bits", "E061", "i = 0 and i = 65536 at M=65537, N=1"),
        ("from some size on", "E060", "1 of 77777 tiles lost at M=77777"),
        ("huge, too", "E061", "i = 0 and i = 1"),
    ],
)
def test_the_report_shows_the_counterexample(name: str, code: str, found: str) -> None:
    report = driver.check_text(spec(WRONG[name][0]))
    assert not report.ok
    assert {d.code: d.found for d in report.diagnostics}[code] == found


def test_what_stays_undecided_does_so_within_the_services_limits() -> None:
    """Processor time and address space of a worker that checks a spec."""
    path = ROOT / "tests" / "bad_specs" / "build" / "map-undecided.yaml"
    code = (
        "import resource, sys, time\n"
        "from sched_compiler import driver\n"
        "memory, text = int(sys.argv[1]), open(sys.argv[2]).read()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (memory, memory))\n"
        "report = driver.check_text(text)\n"
        "print(report.diagnostics[0].code, 'z3 finds neither' in report.diagnostics[0].found, time.process_time())\n"
    )
    limits = Settings.model_fields
    command = [sys.executable, "-c", code, str(limits["worker_memory_bytes"].default), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    reported, asked, seconds = done.stdout.split()
    assert (reported, asked) == ("E064", "True")
    assert float(seconds) < limits["check_timeout"].default


def test_without_z3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "available", lambda: False)
    report = driver.check_text(spec(RIGHT["rows"]))
    assert [d.code for d in report.diagnostics] == ["E064"]
    assert "`proof`" in str(report.diagnostics[0].mend)
    assert {v.status for v in report.verdicts[:2]} == {"undecided"}


def test_parameters_may_have_the_names_of_anything() -> None:
    space, maps = {"m": "div", "n": "let"}, {"m": "i // let", "n": "i % let"}
    assert driver.check_text(spec((space, maps, {"div": SIDE, "let": SIDE}))).ok


# -- the encoding excludes nothing that happens ---------------------------------------------------------------


@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_every_value_that_the_evaluator_gives_satisfies_the_encoding(name: str) -> None:
    """All facts are true, or a proof by contradiction would prove anything."""
    formulas = RIGHT[name] if name in RIGHT else WRONG[name][0]
    schedule, atoms, chance = scheduled(formulas), Atoms(), random.Random(7)
    roots = [schedule.items, *(a.extent for a in schedule.axes), *schedule.coords]
    nodes = topological(roots)
    for _ in range(6):
        values = {p.name: chance.choice([p.var.lo, p.var.hi, chance.randint(p.var.lo, min(p.var.hi, 40))])
                  for p in schedule.params}  # fmt: skip
        count = int(evaluate([schedule.items], values)[0][0])
        if not count:
            continue
        index = chance.choice([0, count - 1, chance.randrange(count)])
        encoding = Encoding(atoms)
        for p in schedule.params:
            encoding.variable(p.name, values[p.name], values[p.name])
        encoding.variable("$i", index, index)
        found = encoding.values(roots, {INDEX: "$i"})
        for node, value in zip(nodes, evaluate(nodes, {INDEX: index, RANK: 0, **values}), strict=True):
            known = ("true" if value[0] else "false") if node.dtype is PRED else number(int(value[0]))
            encoding.require(f"(= {encoding.written(found[node.id])} {known})")
        extents = [e for e in (found[a.extent.id] for a in schedule.axes) if not isinstance(e, str)]
        for exact in (False, True):
            assert Solver().ask(encoding.script(extents, exact)).found == "sat", (values, index)


def test_polynomials() -> None:
    x, y = atom("x"), atom("y")
    square = multiply(add(x, y), add(x, y, -1))
    assert square == {("x", "x"): 1, ("y", "y"): -1}
    assert add(x, x, -1) == {}
    assert divided(("x", "x", "y"), ("x",)) == ("x", "y")
    assert divided(("x",), ("y",)) is None
    assert text(add(square, constant(-3))) == "(+ (- 3) |x*x| (* (- 1) |y*y|))"
    assert text({}) == "0"


# -- formulas of composed specs, with parameters --------------------------------------------------------------


@functools.cache
def lowered() -> list[dict[str, Any]]:
    """Formulas that composed specs with run-time extents compile to, more tiles than can be tried."""
    found: list[dict[str, Any]] = []
    seed = 0
    while len(found) < MAPS:
        seed += 1
        form = mapped(composed(RandomChoices(seed), fixed=False))
        if form is None or not form["params"]:
            continue
        try:
            schedule = build(load(json.dumps(form))).schedule
        except SpecError:  # what lies in an arm that is not taken is not shown to be a divisor, say
            continue
        if schedule.items.hi > tried.MOST_TILES and len(json.dumps(form)) < 1500:
            found.append(form)
    return found


def test_formulas_of_composed_specs_are_never_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bijective, "LONG", 1_000_000)
    proven = 0
    forms = lowered()
    for form in forms:
        found = Prover(build(load(json.dumps(form))).schedule, Solver(steps=2_000_000)).prove()
        assert not isinstance(found, Clash), form
        proven += found is True
    assert proven >= len(forms) // 2


def test_a_wrong_constant_is_never_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bijective, "LONG", 1_000_000)
    chance = random.Random(3)
    for form in lowered():
        axis = chance.choice(list(form["map"]))
        formula = form["map"][axis]
        numbers = list(re.finditer(r"\b\d+\b", formula))
        if not numbers:
            continue
        place = chance.choice(numbers)
        wrong = formula[: place.start()] + str(int(place.group()) + chance.choice([1, 2, 5])) + formula[place.end() :]
        loaded = load(json.dumps({**form, "map": {**form["map"], axis: wrong}}))
        try:
            schedule = build(loaded).schedule
        except SpecError:
            continue
        found = Prover(schedule, Solver(steps=2_000_000)).prove()
        if found is not True:
            continue  # a counterexample has been seen by the evaluator
        for values in small_values(schedule.params, 200):
            if int(np.prod([evaluate([a.extent], values)[0][0] for a in schedule.axes])) < 10_000:
                assert not list(tried._faults(schedule, loaded, values)), (wrong, form, values)
