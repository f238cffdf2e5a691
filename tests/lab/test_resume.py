"""Resuming a run: what lets it go on, what stops it, and what runs of before there were protocols are good for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.conftest import numbers, run, typed

import posenc
from posenc.lab.export import find_job
from posenc.lab.run import checkpoint, job, optimizer
from posenc.lab.run.folder import read_run
from posenc.lab.run.job import read_job, read_rows
from posenc.lab.run.machine import processor

PROTOCOL_0 = Path(__file__).parent / "protocol_0"  # a run of a version that hashed its sources
LOSSES = "first_losses.json"


@pytest.fixture
def begun(tmp_path: Path, here: None) -> Path:
    """A run with one finished job."""
    assert run(tmp_path / "run", encodings=["rope"]) == 0
    return tmp_path / "run"


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def off_by(difference: float, **more: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the recorded losses, and of the machine that they were recorded on."""

    def change(record: dict[str, Any]) -> None:
        record["losses"][3] += difference
        record.update(more)

    return change


def stamp(run: Path, name: str) -> int:
    return (run / "jobs" / name / "records.parquet").stat().st_mtime_ns


def test_the_first_losses_and_their_machine_are_kept_with_a_job(begun: Path) -> None:
    first = checkpoint.read_first_losses(begun / "jobs" / "rope-seed0")
    assert first is not None
    assert len(first.losses) == 10
    assert (first.processor, first.threads, first.device) == (processor(), 1, "cpu")
    assert first.seconds > 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (off_by(0.0), 0),
        (off_by(1e-4), 2),
        (off_by(1e-4, processor="another"), 0),
        (off_by(1e-4, threads=2), 0),
        (off_by(0.1, processor="another"), 2),
    ],
    ids=["equal", "same machine", "another processor", "another thread count", "another processor, far off"],
)
def test_a_run_goes_on_only_where_its_first_losses_come_out_again(
    begun: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], None], code: int
) -> None:
    edit(begun / "jobs" / "rope-seed0" / LOSSES, change)
    before, first = numbers(begun), stamp(begun, "rope-seed0")
    capsys.readouterr()
    assert run(begun, encodings=["rope", "alibi"]) == code
    out = capsys.readouterr()
    assert stamp(begun, "rope-seed0") == first
    assert (numbers(begun) == before) == bool(code)
    assert ("rope-seed0" in out.err and str(begun) in out.err and "step 4" in out.err) == bool(code)


def test_a_version_that_computes_other_numbers_stops_before_it_trains(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "BETAS", (0.8, 0.95))
    assert run(begun, encodings=["rope", "alibi"]) == 2
    assert not (begun / "jobs" / "alibi-seed0" / "records.parquet").exists()


def test_the_cheapest_job_is_the_one_that_is_recomputed(begun: Path) -> None:
    assert run(begun, encodings=["rope", "alibi"]) == 0
    edit(begun / "jobs" / "rope-seed0" / LOSSES, off_by(0.5, seconds=100.0))  # wrong, and dear
    assert run(begun, encodings=["rope", "alibi", "nope"]) == 0


def test_a_finished_run_is_reported_without_recomputing(begun: Path) -> None:
    edit(begun / "jobs" / "rope-seed0" / LOSSES, off_by(0.5))
    assert run(begun, encodings=["rope"]) == 0


@pytest.mark.parametrize("library", ["torch", "transformers", "tokenizers"])
def test_another_version_of_a_deciding_library_does_not_go_on(begun: Path, library: str) -> None:
    edit(begun / "run.json", lambda record: record["versions"].update({library: "0.0.1"}))
    assert run(begun, encodings=["rope", "alibi"]) == 2


def test_a_run_from_before_a_number_of_the_task_existed_goes_on(begun: Path) -> None:
    """A later version adds a number, whose default means what was done before."""
    edit(begun / "run.json", lambda record: record["numbers"].pop("lag"))
    edit(begun / "jobs" / "rope-seed0" / "job.json", lambda record: record["config"]["options"].pop("lag"))
    first = stamp(begun, "rope-seed0")
    assert run(begun, encodings=["rope", "alibi"]) == 0
    assert stamp(begun, "rope-seed0") == first


def test_a_run_from_before_micro_batches_goes_on_in_one_and_not_in_two(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(begun / "run.json", lambda record: record["rounding"].pop("gradient_accumulation_steps"))
    edit(
        begun / "jobs" / "rope-seed0" / "job.json", lambda r: r["config"]["machine"].pop("gradient_accumulation_steps")
    )
    first = stamp(begun, "rope-seed0")
    assert run(begun, "--gradient-accumulation-steps", "2", encodings=["rope", "alibi"]) == 2
    assert "gradient_accumulation_steps 1 there, 2 here" in " ".join(capsys.readouterr().err.split())
    assert run(begun, encodings=["rope", "alibi"]) == 0
    assert stamp(begun, "rope-seed0") == first


def test_other_versions_go_on_and_are_recorded(begun: Path) -> None:
    edit(begun / "run.json", lambda record: record["versions"].update(numpy="0.0.1", python="3.0"))
    assert run(begun, encodings=["rope", "alibi"]) == 0
    assert read_run(begun).versions["numpy"].startswith("0.0.1, ")


def test_another_protocol_does_not_go_on(begun: Path) -> None:
    edit(begun / "run.json", lambda record: record.update(protocol=job.PROTOCOL + 1))
    assert run(begun, encodings=["rope", "alibi"]) == 2


def test_a_run_without_a_protocol_is_read_and_not_continued(tmp_path: Path, here: None) -> None:
    old = shutil.copytree(PROTOCOL_0, tmp_path / "run")
    old_run = read_run(old)
    assert (old_run.protocol, old_run.task, len(old_run.records)) == (0, "copy", 47)
    folder = find_job(old, "rope", 0)
    stored = read_job(folder)
    assert stored.protocol == 0
    rows = read_rows(folder, stored)  # whose identity is that of the version that wrote it
    assert rows is not None
    assert rows[1] == ["rope"]
    assert run(old, encodings=["rope"]) == 2


MOVES = (  # as refactorings do it: a file under another name, a function under another, other words
    ("move", "posenc.lab.run.optimizer", "posenc.lab.adamw"),
    ("rename", "lr_at", "learning_rate_at"),
    ("reword", "Everything the next step depends on", "What a step reads"),
)


def test_a_run_begun_before_a_module_was_moved_and_reworded_goes_on_after_it(tmp_path: Path) -> None:
    """The same command, from a copy of the package whose files, names and docstrings were changed in between."""
    source = tmp_path / "src"
    for name in ("posenc", "posenc_cli"):
        shutil.copytree(Path(posenc.__file__).parents[1] / name, source / name, ignore=shutil.ignore_patterns("__pyc*"))

    def compare(*encodings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "posenc", *typed(tmp_path / "run", encodings=encodings)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)

    assert compare("rope").returncode == 0
    first = stamp(tmp_path / "run", "rope-seed0")
    changed = 0
    (source / "posenc/lab/run/optimizer.py").rename(source / "posenc/lab/adamw.py")
    for path in (source / "posenc").rglob("*.py"):
        text = path.read_text()
        new = text
        for _, before, after in MOVES:
            new = new.replace(before, after)
        if new != text:
            path.write_text(new)
            changed += 1
    assert changed >= 3
    done = compare("rope", "alibi")
    assert done.returncode == 0, done.stderr
    assert stamp(tmp_path / "run", "rope-seed0") == first
    assert {str(spec) for spec in read_run(tmp_path / "run").records["spec"]} == {"rope", "alibi"}
