"""Visibility, range by range, against plain loops; and the window on every backend."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.visibility import VisibilityMask
from tests.samples import qkv

QUERIES, KEYS = 5, 7
Q_POS = torch.tensor([[3, 0, 9, 4, 6], [1, 2, 3, 4, 5]])
K_POS = torch.tensor([[0, 9, 3, 2, 5, 6, 1], [0, 1, 2, 3, 4, 5, 6]])
MASK = torch.rand(2, 3, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) < 0.7
SEGMENTS = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1]])


def by_loops(visibility: VisibilityMask, queries: int, keys: int) -> torch.Tensor:
    """One pair at a time, ``(2, 3, queries, keys)``."""
    allowed = torch.zeros(2, 3, queries, keys, dtype=torch.bool)
    for b, h, i, j in torch.ones_like(allowed).nonzero().tolist():
        apart = i + keys - queries - j
        if visibility.causal == "positions":
            of_query, of_key = (p[b] if p.ndim == 2 else p for p in (visibility.q_pos, visibility.k_pos))
            apart = int(of_query[i] - of_key[j])
        ok = apart >= 0 if visibility.causal else True
        ok = ok and (visibility.window is None or abs(apart) < visibility.window)
        if visibility.segments is not None:
            of_query, of_key = (s[b if len(s) > 1 else 0] for s in visibility.segments)
            ok = ok and bool(of_query[i] == of_key[j])
        if visibility.mask is not None:
            ok = ok and bool(visibility.mask.expand(2, 3, queries, keys)[b, h, i, j])
        allowed[b, h, i, j] = ok
    return allowed


CASES = {
    "causal": VisibilityMask(True, None, None, None, Q_POS, K_POS),
    "bidirectional": VisibilityMask(False, None, None, None, Q_POS, K_POS),
    "by positions": VisibilityMask("positions", None, None, None, Q_POS, K_POS),
    "by positions of all rows": VisibilityMask("positions", 4, None, None, Q_POS[0], K_POS[0]),
    "window": VisibilityMask(True, 2, None, None, Q_POS, K_POS),
    "window of one": VisibilityMask(True, 1, None, None, Q_POS, K_POS),
    "window, bidirectional": VisibilityMask(False, 2, None, None, Q_POS, K_POS),
    "window by positions": VisibilityMask("positions", 3, None, None, Q_POS, K_POS),
    "mask": VisibilityMask(True, None, MASK, None, Q_POS, K_POS),
    "mask of keys": VisibilityMask(False, None, MASK[:, :1, :1], None, Q_POS, K_POS),
    "segments": VisibilityMask(False, None, None, SEGMENTS, Q_POS, K_POS),
    "everything": VisibilityMask("positions", 5, MASK[:1], SEGMENTS, Q_POS, K_POS),
}


@pytest.mark.parametrize("case", CASES)
def test_rows(case):
    visibility = CASES[case]
    expected = by_loops(visibility, QUERIES, KEYS)
    actual = visibility.rows(0, QUERIES, QUERIES, KEYS)
    assert actual.ndim == 4
    assert torch.equal(actual.expand(2, 3, -1, -1), expected)
    for start, stop, first, last in ((0, 2, 0, 7), (2, 5, 3, 6), (4, 5, 0, 1), (1, 3, 6, 7)):
        part = visibility.rows(start, stop, QUERIES, KEYS, first, last)
        assert torch.equal(part.expand(2, 3, -1, -1), expected[:, :, start:stop, first:last])


def test_a_window_over_fractional_positions_is_not_rounded():
    """10.2 and -3.8 in float32 lie less than 14 apart, but their difference in float32 is 14."""
    q, k, v = qkv(1, 1, 2, head_dim=4)
    places = torch.tensor([-3.8, 10.2])
    apart = places.double().diff()
    assert apart < 14 == places.diff()
    options = {"q_pos": places, "k_pos": places, "causal": "positions"}
    seen, all_of_them = attention(q, k, v, window=14, **options), attention(q, k, v, **options)
    assert torch.equal(seen, all_of_them)
