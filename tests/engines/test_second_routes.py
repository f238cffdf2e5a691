"""The table of engines against two records made by other routes: cells by hand, and the published vectors."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.engines import hand_checks as hand
from benchmarks.engines import vectors_in_engines
from benchmarks.engines.cases import cases
from benchmarks.engines.check import RIGHT, Cell, committed

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the bench, whose records change seldom
VECTORS = {case["name"]: case for case in json.loads(vectors_in_engines.VECTORS.read_text())["cases"]}
VERDICTS = {"right": ("right",), "wrong": ("off", "ignored"), "refused": ("refused",)}
WRONG = {"off", "ignored", "refused"}
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
LINES = json.loads((RESULTS / "engine_hand_checks.json").read_text())


def cells() -> dict[tuple[str, str, str], Cell]:
    return {(cell.engine, cell.version, cell.case): cell for cell in committed()[1]}


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['engine']}: {line['case']}")
def test_a_cell_by_hand_is_the_cell_of_the_table(line: dict[str, Any]) -> None:
    cell = cells()[line["engine"], line["version"], line["case"]]
    assert cell.state in VERDICTS[line["verdict"]]
    if "gap" in line:
        assert line["verdict"] == ("right" if line["gap"] <= RIGHT[line["measures"]] else "wrong")
    if line["measures"] == "cos and sin":  # of logits the weights are others
        assert line["gap"] == pytest.approx(cell.gap, rel=0.02)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['engine']}: {line['case']}")
def test_the_config_by_hand_is_the_config_of_the_cell(line: dict[str, Any]) -> None:
    config = next(case.config for case in cases() if case.name == line["case"])
    block = config.get("rope_parameters") or {**config["rope_scaling"], "rope_theta": config["rope_theta"]}
    assert {key: value for key, value in block.items() if key != "type"} == line["block"]


def test_every_engine_has_two_cells_by_hand_and_one_of_them_is_wrong_where_any_is() -> None:
    newest = {head.engine: head.version for head in sorted(committed()[0], key=lambda head: head.date)}
    for engine, version in newest.items():
        of_engine = [line for line in LINES if (line["engine"], line["version"]) == (engine, version)]
        assert len({line["case"] for line in of_engine}) >= 2, engine
        verdicts = {line["verdict"] for line in of_engine}
        states = {cell.state for key, cell in cells().items() if key[:2] == (engine, version)}
        assert "right" in verdicts, engine
        assert (verdicts != {"right"}) == bool(states & WRONG), engine


def test_the_formulas_by_hand_are_those_of_the_vectors() -> None:
    """The hand's own formula, on blocks of the file; its constants are set to the file's sizes."""
    before = hand.HEAD, hand.PAIRS, hand.ORIGINAL, hand.LONGEST
    hand.HEAD, hand.PAIRS, hand.ORIGINAL, hand.LONGEST = 64, 32, 4096, 16384
    try:
        for name in ("yarn", "yarn: betas", "yarn: truncate false", "yarn: mscale and mscale_all_dim", "llama3",
                     "linear", "longrope", "longrope: attention_factor", "dynamic", "default"):  # fmt: skip
            vector = VECTORS[f"llama/{name}/v5/4096/16384"]
            theta, gain = hand.by_hand(vector["config"]["rope_parameters"])
            assert theta == pytest.approx(vector["kinds"]["all"]["inv_freq"], rel=1e-12), name
            assert gain == pytest.approx(vector["kinds"]["all"]["gain"], rel=1e-12), name
    finally:
        hand.HEAD, hand.PAIRS, hand.ORIGINAL, hand.LONGEST = before


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang"])
def test_vectors_pass_and_fail_as_the_table_says(engine: str) -> None:
    run, known = json.loads((RESULTS / "vectors_in_engines.json").read_text())[engine], cells()
    assert set(run["cases"]) == set(VECTORS)
    for name, result in run["cases"].items():
        model, row, spelling, original, length = name.split("/")
        cell = known[engine, run["version"], f"{model}/{row}/{spelling}/256/{int(length) * 256 // int(original)}"]
        expected = {"right": "pass", "off": "fail", "ignored": "fail"}.get(cell.state, cell.state)
        if cell.state == "disputed":  # the file has posenc's and transformers' gain
            assert "this engine: as in posenc and transformers" in cell.text
            expected = "pass"
        assert result["result"] == expected, (name, result, cell)


def test_a_changed_digit_fails() -> None:
    """An engine that passes fails where one number of the vector is another."""
    vector = VECTORS["llama/yarn/v5/4096/16384"]
    expected = vector["kinds"]["all"]
    right = [[0.0] * 64 for _ in vector["positions"]]
    for row, cos, sin in zip(right, expected["cos"], expected["sin"], strict=True):
        for pair, first, second in zip(expected["pairs"], cos, sin, strict=True):
            row[pair], row[pair + 32] = first, second
    assert vectors_in_engines.gap_of(right, expected) == 0
    for key in ("cos", "sin"):
        changed = copy.deepcopy(expected)
        changed[key][5][2] += 1e-3
        assert vectors_in_engines.gap_of(right, changed) == pytest.approx(1e-3)
    assert vectors_in_engines.gap_of([row[:32] for row in right], expected) > vectors_in_engines.PASS
