"""Other libraries compared with posenc: equal where they are right, and by how much they are not."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from posenc import ALiBi, RoPE, T5Bias, attention
from posenc.bias import alibi_slopes
from posenc.rotary import permute_layout
from tests.samples import gap, qkv

pytestmark = pytest.mark.reference
POSITIONS = torch.tensor([0, 1, 7, 100, 511])


def exact_cos(positions, pairs, base) -> torch.Tensor:
    with mpmath.workdps(50):
        theta = [mpmath.mpf(base) ** (mpmath.mpf(-j) / pairs) for j in range(pairs)]
        return torch.tensor([[float(mpmath.cos(p * t)) for t in theta] for p in positions], dtype=torch.float64)


class TestTransformers:
    def llama(self, dim=64, base=10_000.0):
        pytest.importorskip("transformers")
        from transformers import LlamaConfig
        from transformers.models.llama import modeling_llama

        config = LlamaConfig(
            hidden_size=4 * dim,
            num_attention_heads=4,
            max_position_embeddings=2**22,
            rope_parameters={"rope_type": "default", "rope_theta": base},
        )
        return modeling_llama, modeling_llama.LlamaRotaryEmbedding(config)

    def test_llama_rotation(self):
        llama, rotary = self.llama()
        q, k, _ = qkv(2, 4, 5, head_dim=64, num_kv_heads=2)
        cos, sin = rotary(q, POSITIONS[None])
        reference = llama.apply_rotary_pos_emb(q, k, cos, sin)
        actual = RoPE(64)(q, k, POSITIONS, POSITIONS)
        for a, b in zip(actual, reference, strict=True):
            assert gap(a, b) < 3e-4, "their angles are float32 products"

    def test_angles_two_million_tokens_away(self):
        positions = list(range(2**21 - 20, 2**21))
        _, rotary = self.llama(128)
        cos, _ = rotary(torch.zeros(1), torch.tensor([positions]))
        exact = exact_cos(positions, 64, 10_000)
        reference = gap(cos[0, :, :64], exact)
        actual = gap(RoPE(128).table(torch.tensor(positions))[0], exact)
        assert actual < 3e-7 < 1e-2 < reference, f"transformers is off by {reference:.2g}, ours by {actual:.2g}"

    def test_a_cast_to_bfloat16(self):
        _, rotary = self.llama()
        cos, _ = rotary.to(torch.bfloat16)(torch.zeros(1), torch.tensor([[1000]]))
        exact = exact_cos([1000], 32, 10_000)
        actual = RoPE(64).to(torch.bfloat16).table(torch.tensor([1000]))[0]
        assert gap(actual, exact) < 3e-7 < 0.1 < gap(cos[0, :, :32], exact)

    def test_gptj_interleaves(self):
        pytest.importorskip("transformers")
        from transformers.models.gptj import modeling_gptj as gptj

        sin, cos = gptj.create_sinusoidal_positions(600, 64)[POSITIONS].split(32, dim=-1)
        x = torch.randn(2, 5, 4, 64)
        reference = gptj.apply_rotary_pos_emb(x, sin[None], cos[None])
        rope = RoPE(64, layout="interleaved")
        assert gap(rope.rotate(x.transpose(1, 2), rope.table(POSITIONS)).transpose(1, 2), reference) < 3e-4

    def test_t5_bias(self):
        pytest.importorskip("transformers")
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Attention

        for decoder in (False, True):
            config = T5Config(d_model=32, num_heads=4, d_kv=8, is_decoder=decoder)
            reference = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
            actual = T5Bias(4, bidirectional=not decoder)
            actual.weight = reference.relative_attention_bias.weight
            positions = torch.arange(300)
            assert torch.equal(actual(positions, positions)[None], reference.compute_bias(300, 300))

    def test_bloom_alibi(self):
        pytest.importorskip("transformers")
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

        for heads in (1, 8, 12, 20):
            real = torch.ones(1, 40, dtype=torch.long)
            reference = build_alibi_tensor(real, heads, torch.float32)  # m · p_key, equal after softmax
            q, k, v = qkv(1, heads, 40)
            scores = q @ k.mT * 8**-0.5 + reference.view(1, heads, 1, 40)
            expected = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf).softmax(-1) @ v
            assert gap(attention(q, k, v, [ALiBi(heads)]), expected) < 1e-5


class TestXTransformers:
    def test_rotation(self):
        library = pytest.importorskip("x_transformers.x_transformers")
        frequencies, _ = library.RotaryEmbedding(64)(POSITIONS)
        x = torch.randn(2, 3, 5, 64)
        reference = library.apply_rotary_pos_emb(x, frequencies)
        matches = []
        for layout in ("half", "interleaved"):
            rope = RoPE(64, layout=layout)
            matches.append(gap(rope.rotate(x, rope.table(POSITIONS)), reference))
        assert min(matches) < 3e-4

    def test_t5_bias_keeps_the_scale(self):
        library = pytest.importorskip("x_transformers.x_transformers")
        reference = library.RelativePositionBias(scale=math.sqrt(8), causal=True, heads=4)
        actual = T5Bias(4, bias_scale=math.sqrt(8))
        actual.weight = reference.relative_attention_bias.weight
        positions = torch.arange(200)
        seen = torch.ones(200, 200).tril().bool()
        assert gap(actual(positions, positions)[:, seen], reference(200, 200)[:, seen]) < 1e-6

    def test_alibi(self):
        library = pytest.importorskip("x_transformers.x_transformers")
        reference = library.AlibiPositionalBias(heads=6, total_heads=8)(20, 30)
        actual = ALiBi(8, slopes=[*alibi_slopes(6), 0.0, 0.0])(torch.arange(10, 30), torch.arange(30))
        assert gap(actual, reference) < 1e-5


def test_converted_projections_score_as_before():
    """Meta's interleaved weights, permuted for transformers' half layout, as its conversion script does it."""
    w, heads = torch.randn(4 * 16, 24), 4
    permuted = w.view(heads, 8, 2, 24).transpose(1, 2).reshape(64, 24)
    assert torch.equal(permute_layout(w, 16, to="half"), permuted)
