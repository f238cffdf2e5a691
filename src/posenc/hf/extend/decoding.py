"""Whether tokens decoded one by one with a cache get the logits that they get in one call, before and after."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posenc.hf.losses import called, device_of, last_logits

EXACT = 1e-3  # of the largest logit: a gap that float32 kernels of other shapes leave
_GROWN = 2.0  # times the gap of the model before, which another run of the same model can reach
_ROUNDING = 4  # units in the last place of the model's dtype, of the largest logit


@dataclass(frozen=True)
class Decoding:
    """The gap between decoding with a cache and one call, as a share of the largest logit.

    Attributes:
        tokens: at which it was measured.
        before: of the model as it was.
        after: of the extended model.
        dtype: of the model, as "bfloat16".
        length_dependent: whether the extended model's frequencies or distances depend on the length of the text.
    """

    tokens: int
    before: float
    after: float
    dtype: str
    length_dependent: bool

    @property
    def limit(self) -> float:
        """The largest gap that rounding alone explains: of the model before, and of its dtype."""
        rounding = torch.finfo(getattr(torch, self.dtype)).eps
        return max(EXACT, _GROWN * self.before, _ROUNDING * rounding)

    @property
    def equal(self) -> bool:
        """Whether the gap is no larger than rounding explains."""
        return self.after <= self.limit

    def sentence(self) -> str:
        """What was measured, and a reason only where there is one."""
        gaps = f"{self.after:.1e} of the largest logit, {self.before:.1e} before the extension, in {self.dtype}"
        if self.equal:
            return f"Decoding with a cache equals one call at {self.tokens:,} tokens up to rounding ({gaps})."
        reason = ""
        if self.length_dependent:
            reason = ": its frequencies depend on the length, and cached keys keep those of a shorter text"
        return f"Decoding with a cache differs from one call at {self.tokens:,} tokens ({gaps}){reason}."


@torch.no_grad()
def decoding_gap(model: nn.Module, tokens: Tensor, steps: int) -> float:
    """The largest difference of a logit, over the largest logit, in the last ``steps`` tokens of a text."""
    was = model.training
    model.eval()
    ids = tokens[None].to(device_of(model))
    try:
        whole = last_logits(model, ids, steps)
        out = called(model, ids[:, :-steps], 1, use_cache=True)
        steps_logits = []
        for n in range(ids.shape[1] - steps, ids.shape[1]):
            out = called(model, ids[:, n : n + 1], 1, use_cache=True, cache=out.past_key_values)
            steps_logits.append(out.logits[:, -1:])
    finally:
        model.train(was)
    gap = (torch.cat(steps_logits, 1) - whole).float().abs().max() / whole.float().abs().max().clamp(min=1)
    return float(gap)
