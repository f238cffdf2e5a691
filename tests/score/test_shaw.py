"""Shaw's relative positions against tensor2tensor."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import Shaw, attention
from tests.golden import load
from tests.samples import FLOATS, bounded, gap, qkv, refusals, weights


def holding(golden) -> Shaw:
    """A Shaw with golden tables."""
    shaw = Shaw(golden["table_k"].shape[1], max_distance=int(golden["max_rel"])).to(golden["table_k"].dtype)
    shaw.load_state_dict({"key_table": golden["table_k"], "value_table": golden["table_v"]})
    return shaw


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
@pytest.mark.parametrize(
    ("name", "causal"), [("shaw_bidir_l11_m4", False), ("shaw_causal_l13_m3", True), ("shaw_cache_q1_k9_m16", True)]
)
def test_golden(name, causal, dtype, tolerance):
    golden = load(name, dtype)
    shaw, scale = holding(golden), 1.0  # tensor2tensor scales q before the call
    q, k, v = golden["q"], golden["k"], golden["v"]
    out = attention(q, k, v, [shaw], causal=causal, scale=scale)
    assert gap(out, golden["out"]) < 10 * tolerance
    shaw.value_table = None
    assert gap(weights(q, k, [shaw], causal=causal, scale=scale), golden["attn"]) < 10 * tolerance


def by_the_formula(q, k, v, shaw, q_pos, k_pos) -> torch.Tensor:
    """Equations 3 and 4, one query and key at a time (bidirectional)."""
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h * k.shape[1] // q.shape[1]
            for i in range(q.shape[2]):
                rows = [
                    max(-shaw.max_distance, min(shaw.max_distance, int(k_pos[b, j] - q_pos[b, i]))) + shaw.max_distance
                    for j in range(k.shape[2])
                ]
                a = torch.stack([q[b, h, i] @ (k[b, g, j] + shaw.key_table[r]) for j, r in enumerate(rows)])
                a = (a * q.shape[-1] ** -0.5).softmax(0)
                out[b, h, i] = sum(a[j] * (v[b, g, j] + shaw.value_table[r]) for j, r in enumerate(rows))
    return out


def test_grouped_heads_wide_values_and_positions_of_their_own():
    torch.manual_seed(0)
    q, k, v = qkv(2, 4, 3, 5, num_kv_heads=2, value_dim=6, dtype=torch.float64)
    shaw = Shaw(8, max_distance=3, value_dim=6, init_std=1.0).double()
    q_pos, k_pos = torch.tensor([[0, 1, 2], [9, 4, 70]]), torch.tensor([[0, 1, 2, 3, 4], [5, 6, 7, 8, 69]])
    got = attention(q, k, v, [shaw], q_pos=q_pos, k_pos=k_pos, causal=False)
    assert gap(got, by_the_formula(q, k, v, shaw, q_pos, k_pos)) < 1e-12
    with_type = attention(q, k, v, [shaw], q_pos=q_pos.int(), k_pos=k_pos.int(), causal=False)
    assert torch.equal(with_type, got)


def test_gradients():
    q, k, v = (t.requires_grad_() for t in qkv(1, 2, 4, head_dim=3, dtype=torch.float64))
    shaw = Shaw(3, max_distance=2, init_std=1.0).double()

    def run(q, k, v, keys, values):
        tables = {"key_table": keys, "value_table": values}
        return torch.func.functional_call(_Attending(shaw), {f"shaw.{n}": t for n, t in tables.items()}, (q, k, v))

    torch.autograd.gradcheck(run, (q, k, v, shaw.key_table, shaw.value_table))


class _Attending(torch.nn.Module):
    def __init__(self, shaw):
        super().__init__()
        self.shaw = shaw

    def forward(self, q, k, v):
        return attention(q, k, v, [self.shaw])


@bounded
@given(st.integers(-(10**9), 10**9))
def test_a_common_shift_changes_nothing(shift):
    q, k, v = qkv()
    shaw, positions = Shaw(8, max_distance=2), torch.tensor([5, 0, 9, 1, 2, 3])
    expected = attention(q, k, v, [shaw], q_pos=positions)
    assert torch.equal(attention(q, k, v, [shaw], q_pos=positions + shift), expected)


def test_a_row_without_keys_reads_no_value_row():
    q, k, v = qkv(1, 2, 3)
    shaw = Shaw(8, max_distance=2, init_std=1.0)
    out = attention(q, k, v, [shaw], mask=torch.tensor([True, True, True])[:, None] & torch.zeros(3, 3).bool())
    assert torch.equal(out, torch.zeros_like(out))


def test_narrow_tables():
    q, k, v = qkv(dtype=torch.bfloat16)
    shaw = Shaw(8, max_distance=2, init_std=1.0).bfloat16()
    out = attention(q, k, v, [shaw])
    assert out.dtype == torch.bfloat16
    wide = Shaw(8, max_distance=2).double()
    wide.load_state_dict(shaw.state_dict())
    assert gap(out, attention(q.double(), k.double(), v.double(), [wide])) < 2e-2


test_refusals = refusals(
    {
        "head_dim": [lambda: attention(*qkv(), [Shaw(16, max_distance=2)])],
        "q_pos": [lambda: attention(*qkv(), [Shaw(8, max_distance=2)], q_pos=torch.arange(6.0))],
        "Shaw": [lambda: attention(*qkv(), [Shaw(8, max_distance=2)], backend="sdpa")],
    }
)


@pytest.mark.parametrize("value_dim", [1, 7])
def test_values_of_another_width_are_refused(value_dim):
    with pytest.raises(ValueError, match="value_dim"):
        attention(*qkv(value_dim=5), [Shaw(8, max_distance=2, value_dim=value_dim)])
