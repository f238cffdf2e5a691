"""Data-dependent ALiBi: first values, its relatives, and x-transformers run anew."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.score.data_alibi import DataDependentALiBi
from posenc.score.forget import ForgetGate
from tests.samples import gap, qkv, refusals

DIM, HEADS = 16, 4
FORMS = ("causal", "bidirectional", "rows")


def context(q, k, mask, token_states):
    from posenc import Context

    at = torch.arange(k.shape[2])
    return Context(q, k, k, at[-q.shape[2] :], at, 1.0, mask, token_states)


@pytest.mark.parametrize("form", FORMS)
def test_first_values(form):
    torch.manual_seed(0)
    built = DataDependentALiBi(100, num_heads=8, form=form)
    assert built.weight.abs().max() <= 0.1
    assert built.weight.abs().max() > 0.099
    assert (built.bias is None) if form == "rows" else bool((built.bias == 5).all())


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
    token_states = built.token_state(torch.randn(1, 6, DIM, dtype=torch.float64))
    q, k, _ = qkv(1, HEADS, 6, dtype=torch.float64)
    bias = built(torch.zeros(1, HEADS, 6, 6, dtype=torch.float64), context(q, k, None, token_states))
    assert gap(bias, bias.mT) < 1e-12
    assert (bias.diagonal(dim1=-2, dim2=-1) == 0).all()


test_refusals = refusals(
    {
        "x": [
            lambda: attention(*qkv(), [DataDependentALiBi(DIM, num_heads=HEADS)]),
            lambda: attention(*qkv(), [DataDependentALiBi(DIM, num_heads=HEADS)], x=torch.ones(2, 6, 5)),
        ],
        "token_states": [
            lambda: attention(
                *qkv(), [DataDependentALiBi(DIM, num_heads=HEADS)], token_states=[torch.zeros(2, HEADS, 6, 2)]
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
    got = built(torch.zeros(2, HEADS, 30, 30, dtype=torch.float64), context(q, k, seen, built.token_state(x)))
    assert gap(torch.where(seen, got - reference(x), 0.0), torch.zeros_like(got)) < 1e-12
