"""MHRoPE: pictures as under mixed RoPE, and what a scaling spans."""

from __future__ import annotations

import torch

from posenc import DynamicNTK, RoPE, attention
from posenc.positions import Image, Text, multimodal
from posenc.rotary import MHRoPE, MixedRoPE
from tests.samples import gap, qkv


def test_a_picture_is_rotated_as_by_mixed_rope_with_one_axis_a_head():
    at = multimodal([Text(3), Image(2, 3), Text(1)], design="mhrope", reset=True)
    rope = MHRoPE(16, num_heads=8, num_kv_heads=4, heads=(1, 2, 1))
    theta = torch.zeros(4, 3, 8)
    for head, axis in enumerate(rope.order()):
        theta[head, axis] = rope.spectrum().theta
    mixed = MixedRoPE(
        16, num_heads=8, num_kv_heads=4, axes=3, frequencies=theta.double(), learned=False, layout="half"
    )  # fmt: skip
    q, k, v = qkv(2, 8, 10, head_dim=16, num_kv_heads=4)
    actual, expected = (attention(q, k, v, [encoding], q_pos=at, k_pos=at, causal=True) for encoding in (rope, mixed))
    assert gap(actual, expected) < 1e-5


def test_text_under_a_length_dependent_scaling_is_rotated_as_under_rope():
    """Undeclared, its plain positions span its last key."""
    scaling, at = DynamicNTK(2.0, original_length=8), torch.arange(12)
    rope, heads = RoPE(16, base=1e6, scaling=scaling), MHRoPE(16, num_heads=2, heads=(1, 1), scaling=scaling)
    q, k, _ = qkv(1, 2, 12, head_dim=16)
    for actual, expected in zip(heads(q, k, at, at), rope(q, k, at, at), strict=True):
        assert torch.equal(actual, expected)


def test_a_length_dependent_scaling_spans_the_largest_coordinate():
    rope = MHRoPE(16, num_heads=2, heads=(1, 1), scaling=DynamicNTK(2.0, original_length=8))
    at = torch.tensor([[0, 0], [3, 40]])
    for actual, expected in zip(rope.table(at), rope.table(at, 41), strict=True):
        assert torch.equal(actual, expected)
    assert not rope.cacheable()
    assert rope.cacheable(41)
