"""``device`` and ``dtype`` in constructors of encodings, as in torch.nn; hints for the names other libraries use."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from posenc.arguments import shown

Device = torch.device | str | int | None

# What other libraries call the arguments of constructors.
FOREIGN_NAMES = {
    "theta": "base", "rope_theta": "base", "freq_base": "base", "dim": "head_dim", "head_size": "head_dim",
    "heads": "num_heads", "n_heads": "num_heads", "n_head": "num_heads", "num_attention_heads": "num_heads",
    "kv_heads": "num_kv_heads", "num_key_value_heads": "num_kv_heads", "scaling_factor": "factor", "scale": "factor",
    "original_max_position_embeddings": "original_length", "interleaved": "layout",
}  # fmt: skip


def check_names(cls: type, names: list[str]) -> None:
    """Raise a TypeError for a keyword that a constructor calls otherwise, naming its own word for it."""
    known = inspect.signature(cls).parameters
    for name in names:
        if name not in known and FOREIGN_NAMES.get(name) in known:
            raise TypeError(f"{cls.__name__} has no argument {name!r}: it is called {FOREIGN_NAMES[name]} here")


def place_parameters(module: nn.Module, device: object, dtype: object, *, given: object = None) -> None:
    """Move a module's parameters to a device and cast them, at the end of its constructor; None: leave them.

    Initial values are drawn in the default dtype and then cast, so that modules of all dtypes start from the same
    numbers.

    Args:
        module: all of it.
        device, dtype: as the constructor was told.
        given: what the caller had made before, a module or any of them: it is the caller's, and stays as it is.

    Raises:
        ValueError: for a dtype that is not floating, or something that is no device.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype must be a floating dtype such as torch.bfloat16, got {shown(dtype)}")
    target: torch.device | None = None
    if device is not None:
        try:
            target = torch.device(device)  # type: ignore[call-overload]
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"device must be a device or its name, got {shown(device)}") from error
    if target is None and dtype is None:
        return

    def placed(tensor: Tensor) -> Tensor:
        return tensor.to(target, dtype if tensor.is_floating_point() else None)

    callers = {id(part) for whole in _modules_in(given) for part in whole.modules()}
    for part in module.modules():
        if id(part) not in callers:
            part._apply(placed, recurse=False)  # type: ignore[no-untyped-call]  # Module.to without its parts


def _modules_in(value: object) -> Iterator[nn.Module]:
    """The modules of an argument: itself, or the modules in nested sequences."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _modules_in(part)


def assign(parameter: Tensor, values: Tensor) -> None:
    """Fill a parameter with ``values`` of its whole shape; of a DTensor, each rank keeps its part of the first's."""
    with torch.no_grad():
        mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
        if mesh is not None and parameter.device.type != "meta":
            from torch.distributed.tensor import distribute_tensor  # loaded already: there is such a parameter

            values = distribute_tensor(values.to(parameter.device, parameter.dtype), mesh, placements)
        parameter.copy_(values)
