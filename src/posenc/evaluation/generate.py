"""Greedy decoding with a key/value cache, with the probability of each token."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posenc.evaluation.likelihood import call_model, device_of


class Generation(NamedTuple):
    """Greedily decoded tokens, without a final end-of-text token, and each one's log-probability in nats."""

    tokens: list[int]
    log_probabilities: list[float]


@torch.no_grad()
def generate(
    model: nn.Module,
    prompt: Tensor,
    max_new_tokens: int,
    *,
    end_tokens: frozenset[int] = frozenset(),
    stop: Callable[[list[int]], bool] = lambda tokens: False,
) -> Generation:
    """Decode greedily after a prompt.

    Args:
        model: a causal language model with a key/value cache, as transformers calls it.
        prompt: ``(tokens,)``, int64.
        max_new_tokens: at most so many.
        end_tokens: any of them ends the text.
        stop: is called with the tokens so far; true ends the text.
    """
    was_training, device = model.training, device_of(model)
    model.eval()
    tokens: list[int] = []
    log_probabilities: list[float] = []
    try:
        out = call_model(model, prompt[None].to(device), 1, use_cache=True)
        while len(tokens) < max_new_tokens:
            logits = out.logits[0, -1].float()
            token = int(logits.argmax())
            if token in end_tokens:
                break
            tokens.append(token)
            log_probabilities.append(float(logits[token] - logits.logsumexp(-1)))
            if stop(tokens) or len(tokens) == max_new_tokens:
                break
            step = torch.tensor([[token]], device=device)
            out = call_model(model, step, 1, use_cache=True, after=out)
    finally:
        model.train(was_training)
    if not all(map(math.isfinite, log_probabilities)):
        raise ValueError("model: its logits are not finite, so nothing can be decoded: check its dtype and weights")
    return Generation(tokens, log_probabilities)


def end_tokens_of(model: nn.Module, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text, by the generation settings and the tokenizer."""
    listed = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = listed if isinstance(listed, list) else [listed]
    return frozenset(token for token in (*several, tokenizer.eos_token_id) if token is not None)
