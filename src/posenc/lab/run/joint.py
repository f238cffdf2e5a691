"""Several processes that train each job together: the ranks of torchrun, by accelerate.

All ranks run the same command. Rank 0 alone reads what was asked for, writes files and prints, so what it prepares, or
the error that it meets, must reach the other ranks. Data parallel training is accelerate's; here is what it lacks, a
model shared out among the ranks (``--shard``, torch's `fully_shard`): every rank keeps a part of each tensor, of its
gradient and of Adam's averages, and a block's parts are gathered when it computes, in float32. What an encoding learns
stays whole on every rank: it is small, some of it is a single number, and one encoding may serve all layers.
Checkpoints hold whole tensors, so that nothing that reads one needs to know how it was trained.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from posenc.lab.config import Machine
from posenc.lab.decoder import Block, LabModel

T = TypeVar("T")
OLDEST = "2.7"  # the first torch whose FSDP can leave some parameters whole


def ranks() -> int:
    """How many ranks torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0


def join(device: str) -> None:
    """Join the other ranks, if there are any, before anything else uses the device."""
    if ranks() > 1:
        cpu = device == "cpu" or not torch.cuda.is_available()
        PartialState(cpu=cpu, timeout=timedelta(days=1))  # ranks wait while rank 0 alone measures and reports


def from_first(make: Callable[[], T]) -> T:
    """What ``make`` returns on rank 0, or the ValueError that it raises there, on all ranks."""
    if ranks() == 1:
        return make()
    outcome: T | ValueError | None = None
    if is_first():
        try:
            outcome = make()
        except ValueError as error:
            outcome = error
    shared = [outcome]
    broadcast_object_list(shared)
    if isinstance(shared[0], ValueError):
        raise shared[0]
    return shared[0]  # type: ignore[return-value]


def wait() -> None:
    """Wait until all ranks are here."""
    if ranks() > 1:
        PartialState().wait_for_everyone()


def check_sharding(machine: Machine) -> None:
    """Raise a ValueError unless a model can be shared out here."""
    if machine.processes < 2:
        raise ValueError(
            "--shard: there is one process, and nobody to share with: start the same command by torchrun "
            "--nproc-per-node GPUS -m posenc compare, or leave --shard out"
        )
    if torch.__version__ < OLDEST:
        raise ValueError(f"--shard: torch {OLDEST} or newer is needed, this is {torch.__version__}")


def shard(model: LabModel, device: torch.device) -> None:
    """Give this rank its part of a model, in place; all ranks call it with equal models."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    multipliers, names = dict(model.lr_multipliers), {parameter: name for name, parameter in model.named_parameters()}
    for part in [*(module for module in model.modules() if isinstance(module, Block)), model]:
        fully_shard(part, mesh=mesh, ignored_params=set(multipliers))
    model.to(device)  # what stays whole; the parts are there
    there = dict(model.named_parameters())
    model.lr_multipliers = {there[names[parameter]]: multiplier for parameter, multiplier in multipliers.items()}


def finish_gradients(model: LabModel, most: float) -> Tensor:
    """Average the gradients that FSDP leaves alone, clip all of them, and return their norm before that."""
    from torch.distributed.tensor import DTensor

    for parameter in model.lr_multipliers:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    learning = [parameter for parameter in model.parameters() if parameter.grad is not None]
    groups = [[p for p in learning if isinstance(p, DTensor) is parts] for parts in (True, False)]
    norms = []
    for group in filter(None, groups):
        of_group = nn.utils.get_total_norm([p.grad for p in group if p.grad is not None])
        norms.append(of_group.full_tensor() if isinstance(of_group, DTensor) else of_group)
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    scale = (most / (norm + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
    for parameter in learning:
        gradient = parameter.grad
        (gradient.to_local() if isinstance(gradient, DTensor) else gradient).mul_(scale)  # type: ignore[union-attr]
    return norm


def gathered(state: Any, *, keep: bool) -> Any:
    """A state of model or optimizer with whole tensors on the host, where ``keep`` says so; all ranks must call it."""
    from torch.distributed.tensor import DTensor

    if isinstance(state, DTensor):
        tensor = state.full_tensor()
        return tensor.cpu() if keep else tensor.new_empty(0)
    if isinstance(state, dict):
        return {key: gathered(value, keep=keep) for key, value in state.items()}
    if isinstance(state, list):
        return [gathered(value, keep=keep) for value in state]
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load an optimizer's state as `gathered` returned it; every rank takes its part."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    def part(value: Any, parameter: nn.Parameter) -> Any:
        if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
            return value
        return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parts = {
        number: {name: part(value, parameters[number]) for name, value in averages.items()}
        for number, averages in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": parts})
