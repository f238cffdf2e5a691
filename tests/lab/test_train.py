"""One job: undisturbed, stopped and continued, locked, refused; shared out; compiled."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch
from accelerate import PartialState
from tests.lab.conftest import CLOCK, run, tiny
from tests.lab.test_corpora import documents
from torch import nn

from posenc.lab.config import Config
from posenc.lab.data.corpus import make_corpus
from posenc.lab.data.documents import Source
from posenc.lab.decoder import Decoder, LabModel
from posenc.lab.run.job import Job, read_results
from posenc.lab.run.joint import finish_gradients, gathered, shard
from posenc.lab.run.run_job import run_job
from posenc.lab.run.train import StoppedError, make_accelerator, make_optimizer, read_checkpoint, train
from posenc.lab.specs import Shape
from posenc.lab.tasks.puzzles import Copy
from posenc.lab.tasks.task import Data
from posenc.lab.tasks.text import Text

MakeJob = Callable[..., tuple[Job, Path]]


def numbers(job: Job, folder: Path) -> list[tuple[Any, ...]]:
    frame = read_results(folder, job)
    assert frame is not None
    frame = frame[~frame["metric"].isin(CLOCK)]
    return sorted(map(tuple, frame.astype(object).to_numpy().tolist()))


class StopAfter:
    """Asks to stop after some steps, or some pieces of the evaluation."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


STOPS = (0, 5, 11, 12)  # after the first step, twice between, while measuring
QUICK = ((0, "t5"), (11, "shaw"), (12, "learned"))
REST = [(stop, spec) for stop in STOPS for spec in ("nope", "t5", "shaw", "learned") if (stop, spec) not in QUICK]


@pytest.mark.parametrize(("stop", "spec"), [*QUICK, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)])
def test_stopped_and_continued_equals_undisturbed_bit_for_bit(make_job: MakeJob, spec: str, stop: int) -> None:
    job, undisturbed = make_job(spec, name="undisturbed")
    run_job(undisturbed)
    _, folder = make_job(spec, name="stopped")
    with pytest.raises(StoppedError):
        run_job(folder, should_stop=StopAfter(stop))
    assert read_results(folder, job) is None
    torch.manual_seed(stop)  # whatever the new process's state
    run_job(folder)
    assert numbers(job, folder) == numbers(job, undisturbed)
    states = [read_checkpoint(path / "checkpoint.pt", job.identity) for path in (folder, undisturbed)]
    assert states[0] is not None
    assert states[1] is not None
    assert all(torch.equal(states[0].model[name], states[1].model[name]) for name in states[0].model)


def test_a_job_ends_with_records_of_tests_course_and_cost(make_job: MakeJob) -> None:
    job, folder = make_job("learned")
    run_job(folder)
    frame = read_results(folder, job)
    assert frame is not None
    accuracy = frame[frame["metric"] == "accuracy"]
    assert set(zip(accuracy["view"], accuracy["length"], strict=True)) == {("full", 16)}  # nothing past its table
    assert len(accuracy) == 8
    assert frame[frame["metric"] == "probe"]["item"].tolist() == [3, 6, 9, 12]
    assert frame[frame["metric"] == "loss"]["item"].tolist() == list(range(1, 13))
    scalars = frame[(frame["length"] == 0) & (frame["item"] == 0)].set_index("metric")["value"]
    assert scalars["encoding_parameters"] == 16 * 16
    assert scalars["parameters"] > scalars["encoding_parameters"]
    assert 0 <= scalars["clipped_share"] <= 1
    assert scalars["grad_norm_median"] <= scalars["grad_norm_max"]
    assert not (folder / "progress.json").exists()


def test_two_workers_never_run_one_job(make_job: MakeJob) -> None:
    _, folder = make_job("nope")
    with filelock.FileLock(folder / "lock"), pytest.raises(ValueError, match="in use by another process"):
        run_job(folder, lock_seconds=0.1)
    assert not (folder / "checkpoint.pt").exists()


class Exploding(Copy):
    """Its loss is never a number."""

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return super().loss(model, batch) * math.nan


def test_a_loss_that_is_not_finite_ends_the_job(tmp_path: Path, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "run", "--task", f"{__name__}:Exploding", encodings=["nope"]) != 0
    assert re.search(r"not finite at step 1; a lower --lr", " ".join(capsys.readouterr().err.split()))
    assert not list(tmp_path.rglob("checkpoint.pt"))


def test_encodings_learn_at_their_own_rate_and_are_not_decayed() -> None:
    model = Decoder("t5+fire", Shape(16, 2, 2, 8), hidden=32, seed=0)
    groups = make_optimizer(model, tiny().training).param_groups
    rates = {
        group["name"]: (group["multiplier"], group["weight_decay"]) for group in groups if group["name"] != "encoding"
    }
    assert rates == {"matrices": (1.0, 0.1), "vectors": (1.0, 0.0)}
    encoding_groups = [(group["multiplier"], group["weight_decay"]) for group in groups if group["name"] == "encoding"]
    assert encoding_groups == [(10.0, 0.0), (30.0, 0.0)]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_all_encodings_begin_with_the_same_shared_weights() -> None:
    shape = Shape(16, 2, 2, 8)
    models = [Decoder(spec, shape, hidden=32, seed=3) for spec in ("nope", "shaw", "learned", "t5+rope")]
    shared = [{n: p for n, p in m.named_parameters() if p not in m.lr_multipliers} for m in models]
    for other in shared[1:]:
        assert list(other) == list(shared[0])
        assert all(torch.equal(other[name], shared[0][name]) for name in other)


def alone(folder: Path) -> None:
    """A job in a process of its own: accelerate takes one precision for each."""
    program = [sys.executable, "-m", "posenc.lab.execute.local", str(folder)]
    done = subprocess.run([*program, "--parent", str(os.getpid())], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "precision"), [("rope", "float32"), ("fox", "float32"), ("fox", "bfloat16")])
def test_a_compiled_training_ends_with_the_numbers_of_an_eager_one(
    make_job: MakeJob, spec: str, precision: str
) -> None:
    losses = []
    for compiled in (False, True):
        job, folder = make_job(spec, name=str(compiled), compile=compiled, precision=precision, layers=2)
        alone(folder)
        frame = read_results(folder, job)
        assert frame is not None
        losses.append(frame[frame["metric"] == "loss"]["value"].to_numpy())
    assert losses[0] == pytest.approx(losses[1], abs=3e-2 if precision == "bfloat16" else 1e-4)


RANKS = """
import sys
from pathlib import Path

from accelerate import PartialState

from posenc.lab.run.run_job import run_job
from posenc.lab.run.job import read_job
from posenc.lab.run.train import StoppedError, make_accelerator


class StopAfter:
    left = int(sys.argv[2])

    def __call__(self):
        self.left -= 1
        return self.left < 0


PartialState(cpu=True)
folder = Path(sys.argv[1])
job = read_job(folder)
accelerator = make_accelerator(job.config)
try:
    run_job(folder, accelerator=accelerator, should_stop=StopAfter())
except StoppedError:
    run_job(folder, accelerator=accelerator)
else:
    raise SystemExit("it was to be stopped")
"""


ACCUMULATING = {"gradient_accumulation_steps": 2}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ("rope", {"shard": True, **ACCUMULATING}),
        ("rope", ACCUMULATING),
        *((spec, {"shard": True}) for spec in ("shaw", "fire")),
        ("fire", {"shard": True, **ACCUMULATING}),
    ],
    ids=str,
)
@pytest.mark.slow
def test_stopped_and_continued_on_two_ranks_equals_one_process(
    make_job: MakeJob, tmp_path: Path, spec: str, more: dict[str, Any]
) -> None:
    single, folder = make_job(spec, name="alone", layers=2)
    run_job(folder)
    shared, together = make_job(spec, name="together", layers=2, processes=2, **more)
    on_two_ranks(together, tmp_path, stop=5)
    check_equal((folder, single), (together, shared))


def on_two_ranks(folder: Path, tmp_path: Path, *, stop: int) -> None:
    """Run a job on two processes, stopped after some steps and continued."""
    (tmp_path / "ranks.py").write_text(RANKS)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(tmp_path / "ranks.py")]
    command = [sys.executable, *launcher, str(folder), str(stop)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def check_equal(*jobs: tuple[Path, Job]) -> None:
    """Two jobs had the same course, up to rounding."""
    frames = [read_results(folder, job) for folder, job in jobs]
    for metric in ("loss", "grad_norm", "probe"):
        first, second = (f[f["metric"] == metric]["value"].to_numpy() for f in frames if f is not None)
        assert len(first)
        assert first == pytest.approx(second, abs=1e-3, rel=1e-3)


class InFloat64(Text):
    """Texts, so that the order of a sum is beyond the eleventh digit."""

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        return super().model(spec, config, data, seed).double()

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        (tokens,) = batch
        return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("spec", ["rope", "t5"])
def test_a_batch_in_micro_batches_takes_the_step_of_the_whole_batch(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.lab.run.train.task_named", lambda name: InFloat64())
    data = make_corpus(Source("made up", documents(30, 200), True), window=33, windows=4, scored=8)
    ends = []
    for count in (1, 2, 4):
        config = tiny("text", gradient_accumulation_steps=count, steps=3)
        (folder := tmp_path / str(count)).mkdir()
        ends.append(train(Job(spec, 0, config, "", {}, {}), data, folder, make_accelerator(config))[1])
    first, *accumulated = ends
    for state in accumulated:
        for name, weights in first.model.items():
            torch.testing.assert_close(state.model[name], weights, rtol=0, atol=1e-11)
        torch.testing.assert_close(state.losses, first.losses, rtol=1e-7, atol=0)
        torch.testing.assert_close(state.norms, first.norms, rtol=1e-7, atol=0)


def test_a_step_of_a_sharded_model_equals_an_unsharded_step() -> None:
    import torch.distributed as dist

    def backward(model: nn.Module) -> None:
        (8 * model(torch.arange(16).view(2, 8)).logsumexp(-1).square().mean()).backward()

    PartialState._reset_state()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for spec in ("rope", "fire", "shaw", "learned"):
            complete, parts = (Decoder(spec, Shape(16, 2, 2, 8), hidden=32, seed=0) for _ in range(2))
            shard(parts, torch.device("cpu"))
            optimizers = [make_optimizer(model, tiny().training) for model in (complete, parts)]
            backward(complete)
            backward(parts)
            expected = nn.utils.clip_grad_norm_(complete.parameters(), 0.01)
            assert torch.allclose(finish_gradients(parts, 0.01), expected, rtol=1e-5)
            for optimizer in optimizers:
                optimizer.step()
            state = gathered(parts.state_dict(), keep=True)
            assert list(state) == list(complete.state_dict())
            assert all(torch.allclose(state[name], tensor, atol=1e-6) for name, tensor in complete.state_dict().items())
    finally:
        dist.destroy_process_group()
