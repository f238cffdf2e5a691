"""Validation of a model's inputs; token values are not read, since a GPU would have to wait for them."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc import positions as position
from posenc.arguments import LONGEST, check_flag, check_whole, shown
from posenc.hf.modeling.model_config import PosencConfig


def check_config(config: object) -> None:
    """Raise a ValueError unless this is a configuration of posenc's models."""
    if not isinstance(config, PosencConfig):
        raise ValueError(f"config must be a PosencConfig, got {shown(config)}")


def check_tokens(input_ids: Tensor | None, inputs_embeds: Tensor | None, width: int) -> None:
    """Raise a ValueError unless one of the two is given, in the shape and the numbers that a model reads."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("input_ids or inputs_embeds must be given, and not both")
    if input_ids is not None:
        fits = isinstance(input_ids, Tensor) and input_ids.ndim == 2 and input_ids.dtype in (torch.int32, torch.int64)
        if not fits:
            raise ValueError(f"input_ids must be int64 or int32 (batch, tokens), got {shown(input_ids)}")
    elif not (
        isinstance(inputs_embeds, Tensor) and inputs_embeds.ndim == 3 and inputs_embeds.shape[-1] == width
        and inputs_embeds.is_floating_point()
    ):  # fmt: skip
        raise ValueError(f"inputs_embeds must be floats (batch, tokens, {width}), got {shown(inputs_embeds)}")


def check_flags(flags: dict[str, bool | None]) -> None:
    """Raise a ValueError unless each of these, by its name, is true, false or None."""
    for name, value in flags.items():
        if value is not None:
            check_flag(name, value)


def check_mask(mask: Tensor, past: int, x: Tensor) -> None:
    """Raise a ValueError unless an attention mask covers the tokens of the cache and of ``x``."""
    tokens = past + x.shape[1]
    if isinstance(mask, Tensor) and not mask.is_complex() and mask.shape == (x.shape[0], tokens):
        return
    text = f"(batch, tokens in the cache + tokens) = {(x.shape[0], tokens)}"
    raise ValueError(f"attention_mask must be {text}, got {shown(mask)}")


def check_positions(positions: Tensor, x: Tensor) -> None:
    """Raise a ValueError unless each token of ``x`` has a position."""
    position.check("position_ids", positions, x.shape[1], x.shape[0])


def check_kept(logits_to_keep: int | Tensor) -> None:
    """Raise a ValueError unless this says of how many tokens at the end logits are wanted, or of which."""
    if not isinstance(logits_to_keep, Tensor):
        check_whole("logits_to_keep", logits_to_keep, least=0, most=LONGEST)
    elif logits_to_keep.ndim != 1 or logits_to_keep.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"logits_to_keep must be an integer or integers (tokens,), got {shown(logits_to_keep)}")


def check_labels(labels: Tensor | None, logits: Tensor) -> None:
    """Raise a ValueError unless there is a label for each token that has logits."""
    if labels is None:
        return
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.shape != logits.shape[:2]:
        raise ValueError(f"labels must be int64 (batch, tokens) = {tuple(logits.shape[:2])}, got {shown(labels)}")
