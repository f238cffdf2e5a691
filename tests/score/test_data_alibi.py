"""Data-dependent ALiBi against x-transformers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from posenc import attention
from posenc.layers import KVCache, SelfAttention
from posenc.score.data_alibi import DataDependentALiBi
from posenc.score.forget import ForgetGate
from tests.golden import load
from tests.samples import FLOATS, expect_golden, gap, qkv, refusals

DIM, HEADS = 16, 4
FORMS = ("causal", "bidirectional", "rows")
GOLDEN = {  # name: form, post_log_scale
    "ddalibi_causal_l14": ("causal", 1.0),
    "ddalibi_postlogscale_l9": ("causal", 0.25),
    "ddalibi_bidirectional_l14": ("bidirectional", 1.0),
    "ddalibi_rows_l9": ("rows", 0.5),
}


def holding(golden, form, scale) -> DataDependentALiBi:
    """One with golden weights."""
    built = DataDependentALiBi(golden["x"].shape[-1], num_heads=golden["q"].shape[1], form=form, post_log_scale=scale)
    built = built.to(golden["x"].dtype)
    state = {"weight": golden["weight"]} | ({} if form == "rows" else {"bias": golden["bias_param"]})
    built.load_state_dict(state)
    return built


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name, dtype, tolerance):
    golden, (form, scale) = load(name, dtype), GOLDEN[name]
    encoding = holding(golden, form, scale)
    expect_golden(golden, [encoding], tolerance, x=golden["x"], causal=form != "bidirectional")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bias(name):
    golden, (form, scale) = load(name), GOLDEN[name]
    built, scores = holding(golden, form, scale), torch.zeros_like(golden["bias"])
    seen = golden.get("mask_allowed", torch.ones(scores.shape[-2:], dtype=torch.bool))
    seen = seen.bool()[None, None]
    got = built(scores, context(golden["q"], golden["k"], seen, built.remember(golden["x"])))
    assert gap(torch.where(seen, got, 0.0), torch.where(seen, golden["bias"], 0.0)) < 1e-12


def context(q, k, mask, features):
    from posenc import Context

    at = torch.arange(k.shape[2])
    return Context(q, k, k, at[-q.shape[2] :], at, 1.0, mask, features)


@pytest.mark.parametrize("form", FORMS)
def test_first_values(form):
    torch.manual_seed(0)
    built = DataDependentALiBi(100, num_heads=8, form=form)
    assert built.weight.abs().max() <= 0.1
    assert built.weight.abs().max() > 0.099
    assert (built.bias is None) if form == "rows" else bool((built.bias == 5).all())


def by_the_formula(x, built, i, mask) -> torch.Tensor:
    """The bias of query i for every key of one row, ``(heads, keys)``, sums written out."""
    projected = F.linear(x, built.weight, built.bias)
    keys, seen = len(x), [j for j in range(len(x)) if mask[j]]
    out = torch.zeros(built.num_heads, keys, dtype=x.dtype)
    for h in range(built.num_heads):
        for j in seen:
            if built.form == "rows":
                q, k = projected.view(keys, 2, built.num_heads, -1)[:, :, h].unbind(1)
                steps = [F.logsigmoid(q[i] @ k[m] * built.gate_dim**-0.5) for m in seen if j <= m < i]
            elif j <= i:
                steps = [F.logsigmoid(projected[m, h]) for m in seen if j < m <= i]
            else:
                steps = [F.logsigmoid(projected[m, built.num_heads + h]) for m in seen if i < m <= j]
            out[h, j] = sum(steps) * built.post_log_scale
    return out


@pytest.mark.parametrize("queries", [6, 2])
@pytest.mark.parametrize("form", FORMS)
def test_formula_under_a_mask_and_for_the_last_queries(form, queries):
    torch.manual_seed(0)
    built = DataDependentALiBi(DIM, num_heads=HEADS, form=form, bias_init=0.5, post_log_scale=0.7, gate_dim=3).double()
    x = torch.randn(6, DIM, dtype=torch.float64)
    mask = torch.rand(queries, 6, generator=torch.Generator().manual_seed(2)) < 0.7
    index = torch.arange(6)
    if form != "bidirectional":
        mask &= index <= index[-queries:, None]
    q, k, _ = qkv(1, HEADS, queries, 6, dtype=torch.float64)
    scores = torch.zeros(1, HEADS, queries, 6, dtype=torch.float64)
    got = built(scores, context(q, k, mask[None, None], built.remember(x[None])))
    for row in range(queries):
        expected = by_the_formula(x, built, row + 6 - queries, mask[row])
        assert gap(torch.where(mask[row], got[0, :, row], 0.0), expected) < 1e-12


def test_causal_form_is_a_forget_gate():
    torch.manual_seed(0)
    built, gate = DataDependentALiBi(DIM, num_heads=HEADS), ForgetGate(DIM, num_heads=HEADS)
    gate.load_state_dict(built.state_dict())
    q, k, v = qkv()
    x = torch.randn(2, 6, DIM)
    assert gap(attention(q, k, v, [built], x=x), attention(q, k, v, [gate], x=x)) < 1e-6


def test_the_two_directions_mirror_each_other():
    """With the same gates on both sides and tokens in reverse, step l between two tokens becomes step l − 1."""
    torch.manual_seed(0)
    built = DataDependentALiBi(DIM, num_heads=HEADS, form="bidirectional", bias_init=0.0).double()
    with torch.no_grad():
        built.weight[HEADS:] = built.weight[:HEADS]
    features = built.remember(torch.randn(1, 6, DIM, dtype=torch.float64))
    q, k, _ = qkv(1, HEADS, 6, dtype=torch.float64)
    bias = built(torch.zeros(1, HEADS, 6, 6, dtype=torch.float64), context(q, k, None, features))
    assert gap(bias, bias.mT) < 1e-12
    assert (bias.diagonal(dim1=-2, dim2=-1) == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [[1] * 9, [4, 1, 4]], ids=str)
def test_decoding(form, sizes):
    torch.manual_seed(0)
    module = SelfAttention(
        DIM, HEADS, num_kv_heads=2, encodings=[DataDependentALiBi(DIM, num_heads=HEADS, form=form, bias_init=0.0)]
    )
    x, cache = torch.randn(2, 9, DIM), KVCache()
    pieces = [module(part, cache=cache) for part in x.split(sizes, 1)]
    assert gap(torch.cat(pieces, 1), module(x)) < 1e-5


test_refusals = refusals(
    {
        "x": [
            lambda: attention(*qkv(), [DataDependentALiBi(DIM, num_heads=HEADS)]),
            lambda: attention(*qkv(), [DataDependentALiBi(DIM, num_heads=HEADS)], x=torch.ones(2, 6, 5)),
        ],
        "features": [
            lambda: attention(
                *qkv(), [DataDependentALiBi(DIM, num_heads=HEADS)], features=[torch.zeros(2, HEADS, 6, 2)]
            )
        ],
    }
)


@pytest.mark.reference
@pytest.mark.parametrize("form", FORMS)
def test_installed_library(form):
    theirs_of = pytest.importorskip("x_transformers.x_transformers")
    torch.manual_seed(0)
    if form == "rows":
        reference = theirs_of.PerRowDataDependentAlibi(DIM, HEADS).double()
    else:
        reference = theirs_of.DataDependentAlibi(DIM, HEADS, causal=form == "causal").double()
    built = DataDependentALiBi(DIM, num_heads=HEADS, form=form).double()
    built.load_state_dict({name.split(".")[-1]: p for name, p in reference.state_dict().items()})
    x = torch.randn(2, 30, DIM, dtype=torch.float64)
    q, k, _ = qkv(2, HEADS, 30, dtype=torch.float64)
    seen = torch.ones(30, 30, dtype=torch.bool)
    seen = (seen if form == "bidirectional" else seen.tril())[None, None]
    got = built(torch.zeros(2, HEADS, 30, 30, dtype=torch.float64), context(q, k, seen, built.remember(x)))
    assert gap(torch.where(seen, got - reference(x), 0.0), torch.zeros_like(got)) < 1e-12
