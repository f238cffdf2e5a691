"""An extension from its base to its rows: what starts from what, what a search sees, stopping and going on."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.lab.conftest import make_texts
from tests.lab.test_extension import TINY, plan_of, run_here

from posenc.frequencies.clex import CLEX
from posenc.frequencies.longrope import LongRoPE
from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.extension import searched as search_module
from posenc.lab.extension.measure import measure_row
from posenc.lab.extension.model import Extended
from posenc.lab.extension.searched import pieces, searched
from posenc.lab.jobs import Job, read_job, read_result
from posenc.lab.model import Decoder
from posenc.lab.results import read_measured
from posenc.lab.tasks.extension import TASK, RunCorpus
from posenc.lab.text.corpus import Corpus
from posenc.lab.train import StoppedError, numbers_of, start_from_base
from posenc.lab.worker import run_job

ROWS = (
    "rope+window", "yarn", "dynamic_yarn", "yarn@4", "longrope", "rope+tuned", "yarn+tuned", "dynamic_ntk+tuned",
    "longrope+tuned", "clex+tuned", "rope+continued+window",
)  # fmt: skip
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be changed."""
    folder = tmp_path_factory.mktemp("extension")
    names = run_here(plan_of(ROWS, make_texts(folder / "texts"), folder / "run"))
    assert names[0] == "rope-seed0"
    assert set(names) == {"rope-seed0", "rope+continued-seed0"} | {f"{row}-seed0" for row in ROWS if "tuned" in row}
    return folder / "run"


def _job(run: Path, spec: str) -> tuple[Job, Path]:
    folder = run / "jobs" / f"{spec}-seed0"
    return read_job(folder), folder


def _started(run: Path, spec: str) -> Extended:
    """The model of a job before its first step."""
    job, folder = _job(run, spec)
    model = TASK.model(spec, TASK.numbers(spec, TINY), TASK.load(run), 0)
    start_from_base(job, folder, model)
    assert isinstance(model, Extended)
    return model.eval()


def _bits(run: Path) -> dict[str, list[list[float]]]:
    return {spec: runs[0]["bits"] for spec, runs in read_measured(run).items()}


def test_the_base_is_trained_once_and_holds_every_untrained_row(run: Path) -> None:
    job, folder = _job(run, "rope")
    result = read_result(folder, job)
    assert result is not None
    assert set(result["rows"]) == {"rope", "rope+window", "yarn", "dynamic_yarn", "yarn@4", "longrope"}
    others = [path.name for path in (run / "jobs").glob("*/")]
    assert len(others) == 7
    assert all(read_job(run / "jobs" / name).settings == TINY for name in others)


def test_untrained_rows_differ_only_past_the_trained_length(run: Path) -> None:
    bits = _bits(run)
    for row in ("rope+window", "yarn", "dynamic_yarn", "longrope"):
        assert bits[row][0] == pytest.approx(bits["rope"][0], abs=1e-5)
    assert bits["yarn@4"][0] != pytest.approx(bits["rope"][0], abs=1e-5)
    assert bits["yarn"][2] != pytest.approx(bits["rope"][2], abs=1e-5)
    assert bits["yarn"][2] == pytest.approx(bits["yarn@4"][2], abs=1e-5)  # there both have the factor 4
    for length in range(3):
        assert bits["dynamic_yarn"][length] == pytest.approx(bits["yarn"][length], abs=1e-5)


def test_the_window_is_flat_by_construction(run: Path) -> None:
    for row in ("rope+window", "rope+continued+window"):
        bits = _bits(run)[row]
        assert bits[2] == pytest.approx(bits[1], abs=1e-4)


@pytest.mark.parametrize("spec", ["rope+tuned", "dynamic_ntk+tuned", "longrope+tuned", "clex+tuned", "rope+continued"])
def test_a_fine_tuning_starts_exactly_from_the_base(run: Path, spec: str) -> None:
    job, folder = _job(run, "rope")
    base = read_checkpoint(folder / "checkpoint.pt", job.identity)
    assert base is not None
    started = _started(run, spec)
    own = started.state_dict()
    assert all(torch.equal(own[name], value) for name, value in base.model.items())
    assert set(own) - set(base.model) == (
        {"rope.scaling.up_proj", "rope.scaling.down_proj"} if spec == "clex+tuned" else set()
    )
    if spec != "longrope+tuned":  # whose gain holds for short texts too
        tokens = torch.arange(2 * TINY.train_length).view(2, -1)
        plain = Extended(TINY.shape, hidden=TINY.hidden, seed=1).eval()
        plain.load_state_dict(base.model)
        torch.testing.assert_close(started(tokens), plain(tokens), rtol=0, atol=1e-5)


def test_a_fine_tuning_ends_elsewhere_than_it_started(run: Path) -> None:
    for spec in ("yarn+tuned", "clex+tuned", "rope+continued"):
        job, folder = _job(run, spec)
        trained = read_checkpoint(folder / "checkpoint.pt", job.identity)
        assert trained is not None
        assert trained.step == TINY.fine_tune_steps
        before = _started(run, spec).state_dict()
        assert all(not torch.equal(trained.model[name], value) for name, value in before.items())


def test_without_its_base_a_fine_tuning_says_so(run: Path, tmp_path: Path) -> None:
    out = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(out / "jobs" / "rope-seed0")
    for spec in ("yarn+tuned", "longrope+tuned"):
        (out / "jobs" / f"{spec}-seed0" / "result.json").unlink()
        with pytest.raises(ValueError, match=r"starts from the trained rope|longrope\+tuned needs the factors"):
            run_job(out / "jobs" / f"{spec}-seed0", [spec])


def test_longrope_is_tuned_with_what_its_search_found(run: Path) -> None:
    found = read_measured(run)["longrope"][0]["searched"]
    assert set(found) == {"2", "4"}
    scaling = _started(run, "longrope+tuned").rope.scaling
    assert isinstance(scaling, LongRoPE)
    assert scaling.long == tuple(found["2"]["factors"])
    assert (scaling.factor, scaling.start_tokens) == (2.0, found["2"]["start_tokens"])


def test_a_search_sees_training_text_alone_and_happens_once(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Extended(TINY.shape, hidden=TINY.hidden, seed=0).eval()
    blind = dataclasses.replace(corpus, validation=corpus.validation[:0], spans=())
    shares: list[float] = []
    found = searched(model, blind, 4, TINY, CPU, shares.append)
    assert len(found.factors) == 4
    assert shares == pytest.approx([(i + 1) / TINY.evaluations for i in range(TINY.evaluations)])
    other = Extended(TINY.shape, hidden=TINY.hidden, seed=0).eval()
    assert searched(other, corpus, 4, TINY, CPU) == found
    assert max(pieces(corpus, 32, TINY)) <= len(corpus.train)
    monkeypatch.setattr(search_module, "search", None)  # would fail if it were called
    assert searched(model, blind, 4, TINY, CPU) == found
    assert measure_row(model, corpus, "longrope@4", TINY, CPU)["searched"]["4"]["factors"] == found.factors


def test_plain_rows_are_the_text_model(corpus: Corpus) -> None:
    tokens = corpus.validation[:32].long().view(2, 16)
    ours = Extended(TINY.shape, hidden=TINY.hidden, seed=3).eval()
    theirs = Decoder("rope", TINY.shape, hidden=TINY.hidden, seed=3).eval()
    for window in (None, 5):
        torch.testing.assert_close(ours(tokens, window), theirs(tokens, window), rtol=0, atol=0)
    assert set(ours.state_dict()) == set(theirs.state_dict())


def test_clex_learns_at_a_rate_of_its_own(corpus: Corpus) -> None:
    numbers = TASK.numbers("clex+tuned", TINY)
    model = TASK.model("clex+tuned", numbers, RunCorpus(corpus, None), 0)
    assert isinstance(model, Extended)
    assert isinstance(model.rope.scaling, CLEX)
    assert model.rope.scaling.max_factor == TINY.fine_tune_length
    assert model.lr_multipliers == dict.fromkeys(model.rope.scaling.parameters(), 0.1)
    TASK.loss(model, TASK.batch(RunCorpus(corpus, None), numbers, 0, 0)).backward()
    down = model.rope.scaling.down_proj.grad
    assert down is not None
    assert bool(down.abs().sum() > 0)


@pytest.mark.parametrize(("spec", "stop"), [("longrope+tuned", 2), ("clex+tuned", 2), ("yarn+tuned", 5)])
def test_stopped_and_continued_equals_undisturbed(run: Path, tmp_path: Path, spec: str, stop: int) -> None:
    out = shutil.copytree(run, tmp_path / "run")
    job, folder = _job(out, spec)
    for name in ("result.json", "checkpoint.pt", "metrics.jsonl"):
        (folder / name).unlink()
    with pytest.raises(StoppedError):
        run_job(folder, [spec], should_stop=_after(stop))
    assert read_result(folder, job) is None
    run_job(folder, [spec])
    assert _bits(out)[spec] == _bits(run)[spec]
    assert numbers_of(job).steps == TINY.fine_tune_steps


def _after(times: int) -> Callable[[], bool]:
    left = iter(range(times))
    return lambda: next(left, None) is None


def test_a_search_that_is_stopped_leaves_nothing_half_done(run: Path, tmp_path: Path) -> None:
    out = shutil.copytree(run, tmp_path / "run")
    job, folder = _job(out, "rope")
    (folder / "result.json").unlink()
    with pytest.raises(StoppedError):
        run_job(folder, ["longrope"], should_stop=_after(3))
    assert read_result(folder, job) is None
    run_job(folder, ["rope", "longrope"])
    assert _bits(out)["longrope"] == _bits(run)["longrope"]


def test_a_row_that_is_asked_for_later_is_measured_on_the_same_base(run: Path, tmp_path: Path) -> None:
    out = shutil.copytree(run, tmp_path / "run")
    before = (out / "jobs" / "rope-seed0" / "checkpoint.pt").read_bytes()
    names = run_here(plan_of((*ROWS, "pi@2", "llama3"), make_texts(tmp_path / "texts"), out))
    assert names == ["rope-seed0"]
    assert {"pi@2", "llama3"} < set(_bits(out))
    assert (out / "jobs" / "rope-seed0" / "checkpoint.pt").read_bytes() == before
    assert run_here(plan_of(ROWS, make_texts(tmp_path / "texts"), out)) == []


def test_what_is_written_is_plain_data(run: Path) -> None:
    job, folder = _job(run, "rope")
    found = json.loads((folder / "result.json").read_text())
    assert found["rows"]["longrope"]["lengths"] == [1, 2, 4]
    assert found["rows"]["longrope"]["judged"] == 2
    assert job.settings == TINY
