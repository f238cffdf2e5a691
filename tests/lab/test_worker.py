"""One job: undisturbed, stopped and continued, locked, refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
import torch

from posenc.lab import worker
from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.jobs import Job, read_result
from posenc.lab.text.corpus import Corpus
from posenc.lab.train import StoppedError, make_accelerator, train
from posenc.lab.worker import run_job

MakeJob = Callable[..., tuple[Job, Path]]
TIMES = ("seconds", "bytes_per_second", "peak_memory")


def _numbers(job: Job, folder: Path) -> dict[str, object]:
    """A result without what a clock says."""
    result = read_result(folder, job)
    assert result is not None
    training = {key: value for key, value in result["training"].items() if key not in TIMES}
    return {"training": training, "rows": result["rows"]}


def _metrics(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "bytes_per_second"} for row in rows]


class StopAfter:
    """Asks to stop after some steps, or some forwards."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_job_ends_with_a_result_and_metrics(make_job: MakeJob) -> None:
    job, folder = make_job("rope")
    run_job(folder, ["rope", "rope+window"])
    result = read_result(folder, job)
    assert result is not None
    assert set(result["rows"]) == {"rope", "rope+window"}
    bits = result["rows"]["rope"]["bits"]
    assert [len(windows) for windows in bits] == [4, 4, 4]
    assert all(0 < b < 12 for windows in bits for b in windows)
    assert result["rows"]["rope+window"]["bits"][0] == pytest.approx(bits[0], abs=1e-5)
    assert [row["step"] for row in _metrics(folder)] == list(range(1, 13))
    assert {"step", "loss_bits", "grad_norm", "lr"} == set(_metrics(folder)[0])
    training = result["training"]
    assert training["parameters"] > 0
    assert training["encoding_parameters"] == 0
    assert training["bytes_per_second"] > 0
    assert training["peak_memory"] > 50e6
    assert training["grad_norm_median"] <= training["grad_norm_p95"] <= training["grad_norm_max"]
    assert 0 <= training["clipped_share"] <= 1
    assert not (folder / "progress.json").exists()
    assert "node" not in json.dumps(result["machine"])


def test_training_learns(make_job: MakeJob, corpus: Corpus) -> None:
    job, folder = make_job("alibi")
    losses: list[float] = []
    train(job, corpus, folder, make_accelerator(job.settings), on_step=lambda step, loss, rate: losses.append(loss))
    assert 8.0 < losses[0] < 8.7  # about what guessing costs
    assert losses[-1] < losses[0] - 0.1


STOPS = (0, 5, 11, 12)  # after the first step, twice between, while measuring
QUICK = ((0, "t5"), (11, "shaw"), (12, "learned"))
REST = [(stop, spec) for stop in STOPS for spec in ("nope", "t5", "shaw", "learned") if (stop, spec) not in QUICK]


@pytest.mark.parametrize(("stop", "spec"), [*QUICK, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)])
def test_stopped_and_continued_equals_undisturbed_bit_for_bit(make_job: MakeJob, spec: str, stop: int) -> None:
    job, undisturbed = make_job(spec, name="undisturbed")
    run_job(undisturbed, [spec])
    _, folder = make_job(spec, name="stopped")
    with pytest.raises(StoppedError):
        run_job(folder, [spec], should_stop=StopAfter(stop))
    assert read_result(folder, job) is None
    torch.manual_seed(stop)  # whatever the new process's state
    run_job(folder, [spec])
    assert _numbers(job, folder) == _numbers(job, undisturbed)
    assert _metrics(folder) == _metrics(undisturbed)
    states = [read_checkpoint(path / "checkpoint.pt", job.identity) for path in (folder, undisturbed)]
    assert states[0] is not None
    assert states[1] is not None
    assert all(torch.equal(states[0].model[name], states[1].model[name]) for name in states[0].model)


def test_steps_after_the_last_checkpoint_are_dropped_from_the_metrics(make_job: MakeJob, corpus: Corpus) -> None:
    job, folder = make_job("rope")

    class PowerCutError(Exception):
        pass

    def cut(step: int, loss: float, rate: float) -> None:
        if step == 8:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(job, corpus, folder, make_accelerator(job.settings), on_step=cut)
    assert [row["step"] for row in _metrics(folder)] == list(range(1, 9))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "lo')  # a torn last line
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    assert state is not None
    assert state.step == 6
    steps: list[int] = []
    train(job, corpus, folder, make_accelerator(job.settings), on_step=lambda step, loss, rate: steps.append(step))
    assert steps == list(range(7, 13))
    assert [row["step"] for row in _metrics(folder)] == list(range(1, 13))


def test_all_encodings_are_fed_the_same_batches(
    make_job: MakeJob, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: dict[str, list[torch.Tensor]] = {}
    forward = torch.nn.functional.cross_entropy
    for spec in ("nope", "shaw", "learned"):
        targets = fed.setdefault(spec, [])

        def spy(logits: torch.Tensor, target: torch.Tensor, targets: list[torch.Tensor] = targets) -> torch.Tensor:
            targets.append(target.clone())
            return forward(logits, target)

        monkeypatch.setattr("torch.nn.functional.cross_entropy", spy)
        job, folder = make_job(spec)
        train(job, corpus, folder, make_accelerator(job.settings))
    assert len(fed["nope"]) == 12
    for spec in ("shaw", "learned"):
        assert all(torch.equal(a, b) for a, b in zip(fed["nope"], fed[spec], strict=True))
    assert not torch.equal(fed["nope"][0], fed["nope"][1])


def test_a_finished_job_is_not_trained_again_and_a_new_row_is_only_measured(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, folder = make_job("rope")
    run_job(folder, ["rope"])
    before = _numbers(job, folder)["rows"]["rope"]
    written = (folder / "checkpoint.pt").stat().st_mtime_ns
    run_job(folder, ["rope", "rope+window"])
    after = _numbers(job, folder)["rows"]
    assert after["rope"] == before
    assert set(after) == {"rope", "rope+window"}
    assert (folder / "checkpoint.pt").stat().st_mtime_ns == written
    monkeypatch.setattr(worker, "train", None)
    run_job(folder, ["rope", "rope+window"])


def test_a_learned_table_has_no_number_past_its_rows(make_job: MakeJob) -> None:
    job, folder = make_job("learned")
    run_job(folder, ["learned"])
    result = read_result(folder, job)
    assert result is not None
    assert [bits is None for bits in result["rows"]["learned"]["bits"]] == [False, True, True]


def test_two_workers_never_run_one_job(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder = make_job("nope")
    monkeypatch.setattr(worker, "LOCK_SECONDS", 0.1)
    with filelock.FileLock(folder / "lock"), pytest.raises(ValueError, match="in use by another process"):
        run_job(folder, ["nope"])
    assert not (folder / "checkpoint.pt").exists()
    run_job(folder, ["nope"])


def test_another_text_beside_the_job_is_refused(make_job: MakeJob) -> None:
    _, folder = make_job("nope")
    record = folder.parent.parent / "corpus" / "corpus.json"
    stream = folder.parent.parent / "corpus" / "train.bin"
    stream.write_bytes(b"something else " * 100)
    with pytest.raises(ValueError, match="not the text of this run"):
        run_job(folder, ["nope"])
    assert record.exists()


def test_a_loss_that_explodes_ends_the_job_with_a_word(make_job: MakeJob, corpus: Corpus) -> None:
    job, folder = make_job("nope")

    class Poison:
        def __call__(self, *args: object, **kwargs: object) -> torch.Tensor:
            return torch.tensor(math.nan, requires_grad=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.functional.cross_entropy", Poison())
        with pytest.raises(ValueError, match=r"not finite at step 1; a lower --lr"):
            train(job, corpus, folder, make_accelerator(job.settings))
    assert not (folder / "checkpoint.pt").exists()
