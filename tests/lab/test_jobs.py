"""Job folders: what belongs together, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posenc.lab.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from posenc.lab.files import read_json, write_atomically, write_json
from posenc.lab.jobs import Job, open_job, open_run, read_job, read_result
from posenc.lab.text.profiles import Settings

MakeJob = Callable[..., tuple[Job, Path]]


def test_a_job_comes_back_from_its_folder(make_job: MakeJob) -> None:
    job, folder = make_job("rope+alibi", seed=3)
    assert folder.name == "rope+alibi-seed3"
    assert read_job(folder) == job
    assert read_job(folder).identity == job.identity


@pytest.mark.parametrize(
    "change", [{"lr": 1e-3}, {"lengths": (1, 2)}, {"precision": "bfloat16"}, {"processes": 2}, {"threads": 2}]
)
def test_another_configuration_is_refused_with_what_differs(make_job: MakeJob, change: dict[str, object]) -> None:
    job, folder = make_job()
    other = dataclasses.replace(job, settings=dataclasses.replace(job.settings, **change))
    assert other.identity != job.identity
    with pytest.raises(ValueError, match=next(iter(change))):
        open_job(folder.parent.parent, other)


def test_how_often_checkpoints_are_written_decides_nothing(make_job: MakeJob) -> None:
    job, folder = make_job()
    other = dataclasses.replace(job, settings=dataclasses.replace(job.settings, checkpoint_every=7))
    assert other.identity == job.identity
    assert open_job(folder.parent.parent, other) == folder


def test_a_run_folder_takes_one_configuration_and_one_corpus(tmp_path: Path, tiny: Settings) -> None:
    corpus = {"train_sha256": "a" * 64, "validation_sha256": "b" * 64}
    open_run(tmp_path, tiny, corpus, {"torch": "1"})
    open_run(tmp_path, tiny, corpus, {"torch": "1"})
    for settings, texts, versions, words in (
        (dataclasses.replace(tiny, steps=99), corpus, {"torch": "1"}, "steps 12 there, 99 here"),
        (tiny, {**corpus, "train_sha256": "c" * 64}, {"torch": "1"}, "corpus train_sha256 aaaaaaaaaaaa… there"),
        (tiny, corpus, {"torch": "2"}, "versions torch 1 there, 2 here"),
    ):
        with pytest.raises(ValueError, match=words):
            open_run(tmp_path, settings, texts, versions)


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, tiny: Settings) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not empty and holds no run"):
        open_run(tmp_path, tiny, {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": "posenc-lab-res', "truncated"),
        ("[1, 2]", "not written by posenc"),
        ('{"accuracy": 0.9}', "not written by posenc"),
        ('{"format": "posenc-lab-result/1", "identity": "x", "training": {}, "rows": {}}', "another configuration"),
    ],
)
def test_a_foreign_result_is_refused_and_left_alone(make_job: MakeJob, content: str, words: str) -> None:
    job, folder = make_job()
    path = folder / "result.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_result(folder, job)
    assert str(path) in str(caught.value)
    assert path.read_text() == content


def _checkpoint(identity: str = "id") -> Checkpoint:
    return Checkpoint(identity, 2, {"w": torch.ones(3)}, {"state": {}}, torch.ones(2), torch.ones(2), 0.5, 7)


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert read_checkpoint(path, "id") is None
    write_checkpoint(path, _checkpoint())
    loaded = read_checkpoint(path, "id")
    assert loaded is not None
    assert (loaded.step, loaded.seconds, loaded.peak_memory) == (2, 0.5, 7)
    assert torch.equal(loaded.model["w"], torch.ones(3))
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_damaged_or_foreign_checkpoint_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, _checkpoint())
    whole = path.read_bytes()
    for content, words in (
        (whole[: len(whole) // 2], "truncated"),
        (whole[:10], "truncated"),
        (b"", "truncated"),
        (b"hello", "truncated or no checkpoint"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words) as caught:
            read_checkpoint(path, "id")
        assert str(path) in str(caught.value)
        assert path.read_bytes() == content
    torch.save({"model": {}}, path)
    with pytest.raises(ValueError, match="not written by this version"):
        read_checkpoint(path, "id")
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="another configuration"):
        read_checkpoint(path, "other")


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code in a checkpoint was run')",)


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"format": "posenc-lab-checkpoint/1", "model": _Bomb()}, path)
    with pytest.raises(ValueError, match="no checkpoint"):
        read_checkpoint(path, "id")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_not_a_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"bits": float("nan")})
    write_json(tmp_path / "a.json", {"bits": 1.5})
    assert read_json(tmp_path / "a.json", ("bits",)) == {"bits": 1.5}
    assert json.loads((tmp_path / "a.json").read_text()) == {"bits": 1.5}
