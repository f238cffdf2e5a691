"""From records to rows: contrasts, learning, both verdicts, and what a table lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.lab.synthetic import UNIGRAM_BITS, baselines_of_text

from posenc.lab import commands
from posenc.lab.metrics import BASELINES, FAR, FULL, MAJORITY, REACH, WINDOW, Curve, Metric, Values, Words
from posenc.lab.report.numbers import (
    OWN_WINDOW,
    Omission,
    Row,
    Table,
    build_table,
    has_learned,
)
from posenc.lab.report.verdicts import practical_length, simultaneous, verdict_on, verdicts_on
from posenc.lab.run.folder import Run, read_run
from posenc.lab.run.records import empty, records_frame
from posenc.lab.stats import holm, mean_interval, paired

BITS = Metric("bits", "bits per byte", "lower")
RIGHT = Metric("right", "answers right", "higher", margin=0.05, chance=0.1, learned=0.95, percent=True)
TEXTS = [5, 5, 6, 7, 7, 8]  # documents of the items
EASE = np.array([0.1, 0.2, -0.1, 0.0, 0.1, -0.1])  # 0 on average over documents, not over items


def run_of(
    frames: Sequence[pd.DataFrame],
    metric: Metric = BITS,
    lengths: Sequence[int] = (1, 4),
    ngram: float | None = 2.0,
    **more: object,
) -> Run:
    numbers = {"train_length": 64, "lengths": tuple(lengths)}
    words = Words("text", "Text", "What?", "This.")
    records = pd.concat(frames, ignore_index=True) if frames else empty()
    curves = (Curve("course", "step", "bits"),)
    counted = metric is BITS and ngram is not None
    baselines = baselines_of_text(ngram or 0, EASE, length=64, documents=TEXTS) if counted else empty()
    run = Run(words, (metric,), curves, numbers, {}, {}, {}, {}, {}, "posenc", records=records)
    return replace(run, baselines=baselines, **more)


def job(
    spec: str,
    seed: int,
    first: float,
    last: float | None,
    window: float | None = None,
    *,
    metric: str = "bits",
    more: Sequence[Values] = (),
    gain: float | None = 0.3,
) -> pd.DataFrame:
    """A training: its means at 1×, at 4×, and at 4× under its window, each with scatter of its own.

    ``gain`` is what T/4 → T tokens of context bring; with None the records have no reach.
    """
    chance = np.random.default_rng([seed, *spec.encode()])
    measured = [
        Values(metric, list(mean + EASE + 0.004 * chance.normal(size=6)), length, view, documents=TEXTS)
        for mean, length, view in ((first, 64, FULL), (last, 256, FULL), (window, 256, WINDOW))
        if mean is not None
    ]
    if metric == "bits" and gain is not None:
        # Per document its own shortfall, so that the interval of the gain is not a point.
        measured += [
            Values(REACH, list(first + loss + EASE + 0.004 * chance.normal(size=6)), context, documents=TEXTS)
            for context, loss in ((4, gain + 0.6), (8, gain + 0.3), (16, gain), (32, gain / 2))
        ]
    return records_frame([*measured, *more], job=f"{spec}-{seed}", spec=spec, seed=seed)


def several(spec: str, *means: float | None, seeds: int = 4, **more: str) -> list[pd.DataFrame]:
    first, *rest = means
    assert first is not None
    return [job(spec, seed, first + 0.001 * seed, *rest, **more) for seed in range(seeds)]  # type: ignore[arg-type]


def row_of(table: Table, spec: str, view: str = FULL) -> Row:
    row = table.row(spec, view)
    assert row is not None
    return row


@pytest.fixture(scope="module")
def frames() -> list[pd.DataFrame]:
    return [
        *several("rope", 1.7, 4.7, 1.71), *several("alibi", 1.75, 1.75, 1.755), *several("t5", 1.65, 1.76, 1.66),
        *several("fox", 1.72, 1.65, 1.72), *several("learned", 1.6, None), *several("nope", 2.2, 2.2, 2.2),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def table(frames: list[pd.DataFrame]) -> Table:
    return build_table(run_of(frames))


def test_rows_are_sorted_with_a_verdict_each(table: Table) -> None:
    assert [(row.spec, row.view, row.verdict.kind) for row in table.rows] == [
        ("fox", FULL, "falls"), ("t5", WINDOW, "not judged"), ("rope", WINDOW, "not judged"),
        ("fox", WINDOW, "not judged"),
        ("alibi", FULL, "flat"), ("alibi", WINDOW, "not judged"), ("t5", FULL, "rises"),
        ("nope", WINDOW, "not judged"), ("nope", FULL, "flat"), ("rope", FULL, "rises"),
        ("learned", FULL, "no value"),
    ]  # fmt: skip
    assert table.omissions == ()


def by_document(values: np.ndarray) -> np.ndarray:
    """Items 0 and 1 are one document, 3 and 4 another."""
    return np.stack([values[:, :2].mean(1), values[:, 2], values[:, 3:5].mean(1), values[:, 5]], 1)


def test_cells_are_intervals_over_seeds_and_documents(table: Table, frames: list[pd.DataFrame]) -> None:
    lines = pd.concat(frames).query("spec == 't5' and length == 256 and view == 'full'")
    values = by_document(lines.pivot(index="seed", columns="item", values="value").to_numpy())
    expected, cell = mean_interval(values), row_of(table, "t5").cells[256]
    assert (cell.mean, cell.low, cell.high) == pytest.approx((expected.mean, expected.low, expected.high))
    assert (cell.seeds, cell.documents, cell.freedom) == (4, 4, pytest.approx(expected.freedom))
    assert row_of(table, "learned").cells.keys() == {64}
    window, full = row_of(table, "rope", WINDOW), row_of(table, "rope")
    assert window.cells[64] == full.cells[64], "at 1× a window of the trained length is full attention"
    assert window.change is not None
    assert window.change.mean == pytest.approx(window.cells[256].mean - full.cells[64].mean)


def test_every_row_is_compared_with_both_baselines_and_its_window(table: Table, frames: list[pd.DataFrame]) -> None:
    lines = pd.concat(frames).query("length == 256")

    def values(spec: str, view: str) -> np.ndarray:
        of_row = lines[(lines["spec"] == spec) & (lines["view"] == view)]
        return by_document(of_row.pivot(index="seed", columns="item", values="value").to_numpy())

    t5 = row_of(table, "t5")
    baselines = {
        "rope under its window": ("rope", WINDOW), "alibi": ("alibi", FULL), OWN_WINDOW: ("t5", WINDOW),
    }  # fmt: skip
    assert t5.contrasts.keys() == baselines.keys()
    for label, key in baselines.items():
        expected, contrast = paired(values("t5", FULL), values(*key)), t5.contrasts[label]
        for name in ("mean", "low", "high", "p"):
            assert getattr(contrast, name) == pytest.approx(getattr(expected, name))
        assert contrast.adjusted is not None
        assert contrast.adjusted >= contrast.p
    assert t5.contrasts["rope under its window"].significant
    assert row_of(table, "rope", WINDOW).contrasts == {}
    assert row_of(table, "alibi").contrasts.keys() == {"rope under its window", OWN_WINDOW}
    assert row_of(table, "learned").contrasts == {}
    contrasts = [contrast for row in table.rows for contrast in row.contrasts.values()]
    assert len(contrasts) == table.tests == 5 + 4 + 5, "rope − its window counts twice: as baseline and as own window"
    assert [contrast.adjusted for contrast in contrasts] == pytest.approx(holm([c.p for c in contrasts]))


def test_seeds_that_did_not_learn_count_in_cells_and_contrasts_but_not_for_length() -> None:
    learned = [job("cope", seed, 0.99, 0.7, metric="right") for seed in range(3)]
    failed = [job("cope", seed, 0.1, 0.1, metric="right") for seed in (3, 4)]
    other = [*several("alibi", 0.1, 0.1, metric="right", seeds=5), job("late", 0, 0.97, 0.1, metric="right")]
    good = several("good", 0.97, 0.72, metric="right")
    table = build_table(run_of([*learned, *failed, *other, *good], RIGHT))
    cope, alibi = row_of(table, "cope"), row_of(table, "alibi")
    assert (cope.learned, cope.learned_share.count, cope.learned_share.seeds) == (True, 3, 5)
    assert cope.change is not None
    assert (cope.change.seeds, cope.change.mean) == (3, pytest.approx(-0.29, abs=0.01))
    assert (cope.verdict.kind, cope.verdict.margin, cope.verdict.stable) == ("falls", RIGHT.margin, False)
    assert cope.verdict.change is not None
    assert (cope.verdict.change.seeds, cope.verdict.change.documents) == (3, 4)
    assert cope.cells[256].mean == pytest.approx(0.46, abs=0.02)
    assert cope.contrasts["alibi"].seeds == 5
    assert (alibi.learned, alibi.learned_share.count, alibi.change, alibi.verdict.kind) == (
        False,
        0,
        None,
        "did not learn",
    )
    late = row_of(table, "late")
    assert (late.verdict.kind, late.learned_share.seeds) == ("falls", 1)
    assert [row.spec for row in table.rows] == ["good", "cope", "late", "alibi"]
    lucky = row_of(table, "good").contrasts["alibi"]
    assert lucky.p < 0.001
    assert lucky.caution is not None
    assert (lucky.caution.kind, lucky.caution.row, lucky.caution.seeds) == ("bimodal seeds", "cope (full)", 4)


def test_an_unfinished_run_has_rows_and_says_what_is_missing() -> None:
    frames = [
        *several("rope", 1.7, 4.7), *several("alibi", 1.75, 1.75, seeds=2), job("late", 3, 1.7, 1.8),
        job("odd", 0, 1.7, 1.8).query("length == 256"), job("sick", 0, 1.7, math.nan), job("sick", 1, 1.7, 1.8),
    ]  # fmt: skip
    table = build_table(run_of(frames))
    assert table.omissions == (Omission("not finite", ("sick (full)",), (0, 256)),)
    assert table.row("odd") is None, "it has nothing at the training length"
    assert row_of(table, "rope").contrasts["alibi"].seeds == 2
    assert row_of(table, "late").contrasts == {}
    assert (row_of(table, "sick").cells[64].seeds, row_of(table, "sick").cells[256].seeds) == (2, 1)
    nothing = build_table(run_of([]))
    assert (nothing.rows, nothing.tests, nothing.omissions) == ((), 0, ())
    single = job("rope", 0, 1.7, 1.8).query("item == 0")
    cell = row_of(build_table(run_of([single])), "rope").cells[64]
    assert (cell.mean, math.isnan(cell.low), cell.freedom) == (pytest.approx(1.8, abs=0.02), True, 0)


def test_what_is_measured_once_a_training_and_its_probes() -> None:
    def trained(seed: int, seconds: float, values: Sequence[float]) -> pd.DataFrame:
        probes = Values("probe", values, items=[10, 20, 30])
        more = [probes, Values("seconds", [seconds]), Values("course", [1, 2, 3])]
        other = [Values("parameters", [7]), Values("bits", list(1.8 + EASE), 64, documents=TEXTS)]
        own = job("rope", seed, 1.7, 1.7, more=more)
        return pd.concat([own, records_frame(other, job=f"rope-{seed}", spec="rope+yarn", seed=seed)])

    runs = [trained(0, 10, [1.9, 2.5, 1.7]), trained(1, 20, [1.75, 1.7, 1.6]), trained(2, 60, [2.1, 1.7, 1.7])]
    table = build_table(run_of([*runs, job("alibi", 0, 1.7, 1.7, more=[Values("probe", [1.7], items=[30])])]))
    assert (row_of(table, "alibi").training, row_of(table, "alibi").steps_to_learn) == ({}, 30)
    rope, yarn = row_of(table, "rope"), row_of(table, "rope+yarn")
    assert rope.steps_to_learn == yarn.steps_to_learn == 20, "the median of 30, 10 and 20"
    assert rope.training["seconds"] == yarn.training["seconds"] == 30
    assert yarn.training["parameters"] == 7
    assert "course" not in rope.training
    assert "probe" not in rope.training


def test_a_task_is_learned_where_the_interval_lies_above_chance_and_the_majority_class() -> None:
    values = pd.Series([0.12, 0.13, 0.14, 0.15])
    interval = mean_interval(values.to_numpy()[None])
    for bar, learned in ((interval.low - 1e-6, True), (interval.low + 1e-6, False), (None, True)):
        assert has_learned(values, bar, RIGHT) is learned
    assert not has_learned(values[:1], 0.1, RIGHT), "one document has no interval"
    frames = [
        records_frame([Values("right", list(mean + EASE / 50), 64, documents=TEXTS)], job=spec, spec=spec, seed=0)
        for spec, mean in (("rope", 0.2), ("nope", 0.12))
    ]
    for majority, kinds in ((None, {"rope": True, "nope": True}), (0.15, {"rope": True, "nope": False})):
        run = run_of(frames, RIGHT)
        if majority is not None:
            always = records_frame([Values(MAJORITY, [majority], 64)], job=BASELINES, spec="n-gram", seed=0)
            run = replace(run, baselines=always)
        table = build_table(run)
        assert (table.majority, table.bar) == (majority, max(0.1, majority or 0))
        assert {row.spec: row.learned for row in table.full_rows} == kinds


@pytest.mark.parametrize(("mean", "better"), [(2.1, False), (2.0, False), (1.9, True)])
def test_a_language_model_is_better_than_the_n_gram_beyond_the_interval_and_is_judged_anyway(
    mean: float, better: bool
) -> None:
    row = row_of(build_table(run_of(several("rope", mean, mean + 1))), "rope")
    assert row.ngram_share is not None
    assert (row.ngram_share.mean > 0.5) is better
    assert row.verdict.kind == "rises"


def test_what_is_no_better_than_single_tokens_has_no_verdict_and_its_change_is_stated() -> None:
    table = build_table(run_of([*several("rope", UNIGRAM_BITS + 0.1, 9.0), *several("nope", 5.0, 9.0)]))
    assert {row.spec: row.verdict.kind for row in table.rows} == {"rope": "above single tokens", "nope": "rises"}
    rope = row_of(table, "rope")
    assert rope.verdict.change is None
    assert rope.change is not None


@pytest.mark.parametrize(("last", "kind"), [(1.7, "flat"), (4.7, "rises")])
@pytest.mark.parametrize(
    ("gain", "far", "used"), [(0.3, "shown", 64), (0.0, "not shown", 16), (0.015, "not shown", 16), (None, None, None)]
)
def test_both_verdicts_have_a_condition_of_their_own(
    last: float, kind: str, gain: float | None, far: str | None, used: int | None
) -> None:
    frames = [job("rope", seed, 1.7 + 0.001 * seed, last, gain=gain) for seed in range(4)]
    row = row_of(build_table(run_of(frames)), "rope")
    assert row.verdict.kind == kind, "whatever the reach"
    assert (row.far and row.far.kind) == far
    assert (row.reach and row.reach.used) == used
    if row.far is not None and gain is not None:
        assert row.far.gain.mean == pytest.approx(gain, abs=0.005)
        assert (row.far.kind == "shown") is (row.far.gain.low > BITS.margin)


@pytest.mark.parametrize(("right", "kind"), [(0.6, "shown"), (0.1, "not shown")])
def test_far_context_of_a_task_is_judged_by_far_answers(right: float, kind: str) -> None:
    far = Values(FAR, list(right + EASE / 10), 64, documents=TEXTS)
    row = row_of(
        build_table(run_of([job("rope", seed, 0.9, 0.9, metric="right", more=[far]) for seed in range(3)], RIGHT)),
        "rope",
    )
    assert row.far is not None
    assert (row.far.kind, row.far.bar) == (kind, RIGHT.chance)


@pytest.mark.parametrize(
    ("tuning", "rates", "compared"),
    [
        ({}, {}, True), ({"rope": "grid", "alibi": "grid"}, {"rope": "× 2"}, True),
        ({"rope": "grid", "alibi": "other"}, {}, False), ({"rope": "grid"}, {}, False),
        ({}, {"rope": "× 2", "alibi": "× 2"}, False),
    ],
)  # fmt: skip
def test_rows_tuned_otherwise_are_not_contrasted(tuning: dict[str, str], rates: dict[str, str], compared: bool) -> None:
    frames = [*several("rope", 1.7, 1.7, 1.7), *several("alibi", 1.7, 1.7, 1.7)]
    table = build_table(run_of(frames, tuning=tuning, rates=rates))
    assert (row_of(table, "rope").contrasts.keys() == {"rope under its window", "alibi", OWN_WINDOW}) is compared
    assert "rope under its window" in row_of(table, "rope").contrasts, "the same weights"
    assert (row_of(table, "alibi").contrasts.keys() == {"rope under its window", OWN_WINDOW}) is compared
    assert any(omission.kind == "tuned otherwise" for omission in table.omissions) is not compared


def test_views_of_other_kinds_are_judged_against_the_full_one() -> None:
    frames = []
    for seed in range(3):
        shifted = Values("bits", list(2.5 + EASE), 64, "+3", documents=TEXTS)
        finer = Values("bits", list(1.7 + EASE), 225, "finer", documents=TEXTS)
        frames.append(job("rope_2d", seed, 1.7, None, more=[shifted, finer]))
    table = build_table(run_of(frames, lengths=(1,)))
    assert {row.view: row.verdict.kind for row in table.rows} == {
        FULL: "not judged",
        "+3": "rises",
        "finer": "flat",
    }
    assert row_of(table, "rope_2d").change is None
    assert row_of(table, "rope_2d", "finer").cells.keys() == {225}


LOSS = BITS
ANSWERS = Metric("right", "of answers", "higher", chance=0.1, percent=True)
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
@pytest.mark.parametrize(("metric", "sign", "kind"), [(LOSS, 1, "rises"), (LOSS, -1, "falls"), (ANSWERS, -1, "falls")])
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
