"""Tuned factors: applied to settings and models, read and written, and part of what a job is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.lab import commands
from posenc.lab.jobs import Job, read_job
from posenc.lab.model import Decoder
from posenc.lab.optimizer import make_optimizer
from posenc.lab.rates import FILE, apply_to_model, apply_to_settings, in_words, read_tuned, write_tuned
from posenc.lab.text.profiles import Settings
from posenc.lab.train import numbers_of

TINY = (
    "--train-length 8 --lengths 1,2 --steps 4 --batch-size 2 --windows 4 --dim 16 --layers 1 --heads 2 --no-cost "
    "--device cpu"
)


def test_factors_reach_the_optimizer(tiny: Settings) -> None:
    model = Decoder("t5", tiny.shape, hidden=tiny.hidden, seed=0)
    apply_to_model(model, {"lr": 2.0, "own": 30.0})
    settings = apply_to_settings(tiny, {"lr": 2.0, "own": 30.0})
    assert settings.lr == 2 * tiny.lr
    groups = {group["name"]: group["multiplier"] for group in make_optimizer(model, settings).param_groups}
    assert groups == {"matrices": 1.0, "vectors": 1.0, "encoding": 30.0}
    assert apply_to_settings(tiny, {}) == tiny


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    assert read_tuned(tmp_path) == {}
    write_tuned(tmp_path, {"t5": {"lr": 2.0, "own": 10.0}, "rope": {"lr": 0.5}}, {"command": "posenc tune"})
    assert read_tuned(tmp_path) == {"t5": {"lr": 2.0, "own": 10.0}, "rope": {"lr": 0.5}}
    assert in_words({"own": 31.6227766, "lr": 2.0}) == "learning rate × 2, own parameters × 31.6228"


@pytest.mark.parametrize("factors", [{"lr": 0}, {"lr": -1.0}, {"rate": 2.0}, {"lr": "2"}, {"lr": float("inf")}, 2.0])
def test_factors_that_cannot_be_are_refused(tmp_path: Path, factors: object) -> None:
    record = {"format": "posenc-lab-tuned/1", "encodings": {"rope": factors}}
    (tmp_path / FILE).write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"tuned\.json.*positive"):
        read_tuned(tmp_path)


def test_a_job_is_another_with_other_rates(make_job: Callable[..., tuple[Job, Path]]) -> None:
    job, _ = make_job("rope")
    tuned = dataclasses.replace(job, tuned={"lr": 2.0})
    assert tuned.identity != job.identity
    assert numbers_of(tuned).lr == 2 * numbers_of(job).lr
    assert dataclasses.replace(job, tuned={}).identity == job.identity


@pytest.mark.usefixtures("here_alone")
def test_compare_reads_what_lies_in_its_folder_and_refuses_a_change(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    write_tuned(out, {"t5": {"own": 3.0}}, {})
    typed = ["compare", "t5", "--no-control", "--data", str(texts), "--out", str(out), *TINY.split()]
    assert commands.run(typed) == 0
    assert "t5, own parameters × 3" in capsys.readouterr().out
    assert read_job(out / "jobs" / "t5-seed0").tuned == {"own": 3.0}
    (out / FILE).unlink()
    assert commands.run(typed) == 2
    assert "another configuration" in capsys.readouterr().err
