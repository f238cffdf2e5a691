"""A model shared out among ranks: nothing but rounding may change, and checkpoints stay whole."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.jobs import Job, read_result
from posenc.lab.model import Decoder
from posenc.lab.optimizer import make_optimizer
from posenc.lab.sharding import check_sharding, finish_gradients, gathered, load_optimizer, shard
from posenc.lab.text.profiles import Settings

MakeJob = Callable[..., tuple[Job, Path]]
SPECS = ["rope", "fire", "shaw", "learned"]  # nothing, single numbers in one for all layers, one a layer, an embedding


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _model(spec: str, settings: Settings) -> Decoder:
    return Decoder(spec, dataclasses.replace(settings, layers=2).shape, hidden=settings.hidden, seed=0)


def _backward(model: Decoder) -> None:
    tokens = torch.arange(16).view(2, 8)
    (8 * model(tokens).logsumexp(-1).square().mean()).backward()


def _step(model: Decoder, optimizer: torch.optim.Optimizer, most: float) -> torch.Tensor:
    _backward(model)
    norm = finish_gradients(model, most)
    optimizer.step()
    optimizer.zero_grad()
    return norm


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.usefixtures("one_rank")
def test_a_step_is_that_of_a_whole_model(spec: str, tiny: Settings) -> None:
    whole, parts = _model(spec, tiny), _model(spec, tiny)
    shard(parts, torch.device("cpu"))
    for most in (0.01, 1e9):  # clipped, not clipped
        optimizers = make_optimizer(whole, tiny), make_optimizer(parts, tiny)
        _backward(whole)
        expected = nn.utils.clip_grad_norm_(whole.parameters(), most)
        optimizers[0].step()
        optimizers[0].zero_grad()
        assert torch.allclose(_step(parts, optimizers[1], most), expected, rtol=1e-5)
    state = gathered(parts.state_dict(), keep=True)
    assert list(state) == list(whole.state_dict())
    for name, tensor in whole.state_dict().items():
        assert not isinstance(state[name], DTensor)
        assert torch.allclose(state[name], tensor, atol=1e-6), name


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.usefixtures("one_rank")
def test_the_shared_parts_are_divided_and_rates_survive(spec: str, tiny: Settings) -> None:
    model = _model(spec, tiny)
    names = {name: p in model.lr_multipliers for name, p in model.named_parameters()}
    rates, counts = list(model.lr_multipliers.values()), model.parameter_counts()
    shard(model, torch.device("cpu"))
    assert {name: p in model.lr_multipliers for name, p in model.named_parameters()} == names
    assert {name: not isinstance(p, DTensor) for name, p in model.named_parameters()} == names
    assert list(model.lr_multipliers.values()) == rates
    assert model.parameter_counts() == counts


@pytest.mark.usefixtures("one_rank")
def test_an_optimizer_goes_on_from_whole_tensors(tiny: Settings) -> None:
    first, second = _model("fire", tiny), _model("fire", tiny)
    shard(first, torch.device("cpu"))
    optimizer = make_optimizer(first, tiny)
    _step(first, optimizer, 1.0)
    weights = copy.deepcopy(gathered(first.state_dict(), keep=True))
    averages = copy.deepcopy(gathered(optimizer.state_dict(), keep=True))
    assert not any(isinstance(t, DTensor) for state in averages["state"].values() for t in state.values())
    second.load_state_dict(weights)
    shard(second, torch.device("cpu"))
    continued = make_optimizer(second, tiny)
    load_optimizer(continued, averages)
    _step(first, optimizer, 1.0)
    _step(second, continued, 1.0)
    expected = gathered(first.state_dict(), keep=True)
    for name, tensor in gathered(second.state_dict(), keep=True).items():
        assert torch.equal(tensor, expected[name]), name


def test_ranks_that_keep_nothing_get_nothing() -> None:
    state: dict[str, Any] = {"state": {0: {"step": torch.ones(())}}, "groups": [{"lr": 0.1}]}
    assert gathered(state, keep=False) == state  # plain tensors are not a copy


def test_one_process_shares_with_nobody(tiny: Settings) -> None:
    with pytest.raises(ValueError, match=r"--shard: there is one process.*torchrun"):
        check_sharding(dataclasses.replace(tiny, shard=True))


def test_an_old_torch_is_named(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dataclasses.replace(tiny, shard=True, processes=2)
    check_sharding(settings)
    monkeypatch.setattr("torch.__version__", type(torch.__version__)("2.6.0"))
    with pytest.raises(ValueError, match=r"--shard: torch 2.7 or newer is needed, this is 2.6.0"):
        check_sharding(settings)


PROGRAM = """
import sys
from pathlib import Path

from posenc.lab.jobs import read_job
from posenc.lab.runners.distributed import meet
from posenc.lab.train import StoppedError, make_accelerator
from posenc.lab.worker import run_job


class StopAfter:
    left = 5

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


meet(cpu=True)
for folder in map(Path, sys.argv[1:]):
    job = read_job(folder)
    accelerator = make_accelerator(job.settings)
    try:
        run_job(folder, [job.spec], accelerator=accelerator, should_stop=StopAfter())
    except StoppedError:
        run_job(folder, [job.spec], accelerator=accelerator)
    else:
        raise SystemExit("it was to be stopped")
"""


def _run(folder: Path, spec: str) -> None:
    """In a process of its own: accelerate takes one precision for each."""
    program = [sys.executable, "-m", "posenc.lab.worker", str(folder), "--rows", spec, "--parent", str(os.getpid())]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"compile": True}, {"precision": "bfloat16"}], ids=str)
def test_stopped_and_continued_on_two_ranks_equals_one_process(
    make_job: MakeJob, tiny: Settings, tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = dataclasses.replace(tiny, layers=2, **changes)
    specs = ("rope", "fire", "shaw")
    alone = {spec: make_job(spec, settings=settings, name="alone") for spec in specs}
    for spec, (_, folder) in alone.items():
        _run(folder, spec)
    shared = dataclasses.replace(settings, processes=2, shard=True)
    together = {spec: make_job(spec, settings=shared, name="together") for spec in specs}
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(tmp_path / "program.py")]
    folders = [str(folder) for _, folder in together.values()]
    done = subprocess.run([sys.executable, *launcher, *folders], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    close = 2e-2 if settings.precision == "bfloat16" else 1e-3
    for spec in specs:
        expected, found = read_result(alone[spec][1], alone[spec][0]), read_result(together[spec][1], together[spec][0])
        assert expected is not None
        assert found is not None
        for key in ("parameters", "encoding_parameters", "steps"):
            assert found["training"][key] == expected["training"][key]
        for key in ("loss_bits", "grad_norm_mean"):
            assert found["training"][key] == pytest.approx(expected["training"][key], abs=close, rel=close)
        for bits, wanted in zip(found["rows"][spec]["bits"], expected["rows"][spec]["bits"], strict=True):
            assert bits == pytest.approx(wanted, abs=close)
        states = [
            read_checkpoint(folder / "checkpoint.pt", job.identity) for job, folder in (alone[spec], together[spec])
        ]
        assert states[0] is not None
        assert states[1] is not None
        shapes = [{name: tensor.shape for name, tensor in state.model.items()} for state in states if state]
        assert shapes[0] == shapes[1]
