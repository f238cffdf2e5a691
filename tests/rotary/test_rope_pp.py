"""RoPE++: imaginary heads against complex numbers, keys and scalings that are RoPE's."""

from __future__ import annotations

import pytest
import torch

from posenc import DynamicNTK, PositionInterpolation, RoPE, attention
from posenc.rotary import RoPEpp
from tests.samples import gap, qkv, refusals


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_an_imaginary_head_is_the_imaginary_part(layout, rotary_dim):
    """Against complex numbers; and a real head and every key are RoPE's."""
    q, k, _ = qkv(2, 4, 6, num_kv_heads=2, dtype=torch.float64)
    options = {"layout": layout, "rotary_dim": rotary_dim, "base": 50.0}
    rope, mixed, at = RoPE(8, **options), RoPEpp(8, num_heads=4, **options), torch.arange(6)
    (plain_q, plain_k), (of_q, of_k) = rope(q, k, at, at), mixed(q, k, at, at)
    assert torch.equal(of_k, plain_k)
    assert torch.equal(of_q[:, ::2], plain_q[:, ::2])
    width = rotary_dim or 8
    split = (2, -1) if layout == "half" else (-1, 2)
    as_pairs = [t[..., :width].unflatten(-1, split) for t in (plain_q[:, 1::2], plain_k)]
    as_pairs = [t.mT if layout == "half" else t for t in as_pairs]
    a, b = (torch.view_as_complex(t.contiguous()) for t in as_pairs)
    imaginary = (a.unsqueeze(-2) * b.conj().unsqueeze(-3)).imag.sum(-1)
    still = plain_q[:, 1::2, :, width:] @ plain_k[..., width:].mT
    assert gap(of_q[:, 1::2] @ of_k.mT, imaginary + still) < 1e-12


@pytest.mark.parametrize("scaling", [lambda: PositionInterpolation(2), lambda: DynamicNTK(original_length=4)])
def test_scalings_are_ropes(scaling):
    q, k, v = qkv(2, 4, 9, num_kv_heads=2)
    first, other = RoPE(8, scaling=scaling()), RoPEpp(8, num_heads=4, scaling=scaling())
    assert gap(attention(q, k, v, [first])[:, ::2], attention(q, k, v, [other])[:, ::2]) < 1e-6
    assert other.length_dependent == first.length_dependent


test_refusals = refusals(
    {
        "rotary_dim": [lambda: RoPEpp(7, num_heads=2)],
        "num_heads": [lambda: attention(*qkv(1, 2, 3), [RoPEpp(8, num_heads=4)])],
    }
)
