"""CoPE: counts in low precision, and what is not a number."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.score.cope import CoPE
from tests.samples import gap, qkv


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
    encoding = CoPE(8, max_position=3)
    torch.nn.init.normal_(encoding.table)
    out = attention(q, k, v, [encoding])
    assert out[0, 0, 2].isnan().all()
    assert out[1].isfinite().all()
