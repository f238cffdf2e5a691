"""The learned mixture against its formula, its members alone and lists; what it keeps, and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc import (
    FIRE,
    KERPLE,
    ALiBi,
    CoPE,
    DynamicNTK,
    ForgetGate,
    Learned,
    PaTH,
    RoPE,
    ScoreEncoding,
    Shaw,
    StickBreaking,
    TransformerXL,
    XPos,
    attention,
    create_encoding,
)
from posenc.frequencies import MultiScale
from posenc.score.mixture import Mixture
from tests.samples import bounded, gap, qkv, refusals

DIM, HEADS, WIDTH = 32, 4, 8
LISTS = {
    "nope": list,
    "rope": lambda: [RoPE(WIDTH)],
    "alibi": lambda: [ALiBi(HEADS)],
    "shaw": lambda: [Shaw(WIDTH, max_distance=3)],
    "fox": lambda: [ForgetGate(DIM, num_heads=HEADS)],
    "separate": lambda: [CoPE(WIDTH, max_position=4, gates="separate", dim=DIM, num_kv_heads=2)],
    "rotated": lambda: [RoPE(WIDTH), CoPE(WIDTH, max_position=4, rotated=True)],
    "path": lambda: [PaTH(DIM, head_dim=WIDTH, num_kv_heads=2)],
    "heads": lambda: [RoPE(WIDTH, scaling=MultiScale(HEADS, num_kv_heads=2))],
    "many": lambda: [
        RoPE(WIDTH),
        TransformerXL(DIM, num_heads=HEADS),
        FIRE(HEADS),
        ALiBi(HEADS),
        ForgetGate(DIM, num_heads=HEADS),
    ],
}


def moved(encoding):
    """The same in float64, every parameter moved."""
    source = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in encoding.double().parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source, dtype=torch.float64))
    return encoding


def of_lists(*names, **options) -> Mixture:
    return moved(Mixture([LISTS[name]() for name in names], HEADS, dim=DIM, **options))


class TestWeights:
    @pytest.mark.parametrize("adaptive", [False, True])
    def test_start_equal(self, adaptive):
        mixture = Mixture([RoPE(WIDTH), ALiBi(HEADS), []], HEADS, adaptive=adaptive, dim=DIM)
        result = mixture.weights_of(torch.randn(2, 5, DIM) if adaptive else None)
        assert result.shape == ((2, HEADS, 5, 3) if adaptive else (HEADS, 3))
        assert (result - 1 / 3).abs().max() < 1e-6

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_narrow_modules_have_float32_weights(self, dtype):
        mixture = of_lists("rope", "alibi", adaptive=True).to(dtype)
        x = torch.randn(2, 5, DIM).to(dtype)
        assert mixture.weights_of(x).dtype == torch.float32
        assert gap(mixture.weights_of(x), copy.deepcopy(mixture).double().weights_of(x.double())) < 1e-5


class Keeps(ScoreEncoding):
    """Keeps states of a shape, heads first, and notes what it is handed back."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.got = shape, None

    def token_state(self, x):
        if self.shape is None:
            return None
        heads, *rest = self.shape
        flat = x[..., : torch.Size(self.shape).numel()]
        return flat.unflatten(-1, (heads, *rest)).transpose(1, 2)

    def forward(self, scores, context):
        self.got = context.token_state
        return scores


class TestTokenStates:
    NAMES = ("fox", "rope", "separate", "many", "path")

    @settings(bounded, max_examples=10)
    @given(st.lists(st.sampled_from([None, (4,), (1, 3), (2, 5), (2, 2, 3)]), min_size=1, max_size=5))
    def test_members_get_back_what_they_keep(self, shapes):
        members = [Keeps(shape) for shape in shapes]
        mixture, x = Mixture(members, HEADS, dim=DIM), torch.randn(2, 7, DIM)
        remaining = mixture.token_state(x)
        assert (remaining is None) == (not any(shapes))
        assert remaining is None or remaining.shape[:3] == (2, 1, 7)
        attention(*qkv(2, HEADS, 7, head_dim=WIDTH), [mixture], x=x)
        for member in members:
            expected = member.token_state(x)
            assert member.got is expected is None or torch.equal(member.got, expected)

    def test_one_tensor_holds_what_members_keep(self):
        mixture, x = of_lists(*self.NAMES, adaptive=True), torch.randn(2, 7, DIM, dtype=torch.float64)
        remaining = mixture.token_state(x)
        assert remaining.shape == (2, 1, 7, HEADS * 5 + HEADS + 2 * WIDTH + HEADS + 2 * (WIDTH + 1))
        assert of_lists("rope", "alibi").token_state(x) is None

    def test_token_states_of_low_precision_stay_what_they_were(self):
        """Log gates are float32 and gate keys bfloat16: one tensor holds both without rounding either."""
        mixture, x = of_lists("fox", "separate").bfloat16(), torch.randn(2, 7, DIM).bfloat16()
        gates, keys = (member[0].token_state(x).transpose(1, 2).flatten(2) for member in mixture.members)
        remaining = mixture.token_state(x).squeeze(1)
        assert torch.equal(remaining[..., :HEADS], gates)
        assert torch.equal(remaining[..., HEADS:].bfloat16(), keys)

    def test_content_is_asked_for_where_a_member_looks_at_it(self):
        assert of_lists("separate", "alibi").reads.unrotated
        assert Mixture([of_lists("many")], HEADS, dim=DIM).reads.unrotated
        assert not of_lists("rope", "rotated", "fox").reads.unrotated, "members rotate what the list has rotated"


def test_catalogue_takes_a_rotation_a_bias_and_neither_or_members_of_yours():
    mixture = create_encoding("mixture", dim=DIM, num_heads=HEADS)
    assert [[type(e) for e in member] for member in mixture.members] == [[RoPE], [ALiBi], []]
    assert mixture.logits.shape == (HEADS, 3)
    gate = ForgetGate(DIM, num_heads=HEADS)
    with_gate = create_encoding("mixture", dim=DIM, num_heads=HEADS, head_dim=7, members=[gate, []], adaptive=True)
    assert with_gate.members[0][0] is gate
    assert with_gate.weight.shape == (HEADS * 2, DIM)


class Careless(ScoreEncoding):
    """Keeps x as it is and looks at nothing."""

    def token_state(self, x):
        return x.unsqueeze(1)


test_refusals = refusals(
    {
        "members": [
            lambda: Mixture([], 4),
            lambda: Mixture(ALiBi(4), 4),
            lambda: Mixture([[RoPE(8), "alibi"]], 4),
            lambda: Mixture([Learned(8, max_length=10)], 4),
            lambda: Mixture([StickBreaking()], 4),
            lambda: Mixture([RoPE(8, scaling=DynamicNTK(original_length=8))], 4),
        ],
        "dim": [
            lambda: Mixture([RoPE(8)], 4, adaptive=True),
            lambda: Mixture([ForgetGate(DIM, num_heads=4)], 4),
            lambda: Mixture([Careless()], 4),
            lambda: Mixture([ForgetGate(DIM, num_heads=4)], 4, dim=7),
        ],
        "num_heads": [
            lambda: Mixture([ALiBi(4), ALiBi(8)], 4),
            lambda: Mixture([Mixture([ALiBi(8)], 8)], 4),
            lambda: attention(*qkv(), [Mixture([RoPE(8)], 2)]),
        ],
        "XPos": [lambda: Mixture([XPos(8)], 4)],
        "x": [
            lambda: attention(*qkv(), [Mixture([ForgetGate(DIM, num_heads=4)], 4, dim=DIM)]),
            lambda: attention(*qkv(), [Mixture([[]], 4, adaptive=True, dim=5)], x=torch.ones(2, 6, 4)),
            lambda: Mixture([RoPE(8)], 4).weights_of(torch.ones(1, 2, 8)),
            lambda: Mixture([RoPE(8)], 4, adaptive=True, dim=8).weights_of(),
        ],
        "token_states": [
            lambda: attention(
                *qkv(), [Mixture([ForgetGate(DIM, num_heads=4)], 4, dim=DIM)], token_states=[torch.zeros(2, 4, 6)]
            )
        ],
        "head_dim": [lambda: attention(*qkv(), [Mixture([RoPE(16)], 4)])],
        "value_dim": [lambda: attention(*qkv(value_dim=5), [Mixture([Shaw(8, max_distance=2)], 4)])],
        "Mixture": [lambda: attention(*qkv(), [Mixture([Shaw(8, max_distance=2)], 4)], backend="sdpa")],
    }
)


class TestSideBySide:
    """Rotations and biases are products and biases of one call, for every backend."""

    @staticmethod
    def mixture(**options) -> Mixture:
        members = [
            [RoPE(WIDTH)],
            [ALiBi(HEADS)],
            [],
            [RoPE(WIDTH, scaling=MultiScale(HEADS, num_kv_heads=2))],
            [RoPE(WIDTH, base=50.0), FIRE(HEADS), KERPLE(HEADS)],
        ]
        return moved(Mixture(members, HEADS, dim=DIM, **options))

    def test_a_copy_has_biases_of_its_own(self):
        mixture = self.mixture()
        other = copy.deepcopy(mixture)
        with torch.no_grad():
            other.logits.normal_()
        q, k, v = qkv(2, HEADS, 20, num_kv_heads=2, dtype=torch.float64)
        for item in (mixture, other):
            assert gap(attention(q, k, v, [item], backend="sdpa"), attention(q, k, v, [item], backend="dense")) < 1e-12


def test_members_that_were_changed_are_refused():
    mixture, (q, k, v) = Mixture([RoPE(8), []], 4), qkv(1, 4, 9, 9)
    before = attention(q, k, v, [mixture])
    assert gap(attention(q, k, v, [mixture]), before) == 0
    mixture.members[1].append(CoPE(8, max_position=4))
    for backend in ("auto", "dense"):
        with pytest.raises(ValueError, match="members"):
            attention(q, k, v, [mixture], backend=backend)
