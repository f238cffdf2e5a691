"""CoPE: clamped counts, counts in low precision, and what is refused."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.call import prepare_call
from posenc.score.cope import CoPE
from tests.samples import gap, qkv, refusals

FORMS = {
    "plain": {},
    "scaled": {"scaled": True},
    "separate": {"gates": "separate", "dim": 32, "num_kv_heads": 2},
    "values": {"gates": "values"},
    "relative": {"relative": 3},
    "rotated": {"rotated": True},
}


def cope(form="plain", **options) -> CoPE:
    """One in float64 whose every parameter has been moved."""
    encoding = CoPE(8, **{"max_position": 3, **FORMS[form], **options}).double()
    source = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source, dtype=torch.float64))
    return encoding


def context_of(q, k, v, **options):
    expected = {"q_pos": None, "k_pos": None, "x": None, "token_states": None, "mask": None, "segments": None}
    problem = prepare_call(q, k, v, [], **{**expected, "causal": True, "scale": None, **options})
    return problem.context(problem.visible(), None)


def test_clamped_counts_are_equal_and_give_no_gradient():
    q, k, v = qkv(1, 1, 30, dtype=torch.float64)
    k.requires_grad_()
    counts = cope().counts(q, context_of(q, k, v))[:, :, -1]
    assert (counts[..., :15] == 3).all()
    (gradient,) = torch.autograd.grad(counts[..., :15].sum(), k)
    assert not gradient.any()


def test_counts_in_low_precision():
    """bfloat16 cannot tell 256 from 257, so counts in it would stand still."""
    q, k, v = qkv(1, 1, 700, dtype=torch.bfloat16)
    encoding = CoPE(8, max_position=400).bfloat16()
    torch.nn.init.normal_(encoding.table, generator=torch.Generator().manual_seed(0))
    out = attention(q, k, v, [encoding])
    assert out.dtype == torch.bfloat16
    assert gap(out, attention(q.double(), k.double(), v.double(), [encoding.double()])) < 2e-2


def test_not_a_number_stays_one():
    q, k, v = qkv()
    q[0, 0, 2, 0] = torch.nan
    out = attention(q, k, v, [cope().float()])
    assert out[0, 0, 2].isnan().all()
    assert out[1].isfinite().all()


test_refusals = refusals(
    {
        "dim": [lambda: CoPE(8, max_position=2, gates="separate", dim=4)],
        "rotated": [lambda: CoPE(8, max_position=2, gates="values", rotated=True)],
        "head_dim": [lambda: attention(*qkv(), [CoPE(16, max_position=2)])],
        "value_dim": [lambda: attention(*qkv(value_dim=5), [CoPE(8, max_position=2, gates="values")])],
        "x": [
            lambda: attention(*qkv(), [cope("separate").float()]),
            lambda: attention(*qkv(), [cope("separate").float()], x=torch.zeros(2, 6, 31)),
        ],
        "num_kv_heads": [lambda: attention(*qkv(), [cope("separate").float()], token_states=[torch.zeros(2, 3, 6, 8)])],
        "q_pos": [lambda: attention(*qkv(), [cope("relative").float()], q_pos=torch.arange(6.0))],
        "CoPE": [lambda: attention(*qkv(), [cope().float()], backend="sdpa")],
    }
)
