"""The learned position embedding of a model, which `attach` switches off where encodings take its place.

It is an embedding that the model adds to its token embeddings. Switched off it gives zeros, for positions beyond its
rows too: two hooks look up row 0 for every token, so that none is out of range, and replace the result. The weights
stay in the model and in its checkpoints, and `detach` switches them on again.

Source: GPT2Model, OPTDecoder and BioGptModel of transformers 5.23. GPT-BigCode has the same table, and does not hand
position_ids on to its layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_NAMES = {"gpt2": "wpe", "gpt_bigcode": "wpe", "opt": "embed_positions", "biogpt": "embed_positions"}
_HOOKS = "_posenc_hooks"


def position_table(model: Any) -> nn.Module | None:
    """The position embedding of a model; None for a model without one."""
    name = _NAMES.get(model.config.model_type)
    return next((module for path, module in model.named_modules() if name and path.split(".")[-1] == name), None)


def switch_off(table: nn.Module) -> None:
    """Let a position embedding give zeros."""
    hooks = [
        table.register_forward_pre_hook(_first_row, with_kwargs=True),
        table.register_forward_hook(_zeros),
    ]
    setattr(table, _HOOKS, hooks)


def switch_on(table: nn.Module) -> None:
    """Undo `switch_off`; a table that is on stays so."""
    for hook in table.__dict__.pop(_HOOKS, ()):
        hook.remove()


def is_off(table: nn.Module) -> bool:
    """Whether a position embedding gives zeros."""
    return _HOOKS in table.__dict__


def _first_row(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Position 0 for every token: GPT-2's only argument, and OPT's and BioGPT's keyword."""
    if "position_ids" in kwargs and kwargs["position_ids"] is not None:
        return args, {**kwargs, "position_ids": torch.zeros_like(kwargs["position_ids"])}
    return (torch.zeros_like(args[0]), *args[1:]), kwargs


def _zeros(module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
    return torch.zeros_like(out)
