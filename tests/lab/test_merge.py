"""Runs put together: what belongs together, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.made_up import RECORD, SETTINGS, TRAINING, costs, made_up
from tests.lab.test_sequences_report import PUZZLE
from tests.lab.test_sequences_report import RECORD as COPY
from tests.lab.test_sequences_report import ROWS as COPY_ROWS

from posenc.lab.commands import run
from posenc.lab.cost import write_cost
from posenc.lab.files import write_json
from posenc.lab.jobs import RESULT_FORMAT, Job
from posenc.lab.record import RunRecord
from posenc.lab.report.merge import merge, write_reports
from posenc.lab.sequences.report import write_report as write_copy
from posenc.lab.text.corpus import Facts
from posenc.lab.text.profiles import Settings
from posenc.lab.text.report import line
from posenc.lab.text.table import Row, rows_of

MakeJob = Callable[..., tuple[Job, Path]]
Record = RunRecord[Settings, Facts]


def stored(
    folder: Path, specs: str, seeds: tuple[int, ...] = (0, 1), machine: str = "fast", record: Record = RECORD
) -> Path:
    """A folder with the results of a finished run."""
    folder.mkdir(parents=True)
    bits = {spec: (1.6 + 0.1 * len(spec), 1.8, 1.9) for spec in specs.split()}
    lines = [json.dumps(line(row, record)) for row in rows_of(made_up(bits, seeds, machine))]
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def finish(job: Job, folder: Path, shift: float = 0.0) -> None:
    """Give a job a result."""
    bits = [[2.0 + shift, 2.1, 2.2, 2.3], [2.5, 2.6, 2.7, 2.8], [3.0, 3.1, 3.2, 3.3]]
    rows = {job.spec: {"bits": bits, "positions": [2.0] * 16, "bin": 2}}
    machine = {"processor": "fast", "cores": "4"}
    result = {"format": RESULT_FORMAT, "identity": job.identity, "training": TRAINING, "rows": rows, "machine": machine}
    write_json(folder / "result.json", result)


def merged(*paths: Path) -> list[Row]:
    (part,) = merge(paths).parts
    return part.rows  # type: ignore[return-value]


def test_encodings_and_seeds_of_two_folders_make_one_table(tmp_path: Path) -> None:
    one, two = stored(tmp_path / "one", "rope alibi"), stored(tmp_path / "two", "rope t5", seeds=(2,))
    rows = {row.spec: row for row in merged(one, two)}
    assert {spec: row.seed_numbers for spec, row in rows.items()} == {"rope": [0, 1, 2], "alibi": [0, 1], "t5": [2]}
    apart = {row.spec: row for row in merged(one)}
    assert rows["alibi"].bits == apart["alibi"].bits


def test_what_lies_in_both_is_taken_once_and_said(tmp_path: Path) -> None:
    one, two = stored(tmp_path / "one", "rope alibi"), stored(tmp_path / "two", "alibi", machine="slow")
    (part,) = merge([one, two]).parts
    assert {row.spec: row.seeds for row in part.rows} == {"rope": 2, "alibi": 2}  # type: ignore[attr-defined]
    assert part.remarks[0].startswith(f"alibi (seed 0) and alibi (seed 1): in {one / 'results.jsonl'} and in")
    assert not any("machines" in remark for remark in part.remarks), "nothing of the other machine is shown"


def test_other_machines_and_versions_are_stated(tmp_path: Path) -> None:
    newer = dataclasses.replace(RECORD, versions={"torch": "2.14"}, machine={"processor": "slow", "cores": "4"})
    paths = stored(tmp_path / "one", "rope"), stored(tmp_path / "two", "t5", machine="slow", record=newer)
    page = merge(paths)
    (part,) = page.parts
    assert "Trained on 2 machines: times stand apart, losses are put together." in part.remarks
    assert "Trained with different versions of torch: 2.13 and 2.14." in part.remarks
    assert part.record.versions == {"torch": "2.13 and 2.14"}
    assert part.record.machine == {"machine 1": "fast, 4 cores", "machine 2": "slow, 4 cores"}
    assert "different versions of torch" in page.render()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": dataclasses.replace(SETTINGS, lr=1.0)}, "differ in settings (lr: 0.002 and 1.0)"),
        ({"settings": dataclasses.replace(SETTINGS, train_length=32)}, "settings (train_length: 64 and 32)"),
        ({"settings": dataclasses.replace(SETTINGS, precision="float32")}, "settings (precision: auto and float32)"),
        ({"facts": dataclasses.replace(RECORD.facts, train_sha256="cc" * 32)}, "differ in corpus (train_sha256"),
        ({"rates": {"rope": "learning rate × 2"}}, "tuned rates (rope: not tuned and learning rate × 2)"),
    ],
)
def test_what_decides_numbers_must_be_equal(tmp_path: Path, change: dict[str, object], words: str) -> None:
    one = stored(tmp_path / "one", "rope")
    two = stored(tmp_path / "two", "rope", seeds=(2,), record=dataclasses.replace(RECORD, **change))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        merge([one, two])
    assert str(one) in str(error.value)
    assert str(two) in str(error.value)


def test_own_classes_must_be_the_same(tmp_path: Path) -> None:
    versions = ({"my:Own": "SHA-256 aaaa"}, {"my:Own": "SHA-256 bbbb"})
    paths = [
        stored(tmp_path / str(n), "rope", seeds=(n,), record=dataclasses.replace(RECORD, versions=found))
        for n, found in enumerate(versions)
    ]
    with pytest.raises(ValueError, match="differ in own classes"):
        merge(paths)


def test_device_and_threads_may_differ(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(SETTINGS, device="cuda", threads=8, checkpoint_every=7)
    one = stored(tmp_path / "one", "rope")
    two = stored(tmp_path / "two", "t5", record=dataclasses.replace(RECORD, settings=elsewhere))
    assert len(merged(one, two)) == 2


def test_tasks_and_costs_become_parts(tmp_path: Path) -> None:
    text, copy, cost = stored(tmp_path / "text", "rope alibi"), tmp_path / "copy", tmp_path / "cost"
    copy.mkdir()
    cost.mkdir()
    runs = [
        {
            "lengths": list(COPY_ROWS[2].of_seeds), "chance": 1 / 16, "answers": [1.0, 0.9, 0.8],
            "whole": [1.0, 0.5, 0.4],
            "wrong": [[0, 0], [0, 1], [1, 1]], "asked": [10, 10, 10], "seed": 0, "machine": {},
            "training": COPY_ROWS[2].training,
        }
    ]  # fmt: skip
    write_copy(copy, [dataclasses.replace(COPY_ROWS[2], runs=runs)], PUZZLE, COPY)
    write_cost(cost, costs())
    page = merge([copy, text, cost])
    assert [part.task for part in page.parts] == ["text", "copy"]
    assert len(page.costs) == 1
    paths = write_reports(page, tmp_path / "out")
    names = {str(path.relative_to(tmp_path / "out")) for path in paths}
    assert {
        "report.html",
        "claims.md",
        "text/table.md",
        "text/results.jsonl",
        "copy/table.md",
        "copy/results.jsonl",
    } <= names
    write_cost(text, costs())
    assert len(merge([text]).costs) == 1


def test_a_run_and_its_results_alone_say_the_same(make_job: MakeJob, tmp_path: Path) -> None:
    for spec, seed in (("rope", 0), ("rope", 1), ("alibi", 0), ("alibi", 1)):
        finish(*make_job(spec, seed), shift=seed / 7)
    write_reports(merge([tmp_path / "run"]), tmp_path / "a")
    write_reports(merge([tmp_path / "a" / "results.jsonl"]), tmp_path / "b")
    for name in ("table.md", "results.jsonl", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    line = json.loads((tmp_path / "a" / "results.jsonl").read_text().splitlines()[0])
    assert line["runs"][1]["bits"][0][0] == 2.14286
    assert line["command"] == "not written down"


def test_the_command_writes_a_report_again_where_it_was(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        finish(*make_job("rope", seed))
    assert run(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").exists()
    assert "rope" in capsys.readouterr().out
    assert run(["report", str(tmp_path / "run"), "--out", str(tmp_path / "there" / "deep")]) == 0
    assert (tmp_path / "there" / "deep" / "table.md").exists()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_several_folders_go_into_a_folder_of_their_own(elsewhere: Path) -> None:
    paths = [stored(elsewhere / "one", "rope"), stored(elsewhere / "two", "t5")]
    before = (paths[0] / "results.jsonl").read_bytes()
    assert run(["report", *map(str, paths)]) == 0
    assert (elsewhere / "posenc-report" / "report.html").exists()
    assert (paths[0] / "results.jsonl").read_bytes() == before
    assert [path.name for path in paths[0].iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "nothing to report"),
        ("", "it is empty"),
        ("{", "truncated or not JSON"),
        ('{"a": 1}', "not written by posenc compare"),
        ('{"encoding": "rope", "settings": {}, "corpus": {}}', "of an older version"),
        (
            '{"encoding": "rope", "settings": {"x": 1}, "corpus": {}, "format": "posenc-lab-results/1", "runs": []}',
            "another",
        ),
    ],
)
def test_what_is_no_result_is_named(
    tmp_path: Path, content: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    if content is not None:
        (folder / "results.jsonl").write_text(content)
    assert run(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert str(folder) in error


def test_a_run_without_results_says_so(make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_job("rope")
    assert run(["report", str(tmp_path / "run")]) == 2
    assert "nothing to report" in capsys.readouterr().err
