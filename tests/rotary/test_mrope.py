"""M-RoPE: text that is rotated as under RoPE, and orders of pairs."""

from __future__ import annotations

import pytest
import torch

from posenc import DynamicNTK, LongRoPE, MRoPE, RoPE, YaRN
from posenc.frequencies import CLEX, MultiScale
from posenc.hf import rope_to_config
from posenc.rotary import pair_order
from tests.samples import qkv

SECTIONS = (4, 6, 6)
PAIRS = sum(SECTIONS)
SCALINGS = {
    "none": lambda: None,
    "yarn": lambda: YaRN(8.0, original_length=64),
    "dynamic": lambda: DynamicNTK(2.0, original_length=16),
    "longrope": lambda: LongRoPE([1.0] * PAIRS, [1.5] * PAIRS, original_length=16, factor=4.0),
    "clex": lambda: CLEX(PAIRS, original_length=16, max_factor=4),
    "multiscale": lambda: MultiScale(4, num_kv_heads=2),
    "start": lambda: LongRoPE([1.0] * PAIRS, [2.0] * PAIRS, original_length=16, factor=4.0),
}


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("options", [{}, {"interleaved": True}, {"time_last": True}, {"layout": "interleaved"}])
def test_text_is_rotated_as_under_rope(kind, options):
    """Bit for bit, under every scaling, in rows of their own lengths, whole and fractional."""
    torch.manual_seed(0)
    scaling = SCALINGS[kind]()
    rope = RoPE(40, rotary_dim=32, base=1e6, scaling=scaling, layout=options.get("layout", "half"))
    mrope = MRoPE(40, sections=SECTIONS, rotary_dim=32, scaling=scaling, **options)
    q, k, _ = qkv(2, 4, 7, head_dim=40, num_kv_heads=2)
    for positions in (torch.arange(7), torch.stack([torch.arange(7), 30 + 5 * torch.arange(7)]), torch.rand(7) * 70):
        text = positions.unsqueeze(-1).expand(*positions.shape, 3)
        for length in (None, 9, 300):
            for actual, expected in zip(mrope.table(text, length), rope.table(positions, length), strict=True):
                assert torch.equal(actual, expected)
            assert mrope.cacheable(length) == rope.cacheable(length)
        for actual, expected in zip(mrope(q, k, text, text), rope(q, k, positions, positions), strict=True):
            assert torch.equal(actual, expected)


def test_a_length_dependent_scaling_spans_the_largest_coordinate():
    mrope = MRoPE(32, sections=SECTIONS, scaling=DynamicNTK(2.0, original_length=16))
    positions = torch.tensor([[[0, 0, 0], [1, 70, 3]], [[0, 0, 0], [1, 2, 99]]])
    for row, length in enumerate((71, 100)):
        expected = mrope.table(positions[row], length)
        assert all(torch.equal(a[row], b) for a, b in zip(mrope.table(positions), expected, strict=True))
    q, k, _ = qkv(2, 4, 2, head_dim=32)
    spans = torch.tensor([[71], [100]])
    assert torch.equal(mrope(q, k, positions, positions)[0], mrope.rotate(q, mrope.table(positions, spans)))


def test_qwen_2_takes_sections_modulo_the_axes():
    twice = MRoPE(32, sections=(2, 3, 3, 2, 3, 3))
    assert twice.order() == 2 * ([0] * 2 + [1] * 3 + [2] * 3)
    assert MRoPE(8, sections=(1, 1, 1, 1), axes=4).order() == [0, 1, 2, 3]
    assert MRoPE(8, sections=(3, 1), axes=2).order() == [0, 0, 0, 1]


def test_qwen_3_gives_time_what_the_others_leave():
    order = MRoPE(128, sections=(24, 20, 20), interleaved=True).order()
    assert order == [0, 1, 2] * 20 + [0] * 4
    short = MRoPE(24, sections=(2, 6, 4), interleaved=True).order()  # rows would go on past the last pair
    assert short == [0, 1, 2] * 4


def test_pairs_that_rest_and_orders_that_are_refused():
    rope = MRoPE(16, order=[0, -1, 1, 2, -1, 0, 0, 1])
    positions = torch.tensor([[5, 7, 9], [8, 1, 2]])
    cos, sin = rope.table(positions)
    assert torch.equal(cos[:, [1, 4]], torch.ones(2, 2))
    assert torch.equal(sin[:, [1, 4]], torch.zeros(2, 2))
    again = rope.replace(base=5e5)
    assert again.order() == rope.order()
    assert again.rope.base == 5e5
    assert rope.replace(sections=(4, 2, 2)).order() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert "order=(0, -1, 1" in str(rope)
    with pytest.raises(ValueError, match="no other order of the pairs"):
        rope_to_config(rope, model_type="qwen2_vl")


def test_orders_of_the_authors_of_videorope_and_hope():
    """Their loops: 48 pairs alternate between row and column, the last 16 read time, or rest."""
    assert pair_order("videorope", (16, 24, 24), code="authors") == [1, 2] * 24 + [0] * 16
    assert pair_order("hope", (16, 24, 24), code="authors") == [1, 2] * 24 + [-1] * 16
    ernie = MRoPE(128, sections=(24, 24, 16), time_last=True)
    assert ernie.order() == pair_order("videorope", (16, 24, 24), code="authors")
    differ = zip(ernie.order(), pair_order("videorope", (16, 24, 24)), strict=True)
    assert sum(ernie_pair != videorope_pair for ernie_pair, videorope_pair in differ) == 48


def test_orders_of_designs_by_name():
    for design in ("mrope", "omnirope", "circlerope"):
        assert pair_order(design, (1, 2, 3)) == [0, 1, 1, 2, 2, 2]
    for design in ("mrope-i", "ilrope"):
        assert pair_order(design, (24, 20, 20)) == MRoPE(128, sections=(24, 20, 20), interleaved=True).order()
    for design, words in {"mhrope": "MHRoPE", "v2pe": "RoPE", "rope": "mm-rope"}.items():
        with pytest.raises(ValueError, match=f"design.*{words}"):
            pair_order(design, (1, 1, 1))
