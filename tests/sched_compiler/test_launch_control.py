"""Dispatch clc: what may be declared, what is proven, traced and launched, and where it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sched_compiler import driver, model, protocol, verify
from sched_compiler.cli import main
from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.driver import CompileRequest
from sched_compiler.expr import to_text
from sched_compiler.protocol import NONE_LEFT
from sched_compiler.responses import fault_of

ROOT = Path(__file__).parents[2]
SPECS = [ROOT / "specs" / f"{name}.yaml" for name in ("cluster_launch_control", "gemm_clc_fallback")]


def spec(dispatch: Any = "clc", **more: Any) -> str:
    form = {"version": 1, "name": "x", "space": {"m": 4, "n": 4}, "order": {"split": {"m": 2}}}
    form["order"]["loops"] = ["m.outer", "n", "m.inner"]  # type: ignore[index]
    return json.dumps({**form, "dispatch": dispatch, **more})


def refused(text: str, arch: str, backend: str = "cuda", emit: Any = "cubin") -> Diagnostic:
    with pytest.raises(SpecError) as error:
        driver.compile_spec(CompileRequest(text, "x.yaml", arch, backend, emit))
    (diagnostic,) = error.value.diagnostics
    return diagnostic


# -- the language -----------------------------------------------------------------------------------------------------


def test_short_and_long_forms_are_one() -> None:
    texts = [
        spec("clc"),
        spec({"clc": None}),
        spec({"clc": {}}),
        spec({"clc": {"depth": 1, "consumers": {"worker": 1}, "fallback": None}}),
        spec({"clc": {"consumers": {"worker": {"threads": 1}}, "finish_arrivals": None}}),
    ]
    assert len({driver.expand(text) for text in texts}) == 1
    assert driver.expand(driver.expand(texts[0])) == driver.expand(texts[0])


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_composed_form_is_the_same_spec(path: Path) -> None:
    expanded = driver.expand(path.read_text())
    assert driver.expand(expanded) == expanded
    keys = [
        driver.artifact_key(CompileRequest(text, "", "sm_100a")) for text in (path.read_text(), expanded)
    ]  # fmt: skip
    assert keys[0] == keys[1]


@pytest.mark.parametrize(("ctas", "consumers", "arrivals"), [(1, 1, 1), (2, 1, 2), (1, 3, 3), (2, 3, 6)])
def test_finish_arrivals_are_consumers_times_ctas(ctas: int, consumers: int, arrivals: int) -> None:
    clc = {"cta_group": ctas, "consumers": {f"c{n}": 32 * n or 1 for n in range(consumers)}}
    assert driver.check_text(spec({"clc": {**clc, "finish_arrivals": arrivals}})).ok
    for wrong in (arrivals - 1, arrivals + 1):
        (diagnostic,) = driver.check_text(spec({"clc": {**clc, "finish_arrivals": wrong}})).diagnostics
        assert (diagnostic.code, diagnostic.found) == ("E054", str(wrong))
        assert str(diagnostic.expected).startswith(f"{arrivals}: ")


def test_a_group_is_the_cluster() -> None:
    checked = driver.check(spec(cluster={"m": 2}))
    assert (checked.schedule.cluster_size, checked.schedule.worker_ctas) == (2, 2)
    checked = driver.check(spec({"clc": {"cta_group": 2}}))
    assert (checked.schedule.cluster_size, checked.schedule.worker_ctas) == (1, 2)


def test_the_protocol_is_run_once_for_a_shape_of_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    verify._explored.cache_clear()
    calls: list[int] = []
    check = model.check

    def counted(found: protocol.Protocol, items: int) -> model.Verdict:
        calls.append(items)
        return check(found, items)

    monkeypatch.setattr(model, "check", counted)
    for consumers in ({"a": 1, "b": 64}, {"c": 1, "d": 128}):
        verdicts = driver.check_text(spec({"clc": {"consumers": consumers}})).verdicts
        (verdict,) = [v for v in verdicts if v.property == "protocol"]
        assert verdict.status == "proven"
        assert " states of a ring of 1" in verdict.how
    assert len(calls) == 1


def test_a_protocol_that_does_not_hold_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    verify._explored.cache_clear()
    monkeypatch.setattr(model, "check", lambda *_a, **_k: model.Verdict("deadlock: nobody moves", 3))
    report = driver.check_text(spec())
    verify._explored.cache_clear()
    assert not report.ok
    assert [v.status for v in report.verdicts if v.property == "protocol"] == ["refuted"]
    assert "deadlock" in str(report.diagnostics[0].found)


# -- the trace --------------------------------------------------------------------------------------------------------


def test_without_responses_clusters_ask_in_turn() -> None:
    tiles = driver.trace(spec(), workers=3).tiles
    assert tiles == driver.trace(spec({"static": {"workers": 3}})).tiles
    assert driver.trace(spec(), workers=20).tiles[16:] == [[]] * 4


def test_a_trace_needs_a_number_of_clusters_or_responses() -> None:
    with pytest.raises(SpecError, match="E070"):
        driver.trace(spec())
    for workers in (0, -1, 1 << 31):
        with pytest.raises(SpecError, match="E070"):
            driver.trace(spec(), workers=workers)


def test_responses_are_cta_ids() -> None:
    responses = [[16, 6, 8, NONE_LEFT], [10, 28, 26, NONE_LEFT], [18, 24, 14, 12, 30, 22, 20, NONE_LEFT]]
    found = driver.trace(spec({"clc": {"cta_group": 2}}), responses=responses)
    assert found.workers == 3
    assert found.tiles[0] == [[0, 0], [2, 0], [1, 1], [0, 2]]
    assert driver.trace(spec({"clc": {"cta_group": 2}}), responses=responses, follow=[2]).tiles == found.tiles[2:]
    with pytest.raises(SpecError, match="workers"):
        driver.trace(spec({"clc": {"cta_group": 2}}), responses=responses, workers=2)


def test_each_cta_of_a_cluster_has_its_tile() -> None:
    responses = [[4, NONE_LEFT], [6, NONE_LEFT]]
    text = spec(cluster={"m": 2}, space={"m": 4, "n": 2}, order={"loops": ["m", "n"]})
    for engine in ("numpy", "ptx", "cuda"):
        found = driver.trace(text, responses=responses, engine=engine)
        assert found.tiles == [[[0, 0], [1, 0], [2, 0], [3, 0]], [[0, 1], [1, 1], [2, 1], [3, 1]]]


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (7, "no list of lists"), ([], "no list of lists"), ([7], "no list of lists"), ({}, "no list of lists"),
        ([[True, NONE_LEFT]], "is an integer"), ([["2", NONE_LEFT]], "is an integer"), ([[2.0, NONE_LEFT]], "integer"),
        ([[8, NONE_LEFT]], "no CTA of the grid"), ([[-2, NONE_LEFT]], "no CTA of the grid"),
        ([[3, NONE_LEFT]], "no cluster's first CTA"),
        ([[0, NONE_LEFT]], "runs already"), ([[4, 2, NONE_LEFT], [NONE_LEFT]], "runs already"),
        ([[4, 4, NONE_LEFT], [NONE_LEFT]], "cancelled twice"), ([[4, NONE_LEFT], [4, NONE_LEFT]], "cancelled twice"),
        ([[2, NONE_LEFT, 4]], "asks no more"), ([[2, NONE_LEFT, NONE_LEFT]], "asks no more"),
        ([[2, 4, 6]], "does not end"), ([[4, 6, NONE_LEFT], []], "does not end"),
        ([[2, 4, NONE_LEFT]], "neither started nor cancelled"),
        ([[NONE_LEFT]] * 5, "more workers than clusters"),
    ],
)  # fmt: skip
def test_what_no_queue_answers_is_said_so(responses: Any, message: str) -> None:
    fault = fault_of(responses, items=4, ctas=2)
    assert fault is not None
    assert message in fault.message
    text = spec({"clc": {"cta_group": 2}}, space={"m": 2, "n": 2})
    with pytest.raises(SpecError, match="E070"):
        driver.trace(text, responses=responses)


def test_all_answers_of_a_queue_are_taken() -> None:
    assert fault_of([[4, NONE_LEFT], [6, NONE_LEFT]], 4, 2) is None
    assert fault_of([[NONE_LEFT]] * 4, 4, 2) is None


def test_where_there_is_nothing_to_do_nothing_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No items are no clusters, no workers and no responses."""
    text = spec(params={"M": {"min": 0, "max": 9}}, space={"m": "M", "n": 4})
    assert driver.trace(text, values={"M": 0}, responses=[]).tiles == []
    for answers_of_one in ([NONE_LEFT], list[int]()):
        with pytest.raises(SpecError, match="more workers than clusters"):
            driver.trace(text, values={"M": 0}, responses=[answers_of_one])
    with pytest.raises(SpecError, match="no list of lists"):
        driver.trace(text, values={"M": 1}, responses=[])
    file, answers = tmp_path / "x.yaml", tmp_path / "r.json"
    file.write_text(text)
    answers.write_text("[]")
    for form in ("text", "json"):
        assert main(["trace", str(file), "--set", "M=0", "--responses", str(answers), "--format", form]) == 0
    assert '"workers":0' in capsys.readouterr().out


def test_the_command_line_takes_responses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, answers = tmp_path / "x.yaml", tmp_path / "r.json"
    file.write_text(spec(space={"m": 2, "n": 2}))
    answers.write_text(json.dumps([[2, 3, NONE_LEFT], [NONE_LEFT]]))
    trace = ["trace", str(file), "--format", "json", "--responses"]
    assert main([*trace, str(answers)]) == 0
    assert json.loads(capsys.readouterr().out)["tiles"] == [[[0, 0], [0, 1], [1, 1]], [[1, 0]]]
    answers.write_text("[[2, NONE]]")
    assert main([*trace, str(answers)]) == 2
    assert "is not JSON" in capsys.readouterr().err
    answers.write_text("[" * 100_000)
    assert main([*trace, str(answers)]) == 2
    assert main([*trace, str(tmp_path / "none.json")]) == 2
    answers.write_text("[[2, 4294967295]]")
    assert main([*trace, str(answers)]) == 1
    assert "neither started nor cancelled" in capsys.readouterr().err
    file.write_text(spec("dynamic"))
    assert main([*trace, str(answers)]) == 2
    assert "dispatch clc" in capsys.readouterr().err


def test_responses_of_another_dispatch_are_refused() -> None:
    with pytest.raises(SpecError, match="E070"):
        driver.trace(spec("dynamic"), workers=2, responses=[[NONE_LEFT]])


# -- architectures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
def test_below_sm_100_a_fallback_is_needed(backend: str) -> None:
    found = refused(spec(), "sm_90a", backend)
    assert (found.code, found.found, found.expected) == ("E055", "sm_90a", "sm_100 or later")
    assert "fallback: dynamic" in str(found.mend)
    found = refused(spec({"clc": {"fallback": "dynamic"}}), "sm_80", backend)
    assert (found.code, found.expected) == ("E055", "sm_90 or later")
    with pytest.raises(SpecError, match="E055"):
        driver.emit_text(driver.check(spec()), backend, "sm_90a")
    assert driver.emit_text(driver.check(spec()), "header", "sm_90a")


def test_an_answer_for_both_ctas_needs_the_suffix() -> None:
    text = spec({"clc": {"cta_group": 2}})
    assert (refused(text, "sm_100").code, refused(text, "sm_100").expected) == ("E055", "sm_100a")
    assert driver.supports(driver.check(text), "sm_100a")
    assert driver.supports(driver.check(spec()), "sm_100")
    assert not driver.supports(driver.check(spec()), "sm_90a")


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_manifest_says_how_to_launch(path: Path, backend: str) -> None:
    manifests: list[dict[str, Any]] = []
    for arch in ("sm_90a", "sm_100a"):
        artifact = driver.compile_spec(CompileRequest(path.read_text(), "", arch, backend))
        manifests.append(dict(artifact.manifest))
    counted, hardware = manifests
    checked = driver.check(path.read_text())
    ring = checked.schedule.dispatch.ring
    assert ring is not None
    for manifest in manifests:
        assert manifest["launch"]["block"] == [protocol.protocol(ring).block, 1, 1]
        assert manifest["launch"]["cluster"] == [2, 1, 1]
        assert manifest["launch"]["dynamic_shared_bytes"] == 0
        assert manifest["resources"]["static_shared_bytes"] % 1024 >= ring.depth * 32
        assert manifest["schedule"]["dispatch"]["kind"] == "clc"
    assert hardware["launch"]["workers"] == to_text(checked.schedule.items)
    assert hardware["launch"]["grid"][0] == to_text(checked.schedule.items * 2)
    assert counted["launch"]["grid"][0] == "$workers * 2"
    counters = [[(p["name"], p["type"]) for p in m["parameters"] if p["role"] == "counter"] for m in manifests]
    assert counters == [[("counter", "u32*")], []]


def test_every_answer_fits_the_grid() -> None:
    """32-bit ids, and CTAs of the grid along x."""
    assert driver.check_text(spec(space={"m": 1 << 15, "n": (1 << 16) - 1})).ok
    report = driver.check_text(spec({"clc": {"cta_group": 2}}, space={"m": 1 << 15, "n": (1 << 16) - 1}))
    assert [d.code for d in report.diagnostics] == ["E052"]
