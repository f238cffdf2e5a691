"""From result files to rows."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.lab.files import write_json
from posenc.lab.jobs import RESULT_FORMAT, Job
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import read_rows

MakeJob = Callable[..., tuple[Job, Path]]


def _write(job: Job, folder: Path, bits: list[list[float] | None], **more: list[list[float] | None]) -> None:
    measured = {spec: {"bits": b, "positions": [3.0, 4.0], "bin": 2} for spec, b in {job.spec: bits, **more}.items()}
    training = {"parameters": 10 + job.seed}
    result = {"format": RESULT_FORMAT, "identity": job.identity, "training": training, "rows": measured}
    write_json(folder / "result.json", result)


def test_seeds_are_pooled_and_rows_sorted(make_job: MakeJob, tiny: Settings, tmp_path: Path) -> None:
    two = dataclasses.replace(tiny, lengths=(1, 2))
    for seed, shift in ((0, 0.0), (1, 0.2)):
        job, folder = make_job("rope", seed, two)
        _write(job, folder, [[2 + shift, 4 + shift], [3 + shift, 6 + shift]])
    job, folder = make_job("alibi", 0, two)
    _write(job, folder, [[3.0, 3.0], [3.0, 3.0]])
    job, folder = make_job("learned", 0, two)
    _write(job, folder, [[1.0, 1.0], None])
    make_job("nope", 0, two)  # not finished
    rows = {row.spec: row for row in read_rows(tmp_path / "run")}
    assert list(rows) == ["alibi", "rope", "learned"]
    rope = rows["rope"]
    assert rope.seeds == 2
    assert rope.bits == pytest.approx([3.1, 4.6])
    assert rope.spread == pytest.approx([0.2 / 2**0.5] * 2)
    assert rope.changes[1] == pytest.approx((1.5, 0.5))
    assert rope.positions == [(1.0, 3.0), (3.0, 4.0)]
    assert rope.training["parameters"] == 10.5
    assert rope.verdict == "fails"
    assert rope.perplexities == pytest.approx((2**3.1, 2**4.6))
    assert rows["alibi"].spread == [None, None]
    assert rows["learned"].bits == [1.0, None]
    assert rows["learned"].verdict == "past its table"


def test_controls_are_rows_of_their_own(make_job: MakeJob, tiny: Settings, tmp_path: Path) -> None:
    job, folder = make_job("rope", 0, dataclasses.replace(tiny, lengths=(1, 2)))
    _write(job, folder, [[2.0, 2.0], [5.0, 5.0]], **{"rope+window": [[2.0, 2.0], [2.0, 2.0]]})
    rows = read_rows(tmp_path / "run")
    assert [(row.spec, row.control, row.verdict) for row in rows] == [
        ("rope+window", True, "flat"),
        ("rope", False, "fails"),
    ]


def test_a_foreign_result_is_never_mixed_in(make_job: MakeJob, tmp_path: Path) -> None:
    job, folder = make_job("rope")
    other = dataclasses.replace(job, corpus={"train_sha256": "x", "validation_sha256": "y"})
    _write(other, folder, [[2.0, 2.0]] * 3)
    with pytest.raises(ValueError, match="another configuration or corpus"):
        read_rows(tmp_path / "run")


def test_a_job_copied_from_another_run_is_never_mixed_in(make_job: MakeJob, tiny: Settings, tmp_path: Path) -> None:
    job, folder = make_job("alibi", 0, dataclasses.replace(tiny, lr=0.5), name="other")
    _write(job, folder, [[2.0, 2.0]] * 3)
    here, own = make_job("rope")
    _write(here, own, [[2.0, 2.0]] * 3)
    shutil.copytree(folder, tmp_path / "run" / "jobs" / folder.name)
    with pytest.raises(ValueError, match=r"lr 0.5 there, 0.002 here"):
        read_rows(tmp_path / "run")
