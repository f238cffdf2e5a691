"""Rotation as a function in PyTorch's coming argument order, and cos and sin in the form of transformers' layers.

Every library takes cos and sin in one of two forms, and a `RoPE` gives each in one line:

    one column a pair     rope.table(positions)                    PyTorch's coming function, flash-attention
    one column a channel  position_embeddings(rope, position_ids)  transformers' ``position_embeddings``, Liger

Frequencies and gain alone are ``rope.spectrum().theta`` (float64, radians a token; transformers' ``inv_freq``) and
``rope.spectrum().gain`` (transformers' ``attention_scaling``).

Source: pytorch/pytorch pull request 187286, torch.nn.functional.rotary_embedding (open when this was written);
transformers' LlamaRotaryEmbedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import check_flag, shown
from posenc.encoding import RotaryEncoding
from posenc.frequencies.rotation import Layout
from posenc.rotary._rotate import rotate_pairs, tokens_second_last
from posenc.rotary.rope import RoPE

__all__ = ["position_embeddings", "rotary_embedding", "rotate"]


def rotary_embedding(
    x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None = None, *, interleaved: bool = False
) -> Tensor:
    """Rotate the pairs of queries or keys, given cos and sin.

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
        expected = f"cos and sin must have one shape and at most {x.shape[-1] // 2} pairs in the last axis"
        raise ValueError(f"{expected}, got {shown(cos)} and {shown(sin)}")
    if position_ids is not None:
        if position_ids.shape != (x.shape[0], x.shape[2]) or position_ids.is_floating_point() or cos.ndim != 2:
            text = (
                f"position_ids must be integers {(x.shape[0], x.shape[2])} into rows of cos and sin (positions, pairs)"
            )
            raise ValueError(f"{text}, got {shown(position_ids)} and {shown(cos)}")
        cos, sin = (rows[position_ids].unsqueeze(1) for rows in (cos, sin))
    return rotate_pairs(x, cos, sin, layout)


def rotate(
    encoding: RotaryEncoding, x: Tensor, positions: Tensor, *, token_axis: int = -2, length: int | None = None
) -> Tensor:
    """Rotate queries or keys in the memory layout that they have.

    Args:
        encoding: any rotation that rotates queries and keys alike.
        x: ``(batch, heads, tokens, head_dim)``, or tokens before heads with ``token_axis=-3``:
            ``(batch, tokens, heads, head_dim)``, flash-attention's, and ``(total, heads, head_dim)``, its varlen one.
        positions: as for `RotaryEncoding.table`; of packed texts `posenc.positions.from_cu_seqlens` makes them.
        token_axis: the axis of ``x`` along which tokens lie, -2 or -3.
        length: tokens that a length-dependent rotation spans.

    Returns:
        As ``x``, in its layout.

    Raises:
        ValueError: for another axis, or shapes that do not fit.

    >>> import torch
    >>> from posenc import RoPE
    >>> from posenc.positions import from_cu_seqlens
    >>> x, cu_seqlens = torch.randn(5, 8, 64), torch.tensor([0, 3, 5])
    >>> rotate(RoPE(64), x, from_cu_seqlens(cu_seqlens), token_axis=-3).shape
    torch.Size([5, 8, 64])
    """
    return tokens_second_last(encoding.rotate, x, encoding.table(positions, length, like=x), token_axis)


def position_embeddings(
    rope: RoPE, position_ids: Tensor, *, length: int | None = None, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """cos and sin with one column a channel, as transformers' models hand them to their layers.

    Args:
        rope: a rotation with one base for all heads.
        position_ids: ``(batch, tokens)``.
        length: tokens that a length-dependent scaling spans; default: each row's last position + 1.
        dtype: of the result, default float32. The angles are exact in any case; only the result is rounded.

    Returns:
        cos and sin, each ``(batch, tokens, rotary_dim)``, times the gain. ``layout="half"`` repeats the whole row of
        pairs (Llama, Qwen), ``layout="interleaved"`` each pair's column (Cohere, GLM-4).

    Raises:
        ValueError: for a rotation with a base for each head, or position_ids of another shape.

    >>> import torch
    >>> from posenc import RoPE
    >>> cos, sin = position_embeddings(RoPE(64), torch.arange(16)[None], dtype=torch.bfloat16)
    >>> cos.shape, cos.dtype
    (torch.Size([1, 16, 64]), torch.bfloat16)
    """
    if position_ids.ndim != 2:
        raise ValueError(f"position_ids must be (batch, tokens), got {shown(position_ids)}")
    columns = rope.table(position_ids, length)
    if columns[0].ndim != 3:
        raise ValueError(
            f"rope must have one base for all heads: transformers' layers share cos and sin between heads, got {rope}"
        )
    if rope.layout == "half":
        cos, sin = (torch.cat((column, column), dim=-1) for column in columns)
    else:
        cos, sin = (column.repeat_interleave(2, dim=-1) for column in columns)
    return (cos, sin) if dtype is None else (cos.to(dtype), sin.to(dtype))
