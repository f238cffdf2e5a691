"""Baselines of real runs: what a model that learned nothing is told, and baselines that are added to old records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.lab.conftest import TINY, run_in_process

import posenc
from posenc.lab import commands
from posenc.lab.metrics import BASELINES, MAJORITY, NGRAM
from posenc.lab.report.claims import judge, outcome_counts, relevant_claims
from posenc.lab.report.literature import CLAIMS
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary
from posenc.lab.report.summary import named_tables
from posenc.lab.run.baselines import add_baselines
from posenc.lab.run.folder import RECORDS, Run, read_run, records_of
from posenc.lab.run.records import write_records

SOURCES = str(Path(posenc.__file__).parent)  # texts of some megabytes that are always there
WEAK = ("alibi", "fox", "rope", "sinusoidal", "t5")


@pytest.fixture(scope="session")
def weak(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Models of 43,000 parameters after 60 steps, a second of training each."""

    def make(folder: Path) -> None:
        sizes = {"dim": 40, "layers": 1, "heads": 4, "train-length": 64, "steps": 60, "windows": 64, "batch-size": 16}
        words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
        with pytest.MonkeyPatch.context() as patch:
            run_in_process(patch)
            out = ["--out", str(folder / "run"), "--data", SOURCES, "--lengths", "1,4", "--seeds", "1", "--no-cost"]
            assert commands.run(["compare", *WEAK, *words, *out]) == 0

    return once("weak", make) / "run"


@pytest.mark.slow
def test_a_small_model_after_a_minute_is_judged_and_is_no_better_than_an_n_gram(weak: Path) -> None:
    run = read_run(weak)
    table = build_table(run)
    assert 30_000 < table.full_rows[0].training["parameters"] < 50_000
    assert {row.ngram_share.count for row in table.full_rows if row.ngram_share} == {0}
    assert {row.verdict.kind for row in table.full_rows} <= {"rises", "flat", "inconclusive"}
    assert table.baselines is not None
    assert all(row.cells[64].mean > table.baselines.ngram.mean for row in table.full_rows)
    tables = named_tables([run])
    counts = outcome_counts(judge(relevant_claims(CLAIMS, tables), tables))
    assert counts["not testable here"] > counts["supported"] + counts["contradicted"], "only a rise tests a claim"
    page = (weak / "table.md").read_text(encoding="utf-8")
    assert f"{table.baselines.order}-gram" in page
    assert terminal_summary([run])[0] in page.replace("\\", "")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of texts in seconds."""
    folder = tmp_path_factory.mktemp("tiny") / "run"
    with pytest.MonkeyPatch.context() as patch:
        run_in_process(patch)
        words = ["--out", str(folder), "--data", SOURCES, "--seeds", "1", "--no-cost"]
        assert commands.run(["compare", "rope", *TINY, *words]) == 0
    return folder


def baseline_lines(run: Run) -> pd.DataFrame:
    return run.baselines.astype({"metric": str, "job": str}).reset_index(drop=True)[["metric", "item", "value"]]


def test_a_run_records_its_baselines_once(tiny: Path) -> None:
    run = read_run(tiny)
    assert (run.baselines["metric"] == NGRAM).sum() == 8
    assert set(run.baselines["job"]) == {BASELINES}
    assert BASELINES not in set(run.records["job"])
    assert len(records_of(tiny)) == len(run.records) + len(run.baselines)


def test_baselines_are_added_to_records_without_them(tiny: Path, tmp_path: Path, here: None) -> None:
    expected = baseline_lines(read_run(tiny))
    bare = tmp_path / "bare"  # as old runs were recorded: two files, no data, no jobs
    bare.mkdir()
    shutil.copyfile(tiny / "run.json", bare / "run.json")
    write_records(bare / RECORDS, read_run(tiny).records, {"run": "bare"})
    assert read_run(bare).baselines.empty
    assert commands.run(["report", str(bare)]) == 0
    assert "-gram of" not in (bare / "table.md").read_text(encoding="utf-8")
    assert commands.run(["report", str(bare), "--baselines"]) == 0
    pd.testing.assert_frame_equal(baseline_lines(read_run(bare)), expected)
    assert sorted(path.name for path in bare.glob("*.parquet")) == [RECORDS]
    pd.testing.assert_frame_equal(baseline_lines(add_baselines(bare)), expected)
    assert "-gram" in (bare / "table.md").read_text(encoding="utf-8")


def test_other_data_than_the_run_s_are_refused(tiny: Path, tmp_path: Path) -> None:
    run_json = (tiny / "run.json").read_text(encoding="utf-8")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "run.json").write_text(run_json.replace('"train_sha256": "', '"train_sha256": "0'), encoding="utf-8")
    write_records(bare / RECORDS, read_run(tiny).records, {"run": "bare"})
    with pytest.raises(ValueError, match=r"the data here differ from the run's \(train_sha256\)"):
        add_baselines(bare)


def test_the_most_frequent_answer_is_the_baseline_of_a_task(quiet: Path) -> None:
    run = read_run(quiet)
    answers = run.baselines[run.baselines["metric"] == MAJORITY]["value"]
    table = build_table(run)
    assert table.majority == pytest.approx(answers.mean())
    assert 1 / 16 < table.majority < 0.5, "of 16 symbols in few answers, one is more frequent"
