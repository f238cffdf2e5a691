"""xPos: the decay is relative wherever the text lies."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import (
    ALiBi,
    CoPE,
    DynamicNTK,
    PaTH,
    RoPE,
    ScoreEncoding,
    Shaw,
    XPos,
    attention,
    explain_backend,
)
from posenc import attend as attention_call
from posenc import positions as position
from posenc.call import prepare_call
from posenc.query_blocks import blocks
from posenc.score import Mixture
from tests.samples import ShortReach, gap, qkv, refusals


def definition(q, k, q_pos, k_pos, *, scale_base=512.0, gamma=0.4):
    """The score as the formula has it, pair by pair, in complex float64."""
    dim = q.shape[-1]
    pair = torch.arange(dim // 2, dtype=torch.float64)
    theta, zeta = 10_000.0 ** (-2 * pair / dim), (2 * pair / dim + gamma) / (1 + gamma)
    distance = (q_pos[:, None] - k_pos).double()[..., None]
    turn = torch.exp(1j * distance * theta) * zeta ** (distance / scale_base)
    q, k = (torch.view_as_complex(t.double().unflatten(-1, (-1, 2)).contiguous()) for t in (q, k))
    return torch.einsum("bhid,bhjd,ijd->bhij", q, k.conj(), turn).real


def attended(q, k, v, positions):
    scores = definition(q, k, positions, positions) * q.shape[-1] ** -0.5
    seen = positions[:, None] >= positions
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_texts_longer_than_any_exponent(dtype):
    """Half a million tokens from end to end: every block of queries has a middle of its own."""
    q, k, v = (t.to(dtype) for t in qkv(1, 2, 200, head_dim=8))
    positions = torch.arange(200) * 2500
    out = attention(q, k, v, [XPos(8)], q_pos=positions, k_pos=positions)
    assert out.isfinite().all()
    assert gap(out.double(), attended(q, k, v, positions)) < {torch.float32: 1e-5, torch.float16: 3e-3}.get(dtype, 3e-2)


def test_blocks_of_counted_positions():
    q, k, v = qkv(2, 4, 40, head_dim=8, num_kv_heads=2)
    q = q[:, :, -25:].clone().requires_grad_()
    bias, full = ALiBi(4), torch.arange(40)
    blocked = attention(q, k, v, [ShortReach(8), bias])
    (gradient,) = torch.autograd.grad(blocked.sum(), q)
    first = attention(q, k, v, [XPos(8), bias], q_pos=full[-25:], k_pos=full)
    assert gap(blocked, first) < 1e-5
    assert gap(gradient, torch.autograd.grad(first.sum(), q)[0]) < 1e-5


def test_a_divided_call_is_rotated_and_explained_by_its_ranges(monkeypatch):
    """Nothing is rotated in full and thrown away, and `explain_backend` says what `attention` does."""
    xpos, (q, k, v) = XPos(8), torch.randn(3, 1, 1, 2600, 8, dtype=torch.float16)
    rotated, chosen = [], []
    forward, choose = XPos.forward, attention_call.choose
    monkeypatch.setattr(XPos, "forward", lambda self, q, *rest: rotated.append(q.shape[2]) or forward(self, q, *rest))
    monkeypatch.setattr(attention_call, "choose", lambda *asked: chosen.append(choose(*asked)) or chosen[-1])
    out = attention(q, k, v, [xpos])
    assert len(rotated) > 1
    assert sum(rotated) == 2600
    rotations = len(rotated)
    said = explain_backend(q, k, v, [xpos])
    assert said.backend == chosen[rotations - 1]
    assert said.how.startswith(f"{rotations} ranges")
    assert gap(out.float(), attention(q.double(), k.double(), v.double(), [xpos]).float()) < 5e-3


def test_blocks_cover_all_queries_and_span_no_more_than_the_reach():
    q, k, v = qkv(1, 1, 500, head_dim=8)
    positions = torch.randint(0, 3000, (500,)).sort().values
    call = prepare_call(
        q, k, v, [XPos(8)], q_pos=positions, k_pos=positions, x=None, token_states=None, mask=None, segments=None,
        causal=True, scale=None,
    )  # fmt: skip
    result = blocks(call, 250)
    assert [start for start, _ in result] == [0, *(stop for _, stop in result[:-1])]
    assert result[-1][1] == 500
    assert all(positions[stop - 1] - positions[start] < 250 for start, stop in result)
    assert len(result) < 30
    assert blocks(call, None) == [(0, 500)]
    assert explain_backend(q, k, v, [XPos(8)])


@pytest.mark.parametrize("packed", [False, True])
def test_blocks_with_a_rotation_that_spans_the_row(packed):
    """A block spans what the whole call does, not what its own keys do."""
    q, k, v = (t.double() for t in qkv(2, 2, 40, head_dim=8))
    dynamic = RoPE(8, layout="interleaved", scaling=DynamicNTK(original_length=4))
    mask = torch.ones(2, 1, 40, dtype=torch.bool)
    mask[0, :, 33:] = False
    options = {"mask": mask, "segments": torch.arange(40) // 15 if packed else None}
    full = attention(q, k, v, [dynamic, XPos(8)], **options)
    for encodings in ([dynamic, ShortReach(8)], [ShortReach(8), dynamic]):
        assert gap(attention(q, k, v, encodings, **options), full) < 1e-12


@pytest.mark.parametrize("backend", ["auto", "dense", "sdpa"])
@pytest.mark.parametrize("causal", [True, "positions"])
@pytest.mark.parametrize("scale_base", [8.0, 2.0, 0.5])
def test_gradients_under_left_padding(backend, causal, scale_base):
    """Hidden keys far after a query: their scores must stay finite, as 0 · ∞ is no zero."""
    padding = torch.arange(130) >= torch.tensor([[100], [0]])
    for positions in (torch.arange(130).expand(2, -1), position.from_mask(padding)):
        q, k, v = (t.requires_grad_() for t in qkv(2, 2, 130, head_dim=8))
        options = {"mask": padding[:, None, :] & padding[:, :, None], "q_pos": positions, "k_pos": positions}
        out = attention(q, k, v, [XPos(8, scale_base=scale_base)], causal=causal, backend=backend, **options)
        result = torch.autograd.grad(out.square().sum(), (q, k, v))
        assert out.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in result)
        alone = attention(*(t[:1, :, 100:] for t in (q, k, v)), [XPos(8, scale_base=scale_base)])
        assert gap(out[:1, :, 100:], alone) < 1e-5


@pytest.mark.parametrize("other", [
    lambda: Shaw(8, max_distance=4),
    lambda: CoPE(8, max_position=4, rotated=True),
    lambda: PaTH(16, head_dim=8, num_kv_heads=2),
    lambda: Mixture([RoPE(8), []], 2),
    lambda: Mixture([Shaw(8, max_distance=4)], 2),
    lambda: OwnScore(),
])  # fmt: skip
def test_refused_with_encodings_that_read_q_or_k_by_themselves(other):
    q, k, v = qkv(1, 2, 5, head_dim=8)
    encoding = other()
    with pytest.raises(ValueError, match=f"encodings.*{type(encoding).__name__}"):
        attention(q, k, v, [XPos(8), encoding], x=torch.randn(1, 5, 16))


class OwnScore(ScoreEncoding):
    """One that says nothing about what it reads."""

    def forward(self, scores, context):
        return scores + context.q.sum(-1, keepdim=True)


test_refusals = refusals(
    {
        "head_dim": [lambda: XPos(7), lambda: XPos(8)(*torch.zeros(2, 1, 1, 3, 6), torch.arange(3), torch.arange(3))],
        "base": [lambda: XPos(8, base=1)],
        "scale_base": [lambda: XPos(8, scale_base=0)],
        "table": [lambda: XPos(8).table(torch.arange(3)), lambda: XPos(8).rotate(torch.zeros(1, 1, 1, 8), ())],
    }
)


def test_keys_that_lie_after_the_queries_that_see_them():
    """Positions out of step with the order by index: such keys grow, and blocks make room for them."""
    xpos, ahead = XPos(8, scale_base=16.0), 25
    q, k, v = (t.half() for t in qkv(1, 1, 120, head_dim=8))
    q_pos = torch.arange(120) * 2
    k_pos = q_pos + torch.arange(120) % 3 * ahead // 2
    scores = definition(q, k, q_pos, k_pos, scale_base=16.0) * 8**-0.5
    seen = torch.ones(120, 120).tril().bool()
    expected = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v.double()
    assert gap(attention(q, k, v, [xpos], q_pos=q_pos, k_pos=k_pos).double(), expected) < 1e-2


def test_visible_keys_too_far_after_their_query_are_refused():
    """A factor that the dtype cannot hold; hidden keys may lie anywhere."""
    xpos, places = XPos(8, scale_base=16.0), torch.arange(6)
    q, k, v = (t.half() for t in qkv(1, 1, 6, head_dim=8))
    far = places + torch.tensor([0, 0, 300, 0, 0, 0])
    with pytest.raises(ValueError, match="k_pos"):
        attention(q, k, v, [xpos], q_pos=places, k_pos=far)
    hidden = torch.arange(6) != 2
    masked = attention(q, k, v, [xpos], q_pos=places, k_pos=far, mask=hidden[None])
    without = [t[:, :, hidden] for t in (k, v)]
    last = attention(q[:, :, -1:], *without, [xpos], q_pos=places[-1:], k_pos=places[hidden])
    assert gap(masked[:, :, -1:], last) < 1e-3


def test_fractional_positions_in_float32_keep_their_digits():
    q, k, _ = (t.double() for t in qkv(1, 1, 60, head_dim=8))
    places = (torch.arange(60) * 0.7 - 3.3).float()  # neighbours of 1000 have exact differences, numbers around 0 none
    got, expected = (XPos(8, scale_base=1.0)(q, k, p, p) for p in (places, places.double()))
    assert max(gap(a, b) / b.abs().max().item() for a, b in zip(got, expected, strict=True)) < 1e-14
