"""Arguments of every kind: what means something is taken by its value, everything else is refused by name."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, T5Bias, attention
from posenc.rotary import GRAPEM, _default_tables
from posenc.score import DAPE, Mixture
from tests.samples import qkv


@pytest.mark.parametrize(("batch", "tokens"), [(2, 6), (1, 1), (3, 3), (1, 2), (2, 1)])
@pytest.mark.parametrize("rows", [False, True])
def test_coordinates_that_nobody_reads(batch, tokens, rows):
    q, k, v = qkv(batch, queries=tokens)
    places = torch.zeros(batch, tokens, 2, dtype=torch.long) if rows else torch.zeros(tokens, 2, dtype=torch.long)
    assert torch.equal(attention(q, k, v, q_pos=places, k_pos=places), attention(q, k, v))


def test_future_keys_need_an_encoding_that_knows_them():
    q, k, v = qkv()
    for encoding in (T5Bias(4), DAPE(T5Bias(4)), Mixture([[T5Bias(4)], []], num_heads=4)):
        with pytest.raises(ValueError, match=rf"^causal\b.*{type(encoding).__name__}"):
            attention(q, k, v, [encoding], causal=False)
    assert attention(q, k, v, [T5Bias(4, bidirectional=True)], causal=False).shape == q.shape


def test_positions_are_counted_only_where_somebody_reads_them(monkeypatch):
    _default_tables._KEPT.clear()  # with the default positions of earlier calls
    built = []
    arange = torch.arange
    monkeypatch.setattr(torch, "arange", lambda *bounds, **options: built.append(bounds) or arange(*bounds, **options))
    q, k, v = qkv(queries=1, keys=6)
    attention(q, k, v)
    assert not built
    attention(q, k, v, [RoPE(8)])
    assert built


def test_tokens_and_heads_that_changed_places():
    """(batch, tokens, heads, width) is told wherever something else says how many tokens or heads there are."""
    x, tokens = torch.randn(1, 96, 8, 16), torch.arange(96)
    rope, grape = RoPE(16), GRAPEM(16, num_heads=8)
    calls = (
        lambda: rope(x, x, tokens, tokens),
        lambda: rope.rotate(x, rope.table(tokens)),
        lambda: rope.rotate_(x.clone(), rope.table(tokens)),
        lambda: grape.rotate(x, grape.table(tokens)),
        lambda: attention(x, x, x, [rope], q_pos=tokens, k_pos=tokens),
        lambda: attention(x, x, x, [ALiBi(8)]),
        lambda: attention(x, x, x, mask=torch.ones(96, 96, dtype=torch.bool)),
        lambda: attention(x, x, x, segments=tokens // 10),
        lambda: attention(x, x[:, :, :2], x[:, :, :2]),
        lambda: attention(x, x, x, [ForgetGate(32, num_heads=96)], x=torch.randn(1, 96, 32)),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"transpose\(1, 2\)"):
            call()
    with pytest.raises(ValueError, match="positions are 7"):
        rope.rotate(torch.randn(1, 2, 5, 16), rope.table(torch.arange(7)))
    assert rope.rotate(torch.randn(1, 2, 5, 16), rope.table(torch.arange(1))).shape == (1, 2, 5, 16)
