"""A report: verdicts as JSON, the same sentences everywhere, files that are there, values of others escaped."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from tests.lab.synthetic import NGRAM_BITS, TASK, TEXT, TRAINED, UNIGRAM_BITS, run_of, written

from posenc.lab import commands
from posenc.lab.metrics import ATTENTION, Values, Words
from posenc.lab.report import text
from posenc.lab.report.charts import charts_of
from posenc.lab.report.numbers import build_table
from posenc.lab.report.page import named_tables, run_labels, table_markdown, terminal_summary, write_report
from posenc.lab.run.folder import Run, read_run
from posenc.lab.run.records import records_frame

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDED = sorted(path.parent.name for path in RESULTS.glob("*/run.json"))


@pytest.fixture(scope="module")
def reported(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A report of a language model, with charts."""

    def make(folder: Path) -> None:
        write_report([written(with_attention(run_of(path=folder / "run")))], folder / "run")

    return once("reported", make) / "run"


def with_attention(run: Run) -> Run:
    """A run whose four heads attend to distances 0, 1 and 2."""
    shares = [0.5, 0.25, 0.25] * 4
    values = [Values(ATTENTION, shares, TRAINED, items=[0, 1, 2] * 4, documents=[n // 3 for n in range(12)])]
    specs = run.records["spec"].astype(str).unique()
    frames = [records_frame(values, job=f"{spec}-0", spec=spec, seed=0) for spec in specs]
    return dataclasses.replace(run, records=pd.concat([run.records, *frames], ignore_index=True))


def test_verdicts_are_data_with_interval_and_condition(reported: Path) -> None:
    record, table = json.loads((reported / "verdicts.json").read_text()), build_table(read_run(reported))
    assert (record["task"], record["unit"], record["margin"]) == ("text", "bits per byte", 0.02)
    assert (record["training_length"], record["longest_length"]) == (TRAINED, 16 * TRAINED)
    assert record["ngram"]["mean"] == pytest.approx(NGRAM_BITS, abs=0.2)
    assert record["entropy_of_single_tokens"] == pytest.approx(UNIGRAM_BITS)
    assert record["intervals_cover"] == "trainings and texts"
    found = {spec: entry["beyond_training_length"]["verdict"] for spec, entry in record["encodings"].items()}
    assert found == {
        "rope": "rises", "alibi": "flat", "t5": "rises", "fox": "falls", "nope": "rises", "learned": "no value",
        "rope+alibi": "rises",
    }  # fmt: skip
    rope = record["encodings"]["rope"]
    beyond = rope["beyond_training_length"]
    assert beyond["low"] < beyond["mean"] < beyond["high"]
    assert beyond["condition"] == {"better_than": UNIGRAM_BITS, "met": True}
    assert rope["far_context"]["verdict"] == "shown"
    assert rope["practical_context_length"] == TRAINED
    assert record["encodings"]["alibi"]["practical_context_length"] == 16 * TRAINED
    window = rope["contrasts"]["own window"]
    assert window["mean"] > 2
    assert window["adjusted_p"] <= 0.05
    for row in table.rows:
        for length, cell in row.cells.items():
            assert record["means"][row.name][str(length)] == [cell.mean, cell.low, cell.high]


@pytest.mark.parametrize("task", ["text", "flipflop"])
def test_page_table_and_terminal_say_the_same(tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = written(run_of(TEXT if task == "text" else TASK, task=task, path=tmp_path / "run"))
    write_report([run], tmp_path / "run", drawn=False)
    page, table = (tmp_path / "run" / "report.html").read_text(), (tmp_path / "run" / "table.md").read_text()
    lines = terminal_summary([run])
    assert len(lines) > 4
    for line in lines:
        assert f"{escape(line)}<" in page
        assert len(set(line.split()) & set(table.replace("*", "").split())) > 0.9 * len(set(line.split()))
    assert page.index(str(escape(lines[0]))) < page.index("<table"), "the answer comes first"


def test_a_report_of_a_run_that_was_stopped_says_first_what_is_missing(tmp_path: Path) -> None:
    written(run_of({"rope": TEXT["rope"]}, path=tmp_path / "run", seeds=1))
    for name in ("rope-seed0", "alibi-seed0", "t5-seed0"):
        (tmp_path / "run" / "jobs" / name).mkdir(parents=True)
        (tmp_path / "run" / "jobs" / name / "job.json").touch()
    shutil.copy(tmp_path / "run" / "records.parquet", tmp_path / "run" / "jobs" / "rope-seed0")
    run = read_run(tmp_path / "run")
    assert (run.trainings, run.unfinished) == (3, 2)
    first = text.headline(named_tables([run]))[0]
    assert first.startswith("2 of 3 trainings")
    write_report([run], tmp_path / "run", drawn=False)
    page, table = (tmp_path / "run" / "report.html").read_text(), (tmp_path / "run" / "table.md").read_text()
    assert page.index(first) < page.index("<table")
    assert table.index("2 of 3 trainings") < table.index("| encoding")
    record = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    assert (record["trainings"], record["unfinished_trainings"]) == (3, 2)


def test_charts_are_files_and_parts_of_the_page(reported: Path) -> None:
    names = {"lengths", "by-position", "attention"}
    assert {path.stem for path in (reported / "charts").iterdir()} == names
    page = (reported / "report.html").read_text()
    assert page.count("<figure") == page.count("<svg") == len(names)
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_chart_of_attention_has_a_row_a_head_and_a_column_a_distance() -> None:
    run = with_attention(run_of({"rope": TEXT["rope"]}, seeds=1, documents=4))
    (chart,) = [chart for chart in charts_of(run, build_table(run)) if chart.name == "attention"]
    (data,) = chart.chart.to_dict()["datasets"].values()
    of_rope = [line for line in data if line["encoding"] == "rope"]
    assert {(line["head"], line["distance"]) for line in of_rope} == {
        (f"1.{h}", d) for h in range(1, 5) for d in (0, 1, 2)
    }
    assert sum(line["share"] for line in of_rope) == pytest.approx(4.0)


def test_what_a_table_lacks_is_said_and_nothing_fails() -> None:
    run = run_of({"alibi": TEXT["alibi"], "learned": TEXT["learned"]}, gain=None, ngram=None, seeds=1)
    table = build_table(run)
    assert (table.baselines, table.bar) == (None, None)
    assert text.verdicts_record(run, table)["encodings"]["alibi"]["far_context"] is None
    broken = run.records.copy()
    broken.loc[(broken["spec"] == "alibi") & (broken["length"] == TRAINED * 16), "value"] = np.nan
    lacking = dataclasses.replace(run, records=broken)
    assert "not finite" in {omission.kind for omission in build_table(lacking).omissions}
    assert table_markdown(lacking, build_table(lacking))


def test_texts_of_others_steer_neither_the_page_nor_markdown(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> | `x` [a](b)"
    run = run_of({"rope": TEXT["rope"]}, path=tmp_path / "run", seeds=1)
    run = dataclasses.replace(
        run,
        words=Words("text", evil, evil, evil),
        facts={"name": evil},
        shown={evil: evil},
        command=f"posenc ``` {evil}",
    )
    write_report([run], tmp_path / "run", drawn=False)
    page, table = (tmp_path / "run" / "report.html").read_text(), (tmp_path / "run" / "table.md").read_text()
    assert "<script" not in page
    assert "<script" not in table.partition("Command:")[0]
    assert "````" in table, "the fence is longer than any in the text"


def test_several_runs_are_one_page_with_labels_that_tell_them_apart(tmp_path: Path) -> None:
    runs = [
        written(run_of({"rope": TEXT["rope"]}, path=tmp_path / name, steps=steps, seeds=1))
        for name, steps in (("a", 1200), ("b", 2400))
    ]
    assert run_labels(runs) == ["text, steps 1200", "text, steps 2400"]
    paths = write_report(runs, tmp_path / "out", drawn=False)
    assert [path.name for path in paths if path.suffix == ".html"] == ["report.html"]
    assert len({path.parent for path in paths if path.name == "verdicts.json"}) == 2
    assert list(named_tables(runs)) == run_labels(runs)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_run_can_be_read(name: str) -> None:
    run = read_run(RESULTS / name)
    assert {metric.name for metric in run.metrics} <= set(run.records["metric"])
    assert run.words.question
    assert run.trained in set(run.records["length"])


def test_the_command_reports_a_recorded_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vl_convert.vegalite_to_svg", lambda spec: "<svg></svg>")
    assert commands.run(["report", str(RESULTS / "quick-copy"), "--out", str(tmp_path)]) == 0
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())["encodings"]
    assert verdicts["rope"]["beyond_training_length"]["condition"]["met"] is True
    assert commands.run(["report", str(tmp_path)]) == 2
