"""What `read_attention` and `attention_lse` give is what `attention` computes, under every encoding."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, RoPE, T5Bias, attention
from posenc.attention_maps import attention_lse, read_attention
from posenc.catalogue import CATALOGUE
from posenc.distributed.parallel import merged
from posenc.score import CoPE, PaTH, Shaw
from posenc.testing import Case
from posenc.testing.backends import SITUATIONS, call_of, situations
from tests.backends.tiles.compare import Largest
from tests.samples import INSIDE_ATTENTION, gap, mostly_slow, qkv

UNLIKE = tuple(  # to what comes after products: rotations are done before
    name for name in INSIDE_ATTENTION
    if CATALOGUE[name].hook_point != "rotary" or name in ("rope", "dynamic_ntk", "axial")
)  # fmt: skip
SOME = {s.name: s._replace(softcap=2.0, dropout=0.0) for s in SITUATIONS if 1 < s.queries < 100 and not s.dropout}


def finite(scores: Tensor) -> Tensor:
    return scores.masked_fill(scores == -math.inf, -9e9)


@pytest.mark.parametrize("situation", mostly_slow(SOME, *sorted(SOME)[::3]))
@pytest.mark.parametrize("name", UNLIKE)
def test_some_queries_and_the_log_sum_exp_alone(name, situation):
    case, queries = Case.from_catalogue(name), SOME[situation].queries
    if situation not in [s.name for s in situations(case)]:
        pytest.skip("knows no keys after the query")
    (q, k, v), encodings, options = call_of(case, SOME[situation])
    keywords = {"q": q, "k": k, "v": v}
    options = {name: value for name, value in options.items() if name != "dropout"}
    full = read_attention(**keywords, encodings=encodings, **options)
    for cut in (slice(-1, None), slice(0, 2), slice(1, queries - 1)):
        some = read_attention(**keywords, encodings=encodings, queries=cut, **options)
        assert gap(finite(some.scores), finite(full.scores[:, :, cut])) < 1e-10
        assert gap(some.weights, full.weights[:, :, cut]) < 1e-12
        if full.lse is not None:
            assert gap(finite(some.lse), finite(full.lse[:, :, cut])) < 1e-10
    if full.lse is None:
        with pytest.raises(ValueError, match="log-sum-exp"):
            attention_lse(**keywords, encodings=encodings, **options)
        return
    result = attention_lse(**keywords, encodings=encodings, **options)
    assert gap(finite(result), finite(full.lse)) < 1e-10
    assert gap(finite(result), finite(full.scores.logsumexp(-1))) < 1e-10


def test_rows_that_see_nothing():
    leaves = [t.requires_grad_() for t in qkv(1, 4, 6, dtype=torch.float64)]
    mask = torch.ones(6, 6).bool()
    mask[3] = False
    read = read_attention(*leaves, [ALiBi(4)], mask=mask)
    assert bool((read.scores[:, :, 3] == -math.inf).all() and (read.weights[:, :, 3] == 0).all())
    assert bool((read.lse[:, :, 3] == -math.inf).all())
    total = finite(read.scores).sum() + read.weights.square().sum() + finite(read.lse).sum()
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    assert all(bool(g.isfinite().all()) for g in gradients if g is not None)
    assert bool((gradients[0][:, :, 3] == 0).all())


def test_shards_of_keys_are_merged():
    """(out, lse) of disjoint keys make the whole, as ring attention has them."""
    q, k, v = qkv(2, 4, 70, num_kv_heads=2, dtype=torch.float64)
    options = {"encodings": [ALiBi(4)], "causal": "positions", "q_pos": torch.arange(70)}
    parts = []
    for shard in (slice(0, 30), slice(30, 70)):
        keywords = {"k": k[:, :, shard], "v": v[:, :, shard], "k_pos": torch.arange(70)[shard]}
        parts.append((attention(q, **keywords, **options), attention_lse(q, **keywords, **options)))
    out, lse = merged(parts)
    assert gap(out, attention(q, k, v, [ALiBi(4)])) < 1e-12
    assert gap(lse, attention_lse(q, k, v, [ALiBi(4)])) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_float32_or_better(dtype):
    narrow = qkv(1, 4, 9, dtype=dtype)
    read, wide = (read_attention(*t, [RoPE(8), ALiBi(4)]) for t in (narrow, [t.double() for t in narrow]))
    assert {t.dtype for t in (*read, attention_lse(*narrow))} == {torch.float32}
    assert gap(read.weights, wide.weights) < (1e-6 if dtype == torch.float32 else 2e-2)


def test_gradcheck():
    leaves = [t.requires_grad_() for t in qkv(1, 4, 5, num_kv_heads=2, dtype=torch.float64)]
    bias = T5Bias(4, init_std=1.0, bidirectional=True).double()

    def call(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        read = read_attention(q, k, v, [RoPE(8), bias], queries=slice(2, 5), softcap=3.0)
        return finite(read.scores), read.weights, read.lse, attention_lse(q, k, v, [RoPE(8), bias])

    torch.autograd.gradcheck(call, (*leaves, bias.weight), fast_mode=True)


def test_no_matrix_of_queries_and_keys():
    length = 1500
    leaves = [t.requires_grad_() for t in qkv(1, 2, length, head_dim=4)]
    with Largest() as seen:
        attention_lse(*leaves, [RoPE(4), ALiBi(2)]).square().sum().backward()
        read_attention(*leaves, [RoPE(4), ALiBi(2)], queries=slice(-20, None)).weights.square().sum().backward()
        read_attention(*leaves, [ALiBi(2)], queries=slice(0, 20), causal=False, window=9)
    assert leaves[0].numel() <= seen.elements < length * length


def test_gradients_of_blocks_equal_the_full_call():
    result, bias = [], T5Bias(4, init_std=1.0, bidirectional=True).double()
    for call in (attention_lse, lambda *t: read_attention(*t).lse):
        leaves = [t.requires_grad_() for t in qkv(1, 4, 150, num_kv_heads=2, dtype=torch.float64)]
        result.append(torch.autograd.grad(call(*leaves, [bias]).square().sum(), leaves[:2]))
    assert all(gap(a, b) < 1e-10 for a, b in zip(*result, strict=True))


@pytest.mark.parametrize("queries", [3, [1, 2], slice(0, 4, 2), slice(4, 4), slice(9, 12), slice(3, 1)])
def test_no_range(queries):
    with pytest.raises(ValueError, match="queries must"):
        read_attention(*qkv(), queries=queries)


def test_path_needs_all_queries():
    q, k, v = qkv(1, 4, 9, dtype=torch.float64)
    encoding, x = PaTH(6, head_dim=8, num_kv_heads=4).double(), torch.randn(1, 9, 6, dtype=torch.float64)
    some = read_attention(q, k, v, [encoding], x=x, queries=slice(6, 8))
    assert gap(some.weights, read_attention(q, k, v, [encoding], x=x).weights[:, :, 6:8]) < 1e-12


def test_values_are_not_needed():
    """None, or values of any width, for encodings that only read them out; encodings that score by them say so."""
    q, k, v = qkv(1, 4, 9, dtype=torch.float64)
    shaw = Shaw(8, max_distance=3).double()
    read = read_attention(q, k, encodings=[shaw])
    assert gap(read.weights, read_attention(q, k, v, [shaw]).weights) == 0
    assert gap(read.weights, read_attention(q, k, v[..., :3], [shaw]).weights) == 0
    counting = CoPE(8, max_position=4, gates="values").double()
    read_attention(q, k, v, [counting])
    with pytest.raises(ValueError, match=r"^v\b"):
        read_attention(q, k, encodings=[counting])
