"""The training loop: plain PyTorch, with `accelerate` for device, precision and data-parallel ranks.

Step s depends on the checkpoint after step s − 1 and on (data, seed, s), on nothing else. So a training that was
stopped and continued ends with the numbers of one that was not: bit for bit on a processor, up to rounding on a GPU,
where some kernels add in no fixed order. Ranks (`joint`), micro-batches and compiled blocks change the
rounding, nothing else: every rank draws the whole batch and takes its rows, each micro-batch takes some of those, and
a loss is a mean over rows, so that the mean of the parts' gradients is the gradient of the batch.

Checkpoints are written atomically and read without running any code in them (`torch.load` with ``weights_only``).
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from posenc.lab.config import Config, Training
from posenc.lab.data.batching import counter_seed
from posenc.lab.decoder import Block, LabModel
from posenc.lab.files import Factors, write_atomically
from posenc.lab.run.job import Job
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Data, Task

BETAS = (0.9, 0.95)  # of AdamW


class StoppedError(Exception):
    """Raised when a training is asked to stop, after its checkpoint was written."""


class StepReport(NamedTuple):
    """What a step of a training shows."""

    step: int  # steps done
    loss: float  # in the task's unit
    learning_rate: float  # the model's
    grad_norm: float  # before clipping
    per_second: float  # speed of all ranks together, in the task's unit
    probe: float | None  # the deciding metric at the training length, where it was measured after this step


def make_accelerator(config: Config) -> Accelerator:
    """One process on one device, or this rank of torchrun."""
    machine = config.machine
    precision = "bf16" if config.training.precision == "bfloat16" else "no"
    accelerator = Accelerator(mixed_precision=precision, cpu=machine.device == "cpu")
    if accelerator.device.type != machine.device:
        raise ValueError(f"--device {machine.device}: not available here, where {accelerator.device.type} would serve")
    torch.set_num_threads(machine.threads)
    return accelerator


def train(
    job: Job,
    data: Data,
    folder: Path,
    accelerator: Accelerator,
    *,
    on_step: Callable[[StepReport], None] = lambda report: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[LabModel, Checkpoint]:
    """Train a job to its last step, from its checkpoint if there is one.

    Args:
        job: what to train.
        data: what to train it on.
        folder: of the job; rank 0 writes checkpoints there.
        accelerator: from `make_accelerator`.
        on_step: called after each step.
        should_stop: called after each step; True saves a checkpoint and raises `StoppedError`.

    Returns:
        The trained model, in evaluation mode, neither compiled nor shared out, with its weights on rank 0 alone; and
        the state at the end.
    """
    task, config = task_named(job.config.task), with_tuned_lr(job.config, job.tuned)
    model, state = _begun(task, job, config, data, folder)
    trained = copy.deepcopy(model)  # what the loop makes of it may be compiled, shared out, or in another precision
    loop = _Loop(task, job, config, data, accelerator, model, state)
    saved, steps = state.step, config.training.steps
    while state.step < steps:
        rate = loop.step()
        on_step(_report(state, config, rate, unit=task.loss_unit_of(data)))
        stop = should_stop()
        if stop or state.step % config.training.checkpoint_every == 0 or state.step == steps:
            saved = loop.save(folder, saved)
        if stop and state.step < steps:
            raise StoppedError
    accelerator.free_memory()  # it would keep the model and the optimizer
    trained = trained.to(accelerator.device)
    if accelerator.is_main_process:
        trained.load_state_dict(state.model)
    return trained.eval(), state


def _report(state: Checkpoint, config: Config, rate: float, *, unit: float) -> StepReport:
    probed = len(state.probes) > 0 and int(state.probes[-1, 0]) == state.step
    return StepReport(
        state.step, float(state.losses[-1]) / unit, lr_at(state.step - 1, config.training),
        float(state.norms[-1]), rate, float(state.probes[-1, 1]) if probed else None,
    )  # fmt: skip


def _begun(task: Task, job: Job, config: Config, data: Data, folder: Path) -> tuple[LabModel, Checkpoint]:
    """The model of a job as far as it has come: from its checkpoint, or random weights."""
    model = task.model(job.spec, config, data, job.seed)
    apply_to_model(model, job.tuned)
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    if state is None:
        fresh = Checkpoint(job.identity, 0, {}, {}, torch.empty(0), torch.empty(0), torch.empty(0, 2), 0.0)
        return model, fresh
    model.load_state_dict(state.model)
    return model, state


class _Loop:
    """One training step, and the state that it advances."""

    def __init__(
        self, task: Task, job: Job, config: Config, data: Data, accelerator: Accelerator, model: LabModel,
        state: Checkpoint,
    ) -> None:  # fmt: skip
        self.task, self.job, self.config, self.data, self.state = task, job, config, data, state
        self.accelerator = accelerator
        if config.training.compile:
            _compile_blocks(model)
        # What ranks share loads half of torch's distributed parts, which no other training needs.
        self.sharing: Any = import_module("posenc.lab.run.joint") if config.machine.shard else None
        if self.sharing:
            self.sharing.shard(model, accelerator.device)
        self.plain = model.to(accelerator.device)
        self.optimizer: torch.optim.Optimizer = make_optimizer(model, config.training)
        if state.optimizer:
            load = self.sharing.load_optimizer if self.sharing else torch.optim.Optimizer.load_state_dict
            load(self.optimizer, state.optimizer)
        self.model: torch.nn.Module = model
        if not self.sharing:
            self.model, self.optimizer = accelerator.prepare(model, self.optimizer)

    def step(self) -> float:
        """One update; returns the speed of all ranks together."""
        started = time.perf_counter()
        state, training, accelerator = self.state, self.config.training, self.accelerator
        # Should an encoding draw random numbers, they too depend on the step alone.
        torch.manual_seed(counter_seed("step", self.job.seed, state.step))
        set_lr(self.optimizer, lr_at(state.step, training))
        loss = self._backward(self._micro_batches())
        norm = self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._note(accelerator.reduce(loss, reduction="mean"), norm)
        spent = time.perf_counter() - started
        state.seconds += spent
        every = max(1, training.steps // self.config.evaluation.probes)
        if state.step % every == 0 or state.step == training.steps:
            self._probe()
        return self.task.amount(self.config) / spent

    def _backward(self, micro_batches: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Add up the gradients of micro-batches; returns the loss of this rank's rows."""
        losses = []
        for number, rows in enumerate(micro_batches, 1):
            # DDP averages over the ranks once, after the last part. FSDP does so after each: gradients that wait for
            # the last one would be whole on every rank, and a model that is shared out has no room for that.
            waits = number < len(micro_batches)
            with self.accelerator.no_sync(self.model) if waits else nullcontext():
                with self.accelerator.autocast():  # which a model that is shared out was not prepared for
                    loss = self.task.loss(self.model, rows) / len(micro_batches)
                self.accelerator.backward(loss)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _probe(self) -> None:
        """Record the deciding metric at the training length; all ranks take part, since they may share the model."""
        self.plain.eval()
        with torch.no_grad(), self.accelerator.autocast():
            value = self.task.probe(self.plain, self.data, self.config, self.accelerator.device)
        self.plain.train()
        self.state.probes = torch.cat([self.state.probes, torch.tensor([[float(self.state.step), value]])])

    def _clip(self) -> Tensor:
        """Clip the gradients; returns their norm before that."""
        most = self.config.training.clip
        if self.sharing:
            return self.sharing.finish_gradients(self.plain, most)  # type: ignore[no-any-return]
        norm: Tensor = self.accelerator.clip_grad_norm_(self.model.parameters(), most)
        return norm

    def _micro_batches(self) -> list[tuple[Tensor, ...]]:
        """This rank's rows of the step's batch, which is the same however many ranks and micro-batches share it."""
        first, ranks = self.accelerator.process_index, self.accelerator.num_processes
        batch = self.task.batch(self.data, self.config, self.job.seed, self.state.step)
        rows = [part[first::ranks].to(self.accelerator.device) for part in batch]
        count = self.config.machine.gradient_accumulation_steps
        return [tuple(part[number::count] for part in rows) for number in range(count)]

    def _note(self, loss: Tensor, norm: Tensor) -> None:
        state = self.state
        if not math.isfinite(loss.item()) or not math.isfinite(norm.item()):
            raise ValueError(f"loss or gradient is not finite at step {state.step + 1}; a lower --lr may help")
        state.losses = torch.cat([state.losses, loss.float().cpu().view(1)])
        state.norms = torch.cat([state.norms, norm.detach().float().cpu().view(1)])
        state.step += 1

    def save(self, folder: Path, saved: int) -> int:
        """Write a checkpoint, unless this step has one already; when this returns, all ranks can read it."""
        state, first = self.state, self.accelerator.is_main_process
        if state.step != saved and (first or self.config.machine.shard):
            states = self.plain.state_dict(), self.optimizer.state_dict()
            if self.sharing:
                states = tuple(self.sharing.gathered(part, keep=first) for part in states)
            state.model, state.optimizer = states
        if state.step != saved and first:
            write_checkpoint(folder / "checkpoint.pt", state)
        self.accelerator.wait_for_everyone()
        return state.step


# ---- The optimizer, its schedule, and compiled blocks ----
#
# Adam moves a parameter by about the learning rate per step, whatever its gradient. A bias that must reach several
# units would never get there at a rate that suits weights of 0.02, so an encoding's parameters have their own rate.


def make_optimizer(model: LabModel, training: Training) -> torch.optim.AdamW:
    """Three kinds of groups: matrices (decayed), vectors, and the encodings' parameters by their rate."""
    multipliers = model.lr_multipliers
    shared = [parameter for parameter in model.parameters() if parameter not in multipliers]
    groups = [
        _group("matrices", [p for p in shared if p.dim() >= 2], training.weight_decay, 1.0),
        _group("vectors", [p for p in shared if p.dim() < 2], 0.0, 1.0),
    ]
    for multiplier in sorted(set(multipliers.values())):
        groups.append(_group("encoding", [p for p, m in multipliers.items() if m == multiplier], 0.0, multiplier))
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=training.lr, betas=BETAS, fused=fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of the common learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["multiplier"]


def lr_at(step: int, training: Training) -> float:
    """The common learning rate of step 0 ≤ ``step`` < ``training.steps``."""
    warmup = min(training.warmup, training.steps // 5)
    decay = round(training.decay * training.steps)
    rise = (step + 1) / (warmup + 1) if step < warmup else 1.0
    fall = (training.steps - step) / (decay + 1) if step > training.steps - decay - 1 else 1.0
    return training.lr * min(rise, fall)


def _group(name: str, parameters: list[nn.Parameter], weight_decay: float, multiplier: float) -> dict[str, object]:
    return {"name": name, "params": parameters, "weight_decay": weight_decay, "multiplier": multiplier}


def with_tuned_lr(config: Config, tuned: Factors) -> Config:
    """The numbers with the model's own learning rate."""
    return config.replaced({"lr": config.training.lr * tuned["lr"]}) if "lr" in tuned else config


def apply_to_model(model: LabModel, tuned: Factors) -> None:
    """Give the encodings' parameters their own rate."""
    if "own" in tuned:
        model.lr_multipliers = dict.fromkeys(model.lr_multipliers, tuned["own"])


def _compile_blocks(model: nn.Module) -> None:
    """Compile each block's forward in place, so that no parameter gets another name; it happens at the first call.

    Only training is compiled: an evaluation runs one or two forwards per length, and each would be compiled anew.
    """
    # A block is one graph. Cutting it for DDP gains nothing, and some versions cannot where FlexAttention is in it.
    torch._dynamo.config.optimize_ddp = False
    torch.compiler.reset()  # what jobs before it have compiled in this process, of which there may be a few only
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        setattr(block, "forward", torch.compile(block.forward))  # noqa: B010  (mypy: a method is no attribute)


FORMAT = "posenc-lab-checkpoint/3"
_LEFT = "it was left as it is: move it away to train this job from the start"


@dataclass
class Checkpoint:
    """Everything the next step depends on; batches and random numbers are functions of the step."""

    identity: str  # of the job
    step: int  # steps done
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    norms: Tensor  # (step,) gradient norms before clipping
    losses: Tensor  # (step,) training losses, nats
    probes: Tensor  # (probes, 2) step, and the deciding metric at the trained length after it
    seconds: float  # spent in steps


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Save tensors and plain data, so that `read_checkpoint` can refuse anything else."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **vars(checkpoint)}, buffer)
    write_atomically(path, buffer.getvalue())


def read_checkpoint(path: Path, identity: str) -> Checkpoint | None:
    """The checkpoint of a job, None if there is none yet; a truncated or foreign file is a ValueError naming it."""
    if not path.exists():
        return None
    try:
        record = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is truncated or no checkpoint; {_LEFT}") from error
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise ValueError(f"{path} was not written by this version of posenc compare; {_LEFT}")
    if set(record) != set(Checkpoint.__dataclass_fields__) or type(record["step"]) is not int:
        raise ValueError(f"{path} lacks parts of a checkpoint; {_LEFT}")
    if record["identity"] != identity:
        raise ValueError(f"{path} is the checkpoint of another configuration or corpus; {_LEFT}")
    return Checkpoint(**record)
