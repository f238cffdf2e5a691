"""The losses of the last tokens of a text under a model of transformers: of these and no others are logits made."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@torch.no_grad()
def token_losses(model: nn.Module, tokens: Tensor, last: int) -> Tensor:
    """Losses ``(last,)`` of the last tokens of a text, each given all before it."""
    was, device = model.training, device_of(model)
    model.eval()
    try:
        logits = last_logits(model, tokens[None].to(device), last + 1)[0, :-1]
    finally:
        model.train(was)
    return functional.cross_entropy(logits.float(), tokens[-last:].to(device), reduction="none").cpu()


def last_logits(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
    """Logits ``(batch, count, vocabulary)`` after the last tokens ``(batch, tokens)``."""
    logits: Tensor = called(model, tokens, count, use_cache=False).logits
    return logits[:, -count:]


def called(
    model: nn.Module, tokens: Tensor, count: int, *, use_cache: bool, cache: Any = None,
    position_ids: Tensor | None = None, attention_mask: Tensor | None = None,
) -> Any:  # fmt: skip
    """What a model gives, with no more logits than the last ones where it can leave out others."""
    keep = {"logits_to_keep": count} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    laid = {"position_ids": position_ids, "attention_mask": attention_mask}
    given = {name: one for name, one in laid.items() if one is not None}
    return model(input_ids=tokens, past_key_values=cache, use_cache=use_cache, **keep, **given)


def device_of(model: nn.Module) -> torch.device:
    """Where its inputs go."""
    return next(model.parameters()).device


def evenly(tokens: Tensor, length: int, count: int) -> Sequence[Tensor]:
    """Pieces of ``length`` tokens, evenly spread over a text.

    Raises:
        ValueError: for a text that is shorter than one.
    """
    if len(tokens) < length:
        raise ValueError(
            f"text: searches need pieces of {length:,} tokens beside what is scored, which leaves {len(tokens):,}: "
            "give a longer text"
        )
    gaps = max(1, count - 1)
    starts = sorted({(len(tokens) - length) * n // gaps for n in range(count)})
    return [tokens[start : start + length] for start in starts]
