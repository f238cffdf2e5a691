"""Remedies: each kind of change is tried, and every wrong cell of the records has a remedy, or has none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from benchmarks.engines.cases import Case, cases
from benchmarks.engines.check import RIGHT, Cell, committed, frequencies, read_record, run_check
from benchmarks.engines.remedies import changes
from benchmarks.engines.table import tried

from posenc.hf.serving.table import engine_result

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the bench, whose records change seldom
FAKE = Path(__file__).with_name("fake.py")
WRONG = ("off", "ignored", "refused")


def case_of(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def of(name: str, case: str) -> Cell:
    _, (cell,), _ = run_check([f"{FAKE}:{name}"], questions=[case_of(case)], remedies=True)
    return cell


def test_without_any_scaling_another_base_still_says_dynamic_scaling_of_one_length() -> None:
    remedy = of("SCALING", "llama/dynamic/v5/256/1024").remedy
    assert remedy is not None
    assert remedy["what"] == "rope type default with the rope_theta that this length gives"
    assert (remedy["only"], remedy["same"]) == ("1,024 tokens", True)


def test_what_nothing_mends_names_what_was_tried() -> None:
    remedy = of("SCALING", "llama/yarn: truncate false/v5/256/1024").remedy
    assert remedy is not None
    assert (remedy["how"], remedy["verdict"]) == ("none", "off")
    assert "longrope" in remedy["what"]
    assert len(remedy["tried"]) >= 4
    assert all(attempt["state"] == "off" and attempt["gap"] > 0.1 for attempt in remedy["tried"])


def test_a_key_under_another_name_is_found_and_added_to_the_record(tmp_path: Path) -> None:
    record, questions = tmp_path / "r.jsonl", [case_of("llama/yarn: attention_factor/v5/256/1024")]
    run_check([f"{FAKE}:KEY"], questions=questions, record=record)
    before = record.read_text()
    lines: list[str] = []
    run_check([f"{FAKE}:KEY"], questions=questions, record=record, remedies=True, progress=lines.append)
    assert record.read_text().startswith(before)
    _, (cell,) = read_record(record)
    remedy = cell.remedy
    assert remedy is not None
    assert (cell.state, remedy["how"], remedy["verdict"], remedy["same"]) == ("ignored", "config", "right", True)
    assert remedy["what"] == "the gain as mscale and mscale_all_dim"
    assert remedy["gap"] < RIGHT["cos and sin"]
    assert remedy["keys"]["rope_parameters"]["mscale_all_dim"] == 1.0
    assert [attempt["state"] for attempt in remedy["tried"]] == ["off", "off", "right"]
    assert remedy["command"] == "python -m benchmarks.engines --engine key --remedies"
    run_check([f"{FAKE}:KEY"], questions=questions, record=record, remedies=True, progress=lines.append)
    assert len(lines) == 1, "what was tried is not tried again"
    record.write_text(before.replace('"ignored"', '"right"') + record.read_text()[len(before) :])
    assert read_record(record)[1][0].remedy is None, "a cell that is right by now needs none"


def test_changed_types_have_the_frequencies_of_the_case() -> None:
    """posenc and transformers read every change that rewrites the type as the case itself."""
    names = (
        "llama/yarn: truncate false/v4/256/1024", "qwen3/dynamic/v5/256/768", "phi3/longrope/both/256/128",
        "llama/llama3/v5/256/1024", "llava/yarn/nested v5/256/1024", "gpt_neox/partial: yarn/v4/256/1024",
    )  # fmt: skip
    for name in names:
        case = case_of(name)
        truth = frequencies(case.config, case.length)
        starts = ("rope type", "short_factor in both", "long_factor in both")
        rewritten = [change for change in changes("mine", case, truth) if change.what.startswith(starts)]
        assert rewritten, name
        for change in rewritten:
            ((theta, gain),) = frequencies(change.config, case.length).values()
            assert theta == pytest.approx(truth["all"][0], rel=1e-6), (name, change.what)
            assert gain == pytest.approx(truth["all"][1], rel=1e-6), (name, change.what)


# ---------------------------------------------------------------------------------------------------------- the records


def wrong_cells() -> Iterable[Cell]:
    return [cell for cell in committed()[1] if cell.state in WRONG]


def test_every_wrong_cell_has_a_remedy_that_was_run_or_none_that_helps() -> None:
    measures = {head[:2]: head.measures for head in committed()[0]}
    assert wrong_cells()
    for cell in wrong_cells():
        remedy = cell.remedy
        assert remedy is not None, cell.case
        assert {"date", "reference", "command"} <= set(remedy), cell.case
        assert remedy["tried"], cell.case
        states = [attempt["state"] for attempt in remedy["tried"]]
        if remedy["how"] == "none":
            assert "right" not in states, cell.case
            assert set(states) - {"not run"}, f"{cell.case}: nothing reached the engine"
        else:
            assert states[-1] == remedy["verdict"] == "right", cell.case
            assert states.count("right") == 1
            assert remedy["gap"] <= RIGHT[measures[cell[:2]]], cell.case
            assert remedy.get("keys") or remedy.get("flags"), cell.case


def test_the_advice_says_the_same() -> None:
    """`engine_result`, which the commands that advise print, has a remedy of the recorded cells."""
    recorded: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for cell in wrong_cells():
        remedy = cell.remedy or {}
        words = tried(remedy) if remedy["how"] == "none" else remedy["what"]
        recorded.setdefault((cell.engine, cell.row, cell.spelling, cell.model), set()).add((remedy["how"], words))
    for (engine, row, spelling, model), remedies in recorded.items():
        result = engine_result(engine, row, spelling, model)
        assert result.right is False, (engine, row, spelling, model)
        if result.spelling == spelling:
            assert result.remedy is not None
            assert (result.remedy.how, result.remedy.what) in remedies
            assert ("no remedy found" in str(result.remedy)) == (result.remedy.how == "none")
