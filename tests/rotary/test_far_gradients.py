"""Learned frequencies: gradients far from 0 as near it, and what FoPE, PoPE and GRAPE promise."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE, attention, explain_backend
from posenc.frequencies import CLEX
from posenc.layers import KVCache, SelfAttention
from posenc.rotary import GRAPEM, ComRoPEAP, ComRoPELD, FoPE, LieRE, MixedRoPE, PoPE
from posenc.score import CoPE
from tests.samples import gap, qkv

HEADS, WIDTH, TOKENS = 2, 16, 48
LEARNED = {
    "grape-m": lambda: GRAPEM(WIDTH, num_heads=HEADS, per_head=True),
    "mixed": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=1),
    "mixed, two axes": lambda: MixedRoPE(WIDTH, num_heads=HEADS),
    "liere": lambda: LieRE(WIDTH, num_heads=HEADS, axes=1, block=4),
    "comrope-ap": lambda: ComRoPEAP(WIDTH, num_heads=HEADS, axes=1, block=4),
    "comrope-ld": lambda: ComRoPELD(WIDTH, num_heads=HEADS, axes=1, block=4),
    "clex": lambda: RoPE(WIDTH, scaling=CLEX(WIDTH // 2, original_length=16, step=0.25)),
}
FAR = [(1000, torch.bfloat16, 0.05), (100_000, torch.float32, 1e-5), (2**31 - 20, torch.float16, 0.02)]


def made(name: str, dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(1)
    encoding = LEARNED[name]()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.2) if name == "clex" else None
        parameter.data = parameter.data.to(torch.float16).to(dtype)  # the same numbers in every dtype
    return encoding


def gradient(name: str, dtype: torch.dtype, start: int, **options: object) -> torch.Tensor:
    """Of a weighted sum of results, with respect to all parameters, in one line."""
    encoding = made(name, torch.float32 if dtype == torch.bfloat16 else dtype)
    generator = torch.Generator().manual_seed(2)
    tensors = torch.randn(4, 1, HEADS, TOKENS, WIDTH, generator=generator).bfloat16().to(torch.float16)
    q, k, v, weights = tensors.to(dtype)
    positions = torch.arange(TOKENS) + start
    positions = positions if encoding.axes == 1 else torch.stack([positions, torch.arange(TOKENS) // 7 + start], -1)
    length = 64 if name == "clex" else None  # which spans what it is told, wherever the tokens stand
    out = attention(
        q, k, v, [encoding], q_pos=positions, k_pos=positions, backend="dense", causal=True, length=length, **options
    )
    (out * weights).sum().backward()
    return torch.cat([p.grad.double().flatten() for p in encoding.parameters()])


@pytest.mark.parametrize(("start", "dtype", "tolerance"), FAR, ids=str)
@pytest.mark.parametrize("name", LEARNED)
def test_far_positions(name, start, dtype, tolerance):
    exact = gradient(name, torch.float64, 0)
    assert ((gradient(name, dtype, start) - exact).norm() / exact.norm()) < tolerance


def test_segments_and_rows_each_by_their_middle():
    """Two rows 100,000 tokens apart: what one row adds to the gradient does not drown the other's."""
    grape = GRAPEM(WIDTH, num_heads=HEADS)
    q, k, v, weights = torch.randn(4, 2, HEADS, TOKENS, WIDTH)
    here = torch.arange(TOKENS)
    far = torch.stack([here, here + 100_000])
    gradients = []
    for positions in (far, here):
        out = attention(q, k, v, [grape], q_pos=positions, k_pos=positions)
        gradients.append(torch.autograd.grad((out * weights).sum(), grape.log_theta)[0])
    assert (gradients[0] - gradients[1]).norm() < 1e-4 * gradients[1].norm()


def test_layers():
    layer = SelfAttention(HEADS * WIDTH, HEADS, encodings=[GRAPEM(WIDTH, num_heads=HEADS)])
    x, here = torch.randn(1, TOKENS, HEADS * WIDTH), torch.arange(TOKENS)
    gradients = []
    for start in (0, 1_000_000):
        out = layer(x, positions=here + start)
        gradients.append(torch.autograd.grad(out.square().sum(), layer.encodings[0].log_theta)[0])
    assert (gradients[1] - gradients[0]).norm() < 1e-4 * gradients[0].norm()


def test_a_cache_keeps_one_origin():
    """Keys of an earlier call were rotated without the tokens of this one: chunks equal the whole, gradients too."""
    layer = SelfAttention(HEADS * WIDTH, HEADS, encodings=[GRAPEM(WIDTH, num_heads=HEADS)]).double()
    x = torch.randn(1, TOKENS, HEADS * WIDTH, dtype=torch.float64)
    whole, cache = layer(x), KVCache()
    chunks = torch.cat([layer(part, cache=cache) for part in x.split(20, 1)], 1)
    expected, got = (
        torch.autograd.grad(out.square().sum(), layer.encodings[0].log_theta)[0] for out in (whole, chunks)
    )
    assert (got - expected).norm() < 1e-10 * expected.norm()


def test_what_reads_rotated_queries_gets_them_where_they_stand():
    """CoPE's gates of rotated queries and keys, and a loss on the rotated vectors themselves, know the origin."""
    grape, cope = GRAPEM(WIDTH, num_heads=HEADS).double(), CoPE(WIDTH, max_position=8, rotated=True).double()
    torch.nn.init.normal_(cope.table)
    q, k, v = torch.randn(3, 1, HEADS, TOKENS, WIDTH, dtype=torch.float64)
    positions = torch.arange(TOKENS) + 5
    q_, k_ = grape(q, k, positions, positions)
    by_hand = attention(q_, k_, v, [cope])
    expected, got = (
        torch.autograd.grad(out.square().sum(), grape.log_theta, retain_graph=True)[0]
        for out in (by_hand, attention(q, k, v, [grape, cope], q_pos=positions, k_pos=positions))
    )
    assert (got - expected).norm() < 1e-10 * expected.norm()


# FoPE: RoPE where there is no noise, pairs that rest, and what learns.


def test_without_noise_the_pairs_rotate_as_under_rope():
    q, k, _ = qkv(2, 4, 9, head_dim=16, num_kv_heads=2)
    fope, positions = FoPE(16, num_heads=4, original_length=64, num_kv_heads=2, noise=0.0), torch.arange(9) * 5
    remaining = fope.series
    assert remaining == 3
    actual, expected = fope(q, k, positions, positions), RoPE(16)(q, k, positions, positions)
    turning = [*range(remaining), *range(8, 8 + remaining)]
    resting = [c for c in range(16) if c not in turning]
    for got, rotated, before in zip(actual, expected, (q, k), strict=True):
        assert gap(got[..., turning], rotated[..., turning]) < 1e-6
        assert torch.equal(got[..., resting], before[..., resting])


def test_coefficients_learn_only_where_asked():
    for learned in (False, True):
        fope = FoPE(16, num_heads=2, original_length=64, learned=learned)
        assert {p.requires_grad for p in fope.parameters()} == {learned}
        assert set(fope.state_dict()) == {"cos_coef", "sin_coef"}
        q, k, v = qkv(1, 2, 5, head_dim=16)
        out = attention(q.requires_grad_(), k, v, [fope])
        out.sum().backward()
        assert (fope.cos_coef.grad is not None) == learned


# PoPE: what its width must not change, and strengths of large channels.


def test_the_scale_is_of_the_given_width():
    q, k, v = qkv(1, 2, 7, head_dim=16)
    pope = PoPE(16, num_heads=2)
    assert gap(attention(q, k, v, [pope]), attention(q, k, v, [pope], scale=0.25)) < 1e-6
    assert explain_backend(q, k, v, [pope]).backend == explain_backend(q, k, v, []).backend == "sdpa"


def test_strengths_of_large_channels():
    """softplus(x) − x is e^−x: 1e-13 of x = 30 counts in float64, and PyTorch's own leaves out up to 2e-9."""
    x, at = torch.tensor([[[[21.0, 25.0, 30.0, 35.0]]]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    features, _ = PoPE(4, num_heads=1).double()(x, x, at, at)
    expected = x + (-x).exp().log1p()
    assert ((features[..., :4] - expected) / expected).abs().max() < 1e-15


# GRAPE-M: at first it is RoPE the other way round.


def test_at_first_it_is_rope_at_negated_positions():
    q, k, _ = qkv(2, 4, 7, num_kv_heads=2)
    at = torch.arange(7) * 1000
    for per_head in (False, True):
        grape = GRAPEM(8, num_heads=4, num_kv_heads=2, per_head=per_head)
        for got, expected in zip(grape(q, k, at, at), RoPE(8)(q, k, -at, -at), strict=True):
            assert gap(got, expected) < 2e-3  # log frequencies are float32 parameters
