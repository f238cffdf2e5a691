"""Both verdicts: on simulated changes whose truth is known, and on models whose use of context is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posenc.lab import commands
from posenc.lab.metrics import BITS, FAR, Metric
from posenc.lab.report.numbers import build_table
from posenc.lab.report.verdicts import practical_length, simultaneous, verdict_on, verdicts_on
from posenc.lab.run.folder import read_run

LOSS = Metric("bits", BITS, "lower")
RIGHT = Metric("right", "of answers", "higher", chance=0.1, percent=True)
ENCODINGS = 8
NOISE = 0.04  # of a document's change from one length to another, as small models have it


def change(
    drift: float, draw: np.random.Generator, seeds: int = 1, documents: int = 96
) -> tuple[np.ndarray, np.ndarray]:
    """Values at the longest and at the training length, (seeds, documents), with a true change."""
    first = 2.3 + 0.5 * draw.normal(size=(1, documents)) + 0.01 * draw.normal(size=(seeds, 1))
    of_seeds = 0.003 * draw.normal(size=(seeds, 1)) if seeds > 1 else 0.0
    return first + drift + of_seeds + NOISE * draw.normal(size=(seeds, documents)), first


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(("metric", "sign", "kind"), [(LOSS, 1, "rises"), (LOSS, -1, "falls"), (RIGHT, -1, "falls")])
def test_a_drift_of_twice_the_margin_is_found(metric: Metric, sign: int, kind: str, seeds: int) -> None:
    draw = np.random.default_rng(0)
    drifts = [verdict_on(change(2 * sign * metric.margin, draw, seeds), metric, 0.9).kind for _ in range(100)]
    assert drifts.count(kind) >= 95
    better = (kind == "falls") == (metric.better == "lower")
    assert verdict_on(change(9 * sign * metric.margin, draw, seeds), metric, 0.9).stable is better


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("drift", [0.0, 0.5, 1.0])
def test_in_95_of_100_tables_no_drift_within_the_margin_is_called_a_rise(drift: float, seeds: int) -> None:
    """The true changes of a table of eight are noise around a drift of so many margins, at most the margin itself."""
    draw = np.random.default_rng(1)
    tables = [
        verdicts_on({n: change(drift * LOSS.margin, draw, seeds) for n in range(ENCODINGS)}, LOSS) for _ in range(100)
    ]
    kinds = [[verdict.kind for verdict in table.values()] for table in tables]
    assert sum("rises" in table for table in kinds) <= 5
    assert sum("falls" in table for table in kinds) == 0
    flat = sum(table.count("flat") for table in kinds)
    assert flat > 0.9 * 100 * ENCODINGS if drift == 0 and seeds == 1 else flat >= 0


def test_a_verdict_is_given_where_the_whole_interval_lies_in_its_region() -> None:
    draw = np.random.default_rng(2)
    kinds = set()
    for drift in np.linspace(-0.06, 0.06, 61):
        verdict = verdict_on(change(float(drift), draw), LOSS, simultaneous(ENCODINGS))
        assert verdict.change is not None
        low, high = verdict.change.low, verdict.change.high
        regions = {"rises": low > 0.02, "falls": high < -0.02, "flat": low > -0.02 and high < 0.02}
        expected = [kind for kind, inside in regions.items() if inside] or ["inconclusive"]
        assert expected == [verdict.kind]
        assert verdict.confidence == simultaneous(ENCODINGS) == pytest.approx(1 - 0.1 / 8)
        kinds.add(verdict.kind)
    assert kinds == {"rises", "falls", "flat", "inconclusive"}


def test_a_practical_length_is_seldom_longer_than_the_true_one() -> None:
    draw = np.random.default_rng(3)
    found = [
        practical_length(64, {128: change(0.0, draw), 256: change(LOSS.margin, draw)}, LOSS, simultaneous(ENCODINGS))
        for _ in range(200)
    ]
    assert found.count(128) >= 190


# ---- Models whose use of context is known ----

SIZES: dict[str, list[str]] = {
    "text": ["--train-length", "16", "--lengths", "1,2", "--windows", "16"],
    "images": ["--windows", "100", "--layers", "1", "--dim", "16", "--heads", "1", "--epochs", "1"],
    "passkey": ["--train-length", "16", "--lengths", "1,2"],
    "recall": ["--train-length", "32", "--lengths", "1,2"], "addition": ["--lengths", "1,2"],
}  # fmt: skip


@pytest.mark.parametrize("task", ["text", "images", "recall", "copy", "flipflop", "counting", "passkey", "addition"])
def test_an_untrained_model_has_learned_nothing(task: str, tmp_path: Path, here: None) -> None:
    out = tmp_path / "run"
    source = ["--data", str(Path(__file__).parents[2] / "src" / "posenc" / "rotary")] if task == "text" else []
    numbers = [] if task == "images" else ["--steps", "1", "--batch-size", "4"]
    sizes = SIZES.get(task, ["--train-length", "16", "--lengths", "1,2"])
    encoding = "axial" if task == "images" else "rope"
    words = ["compare", encoding, "--task", task, "--out", str(out), "--lr", "1e-9", "--seeds", "1", "--device", "cpu"]
    assert commands.run([*words, *numbers, *sizes, *source]) == 0
    run = read_run(out)
    for row in build_table(run).full_rows:
        assert not row.learned
        assert row.verdict.kind == {"text": "above single tokens", "images": "not judged"}.get(task, "did not learn")
        assert row.far is None or row.far.kind == "not shown"
        assert row.steps_to_learn is None


def verdicts(out: Path, *words: str) -> dict[str, Any]:
    """A run of one encoding, and its verdicts."""
    assert commands.run(["compare", *words, "--seeds", "1", "--device", "cpu", "--out", str(out)]) == 0
    record: dict[str, Any] = json.loads((out / "verdicts.json").read_text())
    return record["encodings"]


@pytest.mark.slow
def test_a_model_that_sees_eight_tokens_is_flat_without_reach(tmp_path: Path, here: None) -> None:
    """Its loss stays whatever is far, which is no use of far context, and it finds no far key."""
    small = ["--dim", "64", "--layers", "1", "--heads", "2", "--windows", "96", "--lengths", "1,4"]
    row = verdicts(tmp_path / "text", "rope@8", "--task", "text", "--steps", "150", *small)["rope@8"]
    assert row["beyond_training_length"]["verdict"] == "flat"
    assert abs(row["far_context"]["mean"]) < 1e-3
    assert row["far_context"]["verdict"] == "not shown"
    small = ["--windows", "64", "--lengths", "1,4"]
    row = verdicts(tmp_path / "recall", "rope@8", "--task", "recall", "--steps", "300", *small)["rope@8"]
    assert row["far_context"]["verdict"] == "not shown"


@pytest.mark.slow
def test_a_model_that_learns_recall_uses_far_context(tmp_path: Path, here: None) -> None:
    row = verdicts(tmp_path / "recall", "t5", "--task", "recall", "--steps", "200", "--lengths", "1,2")["t5"]
    assert (row["far_context"]["verdict"], row["learned_seeds"]) == ("shown", 1)
    assert FAR in set(read_run(tmp_path / "recall").records["metric"])
