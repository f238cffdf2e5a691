"""Job folders: what belongs together, what is refused, and what nothing of others can do."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.conftest import made_job

from posenc.lab.files import write_json
from posenc.lab.run.job import Job, open_job, read_job, read_results, read_tuned, write_results
from posenc.lab.run.records import empty
from posenc.lab.run.run_job import run_job
from posenc.lab.run.train import Checkpoint, read_checkpoint, write_checkpoint

MakeJob = Callable[..., tuple[Job, Path]]
JobAndFolder = tuple[Job, Path]
NAMES = (
    "../../out",
    "/etc/passwd",
    "C:\\Windows",
    "rope\n",
    "",
    "Ünfug",
    "x" * 300,
    "../mine:Steep",
    "rope@x",
    7,
    None,
)


@pytest.fixture(scope="module")
def job_and_folder(tmp_path_factory: pytest.TempPathFactory) -> JobAndFolder:
    """A job and its folder, not to be changed."""
    return made_job(tmp_path_factory.mktemp("job") / "run")


@pytest.fixture
def folder(job_and_folder: JobAndFolder, tmp_path: Path) -> Path:
    """A copy of it in a run of its own."""
    _, folder = job_and_folder
    return shutil.copytree(folder.parents[1], tmp_path / "run") / folder.relative_to(folder.parents[1])


def rewrite(path: Path, **changed: object) -> None:
    """Change entries of a record."""
    write_json(path, {**json.loads(path.read_text()), **changed})


def test_a_job_comes_back_from_its_folder(make_job: MakeJob) -> None:
    job, folder = make_job("rope+alibi", seed=3)
    assert folder.name == "rope+alibi-seed3"
    assert read_job(folder) == job
    assert read_job(folder).identity == job.identity


@pytest.mark.parametrize("change", [{"lr": 1e-3}, {"lengths": (1, 3)}, {"threads": 2}, {"lag": 3}], ids=str)
def test_another_configuration_is_refused_with_what_differs(make_job: MakeJob, change: dict[str, object]) -> None:
    job, folder = make_job()
    other = dataclasses.replace(job, config=job.config.replaced(change))
    assert other.identity != job.identity
    with pytest.raises(ValueError, match=rf"holds a run of another configuration \({next(iter(change))} .* there"):
        open_job(folder.parent.parent, other)


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": 7}, {"data": {"a": "b"}}, {"tuned": {"lr": 2.0}}, {"seed": 1},
        {"versions": {"torch": "1"}}, {"code": {"mine:Steep": "a"}}, {"spec": "alibi"},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_decides_a_number_is_part_of_what_a_job_is(
    job_and_folder: JobAndFolder, change: dict[str, Any]
) -> None:
    job, _ = job_and_folder
    assert dataclasses.replace(job, **change).identity != job.identity
    assert dataclasses.replace(job, config=job.config.replaced({"checkpoint_every": 7})).identity == job.identity


def test_a_foreign_result_is_refused_and_left_alone(make_job: MakeJob) -> None:
    job, folder = make_job()
    assert read_results(folder, job) is None
    write_results(folder, dataclasses.replace(job, seed=5), empty())
    content = (folder / "records.parquet").read_bytes()
    with pytest.raises(ValueError, match=r"records\.parquet is the result of another configuration"):
        read_results(folder, job)
    assert (folder / "records.parquet").read_bytes() == content


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:24])
def test_names_are_checked_before_they_are_paths(folder: Path, name: object) -> None:
    rewrite(folder / "job.json", spec=name)
    with pytest.raises(ValueError, match=re.escape(str(folder / "job.json"))):
        read_job(folder)
    assert folder.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "../../x"}, {"seed": 10**18}, {"trial": "../../x"}, {"code": ["mine:X"]}, {"tuned": {"lr": -1.0}},
        {"tuned": {"x": 1.0}}, {"config": 5}, {"config": {"task": "../text"}}, {"format": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_every_entry_of_a_job_is_checked(folder: Path, change: dict[str, Any]) -> None:
    rewrite(folder / "job.json", **change)
    with pytest.raises(ValueError, match=re.escape(str(folder / "job.json"))):
        read_job(folder)


def test_a_task_of_somebody_s_own_is_not_imported(folder: Path) -> None:
    config = json.loads((folder / "job.json").read_text())["config"]
    rewrite(folder / "job.json", config={**config, "task": "os:system"})
    with pytest.raises(ValueError, match="Reading a run imports nothing"):
        read_job(folder)


def test_what_changed_since_a_job_was_planned_stops_it(make_job: MakeJob) -> None:
    _, folder = make_job()
    rewrite(folder / "job.json", protocol=7)
    with pytest.raises(ValueError, match="rope-seed0 was planned with protocol 7"):
        run_job(folder)


def checkpoint(identity: str = "id") -> Checkpoint:
    some = torch.ones(2)
    return Checkpoint(identity, 2, {"w": torch.ones(3)}, {"state": {}}, some, some, torch.ones(1, 2), 0.5)


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code in a checkpoint was run')",)


def test_a_checkpoint_comes_back_and_others_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert read_checkpoint(path, "id") is None
    write_checkpoint(path, checkpoint())
    loaded = read_checkpoint(path, "id")
    assert loaded is not None
    assert (loaded.step, loaded.seconds) == (2, 0.5)
    assert torch.equal(loaded.model["w"], torch.ones(3))
    complete = path.read_bytes()
    torch.save({"format": "posenc-lab-checkpoint/3", "model": _Bomb()}, path)
    bomb = path.read_bytes()
    torch.save({"model": {}}, path)
    for content, words in (
        (complete[: len(complete) // 2], "truncated"), (complete[:10], "truncated"), (b"", "truncated"),
        (bomb, "no checkpoint"),
        (path.read_bytes(), "not written by this version"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words) as caught:
            read_checkpoint(path, "id")
        assert str(path) in str(caught.value)
        assert path.read_bytes() == content
    path.write_bytes(complete)
    with pytest.raises(ValueError, match="another configuration"):
        read_checkpoint(path, "other")


@pytest.mark.parametrize("encodings", [{"../x": {"lr": 2.0}}, {"rope": {"lr": 0}}, {"rope": 5}, ["rope"], 5], ids=str)
def test_tuned_rates_of_others_are_checked(tmp_path: Path, encodings: object) -> None:
    write_json(tmp_path / "tuned.json", {"format": "posenc-lab-tuned/1", "encodings": encodings})
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "tuned.json"))):
        read_tuned(tmp_path)
