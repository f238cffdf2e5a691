"""The training loop: plain PyTorch, with `accelerate` for device, precision and data-parallel ranks.

Step s depends on the checkpoint after step s − 1 and on (data, seed, s), on nothing else. So a training that was
stopped and continued ends with the numbers of one that was not: bit for bit on a processor, up to rounding on a GPU,
where some kernels add in no fixed order. What ranks share (`sharding`) and compiled blocks (`compiling`) change the
rounding, nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from posenc.lab.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from posenc.lab.compiling import check_compiler, compile_blocks
from posenc.lab.jobs import Job, read_job
from posenc.lab.machine import peak_memory, reset_peak_memory
from posenc.lab.metrics import Metrics
from posenc.lab.optimizer import lr_at, make_optimizer, set_lr
from posenc.lab.rates import apply_to_model, apply_to_settings
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Data, Model, Numbers
from posenc.lab.text.corpus import counter_seed


class StoppedError(Exception):
    """The training was asked to stop, and left a checkpoint."""


@dataclass
class Trained:
    """A model at the end of its training, and the record of how it got there."""

    model: Model  # in evaluation mode, neither compiled nor shared out; with its weights on rank 0 alone
    record: dict[str, float | int]


def make_accelerator(settings: Numbers) -> Accelerator:
    """One process on one device, or this rank of torchrun."""
    precision = "bf16" if settings.precision == "bfloat16" else "no"
    accelerator = Accelerator(mixed_precision=precision, cpu=settings.device == "cpu")
    if accelerator.device.type != settings.device:
        raise ValueError(f"--device {settings.device}: not available here, where {accelerator.device.type} would serve")
    torch.set_num_threads(settings.threads)
    return accelerator


def train(
    job: Job,
    data: Data,
    folder: Path,
    accelerator: Accelerator,
    *,
    on_step: Callable[[int, float, float], None] = lambda step, loss, rate: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train a job to its last step, from its checkpoint if there is one.

    Args:
        job: what to train.
        data: what to train it on.
        folder: of the job; rank 0 writes metrics and checkpoints there.
        accelerator: from `make_accelerator`.
        on_step: told after each step its number, and loss and speed in the task's units.
        should_stop: asked after each step; True saves a checkpoint and raises `StoppedError`.
    """
    settings, task = numbers_of(job), task_of(job.settings)
    model = task.model(job.spec, settings, data, job.seed)
    apply_to_model(model, job.tuned)
    start_from_base(job, folder, model)
    state = _resume(job, folder, model)
    loop = _Loop(job, data, accelerator, model, state)
    metrics = Metrics(folder / "metrics.jsonl", state.step, settings) if accelerator.is_main_process else None
    reset_peak_memory(accelerator.device)
    saved = state.step
    while state.step < settings.steps:
        rate = loop.step()
        if metrics:
            metrics.add(state, rate)
        on_step(state.step, float(state.losses[-1]) / task.loss_unit, rate)
        stop = should_stop()
        if stop or state.step % settings.checkpoint_every == 0 or state.step == settings.steps:
            saved = loop.save(folder, saved)
        if stop and state.step < settings.steps:
            raise StoppedError
    if metrics:
        metrics.close()
    accelerator.free_memory()  # it would keep the model and the optimizer
    trained = task.model(job.spec, settings, data, job.seed).to(accelerator.device)
    if accelerator.is_main_process:
        trained.load_state_dict(state.model)
    return Trained(trained.eval(), _record(state, trained, settings))


class _Loop:
    """The step, and the state it moves."""

    def __init__(
        self,
        job: Job,
        data: Data,
        accelerator: Accelerator,
        model: Model,
        state: Checkpoint,
    ) -> None:
        self.job, self.data, self.accelerator, self.state = job, data, accelerator, state
        self.task, self.settings = task_of(job.settings), numbers_of(job)
        if self.settings.compile:
            check_compiler(accelerator.device.type)
            compile_blocks(model)
        # What ranks share loads half of torch's distributed parts, which no other training needs.
        self.sharing: Any = import_module("posenc.lab.sharding") if self.settings.shard else None
        if self.sharing:
            self.sharing.shard(model, accelerator.device)
        self.plain = model.to(accelerator.device)
        self.optimizer: torch.optim.Optimizer = make_optimizer(model, self.settings)
        if state.optimizer:
            if self.sharing:
                self.sharing.load_optimizer(self.optimizer, state.optimizer)
            else:
                self.optimizer.load_state_dict(state.optimizer)
        self.model: torch.nn.Module = model
        if not self.sharing:
            self.model, self.optimizer = accelerator.prepare(model, self.optimizer)

    def step(self) -> float:
        """One update; returns the speed of all ranks together."""
        started = time.perf_counter()
        state, settings, accelerator = self.state, self.settings, self.accelerator
        # Should an encoding draw random numbers, they too depend on the step alone.
        torch.manual_seed(counter_seed("step", self.job.seed, state.step))
        set_lr(self.optimizer, lr_at(state.step, settings))
        with self._precision():
            loss = self.task.loss(self.model, self._batch())
        accelerator.backward(loss)
        norm = self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = accelerator.reduce(loss.detach(), reduction="mean")
        self._record(loss, norm)
        spent = time.perf_counter() - started
        state.seconds += spent
        return self.task.amount(settings) / spent

    def _precision(self) -> AbstractContextManager[None]:
        """Autocast, where the model was not prepared for it."""
        context: AbstractContextManager[None] = self.accelerator.autocast() if self.settings.shard else nullcontext()
        return context

    def _clip(self) -> Tensor:
        """Clip the gradients; returns their norm before that."""
        norm: Tensor
        if self.sharing:
            norm = self.sharing.finish_gradients(self.plain, self.settings.clip)
            return norm
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        return norm

    def _batch(self) -> tuple[Tensor, ...]:
        """This rank's rows of the step's batch, which is the same however many ranks share it."""
        first, ranks = self.accelerator.process_index, self.accelerator.num_processes
        batch = self.task.batch(self.data, self.settings, self.job.seed, self.state.step)
        return tuple(part[first::ranks].to(self.accelerator.device) for part in batch)

    def _record(self, loss: Tensor, norm: Tensor) -> None:
        state = self.state
        if not math.isfinite(loss.item()) or not math.isfinite(norm.item()):
            raise ValueError(f"loss or gradient is not finite at step {state.step + 1}; a lower --lr may help")
        state.losses = torch.cat([state.losses, loss.float().cpu().view(1)])
        state.norms = torch.cat([state.norms, norm.detach().float().cpu().view(1)])
        state.step += 1

    def save(self, folder: Path, saved: int) -> int:
        """Write a checkpoint, unless this step has one already; when this returns, all ranks can read it."""
        state, first = self.state, self.accelerator.is_main_process
        if state.step != saved and (first or self.settings.shard):
            found = self.plain.state_dict(), self.optimizer.state_dict()
            if self.sharing:
                found = tuple(self.sharing.gathered(part, keep=first) for part in found)
            state.model, state.optimizer = found
            state.peak_memory = max(state.peak_memory, peak_memory(self.accelerator.device))
        if state.step != saved and first:
            write_checkpoint(folder / "checkpoint.pt", state)
        self.accelerator.wait_for_everyone()
        return state.step


def numbers_of(job: Job) -> Numbers:
    """The numbers of a job's own training."""
    settings: Numbers = task_of(job.settings).numbers(job.spec, job.settings)
    return apply_to_settings(settings, job.tuned)


def start_from_base(job: Job, folder: Path, model: Model) -> None:
    """Give a model the trained weights of the job that it starts from; parameters of its encodings may be new."""
    base = task_of(job.settings).base(job.spec)
    if base is None:
        return
    found = folder.parent / dataclasses.replace(job, spec=base).name
    trained = read_job(found) if found.exists() else None
    state = read_checkpoint(found / "checkpoint.pt", trained.identity) if trained else None
    if trained is None or state is None or state.step < numbers_of(trained).steps:
        raise ValueError(
            f"{job.name} starts from the trained {base}, which is not there: move {found} away to train it again"
        )
    own = {name for name, parameter in model.named_parameters() if parameter in model.lr_multipliers}
    loaded = model.load_state_dict(state.model, strict=False)
    strange = [*(set(loaded.missing_keys) - own), *loaded.unexpected_keys]
    if strange:
        raise ValueError(f"{job.name} cannot start from the trained {base}: {', '.join(sorted(strange))} differ")


def _resume(job: Job, folder: Path, model: Model) -> Checkpoint:
    """Load the job's checkpoint into the model, or begin at step 0."""
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    if state is None:
        return Checkpoint(job.identity, 0, {}, {}, torch.empty(0), torch.empty(0), 0.0, 0)
    model.load_state_dict(state.model)
    return state


def _record(state: Checkpoint, model: Model, settings: Numbers) -> dict[str, float | int]:
    task = task_of(settings)
    total, own = model.parameter_counts()
    norms = state.norms.double()
    tail = max(1, settings.steps // 20)
    return {
        "parameters": total,
        "encoding_parameters": own,
        "steps": settings.steps,
        task.loss_name: state.losses[-tail:].double().mean().item() / task.loss_unit,
        "seconds": state.seconds,
        task.rate_name: settings.steps * task.amount(settings) / state.seconds,
        "peak_memory": state.peak_memory,
        "grad_norm_median": norms.median().item(),
        "grad_norm_mean": norms.mean().item(),
        "grad_norm_p95": norms.quantile(0.95).item(),
        "grad_norm_max": norms.max().item(),
        "clipped_share": (norms > settings.clip).double().mean().item(),
    }
