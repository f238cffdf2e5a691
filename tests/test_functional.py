"""cos and sin handed to other libraries' rotation: PyTorch's coming function, flash-attention, Liger, transformers."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE, YaRN
from posenc.frequencies import MultiScale
from posenc.functional import position_embeddings, rotary_embedding, rotate
from posenc.testing import Case
from tests.golden import load


@pytest.mark.parametrize("interleaved", [False, True])
def test_equals_rope_and_the_definition(interleaved: bool) -> None:
    rope = RoPE(16, layout="interleaved" if interleaved else "half", rotary_dim=12)
    x, positions = torch.randn(2, 3, 5, 16), torch.tensor([[4, 0, 9, 1, 2], [7, 7, 3, 0, 5]])
    cos, sin = rope.table(torch.arange(10))
    got = rotary_embedding(x, cos, sin, positions, interleaved=interleaved)
    torch.testing.assert_close(got, rope.rotate(x, rope.table(positions)), rtol=0, atol=0)
    torch.testing.assert_close(
        rotary_embedding(x, cos[:5], sin[:5], interleaved=interleaved)[0, 0, 4, 12:], x[0, 0, 4, 12:]
    )
    a, b = (0, 1) if interleaved else (0, 6)
    angle = torch.tensor(9.0)  # the first frequency is 1
    right = x[0, 1, 2, a] * angle.cos() - x[0, 1, 2, b] * angle.sin()
    torch.testing.assert_close(got[0, 1, 2, a], right)


def test_flash_attention_takes_the_table() -> None:
    """flash-attention's kernel over packed documents, given cos and sin with one column a pair."""
    golden = load("rotary_peer_kernels", torch.float32)
    x, (start, middle, end) = golden["x"], golden["cu_seqlens"].tolist()
    lengths = (middle - start, end - middle)
    from_zero = torch.cat([torch.arange(length) for length in lengths])
    shifted = torch.cat([torch.arange(n) + o for n, o in zip(lengths, golden["offsets"].tolist(), strict=True)])
    for layout, name, positions in (
        ("half", "half", from_zero), ("interleaved", "interleaved", from_zero), ("half", "half_at_offsets", shifted),
    ):  # fmt: skip
        rope = RoPE(16, rotary_dim=12, layout=layout)  # type: ignore[arg-type]
        cos, sin = rope.table(torch.arange(40))
        got = rotary_embedding(x.transpose(0, 1)[None], cos, sin, positions[None], interleaved=layout == "interleaved")
        torch.testing.assert_close(got[0].transpose(0, 1), golden[name], rtol=0, atol=1e-6)


def test_liger_takes_position_embeddings() -> None:
    """Liger's kernel, given cos and sin with one column a channel at two rows of positions."""
    golden = load("rotary_peer_kernels", torch.float32)
    rope = RoPE(12)
    cos, sin = position_embeddings(rope, golden["position_ids"])
    for name in ("q", "k"):
        x = golden[name]
        first, second = x.chunk(2, -1)
        rotated = x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]
        torch.testing.assert_close(rotated, golden[f"liger_{name}"], rtol=0, atol=1e-6)


@pytest.mark.reference
def test_a_transformers_layer_takes_position_embeddings() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    cohere = pytest.importorskip("transformers.models.cohere.modeling_cohere")
    block = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    config = llama.LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=128, rope_parameters=block
    )
    reference = llama.LlamaRotaryEmbedding(config)
    ids = torch.stack([torch.arange(7), torch.arange(7) + 100])
    rope = RoPE(16, scaling=YaRN(4.0, original_length=32))
    torch.testing.assert_close(rope.spectrum().theta.float(), reference.inv_freq, rtol=1e-6, atol=0)
    assert float(rope.spectrum().gain) == pytest.approx(reference.attention_scaling, rel=1e-6)
    x = torch.randn(2, 4, 7, 16)
    for actual, their in zip(position_embeddings(rope, ids), reference(x, ids), strict=True):
        torch.testing.assert_close(actual, their, rtol=0, atol=2e-5)
    for layout, module in (("half", llama), ("interleaved", cohere)):
        rope = RoPE(16, layout=layout)  # type: ignore[arg-type]
        rotated, _ = module.apply_rotary_pos_emb(x, x, *position_embeddings(rope, ids))
        torch.testing.assert_close(rotated, rope.rotate(x, rope.table(ids)), rtol=0, atol=1e-6)


def test_position_embeddings_keep_gain_length_and_dtype() -> None:
    ids = torch.arange(5)[None]
    cos, _ = position_embeddings(RoPE(16, scaling=YaRN(4.0, original_length=32)), ids, dtype=torch.bfloat16)
    assert cos.dtype == torch.bfloat16
    assert float(cos[0, 0, 0]) > 1  # the gain at position 0
    by_pair, _ = RoPE(16).table(ids)
    repeated, _ = position_embeddings(RoPE(16, layout="interleaved"), ids)
    assert torch.equal(repeated[..., 0::2], by_pair)
    assert torch.equal(repeated[..., 1::2], by_pair)
    with pytest.raises(ValueError, match="position_ids"):
        position_embeddings(RoPE(16), torch.arange(5))
    with pytest.raises(ValueError, match="base"):
        position_embeddings(RoPE(16, scaling=MultiScale(4)), ids)


def test_every_rotation_takes_tokens_before_heads():
    for name in ("rope", "yarn", "multiscale", "mixed", "mrope", "axial", "grape_m", "fope", "liere", "dynamic_ntk"):
        case = Case.from_catalogue(name)
        (encoding,) = case.make(torch.float64)
        x = torch.randn(2, 9, case.num_heads, case.head_dim, dtype=torch.float64).requires_grad_()
        places = case.positions(torch.arange(9))
        rotated = rotate(encoding, x, places, token_axis=-3)
        by_heads = encoding.rotate(x.transpose(1, 2), encoding.table(places, like=x)).transpose(1, 2)
        torch.testing.assert_close(rotated, by_heads, rtol=0, atol=1e-12)
        weight = torch.randn_like(rotated)
        gradients = [torch.autograd.grad((r * weight).sum(), x, retain_graph=True)[0] for r in (rotated, by_heads)]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
