"""Any list of encodings as what PyTorch's `flex_attention` takes: a score_mod, a block mask, rotated q and k.

The same functions that the backend "flex" gives to its kernel, for code that calls the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from posenc.backends import flex
from posenc.backends.flex.block_masks import block_mask
from posenc.backends.inputs.attention_call import pose, stated
from posenc.backends.inputs.rewrites import folded, turned
from posenc.backends.inputs.validation import Causal
from posenc.encoding import Encoding, own_precision


class FlexCall(NamedTuple):
    """The arguments of one call: ``flex_attention(**call._asdict())``.

    Attributes:
        query, key, value: as `flex_attention` takes them, rotated.
        score_mod: what is done to a score: (score, batch, head, query, key) → score; None: nothing.
        block_mask: who sees whom; None: everybody.
        scale: of the products.
        enable_gqa: whether heads share keys.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    score_mod: Callable[..., Tensor] | None
    block_mask: BlockMask | None
    scale: float
    enable_gqa: bool

    @property
    def mask_mod(self) -> Callable[..., Tensor] | None:
        """Who sees whom: (batch, head, query, key) → bool; None: everybody."""
        return None if self.block_mask is None else self.block_mask.mask_mod


def flex_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding] = (),
    *,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    x: Tensor | None = None,
    features: Sequence[Tensor | None] | None = None,
    mask: Tensor | None = None,
    segments: Tensor | tuple[Tensor, Tensor] | None = None,
    causal: Causal | None = None,
    scale: float | None = None,
    length: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> FlexCall:
    """A call of `attention` as one of `torch.nn.attention.flex_attention.flex_attention`; the arguments are its own.

    Raises:
        ValueError: for what does not fit, and where an encoding cannot be said as a score_mod; it says why.

    >>> import torch
    >>> from torch.nn.attention.flex_attention import flex_attention
    >>> from posenc import ALiBi, RoPE
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> flex_attention(**flex_call(q, k, v, [RoPE(64), ALiBi(8)])._asdict()).shape
    torch.Size([1, 8, 16, 64])
    """
    with own_precision(q.device.type if isinstance(q, Tensor) else "cpu"):
        problem = pose(
            q, k, v, encodings, q_pos=q_pos, k_pos=k_pos, x=x, features=features, mask=mask, segments=segments,
            causal=causal, scale=scale, length=length, window=window, softcap=softcap,
        )  # fmt: skip
        problem = folded(stated(turned(problem)))
        reason = flex.refuses_by_name(problem)
        if reason is None and problem.weight is not None:
            reason = "a sink needs the kernel's log-sum-exp"
        if reason is not None:
            raise ValueError(f"encodings: no score_mod can say this call: {reason}; posenc.attention serves it")
        q, k, sees = problem.q, problem.k, problem.sees
        scored = flex.scores_of(
            problem.distance_row(), flex.terms_of(problem), q.shape[2], k.shape[2], sees, problem.softcap
        )
        seen = block_mask(sees, q.shape[2], k.shape[2])
    return FlexCall(q, k, problem.v, scored, seen, problem.scale, q.shape[1] != k.shape[1])
