"""Rotation as a function, in the order of arguments that PyTorch's own is to have.

Source: pytorch/pytorch pull request 187286, torch.nn.functional.rotary_embedding (open when this was written).
"""

from __future__ import annotations

from torch import Tensor

from posenc.arguments import check_flag, shown
from posenc.rotary._rotate import Layout, rotate_pairs


def rotary_embedding(
    x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None = None, *, interleaved: bool = False
) -> Tensor:
    """Turn the pairs of queries or keys by given cos and sin.

    Args:
        x: ``(batch, heads, tokens, channels)``.
        cos, sin: without position_ids anything that broadcasts to ``(batch, heads, tokens, pairs)``, as the table of
            a `RoPE`; with them rows for all positions, ``(positions, pairs)``. Channels past 2 · pairs pass through.
        position_ids: ``(batch, tokens)``, integers: the row of each token.
        interleaved: pairs are channels (2j, 2j + 1), not (j, j + pairs).

    Returns:
        As ``x``; computed in the dtype of cos.

    Raises:
        ValueError: for shapes that do not fit.

    >>> import torch
    >>> from posenc import RoPE
    >>> cos, sin = RoPE(64).table(torch.arange(128))
    >>> rotary_embedding(torch.randn(2, 8, 16, 64), cos, sin, torch.arange(16).expand(2, 16)).shape
    torch.Size([2, 8, 16, 64])
    """
    layout: Layout = "interleaved" if check_flag("interleaved", interleaved) else "half"
    if x.ndim != 4:
        raise ValueError(f"x must be (batch, heads, tokens, channels), got {shown(x)}")
    if cos.shape != sin.shape or cos.ndim < 1 or 2 * cos.shape[-1] > x.shape[-1]:
        wanted = f"cos and sin must have one shape and at most {x.shape[-1] // 2} pairs in the last axis"
        raise ValueError(f"{wanted}, got {shown(cos)} and {shown(sin)}")
    if position_ids is not None:
        if position_ids.shape != (x.shape[0], x.shape[2]) or position_ids.is_floating_point() or cos.ndim != 2:
            text = (
                f"position_ids must be integers {(x.shape[0], x.shape[2])} into rows of cos and sin (positions, pairs)"
            )
            raise ValueError(f"{text}, got {shown(position_ids)} and {shown(cos)}")
        cos, sin = (rows[position_ids].unsqueeze(1) for rows in (cos, sin))
    return rotate_pairs(x, cos, sin, layout)
