"""A small text, tiny settings, and jobs made of them."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import filelock
import pytest
from accelerate.state import AcceleratorState

import posenc
from posenc.lab.files import write_json
from posenc.lab.jobs import RUN_FORMAT, Job, corpus_identity, open_job
from posenc.lab.runners.pending import Pending
from posenc.lab.text.corpus import Corpus, make_corpus, store_corpus
from posenc.lab.text.documents import folder_documents
from posenc.lab.text.profiles import Settings
from posenc.lab.worker import run_job

TINY = Settings(
    train_length=8, lengths=(1, 2, 4), steps=12, batch_size=4, windows=4, dim=16, layers=1, heads=2,
    precision="float32", device="cpu", checkpoint_every=3,
)  # fmt: skip


def make_texts(folder: Path, files: int = 30, words: int = 200) -> Path:
    """A folder of texts with some structure to learn, always the same."""
    chance = random.Random(5)
    vocabulary = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 7))) for _ in range(40)]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        (folder / f"text{number:02d}.txt").write_text(" ".join(chance.choices(vocabulary, k=words)))
    return folder


@pytest.fixture(scope="session")
def write_texts() -> Callable[[Path], Path]:
    return make_texts


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder once for all processes of a test run, and not to be changed: what several tests look at."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with filelock.FileLock(root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return make


def run_here(pending: list[Pending], **options: object) -> list[str]:
    """In the place of `run_local`: the same jobs one after the other in this process, which need not start others."""
    failures = []
    for work in pending:
        AcceleratorState._reset_state(True)  # the precision of a process is else that of its first training
        try:
            run_job(work.folder, work.rows)
        except (ValueError, OSError) as error:
            failures.append(f"{work.name}: {error}")
    AcceleratorState._reset_state(True)
    return failures


@pytest.fixture
def here_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands start no workers; that workers give the same numbers is tested where they are started."""
    for user in ("posenc.lab.compare", "posenc.lab.tune.tuner"):
        if user == "posenc.lab.compare" or importlib.util.find_spec("optuna"):
            monkeypatch.setattr(f"{user}.run_local", run_here)


@pytest.fixture
def tiny() -> Settings:
    return TINY


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return make_texts(tmp_path / "texts")


@pytest.fixture
def corpus(texts: Path) -> Corpus:
    return make_corpus("test", folder_documents(texts), window=TINY.longest + 1, windows=TINY.windows, stride=4)


@pytest.fixture
def make_job(tmp_path: Path, corpus: Corpus) -> Callable[..., tuple[Job, Path]]:
    """Make a job and its folder, in a run folder called ``name``."""

    def make(spec: str = "rope", seed: int = 0, settings: Settings = TINY, name: str = "run") -> tuple[Job, Path]:
        out = tmp_path / name
        store_corpus(corpus, out / "corpus")
        job = Job(spec, seed, settings, corpus_identity(corpus.facts), {"posenc": posenc.__version__})
        record = {"settings": asdict(settings), "corpus": job.corpus, "versions": job.versions}
        write_json(out / "run.json", {"format": RUN_FORMAT, **record})
        return job, open_job(out, job)

    return make
