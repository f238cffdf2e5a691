"""A class of one's own as ``module:Class``: what is known of it, what is refused, and a run that knows its versions."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest

import posenc
from posenc.lab import commands, jobs
from posenc.lab.files import read_json, write_json
from posenc.lab.jobs import Job, code_in, open_job, read_job, set_aside
from posenc.lab.own import Permission, permitted
from posenc.lab.specs import Shape, build_encodings, check_specs, code_of, ends_at_table, entry_of
from posenc.lab.worker import run_job

SHAPE = Shape(dim=16, heads=2, layers=2, train_length=8)
MINE = '''
import sys

import torch

from posenc import ALiBi, BiasEncoding, Learned, RoPE, ScoreEncoding


class Steep(ScoreEncoding):
    """Takes from a score what a learned slope makes of the distance.

    No more.
    """

    def __init__(self, num_heads):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.full((num_heads, 1, 1), 0.1))

    def forward(self, scores, context):
        distance = context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)
        return scores - self.slope * distance.abs()


class Plain(BiasEncoding):
    def of_distance(self, distance):
        return -distance.abs().float().unsqueeze(0)


class Rows(Learned):
    """Its rows end."""

    def __init__(self, dim, max_length):
        super().__init__(dim, max_length)


class Flat(RoPE):
    axes = 2


class Wanting(ALiBi):
    def __init__(self, num_heads, window):
        super().__init__(num_heads)


class Broken(ALiBi):
    def __init__(self, num_heads):
        raise RuntimeError("out of ink")


some_number = 3
'''
TINY = (
    "--train-length 8 --lengths 1,2 --steps 6 --batch-size 4 --windows 4 --dim 16 --layers 2 --heads 2 "
    "--no-cost --precision float32 --device cpu --workers 2 --no-control --out run"
)
HERE = ("--runner", "slurm", "--slurm-cluster", "debug")  # all jobs in this process, one after the other
MakeJob = Callable[..., tuple[Job, Path]]


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "mine.py").read_bytes()).hexdigest()


def _command(texts: Path, *more: str) -> list[str]:
    return ["compare", "rope", "mine:Steep", "NoPE + mine:Rows+window", "--data", str(texts), *TINY.split(), *more]


def _change(folder: Path, text: str) -> None:
    """Another version, as a new process would see it."""
    (folder / "mine.py").write_text(text)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()


def _bits(folder: Path) -> dict[str, object]:
    rows = [json.loads(line) for line in (folder / "run" / "results.jsonl").read_text().splitlines()]
    return {row["encoding"]: row["bits_per_byte"] for row in rows}


def _trained(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("run/jobs/*/checkpoint.pt")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with ``mine.py`` that one works in; nothing imported from it stays."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    names = ("mine:Steep", "mine:Plain", "mine:Rows", *REFUSED)
    with permitted(Permission(frozenset(names), tmp_path)):
        yield tmp_path
    sys.modules.pop("mine", None)


@pytest.fixture(scope="module")
def finished(once: Callable[[str, Callable[[Path], None]], Path], write_texts: Callable[[Path], Path]) -> Path:
    """Texts, ``mine.py`` and a finished run, not to be changed; a worker of its own has trained one of the classes."""

    def make(folder: Path) -> None:
        (folder / "mine.py").write_text(MINE)
        texts = write_texts(folder / "texts")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("PYTHONPATH", str(Path(posenc.__file__).parents[1]))
            try:
                assert commands.run(["compare", "mine:Steep", *_command(texts)[4:]]) == 0
                assert commands.run(_command(texts, *HERE)) == 0
            finally:
                sys.modules.pop("mine", None)

    return once("own", make)


def test_what_is_known_of_an_own_class(here: Path) -> None:
    entry = entry_of("mine:Steep")
    assert (entry.name, entry.place, entry.shared, entry.lr_multiplier) == ("mine:Steep", "score", False, 1.0)
    assert entry.title == "Takes from a score what a learned slope makes of the distance."
    assert entry_of("mine:Plain").title == "Plain"
    assert ends_at_table("rope+mine:Rows")
    assert not ends_at_table("mine:Steep")
    built = build_encodings("alibi+mine:Steep", SHAPE)
    (first, one), (second, two) = built.attention
    assert first is second
    assert one is not two
    assert built.lr_multipliers == {one.slope: 1.0, two.slope: 1.0}
    assert check_specs([" RoPE + mine:Steep ", "mine:Plain"], SHAPE) == ["rope+mine:Steep", "mine:Plain"]
    assert code_of(["rope", "alibi+mine:Steep+window"]) == {"mine:Steep": _digest(here)}


REFUSED = (
    "nowhere:Class", "torn:Class", "script:Class", "mine:steep", "mine:some_number", "mine:torch", "mine.py:Steep",
    "posenc.encoding:Encoding", "mine:Wanting", "mine:Broken", "mine:Flat",
)  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere:Class", "nowhere:Class: nowhere cannot be imported from .*: No module named 'nowhere'"),
        ("torn:Class", "torn:Class: torn cannot be imported from .*SyntaxError"),
        ("script:Class", "script:Class: script cannot be imported from .*SystemExit: 3"),
        ("mine:steep", "mine:steep: mine has no class steep that is one of EmbeddingEncoding"),
        ("mine:some_number", "mine has no class some_number"),
        ("mine:torch", "mine has no class torch"),
        ("posenc.encoding:Encoding", "has no class Encoding that is one of"),
        ("../mine:Steep", r"\.\./mine:Steep: an own class is named as it is imported"),
        ("mine.py:Steep", "mine.py cannot be imported"),
        ("mine:", "an own class is named"),
        ("mine:Steep:Steep", "an own class is named"),
        ("rope+mine:Wanting", r"rope\+mine:Wanting: mine:Wanting cannot be made .* needs window"),
        ("mine:Broken", "mine:Broken cannot be made of what compare gives .dim, .*: RuntimeError: out of ink"),
        ("mine:Flat", "mine:Flat: positions of Flat.* have 2 coordinates, those of text one"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(here: Path, spec: str, words: str) -> None:
    (here / "torn.py").write_text("class Class(:")
    (here / "script.py").write_text("raise SystemExit(3)")
    with pytest.raises(ValueError, match=words):
        check_specs([spec], SHAPE)


def test_a_class_without_a_file_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steep = build_encodings("mine:Steep", SHAPE).attention[0][0]
    monkeypatch.setattr(type(steep), "__module__", "builtins")
    with pytest.raises(ValueError, match="mine:Steep: its source file is not there"):
        code_of(["mine:Steep"])


def test_a_run_trains_own_classes_like_any_other(finished: Path) -> None:
    assert set(_bits(finished)) == {"rope", "mine:Steep", "nope+mine:Rows", "nope+mine:Rows+window"}
    assert _bits(finished)["nope+mine:Rows"][1] is None  # past its table
    assert set(_trained(finished)) == {"rope-seed0", "mine.Steep-seed0", "nope+mine.Rows-seed0"}
    for name in ("table.md", "report.html"):
        text = (finished / "run" / name).read_text()
        assert "mine:Steep" in text
        assert f"SHA-256 {_digest(finished)}" in text
    job = read_job(finished / "run" / "jobs" / "mine.Steep-seed0")
    assert (job.spec, job.code) == ("mine:Steep", {"mine:Steep": _digest(finished)})


@pytest.mark.slow
def test_a_changed_class_is_trained_again_and_nothing_else(
    finished: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = _command(finished / "texts", *HERE)
    shutil.copytree(finished, here, dirs_exist_ok=True)
    before, trained = _bits(here), _trained(here)
    assert commands.run(command) == 0
    assert "finished already" in capsys.readouterr().out
    assert (_bits(here), _trained(here)) == (before, trained)

    _change(here, MINE.replace("distance.abs()", "distance.abs().float().sqrt()"))
    assert commands.run(command) == 0
    assert "An own class has changed" in capsys.readouterr().out
    assert _bits(here)["rope"] == before["rope"]
    assert _bits(here)["mine:Steep"] != before["mine:Steep"]
    assert [name for name, time in _trained(here).items() if time == trained[name]] == ["rope-seed0"]
    assert len(list(here.glob("run/replaced/mine.Steep-seed0-*/result.json"))) == 1

    _change(here, MINE)  # what was trained before serves again
    assert commands.run(command) == 0
    assert "finished already" in capsys.readouterr().out
    assert (_bits(here), _trained(here)) == (before, trained)


def test_all_jobs_of_a_changed_class_are_set_aside_whatever_is_asked_for(here: Path, make_job: MakeJob) -> None:
    def job_of(spec: str, seed: int, digest: str) -> Job:
        job, folder = make_job(spec, seed)
        shutil.rmtree(folder)
        return dataclasses.replace(job, code={"mine:Steep": digest} if "mine" in spec else {})

    out, old = here / "run", [job_of(s, k, "a") for s, k in (("mine:Steep", 0), ("rope+mine:Steep", 1), ("rope", 0))]
    for job in old:
        open_job(out, job)
    assert code_in(out) == {"mine:Steep": "a"}
    assert set_aside(out, {}) == set_aside(out, {"mine:Steep": "a", "mine:Rows": "b"}) == []
    assert len(set_aside(out, {"mine:Steep": "b"})) == 2
    assert {path.name for path in (out / "jobs").iterdir()} == {"rope-seed0"}
    assert open_job(out, job_of("mine:Steep", 0, "b")).name == "mine.Steep-seed0"
    assert [folder.name[:-12] for folder in set_aside(out, {"mine:Steep": "a"})] == ["mine.Steep-seed0-"]
    assert [read_job(open_job(out, job)) for job in old] == old
    assert len(list((out / "replaced").iterdir())) == 1


def test_a_changed_class_whose_job_is_running_is_refused(
    here: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, folder = make_job("mine:Steep")
    write_json(folder / "config.json", {**dataclasses.asdict(job), "code": {"mine:Steep": "a"}})
    monkeypatch.setattr(jobs, "LOCK_SECONDS", 0.1)
    with filelock.FileLock(folder / "lock"), pytest.raises(ValueError, match="in use by another process"):
        set_aside(here / "run", {"mine:Steep": "b"})
    assert (folder / "config.json").exists()


def test_a_class_that_changes_under_way_stops_its_job(here: Path, make_job: MakeJob) -> None:
    job, folder = make_job("mine:Steep")
    write_json(folder / "config.json", {**dataclasses.asdict(job), "code": code_of(["mine:Steep"])})
    (here / "mine.py").write_text(MINE + "\n# another file\n")
    with pytest.raises(ValueError, match="mine:Steep: changed after this job was planned"):
        run_job(folder, ["mine:Steep"])
    assert not (folder / "checkpoint.pt").exists()


def test_code_is_part_of_what_a_job_is(make_job: MakeJob) -> None:
    job, folder = make_job("rope")
    assert dataclasses.replace(job, code={"mine:Steep": "a"}).identity != job.identity
    record = read_json(folder / "config.json", ("code",))
    del record["code"]  # as it was before there were own classes
    write_json(folder / "config.json", record)
    assert read_job(folder) == job
    assert open_job(folder.parent.parent, job) == folder
