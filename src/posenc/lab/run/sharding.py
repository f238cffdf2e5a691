"""A model shared out among the ranks of torchrun (FSDP), for models that are too large for each of them.

Every rank keeps a part of each of the model's tensors, of its gradient and of Adam's averages. A block's parts are
brought together when it is its turn, in float32: precision is autocast's, as in any other training. What an
encoding learns stays whole on every rank: it is small, some of it is a single number, and one encoding may serve all
layers. Checkpoints hold whole tensors, so that nothing that reads one needs to know how it was trained.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from posenc.lab.config import Machine
from posenc.lab.models.decoder import Block, LabModel

OLDEST = "2.7"  # the first torch whose FSDP can leave some parameters whole


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
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    own, names = dict(model.lr_multipliers), {parameter: name for name, parameter in model.named_parameters()}
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        fully_shard(block, mesh=mesh, ignored_params=set(own))
    fully_shard(model, mesh=mesh, ignored_params=set(own))
    model.to(device)  # what stays whole; the parts are there
    there = dict(model.named_parameters())
    model.lr_multipliers = {there[names[parameter]]: multiplier for parameter, multiplier in own.items()}


def finish_gradients(model: LabModel, most: float) -> Tensor:
    """Average the gradients that FSDP leaves alone, clip all of them, and return their norm before that."""
    for parameter in model.lr_multipliers:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    learning = [parameter for parameter in model.parameters() if parameter.grad is not None]
    groups = [[p for p in learning if isinstance(p, DTensor) is parts] for parts in (True, False)]
    norms = [_norm(group) for group in groups if group]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    scale = (most / (norm + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
    for parameter in learning:
        gradient = parameter.grad
        (gradient.to_local() if isinstance(gradient, DTensor) else gradient).mul_(scale)  # type: ignore[union-attr]
    return norm


def gathered(state: Any, *, keep: bool) -> Any:
    """A state of model or optimizer with whole tensors on the host, where ``keep`` says so; all ranks must call it."""
    if isinstance(state, DTensor):
        whole = state.full_tensor()
        return whole.cpu() if keep else whole.new_empty(0)
    if isinstance(state, dict):
        return {key: gathered(value, keep=keep) for key, value in state.items()}
    if isinstance(state, list):
        return [gathered(value, keep=keep) for value in state]
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load what `gathered` made of an optimizer's state; every rank takes its part."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parts = {
        number: {name: _part(value, parameters[number]) for name, value in averages.items()}
        for number, averages in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": parts})


def _part(value: Any, parameter: nn.Parameter) -> Any:
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    found = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return found.full_tensor() if isinstance(found, DTensor) else found
