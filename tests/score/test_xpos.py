"""Scores by positions: xPos, temperatures, tables, mixtures, distances that are moved."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from posenc import (
    ALiBi,
    Context,
    DynamicNTK,
    ForgetGate,
    RoPE,
    ScoreEncoding,
    attention,
    create_encoding,
    explain_backend,
)
from posenc import positions as position
from posenc.bias import FIRE, KERPLE
from posenc.call import prepare_call
from posenc.catalogue import encoding_info
from posenc.positions import NO_POSITION
from posenc.score import CoPE, DecomposedRelative, Mixture, PaTH, SelfExtend, Shaw, XPos
from posenc.score.dape import DAPE
from posenc.score.temperature import LogN, SSMax, StepTemperature, Temperature
from posenc.score.transformer_xl import TransformerXL
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


# Temperatures: what is counted, which kernels serve them, and where steps begin.


def factor_at(encoding: Temperature, q: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    expected = {"x": None, "token_states": None, "mask": None, "segments": None, "causal": True, "scale": None}
    return encoding.factor(
        prepare_call(q, q, q, [encoding], q_pos=positions, k_pos=positions, **expected).context(None, None)
    )


COUNTED = {  # what each query sees
    "text": ({}, torch.arange(1, 22).expand(2, -1)),
    "both ways": ({"causal": False}, torch.full((2, 21), 21)),
    "window": ({"window": 3}, torch.arange(1, 22).clamp(max=3).expand(2, -1)),
    "packed": (
        {"segments": (torch.arange(21) >= 9).long()},
        torch.cat([torch.arange(1, 10), torch.arange(1, 13)]).expand(2, -1),
    ),
    "padded": (
        {"mask": (torch.arange(21) >= torch.tensor([[0], [5]]))[:, None]},
        torch.stack([torch.arange(1, 22), torch.arange(-4, 17).clamp(min=0)]),
    ),
}


@pytest.mark.parametrize("call", COUNTED)
def test_what_is_counted(call: str) -> None:
    (options, seen), counted = COUNTED[call], SSMax(4, bias=True).double()
    with torch.no_grad():
        counted.bias.normal_()
    q, k, v = qkv(2, 4, 21, 21, dtype=torch.float64)
    logs = seen.clamp(min=1).double().log()[:, None, :, None]
    factor = logs * counted.scale.view(-1, 1, 1) + counted.bias.view(-1, 1, 1)
    assert gap(attention(q, k, v, [counted], **options), attention(q * factor, k, v, [], **options)) < 1e-12


def test_the_kernel_alone_serves_it() -> None:
    q, k, v = qkv(1, 4, 600, 600)
    assert explain_backend(q, k, v, [RoPE(8), SSMax(4)]).backend == "sdpa"
    x = torch.randn(1, 600, 12)
    assert explain_backend(q, k, v, [LogN(8), ForgetGate(12, num_heads=4)], x=x).backend == "tiled"
    after = explain_backend(q, k, v, [ALiBi(4), SSMax(4)])
    assert after.backend == "rows"
    assert "SSMax" in after.refused["tiled"]


def test_steps_begin_where_the_models_begin_them() -> None:
    q = qkv(1, 1, 20, 20)[0]
    for offset, first in ((1, 7), (0, 8)):
        result = factor_at(StepTemperature(8, strength=0.5, offset=offset), q, torch.arange(20))[0, 0]
        assert (result[:first] == 1).all()
        assert result[first].item() == pytest.approx(1 + 0.5 * math.log(2))


# The learned mixture: its first weights, its members, and members that were changed.


DIM, HEADS, WIDTH = 32, 4, 8


@pytest.mark.parametrize("adaptive", [False, True])
def test_weights_start_equal(adaptive):
    mixture = Mixture([RoPE(WIDTH), ALiBi(HEADS), []], num_heads=HEADS, adaptive=adaptive, dim=DIM)
    result = mixture.weights_of(torch.randn(2, 5, DIM) if adaptive else None)
    assert result.shape == ((2, HEADS, 5, 3) if adaptive else (HEADS, 3))
    assert (result - 1 / 3).abs().max() < 1e-6


def test_catalogue_takes_a_rotation_a_bias_and_neither_or_members_of_yours():
    mixture = create_encoding("mixture", dim=DIM, num_heads=HEADS)
    assert [[type(e) for e in member] for member in mixture.members] == [[RoPE], [ALiBi], []]
    assert mixture.logits.shape == (HEADS, 3)
    bias = KERPLE(HEADS)
    own = create_encoding("mixture", dim=DIM, num_heads=HEADS, head_dim=7, members=[bias, []], adaptive=True)
    assert own.members[0][0] is bias
    assert own.weight.shape == (HEADS * 2, DIM)


@pytest.mark.parametrize("change", ["append", "exchange", "remove"])
def test_members_that_were_changed_are_refused(change):
    mixture, (q, k, v) = Mixture([RoPE(8), ALiBi(4), []], num_heads=4), qkv(1, 4, 9, 9)
    before = attention(q, k, v, [mixture])
    assert gap(attention(q, k, v, [copy.deepcopy(mixture)]), before) == 0
    if change == "append":
        mixture.members[2].append(KERPLE(4))
    elif change == "exchange":
        mixture.members[1][0] = ALiBi(4, slopes=[1.0, 2.0, 3.0, 4.0])
    else:
        del mixture.members[2]
    for backend in ("auto", "dense"):
        with pytest.raises(ValueError, match="members"):
            attention(q, k, v, [mixture], backend=backend)


# Decomposed relative positions: fractions, tokens without a place and places outside.


def test_fractions_in_float32_are_as_good_as_in_float64():
    """In a float64 call differences of float32 fractions are not rounded to float32."""
    q, k, v = qkv(dtype=torch.float64)
    at, relative = torch.arange(6).mul(0.1).sin(), DecomposedRelative(8, window=(3,), init_std=1.0).double()
    got, expected = (attention(q, k, v, [relative], q_pos=p, k_pos=p, causal=False) for p in (at, at.double()))
    assert gap(got, expected) < 1e-14


def test_tokens_without_a_place_and_places_outside_the_window():
    relative = DecomposedRelative(8, window=(3, 4), init_std=1.0).double()
    q, k, _ = qkv(1, 2, 3, dtype=torch.float64)
    lost = torch.tensor([[NO_POSITION, 0], [0, 0], [1, 2]])
    zero = torch.zeros(1, 2, 3, 3, dtype=torch.float64)

    def added(q_pos, k_pos):
        identity = torch.eye(3, dtype=torch.float64).expand(1, 2, -1, -1)
        weights = attention(q, torch.zeros_like(k), identity, [relative], q_pos=q_pos, k_pos=k_pos, causal=False)
        return weights.log() - weights.log()[..., :1]

    assert gap(added(lost, lost)[:, :, :1], zero[:, :, :1]) < 1e-12
    near, far = torch.tensor([[0, 0], [2, 3], [-2, -3]]), torch.tensor([[0, 0], [9, 2**20], [-9, -(2**20)]])
    here = torch.zeros(3, 2, dtype=torch.int64)
    assert gap(added(far, here), added(near, here)) < 1e-12
    assert gap(added(here, far), added(here, near)) < 1e-12
    between = (added(here, near.double()) + added(here, here.double() + near[1])) / 2
    assert between.shape == zero.shape


# DAPE: what its network may and may not do.


def test_hidden_pairs_stay_finite_and_change_nothing():
    built, at = DAPE(ALiBi(4)).double(), torch.arange(300)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.uniform_()
    q, k, v = (t.requires_grad_() for t in qkv(1, 4, 3, 300, dtype=torch.float64))
    mask = torch.rand(3, 300, generator=torch.Generator().manual_seed(2)) < 0.5
    mask[1] = False
    out = attention(q, k, v, [built], mask=mask, causal=False)
    assert built(q @ k.mT, Context(q, k, k, at[-3:], at, 1.0)).isfinite().all()
    assert not out[:, :, 1].any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), [q, k, v, *built.parameters()]))
    keep = mask[0]
    few = attention(q[:, :, :1], k[:, :, keep], v[:, :, keep], [built], q_pos=at[-3:-2], k_pos=at[keep], causal=False)
    assert gap(out[:, :, :1], few) < 1e-12


def test_catalogue_takes_kerple_or_a_bias_of_yours():
    assert isinstance(create_encoding("dape", num_heads=4).bias, KERPLE)
    fire = FIRE(4)
    built = create_encoding("dape", num_heads=4, bias=fire, hidden=7)
    assert built.bias is fire
    assert built.inner.weight.shape == (7, 8)


# Transformer-XL: distances beyond the clamp, and parameters that layers share.


def test_distances_beyond_the_clamp_are_that_of_the_clamp():
    encoding, (q, k, v) = (
        TransformerXL(32, num_heads=4, clamp=4, init_std=1.0).double(),
        qkv(1, 4, 1, 6, dtype=torch.float64),
    )
    for side in (-1, 1):
        out = [
            attention(q, k, v, [encoding], q_pos=torch.tensor([50]), k_pos=50 + side * apart, causal=False)
            for apart in (torch.full((6,), 4), torch.arange(5, 11))
        ]
        assert gap(*out) < 1e-12


def test_layers_may_share_u_and_v():
    first, second = TransformerXL(32, num_heads=4), TransformerXL(32, num_heads=4)
    second.u, second.v = first.u, first.v
    layers = torch.nn.ModuleList([first, second])
    assert sum(p.numel() for p in layers.parameters()) == 2 * 32 + 2 * 32 * 32
    layers.load_state_dict({name: value + 1 for name, value in layers.state_dict().items()}, strict=True)
    assert second.u is first.u
    assert not torch.equal(second.weight, first.weight)


# Encodings that remap distances: the group for a length.


@pytest.mark.parametrize("times", [1.5, 2, 3, 4, 8])
@pytest.mark.parametrize("trained", [64, 100, 4096])
def test_the_group_for_a_length_is_the_smallest_without_a_new_position(trained: int, times: float) -> None:
    longest = int(trained * times)
    entry = encoding_info("self_extend")
    shape = {"head_dim": 8, **entry.lengths(trained), "train_length": trained, "max_length": longest}

    def farthest(group: int) -> float:
        encoding = SelfExtend(RoPE(8), window=entry.lengths(trained)["window"], group=group)
        positions = torch.arange(longest)
        far = encoding.ranges(positions, positions)[-1]
        return float((far.q_pos - far.k_pos[0]).max())

    group = entry.defaults(shape)["group"]
    assert isinstance(group, int)
    assert farthest(group) < trained
    assert group == 2 or farthest(group - 1) >= trained
