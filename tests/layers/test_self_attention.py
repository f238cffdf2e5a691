"""SelfAttention: decoding equals reading at once, whatever the batch looks like."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, AxialRoPE, ForgetGate, RoPE, Sinusoidal, attention
from posenc.bias import LogCPB
from posenc.layers import KVCache, SelfAttention
from posenc.positions import grid
from tests.samples import gap

DIM, HEADS, LENGTH = 32, 4, 9


LISTS = {
    "rope": lambda: [RoPE(8)],
    "rope+alibi": lambda: [RoPE(8, layout="interleaved"), ALiBi(HEADS)],
}
CLOSE = 2e-5


def layer(encodings="rope", **options) -> SelfAttention:
    torch.manual_seed(0)
    built = LISTS[encodings]() if isinstance(encodings, str) else encodings
    return SelfAttention(DIM, HEADS, encodings=built, **{"causal": True, **options})


def tokens(batch=2, length=LENGTH) -> torch.Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1))


def in_steps(module, x, sizes, **options) -> torch.Tensor:
    """x read in pieces with one cache; ``kept`` are cut along their last axis as x is."""
    cache, outs, start = KVCache(), [], 0
    for size in sizes:
        stop = start + size
        outs.append(module(x[:, start:stop], cache=cache, **{n: t[..., start:stop] for n, t in options.items()}))
        start = stop
    assert len(cache) == start
    return torch.cat(outs, 1)


class TestDecoding:
    @pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
    @pytest.mark.parametrize("qk_norm", [False, True])
    def test_autocast(self, qk_norm):
        module, x = layer("rope+alibi", qk_norm=qk_norm), tokens()
        with torch.autocast("cpu", torch.bfloat16):
            out = in_steps(module, x, [4, 5])
        assert out.dtype == torch.bfloat16
        assert gap(out, module(x)) < 3e-2

    def test_positions_once_given_must_be_given_again(self):
        module, x, cache = layer(), tokens(), KVCache()
        module(x[:, :5], torch.arange(10, 15), cache=cache)
        with pytest.raises(ValueError, match="positions"):
            module(x[:, 5:], cache=cache)


class TestSeveralCoordinates:
    LISTS = (
        lambda: [LogCPB(HEADS, axes=2, hidden=8)],
        lambda: [AxialRoPE(8)],
        lambda: [AxialRoPE(8), LogCPB(HEADS, axes=2, hidden=8)],
        lambda: [AxialRoPE(8), ForgetGate(DIM, num_heads=HEADS)],
    )

    def test_positions_that_nobody_reads_may_be_of_any_kind(self):
        x = tokens()
        for built in ([], [ForgetGate(DIM, num_heads=HEADS)]):
            module, cache = layer(built), KVCache()
            assert torch.equal(module(x, grid(3, 3)), module(x))
            steps = [module(x[:, i : i + 1], grid(3, 3)[i : i + 1], cache=cache) for i in range(LENGTH)]
            assert gap(torch.cat(steps, 1), module(x)) < CLOSE

    def test_encodings_must_agree(self):
        with pytest.raises(ValueError, match="encodings"):
            layer([RoPE(8), LogCPB(HEADS, axes=2)])
        with pytest.raises(ValueError, match="encodings"):
            layer([Sinusoidal(DIM), LogCPB(HEADS, axes=2)])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_is_attention_between_projections(causal, qk_norm):
    module, x = layer("rope+alibi", num_kv_heads=2, qk_norm=qk_norm, causal=causal, bias=True), tokens()
    q, k, v = (p(x).view(2, LENGTH, -1, 8).transpose(1, 2) for p in (module.q_proj, module.k_proj, module.v_proj))
    if qk_norm:
        q, k = (t * t.square().mean(-1, keepdim=True).add(torch.finfo(t.dtype).eps).rsqrt() for t in (q, k))
    encodings = [RoPE(8, layout="interleaved"), ALiBi(HEADS)]
    out = attention(q, k, v, encodings, causal=causal, backend="dense").transpose(1, 2).reshape(2, LENGTH, DIM)
    assert gap(module(x), module.o_proj(out)) < CLOSE


def test_embeddings_act_before_the_projections():
    embedding, x = Sinusoidal(DIM), tokens()
    with_it, without = layer([embedding]), layer([])
    without.load_state_dict(with_it.state_dict())
    assert torch.equal(with_it(x), without(embedding(x, torch.arange(LENGTH))))


class TestSoftcapAndDropout:
    def test_dropout_acts_in_training_alone(self):
        layer, x = SelfAttention(64, 4, encodings=[RoPE(16)], dropout=0.5), torch.randn(2, 9, 64)
        trained = [layer(x) for _ in range(2)]
        assert gap(*trained) > 1e-3
        layer.eval()
        baseline = SelfAttention(64, 4, encodings=[RoPE(16)])
        baseline.load_state_dict(layer.state_dict())
        assert torch.equal(layer(x), layer(x))
        assert gap(layer(x), baseline(x)) < 1e-6

    def test_softcap_reaches_the_scores_and_the_cache(self):
        layer, x, cache = SelfAttention(64, 4, encodings=[RoPE(16)], softcap=0.3), torch.randn(1, 9, 64) * 9, KVCache()
        baseline = SelfAttention(64, 4, encodings=[RoPE(16)])
        baseline.load_state_dict(layer.state_dict())
        assert gap(layer(x), baseline(x)) > 1e-2
        assert gap(torch.cat([layer(part, cache=cache) for part in x.split([5, 1, 3], 1)], 1), layer(x)) < 1e-5
