"""Records and runs: written and read again, refused where they are not what they seem."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from posenc.hf.atomic_write import UnwritableError
from posenc.lab.files import write_atomically
from posenc.lab.metrics import Curve, Metric, Values, Words
from posenc.lab.run.folder import Run, read_run, write_run
from posenc.lab.run.records import empty, read_records, records_frame, write_records

METRIC = Metric("bits", "bits a line", "lower", 0.02)


def frame(job: str = "rope-seed0", spec: str = "rope", seed: int = 0, value: float = 1.5) -> Any:
    values = [Values("bits", [value, 2.0], 64, documents=[7, 7]), Values("probe", [3.0], items=[10])]
    return records_frame(values, job=job, spec=spec, seed=seed)


def stored_run(path: Path, **changes: Any) -> Run:
    """A run on disk with one job."""
    path.mkdir(parents=True, exist_ok=True)
    numbers = {"train_length": 64, "lengths": (1, 2), "steps": 5}
    run = Run(
        Words("text", "Title", "Asked", "Shows"), (METRIC,), (Curve("p", "bytes", "bits"),), numbers,
        {"steps": "5"}, {"sha": "a"}, {"text": "tales"}, {"torch": "2"}, {"cores": "2"}, "posenc compare",
        path=path, rounding={"device": "cpu"},
    )  # fmt: skip
    run = dataclasses.replace(run, **{name: value for name, value in changes.items() if name != "frame"})
    write_run(run)
    write_records(path / "records.parquet", changes.get("frame", frame()), {})
    return run


def test_records_come_back(tmp_path: Path) -> None:
    write_records(tmp_path / "r.parquet", frame(), {"identity": "x"})
    stored, facts = read_records(tmp_path / "r.parquet")
    assert facts["identity"] == "x"
    assert stored["document"].tolist() == [7, 7, 10]
    assert stored["item"].tolist() == [0, 1, 10]
    assert stored["spec"].astype(str).tolist() == ["rope"] * 3
    assert stored["value"].tolist() == [1.5, 2.0, 3.0]
    for content in (b"", b"PAR1", (tmp_path / "r.parquet").read_bytes()[:200]):
        (tmp_path / "bad.parquet").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.parquet is truncated or holds no records"):
            read_records(tmp_path / "bad.parquet")


def test_a_run_comes_back_with_infinities_and_tuples(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "run")
    read = read_run(tmp_path / "run")
    frames = {"records": run.records, "baselines": run.baselines}
    assert dataclasses.replace(read, **frames) == dataclasses.replace(run, **frames)
    assert (read.decides.learned, len(read.records)) == (None, 3)
    assert read.lengths == (64,), "nothing is measured at the other one"
    assert dataclasses.replace(read, records=empty()).lengths == (64, 128)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "posenc-lab-run/1"}, {"words": {"task": "x"}}, {"metrics": []}, {"numbers": {"lengths": [1]}},
        {"metrics": [{"name": "a", "unit": "b", "better": "up", "margin": 1}]}, {"curves": [{"name": 1}]},
        {"metrics": [{"name": "a", "unit": "b", "better": "lower", "margin": float("inf")}]}, {"data": []},
        {"numbers": {"lengths": [2**40], "train_length": 5}}, {"command": 5}, {"rounding": {"threads": 1.5}},
    ],
    ids=str,
)  # fmt: skip
def test_every_entry_of_a_run_of_others_is_checked(tmp_path: Path, change: dict[str, Any]) -> None:
    stored_run(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=str(tmp_path / "run")) as caught:
        read_run(tmp_path / "run")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_names_in_records_of_others_are_checked(tmp_path: Path) -> None:
    stored_run(tmp_path / "run", frame=frame(spec="../x"))
    with pytest.raises(ValueError, match="not the name of an encoding"):
        read_run(tmp_path / "run")
    with pytest.raises(ValueError, match="nothing to report"):
        read_run(tmp_path)


def test_a_write_that_fails_leaves_the_old_file_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnwritableError, match=f"{path}: cannot be written: No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
