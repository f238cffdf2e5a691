"""Any list of encodings as what PyTorch's `flex_attention` takes: a score_mod, a block mask, rotated q and k.

The same functions that the backend "flex" gives to its kernel, for code that calls the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Unpack

from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from posenc.backends import flex
from posenc.backends.flex.block_masks import block_mask
from posenc.backends.rewrites import rewritten
from posenc.call import AttentionOptions, prepare_call
from posenc.encoding import no_autocast
from posenc.validate import as_list

__all__ = ["FlexCall", "flex_call"]


class FlexCall(NamedTuple):
    """The arguments of one call: ``flex_attention(**call._asdict())``.

    Attributes:
        query, key, value: as `flex_attention` takes them, rotated.
        score_mod: what is done to a score: (score, batch, head, query, key) → score; None: nothing.
        block_mask: which keys each query attends to; None: all.
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
        """Which keys each query attends to: (batch, head, query, key) → bool; None: all."""
        return None if self.block_mask is None else self.block_mask.mask_mod


def flex_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Iterable[nn.Module] = (),
    **options: Unpack[AttentionOptions],
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
    with no_autocast(q.device.type if isinstance(q, Tensor) else "cpu"):
        call = rewritten(prepare_call(q, k, v, as_list(encodings), **options))
        reason = flex.refuses_by_name(call)
        if reason is None and call.weight is not None:
            reason = "a sink needs the kernel's log-sum-exp"
        if reason is not None:
            raise ValueError(f"encodings: no score_mod can say this call: {reason}; posenc.attention serves it")
        q, k, visibility = call.q, call.k, call.visibility
        scored = flex.scores_of(flex.terms_of(call), q.shape[2], k.shape[2], visibility, call.softcap)
        seen = block_mask(visibility, q.shape[2], k.shape[2])
    return FlexCall(q, k, call.v, scored, seen, call.scale, q.shape[1] != k.shape[1])
