"""DAPE against its authors' code, and what its network may and may not do."""

from __future__ import annotations

import pytest
import torch

from posenc import FIRE, KERPLE, ALiBi, RoPE, attention, create_encoding
from posenc.layers import KVCache, SelfAttention
from posenc.score.dape import DAPE
from tests.golden import load
from tests.samples import FLOATS, expect_golden, gap, qkv, refusals

GOLDEN = ("dape_alibi_h4_l10", "dape_kerple_h3_l9")


def holding(golden) -> DAPE:
    """One with golden parameters."""
    heads = golden["q"].shape[1]
    if "p_slopes" in golden:
        bias = ALiBi(heads, slopes=golden["p_slopes"].tolist())
        state = {}
    else:
        bias = KERPLE(heads)
        state = {f"bias.{name}": golden[f"p_bias_{name}"].flatten() for name in "pa"}
    for actual, reference in (("inner", 0), ("outer", 2)):
        state |= {f"{actual}.{n}": golden[f"p_mlp2__{reference}__{n}"] for n in ("weight", "bias")}
    built = DAPE(bias, heads, hidden=len(golden["p_mlp2__0__bias"])).to(golden["q"].dtype)
    built.load_state_dict(state)
    return built


def spread(built: DAPE) -> DAPE:
    """The same with a network that matters, in float64."""
    source = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in built.double().parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=source, dtype=torch.float64))
    return built


def context(q, k, mask=None):
    from posenc import Context

    at = torch.arange(k.shape[2])
    return Context(q, k, k, at[-q.shape[2] :], at, 1.0, mask)


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name, dtype, tolerance):
    golden = load(name, dtype)
    expect_golden(golden, [holding(golden)], tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_scores(name, dtype, tolerance):
    golden = load(name, dtype)
    seen = golden["mask_allowed"].bool()
    got = holding(golden)(golden["content_logits"], context(golden["q"], golden["k"]))
    assert gap(got[..., seen], golden["logits"][..., seen]) < tolerance


def test_formula_one_pair_at_a_time():
    built = spread(DAPE(FIRE(4), 4, hidden=5))
    q, k, _ = qkv(2, 4, 3, 5, num_kv_heads=2, dtype=torch.float64)
    scores = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    got, bias = built(scores, context(q, k)), built.bias(torch.arange(2.0, 5).double(), torch.arange(5.0).double())
    for b, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)).tolist():
        both = torch.cat([scores[b, :, i, j], bias[:, i, j]])
        units = built.inner.weight @ both + built.inner.bias
        change = built.outer.weight @ torch.where(units < 0, 0.01 * units, units) + built.outer.bias
        assert gap(got[b, :, i, j], scores[b, :, i, j] + bias[:, i, j] + change) < 1e-12


def test_a_silent_network_leaves_its_bias():
    q, k, v = qkv()
    built = DAPE(KERPLE(4), 4)
    with torch.no_grad():
        built.outer.weight.zero_()
        built.outer.bias.zero_()
    assert gap(attention(q, k, v, [built]), attention(q, k, v, [built.bias])) < 1e-6


def test_scores_handed_in_come_from_the_list():
    """A rotation, a bias and a score encoding before it have acted already."""
    q, k, v = qkv(dtype=torch.float64)
    built, rope, alibi = spread(DAPE(KERPLE(4), 4)), RoPE(8), ALiBi(4)
    at = torch.arange(6)
    turned_q, turned_k = rope(q, k, at, at)
    scores = built(turned_q @ turned_k.mT * 8**-0.5 + alibi(at.double(), at.double()), context(q, k))
    hidden = ~torch.ones(6, 6, dtype=torch.bool).tril()
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    assert gap(attention(q, k, v, [built, alibi, rope]), expected) < 1e-12


def test_hidden_pairs_stay_finite_and_change_nothing():
    built = spread(DAPE(ALiBi(4), 4))
    q, k, v = (t.requires_grad_() for t in qkv(1, 4, 3, 300, dtype=torch.float64))
    mask = torch.rand(3, 300, generator=torch.Generator().manual_seed(2)) < 0.5
    mask[1] = False
    out = attention(q, k, v, [built], mask=mask, causal=False)
    assert built(q @ k.mT, context(q, k)).isfinite().all()
    assert not out[:, :, 1].any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), [q, k, v, *built.parameters()]))
    keep = mask[0]
    at = torch.arange(300)
    few = attention(q[:, :, :1], k[:, :, keep], v[:, :, keep], [built], q_pos=at[-3:-2], k_pos=at[keep], causal=False)
    assert gap(out[:, :, :1], few) < 1e-12


def test_decoding():
    torch.manual_seed(0)
    module = SelfAttention(32, 4, num_kv_heads=2, encodings=[RoPE(8), spread(DAPE(KERPLE(4), 4))]).double()
    x, cache = torch.randn(2, 9, 32, dtype=torch.float64), KVCache()
    pieces = [module(part, cache=cache) for part in x.split([4, 1, 3, 1], 1)]
    assert gap(torch.cat(pieces, 1), module(x)) < 1e-12
    assert cache.features == [None, None], "positions are all that it needs"


def test_catalogue_takes_kerple_or_a_bias_of_yours():
    assert isinstance(create_encoding("dape", num_heads=4).bias, KERPLE)
    fire = FIRE(4)
    built = create_encoding("dape", num_heads=4, bias=fire, hidden=7)
    assert built.bias is fire
    assert built.inner.weight.shape == (7, 8)


test_refusals = refusals(
    {
        "bias": [lambda: DAPE(RoPE(8), 4)],
        "num_heads": [lambda: DAPE(KERPLE(8), 4), lambda: attention(*qkv(), [DAPE(KERPLE(8), 8)])],
    }
)


def test_over_fire_as_the_authors_have_it():
    """FIRE_DAPE: LeakyReLU in both networks, the normaliser of FIRE."""
    torch.manual_seed(0)
    built = spread(DAPE(FIRE(4, hidden=6, threshold=3.0, leak=0.01), 4, hidden=5))
    with torch.no_grad():
        built.bias.inner.weight[::2] *= -1
    q, k, v = qkv(1, 4, 9, dtype=torch.float64)
    fire, at = built.bias, torch.arange(9).double()
    far, most = (at[:, None] - at).tril(), torch.maximum(at, (fire.multiplier * 3.0).abs())
    ratio = (fire.c * far).abs().log1p() / ((fire.c * most).abs().log1p() + 1e-6)[:, None]
    bias = fire.outer(torch.nn.functional.leaky_relu(fire.inner(ratio[..., None]))).movedim(-1, 0)[None]
    scores = q @ k.mT * 0.3
    both = torch.cat([scores, bias], 1).movedim(1, -1)
    change = built.outer(torch.nn.functional.leaky_relu(built.inner(both))).movedim(-1, 1)
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    expected = (scores + bias + change).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    assert gap(attention(q, k, v, [built], scale=0.3), expected) < 1e-12
    alone = (scores + bias).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    for backend in ("dense", "tiled"):
        assert gap(attention(q, k, v, [fire], scale=0.3, backend=backend), alone) < 1e-12
