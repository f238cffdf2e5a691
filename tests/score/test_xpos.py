"""xPos: the decay is relative wherever the text lies and however long it is."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import ALiBi, DynamicNTK, RoPE, ScoreEncoding, attention, explain_backend
from posenc import positions as position
from posenc.score import CoPE, Mixture, PaTH, Shaw, XPos
from tests.samples import gap, qkv


def attended(q, k, v, q_pos, k_pos, seen, *, scale_base=512.0, gamma=0.4):
    """Attention by scores as the formula has them, pair by pair, in complex float64."""
    dim = q.shape[-1]
    pair = torch.arange(dim // 2, dtype=torch.float64)
    theta, zeta = 10_000.0 ** (-2 * pair / dim), (2 * pair / dim + gamma) / (1 + gamma)
    distance = (q_pos[:, None] - k_pos).double()[..., None]
    turn = torch.exp(1j * distance * theta) * zeta ** (distance / scale_base)
    q, k = (torch.view_as_complex(t.double().unflatten(-1, (-1, 2)).contiguous()) for t in (q, k))
    scores = torch.einsum("bhid,bhjd,ijd->bhij", q, k.conj(), turn).real * dim**-0.5
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v.double()


@pytest.mark.parametrize("backend", ["auto", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_texts_longer_than_any_exponent(dtype, backend):
    """Half a million tokens from end to end: one middle serves few of the queries of a block."""
    q, k, v = (t.to(dtype) for t in qkv(1, 2, 200, head_dim=8))
    at = torch.arange(200) * 2500
    out = attention(q, k, v, [XPos(8)], q_pos=at, k_pos=at, backend=backend)
    expected = attended(q, k, v, at, at, at[:, None] >= at)
    assert gap(out.double(), expected) < {torch.float32: 1e-5, torch.float16: 3e-3}.get(dtype, 3e-2)


@pytest.mark.parametrize(("scale_base", "backend"), [(512.0, "sdpa"), (0.5, "rows")])
def test_calls_beyond_one_middle_are_divided(scale_base, backend):
    """Within the room of the dtype a kernel serves; beyond, blocks do, with the same numbers and gradients."""
    q, k, v = qkv(2, 4, 100, head_dim=8, num_kv_heads=2)
    encodings, results = [XPos(8, scale_base=scale_base), ALiBi(4)], []
    assert explain_backend(q, k, v, encodings[:1]).backend == backend
    for name in ("auto", "dense"):
        leaves = [t.double().requires_grad_() for t in (q[:, :, -70:], k, v)]
        out = attention(*leaves, encodings, backend=name)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    assert all(gap(a, b) < 1e-12 for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("backend", ["auto", "dense"])
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


class OwnScore(ScoreEncoding):
    """One that says nothing about what it reads."""

    def forward(self, scores, context):
        return scores + context.q.sum(-1, keepdim=True)


@pytest.mark.parametrize("other", [
    lambda: RoPE(8, scaling=DynamicNTK(original_length=4)),
    lambda: Shaw(8, max_distance=4),
    lambda: CoPE(8, max_position=4, rotated=True),
    lambda: PaTH(16, head_dim=8, num_kv_heads=2),
    lambda: Mixture([RoPE(8), []], num_heads=2),
    lambda: OwnScore(),
])  # fmt: skip
def test_refused_with_encodings_that_rotate_or_read_q_or_k_by_themselves(other):
    q, k, v = qkv(1, 2, 5, head_dim=8)
    encoding = other()
    with pytest.raises(ValueError, match=f"encodings.*{type(encoding).__name__}"):
        attention(q, k, v, [XPos(8), encoding], x=torch.randn(1, 5, 16))


def test_keys_that_lie_after_the_queries_that_see_them():
    """Positions out of step with the order by index: such keys grow, and queries around a middle make room for them."""
    xpos, ahead = XPos(8, scale_base=16.0), 25
    q, k, v = (t.half() for t in qkv(1, 1, 120, head_dim=8))
    q_pos = torch.arange(120) * 2
    k_pos = q_pos + torch.arange(120) % 3 * ahead // 2
    expected = attended(q, k, v, q_pos, k_pos, torch.ones(120, 120).tril().bool(), scale_base=16.0)
    assert gap(attention(q, k, v, [xpos], q_pos=q_pos, k_pos=k_pos).double(), expected) < 1e-2


def test_visible_keys_too_far_after_their_query_are_refused():
    """A factor that the dtype cannot hold; hidden keys may lie anywhere."""
    xpos, places = XPos(8, scale_base=16.0), torch.arange(6)
    q, k, v = qkv(1, 1, 6, head_dim=8)
    far = places + torch.tensor([0, 0, 3000, 0, 0, 0])
    with pytest.raises(ValueError, match="k_pos"):
        attention(q, k, v, [xpos], q_pos=places, k_pos=far)
    hidden = torch.arange(6) != 2
    masked = attention(q, k, v, [xpos], q_pos=places, k_pos=far, mask=hidden[None])
    without = [t[:, :, hidden] for t in (k, v)]
    last = attention(q[:, :, -1:], *without, [xpos], q_pos=places[-1:], k_pos=places[hidden])
    assert gap(masked[:, :, -1:], last) < 1e-5


def test_fractional_positions_in_float32_keep_their_digits():
    q, k, v = (t.double() for t in qkv(1, 1, 60, head_dim=8))
    places = (torch.arange(60) * 0.7 - 3.3).float()  # neighbours of 1000 have exact differences, numbers around 0 none
    xpos = XPos(8, scale_base=1.0)
    got, expected = (attention(q, k, v, [xpos], q_pos=p, k_pos=p) for p in (places, places.double()))
    assert gap(got, expected) < 1e-14
