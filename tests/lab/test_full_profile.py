"""The profile for a GPU: its size, what it asks of the text, and all of it at a small size on a processor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.lab import commands
from posenc.lab.jobs import Job, open_job
from posenc.lab.specs import check_specs
from posenc.lab.tasks import task_of
from posenc.lab.text.corpus import make_corpus
from posenc.lab.text.documents import Document
from posenc.lab.text.profiles import FULL, Settings, epochs_in_words, profile

MakeJob = Callable[..., tuple[Job, Path]]
SMALL = (
    "--profile full --no-cost --dim 32 --layers 2 --heads 2 --train-length 8 --lengths 1,2,4 --steps 6 --batch-size 4 "
    "--windows 4 --device cpu --workers 2 --checkpoint-every 3"
)


def test_it_has_the_size_that_is_stated() -> None:
    full = profile("full")
    s = full.settings
    assert (s.train_length, s.longest, s.precision, s.compile, full.seeds) == (2048, 32768, "bfloat16", True, 1)
    blocks = s.layers * (4 * s.dim**2 + 3 * s.dim * s.hidden + 2 * s.dim)
    assert 100e6 < blocks + 2 * 256 * s.dim + s.dim < 105e6
    assert s.steps * s.batch_size * s.train_length == 65_536_000
    assert check_specs(FULL, s.shape) == list(FULL)


def test_a_count_of_parameters_by_hand_is_the_models(corpus: object) -> None:
    s = dataclasses.replace(profile("full").settings, dim=64, layers=3, heads=4, train_length=8)
    model = task_of(s).model("rope", s, corpus, seed=0)
    blocks = s.layers * (4 * s.dim**2 + 3 * s.dim * s.hidden + 2 * s.dim)
    assert model.parameter_counts()[0] == blocks + 2 * 256 * s.dim + s.dim


def test_too_many_epochs_are_refused_with_what_to_do() -> None:
    s = profile("full").settings
    with pytest.raises(ValueError, match=r"its 9\.1 MB 7\.2 times, more than the 4 .*at least 16 MB.*--data hf:NAME"):
        epochs_in_words(s, 9_060_000)
    assert epochs_in_words(s, 32_768_000) == "Each training reads it 2 times."
    assert epochs_in_words(dataclasses.replace(s, max_epochs=0), 9_060_000) == "Each training reads it 7.2 times."
    assert epochs_in_words(Settings(), 9_060_000) == "Each training reads it 0.11 times."


def test_documents_shorter_than_a_window_are_named() -> None:
    documents = [Document(f"text{number}", b"words " * 1000) for number in range(20)]
    with pytest.raises(ValueError, match=r"32769 bytes.* longest document 6000\): give longer documents .*--lengths"):
        make_corpus("test", documents, window=32_769, windows=32, stride=1024)


@pytest.mark.parametrize("change", [{"compile": True}, {"processes": 2, "shard": True}])
def test_runs_from_before_there_was_compilation_go_on(make_job: MakeJob, change: dict[str, object]) -> None:
    job, folder = make_job()
    path = folder / "config.json"
    record = json.loads(path.read_text())
    for name in ("compile", "shard", "max_epochs"):
        del record["settings"][name]
    path.write_text(json.dumps(record))
    assert open_job(folder.parent.parent, job) == folder
    plain = dataclasses.asdict(job.settings)
    assert job.identity == dataclasses.replace(job, settings=Settings(**{**plain, "max_epochs": 9})).identity
    other = dataclasses.replace(job, settings=dataclasses.replace(job.settings, **change))
    assert other.identity != job.identity
    with pytest.raises(ValueError, match=list(change)[-1]):
        open_job(folder.parent.parent, other)


@pytest.fixture(scope="module")
def few_texts(tmp_path_factory: pytest.TempPathFactory, write_texts: Callable[[Path], Path]) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "texts")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--shard", "--no-compile"], "--shard: there is one process"),
        (["--steps", "10000"], "more than the 4 of --max-epochs"),
        (["--device", "cuda"], "--device cuda: not available here"),
        (["--max-epochs", "-1"], "--max-epochs -1: at least 0"),
        (["--task", "passkey", "--max-epochs", "1"], "--max-epochs: --task passkey has no such number"),
    ],
)
def test_what_cannot_work_is_one_line(
    few_texts: Path, tmp_path: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "rope", "--data", str(few_texts), "--out", str(tmp_path / "run"), *SMALL.split(), *more]
    assert commands.run(command) == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("here_alone")
def test_a_small_one_runs_to_its_report(few_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(few_texts, tmp_path / "run", "rope", "--no-compile", "--no-control")
    assert "Each training reads it 0.0" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["precision"] == "bfloat16"


@pytest.mark.slow
def test_all_of_a_small_one_runs_compiled(few_texts: Path, tmp_path: Path) -> None:
    eager, compiled = _run(few_texts, tmp_path / "eager", "--no-compile"), _run(few_texts, tmp_path / "compiled")
    assert set(compiled) == set(FULL)
    for name, bits in compiled.items():
        assert bits == pytest.approx(eager[name], abs=5e-2)


def _run(texts: Path, out: Path, *more: str) -> dict[str, list[float]]:
    assert commands.run(["compare", *more, "--data", str(texts), "--out", str(out), *SMALL.split()]) == 0
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return {row["encoding"]: row["bits_per_byte"] for row in rows}
