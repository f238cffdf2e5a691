"""Shaw's relative positions against tensor2tensor."""

from __future__ import annotations

import pytest
import torch

from posenc import Shaw, attention
from tests.golden import load
from tests.samples import FLOATS, gap, qkv, refusals, weights


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
