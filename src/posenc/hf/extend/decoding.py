"""Whether tokens decoded one by one with a cache get the logits that they get in one call."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.hf.losses import called, device_of, last_logits


@torch.no_grad()
def decoding_gap(model: nn.Module, tokens: Tensor, steps: int) -> float:
    """The largest difference of a logit, over the largest logit, in the last ``steps`` tokens of a text."""
    was = model.training
    model.eval()
    ids = tokens[None].to(device_of(model))
    try:
        whole = last_logits(model, ids, steps)
        out = called(model, ids[:, :-steps], 1, use_cache=True)
        found = []
        for n in range(ids.shape[1] - steps, ids.shape[1]):
            out = called(model, ids[:, n : n + 1], 1, use_cache=True, cache=out.past_key_values)
            found.append(out.logits[:, -1:])
    finally:
        model.train(was)
    gap = (torch.cat(found, 1) - whole).abs().max() / whole.abs().max().clamp(min=1)
    return float(gap)
