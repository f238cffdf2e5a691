"""A small text, tiny settings, and jobs made of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import posenc
from posenc.lab.files import write_json
from posenc.lab.jobs import RUN_FORMAT, Job, corpus_identity, open_job
from posenc.lab.text.corpus import Corpus, make_corpus, store_corpus
from posenc.lab.text.documents import folder_documents
from posenc.lab.text.profiles import Settings

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
