"""Keys moved in a cache: exactly what they would be at their new positions, or a refusal that says why."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, DynamicNTK, LongRoPE, MRoPE, NTKAware, RoPE, RotaryEncoding, Sinusoidal, YaRN
from posenc.bias import FIRE
from posenc.catalogue import CATALOGUE
from posenc.layers import KVCache, SelfAttention, rerotate
from posenc.positions import NO_POSITION
from posenc.rotary import LieRE
from posenc.score import XPos
from posenc.testing import Case
from posenc.testing.cases import spread
from tests.samples import gap

DIM, HEADS, LENGTH = 32, 4, 12
CLOSE = 2e-5
ROTARY = [n for n, e in CATALOGUE.items() if any(isinstance(r, RotaryEncoding) for r in Case.from_catalogue(n).fresh())]
REFUSED = {
    "fope": "is not a rotation",
    "pope": "is not a rotation",
    "liere": "LieRE",
    "comrope_ap": "LieRE",
    "comrope_ld": "LieRE",
}


def keys(heads=2, width=8, length=LENGTH) -> torch.Tensor:
    return torch.randn(2, heads, length, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("name", ROTARY)
def test_every_rotation_moves_or_says_why_not(name):
    case = Case.from_catalogue(name)
    (encoding,) = (e for e in case.make(torch.float64) if isinstance(e, RotaryEncoding))
    length = 40 if encoding.length_dependent else None
    k, positions = keys(case.num_kv_heads, case.head_dim), spread(torch.arange(LENGTH), encoding.axes)
    if name in REFUSED:
        with pytest.raises(ValueError, match=type(encoding).__name__):
            rerotate(k, encoding, 3, length=length)
        return
    rotated = encoding.rotate(k, encoding.table(positions, length, like=k))
    for by in (13, -5):
        result = rerotate(rotated, encoding, by, length=length)
        assert gap(result, encoding.rotate(k, encoding.table(positions + by, length, like=k))) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("build", [
    lambda: RoPE(64), lambda: RoPE(64, layout="interleaved", rotary_dim=32),
    lambda: RoPE(64, scaling=YaRN(4.0, original_length=32)), lambda: RoPE(64, scaling=NTKAware(4.0)),
    lambda: MRoPE(64, sections=(8, 12, 12)),
])  # fmt: skip
def test_right_to_one_rounding_far_out(build, dtype):
    rope, k = build(), keys(2, 64).to(dtype)
    near = spread(torch.arange(LENGTH), rope.axes)
    exact = rope.rotate(k.double(), rope.table(near, like=k.double()))
    result = rerotate(rope.rotate(k, rope.table(near + 2**20, like=k)), rope, -(2**20))
    assert result.dtype == dtype
    assert gap(result.double(), exact) < 2 * torch.finfo(dtype).eps * exact.abs().max()


def test_each_token_may_move_by_itself():
    rope, k = RoPE(8), keys()
    positions, by = torch.arange(LENGTH), torch.stack([torch.arange(LENGTH) - 6, torch.full((LENGTH,), 3)])
    result = rerotate(rope.rotate(k, rope.table(positions, like=k)), [rope, ALiBi(4)], by)
    assert gap(result, rope.rotate(k, rope.table(positions + by, like=k))) < 1e-12


@pytest.mark.parametrize(
    ("encodings", "length", "words"),
    [
        ([RoPE(8, scaling=DynamicNTK(original_length=4))], None, "length"),
        ([LieRE(8, num_heads=2)], None, "LieRE"),
        ([RoPE(8), RoPE(8, layout="interleaved")], None, "channels"),
        ([RoPE(8, scaling=LongRoPE([1.0] * 4, [2.0] * 4, original_length=4, factor=2.0, start_tokens=2))], 9, "first"),
    ],
)
def test_refusals_say_why(encodings, length, words):
    with pytest.raises(ValueError) as error:
        rerotate(keys().float(), encodings, 3, length=length)
    assert words in str(error.value)
    assert "encodings" in str(error.value)


def layer(*encodings) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, HEADS, encodings=encodings, causal=True).requires_grad_(False)


def tokens(length=LENGTH) -> torch.Tensor:
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(1))


class TestCaches:
    @pytest.mark.parametrize("build", [lambda: [RoPE(8), ALiBi(HEADS)], lambda: [XPos(8)], lambda: [FIRE(HEADS)]])
    def test_a_shift_is_a_text_that_began_elsewhere(self, build):
        module, x, cache = layer(*build()), tokens(), KVCache()
        module(x[:, :8], cache=cache)
        module.shift(cache, 100)
        assert (cache.next, cache.gap) == (108, 100)
        moved = torch.arange(LENGTH) + 100
        assert gap(module(x[:, 8:], cache=cache), module(x, moved)[:, 8:]) < CLOSE
        module.shift(cache, -100)
        again = KVCache()
        module(x, cache=again)
        assert gap(cache.k, again.k) < CLOSE

    @pytest.mark.parametrize("sinks", [0, 2])
    def test_streaming_llm(self, sinks):
        """Positions inside the cache: what is kept counts 0, 1, 2, …, whatever came before."""
        module, x = layer(RoPE(8), FIRE(HEADS)), tokens(40)
        cache = KVCache(window=6, sinks=sinks)
        for step in range(40):
            module.shift(cache, -cache.gap)
            first = min(sinks, step + 1)
            remaining = torch.cat([x[:, :first], x[:, max(first, step - 5) : step + 1]], 1)
            out = module(x[:, step : step + 1], cache=cache)
            assert gap(out, module(remaining)[:, -1:]) < 1e-4
            assert cache.next <= 6 + sinks

    @pytest.mark.parametrize("with_positions", [False, True])
    def test_rows_with_positions_of_their_own(self, with_positions):
        module, x, cache = layer(RoPE(8), ALiBi(HEADS)), tokens(), KVCache()
        real = torch.arange(LENGTH) >= torch.tensor([[0], [3]])
        positions = (real.cumsum(-1) - 1).clamp(min=0)
        first = {"positions": positions[:, :8]} if with_positions else {}
        module(x[:, :8], cache=cache, attention_mask=real[:, :8], **first)
        module.shift(cache, 7)
        rest = {"positions": positions[:, 8:] + 7} if with_positions else {}
        out = module(x[:, 8:], cache=cache, **rest)
        assert gap(out, module(x, positions + 7, attention_mask=real)[:, 8:]) < CLOSE

    def test_tokens_without_a_place_stay(self):
        module, x, cache = layer(MRoPE(8, sections=(2, 1, 1))), tokens(), KVCache()
        places = torch.arange(LENGTH)[:, None].repeat(1, 3)
        places[0] = NO_POSITION
        module(x[:, :8], places[:8], cache=cache)
        module.shift(cache, 5)
        assert cache.positions[0, 0].tolist() == [NO_POSITION] * 3
        moved = torch.where(places == NO_POSITION, places, places + 5)
        assert gap(module(x[:, 8:], moved[8:], cache=cache), module(x, moved)[:, 8:]) < CLOSE

    def test_refusals(self):
        x = tokens()
        for module, words in (
            (layer(Sinusoidal(DIM)), "Sinusoidal"),
            (layer(RoPE(8), RoPE(8, layout="interleaved")), "channels"),
        ):
            cache = KVCache()
            module(x, cache=cache)
            with pytest.raises(ValueError, match=words):
                module.shift(cache, 1)
        module, cache = layer(RoPE(8)), KVCache(window=4, sinks=1)
        module(x, cache=cache)
        with pytest.raises(ValueError, match="by"):
            module.shift(cache, -9)
        padded = KVCache(window=3, sinks=1)
        module(x, attention_mask=torch.ones(2, LENGTH, dtype=torch.bool), cache=padded)
        with pytest.raises(ValueError, match="padding"):
            module.shift(padded, 1)
