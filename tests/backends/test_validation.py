"""Arguments of every kind: what means something is taken by its value, all else is refused by name, and explained."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, T5Bias, attention, explain_backend
from posenc.backends import BACKENDS as ALL_BACKENDS
from posenc.rotary import GRAPEM, _default_tables
from posenc.score import DAPE, Mixture, Shaw
from tests.samples import BACKENDS, qkv


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


EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@EACH_BACKEND
def test_gradients_reach_positions(backend):
    q, k, v = qkv(1, 2, 4, head_dim=4, dtype=torch.float64)
    positions = torch.tensor([0.3, 1.1, 2.5, 4.25], dtype=torch.float64, requires_grad=True)
    encodings = [RoPE(4), ALiBi(2)]
    torch.autograd.gradcheck(lambda p: attention(q, k, v, encodings, q_pos=p, backend=backend), positions)


class TestExplain:
    def test_names_the_backend_and_why_not_each_other(self):
        explanation = explain_backend(*qkv(queries=20), [RoPE(8), Shaw(8, max_distance=2)])
        assert explanation.backend == "tiled"
        assert "Shaw" in explanation.refused["sdpa"]
        first, *rest = str(explanation).splitlines()
        assert explanation.how in first
        assert len(rest) == len(explanation.refused) == len(ALL_BACKENDS) - 1
        for line, (backend, reason) in zip(rest, explanation.refused.items(), strict=True):
            assert backend in line
            assert reason
            assert reason in line

    def test_refuses_what_the_call_refuses(self):
        with pytest.raises(ValueError, match=r"num_heads\b.*\b8\b"):
            explain_backend(*qkv(), [ALiBi(8)])
