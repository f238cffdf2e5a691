"""Other libraries compared with posenc: equal where they are right, and by how much they are not."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch

from posenc import ALiBi, LogN, RoPE, T5Bias, attention, read_attention
from posenc.bias import alibi_slopes
from posenc.rotary import permute_layout
from posenc.score import PowerTemperature, TokenRelativeBias

pytest.importorskip("transformers")

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


# Far angles: transformers, x-transformers and rotary-embedding-torch compared with posenc at the same positions.


DIM, BASE = 128, 10_000.0
Cosines = Callable[[torch.Tensor], torch.Tensor]


def transformers_cos(positions):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    config = LlamaConfig(
        hidden_size=4 * DIM, num_attention_heads=4, rope_parameters={"rope_type": "default", "rope_theta": BASE}
    )
    return modeling_llama.LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])[0][0, :, : DIM // 2]


def x_transformers_cos(positions):
    library = pytest.importorskip("x_transformers.x_transformers")
    frequencies, _ = library.RotaryEmbedding(DIM, base=BASE)(positions)
    return frequencies.cos()[0, :, ::2]


def rotary_embedding_cos(positions):
    library = pytest.importorskip("rotary_embedding_torch")
    return library.RotaryEmbedding(DIM, theta=BASE, cache_if_possible=False)(positions).cos()[:, ::2]


PEERS: dict[str, Cosines] = {
    "transformers": transformers_cos,
    "x-transformers": x_transformers_cos,
    "rotary-embedding-torch": rotary_embedding_cos,
}


def exact(positions):
    with mpmath.workdps(50):
        theta = [mpmath.mpf(BASE) ** (mpmath.mpf(-2 * j) / DIM) for j in range(DIM // 2)]
        rows = [[float(mpmath.cos(p * t)) for t in theta] for p in positions]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("last", "off"), [(2**17, 1e-3), (2**21, 1e-2), (10**8, 0.5), (2**31 - 1, 0.5)])
@pytest.mark.parametrize("peer", PEERS)
def test_peers_against_posenc(peer, last, off):
    """``off`` is what the peer is wrong by, at least, among the last positions before ``last``."""
    positions = list(range(last - 40, last))
    expected = exact(positions)
    actual = RoPE(DIM, base=BASE).table(torch.tensor(positions))[0]
    reference = PEERS[peer](torch.tensor(positions))
    assert (actual.double() - expected).abs().max() < (3e-7 if last <= 10**8 else 2e-6)
    gap = float((reference.detach().double() - expected).abs().max())
    assert gap > off, f"{peer} is off by {gap:.1e} only"


@pytest.mark.parametrize("peer", PEERS)
def test_near_the_start_all_agree(peer):
    positions = torch.arange(100)
    actual = RoPE(DIM, base=BASE).table(positions)[0]
    assert (actual - PEERS[peer](positions)).abs().max() < 1e-4


# ALiBi as transformers' Falcon has it: inside the scale.


def test_falcons_weights() -> None:
    from transformers import FalconConfig
    from transformers.models.falcon.modeling_falcon import FalconAttention, build_alibi_tensor

    torch.manual_seed(0)
    config = FalconConfig(
        hidden_size=64, num_attention_heads=8, num_hidden_layers=1, alibi=True, multi_query=False, vocab_size=11,
        new_decoder_architecture=False, attention_dropout=0.0, attn_implementation="eager",
    )  # fmt: skip
    reference, x, seen = FalconAttention(config, layer_idx=0).eval(), torch.randn(2, 12, 64), torch.ones(2, 12)
    hidden = torch.full((12, 12), -1e9).triu(1).expand(2, 1, -1, -1)
    with torch.no_grad():
        q, k, _ = (t.transpose(1, 2) for t in reference._split_heads(reference.query_key_value(x * 5)))
        alibi = build_alibi_tensor(seen, 8, torch.float32)
        expected = reference(x * 5, alibi=alibi, attention_mask=hidden, output_attentions=True)[1]
    read = read_attention(q, k, encodings=[ALiBi(8, bias_scale=8**-0.5)])
    assert gap(read.weights, expected) < 1e-5
    assert gap(read_attention(q, k, encodings=[ALiBi(8)]).weights, expected) > 1e-2


# Temperatures and token-dependent biases as transformers' own modules compute them.


def test_inklings_relative_logits_and_its_temperature() -> None:
    from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

    torch.manual_seed(0)
    reference, x, tokens = InklingRelativeLogits(6, 5), torch.randn(2, 12, 16), torch.arange(12)
    actual = TokenRelativeBias(16, num_heads=4, max_distance=5, relative_dim=6)
    with torch.no_grad():
        reference.proj.copy_(torch.randn(6, 5))
        actual.profiles.copy_(reference.proj)
        actual.weight.copy_(torch.randn(24, 16))
        states = (x @ actual.weight.T).view(2, 12, 4, 6)
        expected = reference(states, tokens, tokens)
        q, k, v = qkv(2, 4, 12, 12)
        tau = 1.0 + 0.3 * torch.log(((tokens + 1).float() / 7).clamp(min=1.0)).view(1, 1, -1, 1)
        hidden = torch.full((12, 12), -torch.inf).triu(1)
        weights = (q * tau @ k.mT * 0.5 + expected * tau + hidden).softmax(-1)
        for backend in ("auto", "dense"):
            result = attention(q, k, v, [actual, LogN(7, strength=0.3)], x=x, scale=0.5, backend=backend)
            assert gap(result, weights @ v) < 1e-5
        for queries in (1, 5):
            part = attention(q[:, :, -queries:], k, v, [actual], x=x, scale=0.5)
            assert gap(part, ((q @ k.mT * 0.5 + expected + hidden).softmax(-1) @ v)[:, :, -queries:]) < 1e-5


def test_beams_temperature() -> None:
    from transformers.models.beam.modeling_beam import compute_attention_scaling

    q, k, v = qkv(1, 2, 40, 40)
    positions = torch.arange(40) * 300
    expected = compute_attention_scaling(positions[None])
    with torch.no_grad():
        scores = read_attention(q, k, v, [RoPE(8), PowerTemperature()], q_pos=positions, causal=False).scores
        baseline = read_attention(q, k, v, [RoPE(8)], q_pos=positions, causal=False).scores
    assert gap(scores, baseline * expected) < 1e-4
