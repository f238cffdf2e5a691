"""Gradients of learned frequencies where tokens stand far from 0: as near it, in every dtype."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE, attention
from posenc.frequencies import CLEX
from posenc.layers import KVCache, SelfAttention
from posenc.rotary import GRAPEM, ComRoPEAP, ComRoPELD, LieRE, MixedRoPE
from posenc.score import CoPE

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
