"""Selective RoPE: fixed temperatures."""

from __future__ import annotations

import pytest
import torch

from posenc.encoding import Context
from posenc.score import SelectiveRoPE
from tests.samples import gap, qkv


def context_of(q, k, rope, x, new=None):
    new = q.shape[2] if new is None else new
    at = torch.arange(k.shape[2])
    return Context(q[:, :, -new:], k, k, at[-new:], at, 1.0, token_state=rope.token_state(x))


@pytest.mark.parametrize("base", [0.9, 500_000])
def test_fixed_temperatures_are_those_that_learning_starts_from(base):
    q, k, _ = qkv(1, 2, 9, head_dim=8)
    x, options = torch.randn(1, 9, 16), {"head_dim": 8, "num_kv_heads": 2, "base": base}
    learned, fixed = SelectiveRoPE(16, learned=True, **options), SelectiveRoPE(16, **options)
    start = {name: p for name, p in learned.state_dict().items() if name != "temperature"}
    fixed.load_state_dict(start)
    assert gap(*(rope.angles(context_of(q, k, rope, x)) for rope in (learned, fixed))) < 1e-6
