"""What all rotations by several coordinates share: validation, tokens without a place, relativity, decoding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import AxialRoPE, MRoPE, RotaryEncoding, YaRN
from posenc.positions import NO_POSITION
from posenc.rotary import MHRoPE, MixedRoPE, VJEPARoPE
from tests.samples import bounded, gap, qkv

HEADS, DIM = 4, 12
KINDS = {
    **{f"axial_{c}": lambda c=c: AxialRoPE(DIM, convention=c) for c in ("rope-vit", "qwen-vl", "eva-02", "sam-2")},
    **{f"axial_{c}": lambda c=c: AxialRoPE(DIM, axes=3, convention=c) for c in ("pixtral", "llama-4", "v-jepa-2")},
    **{f"axial_{c}": lambda c=c: AxialRoPE(DIM, axes=3, convention=c) for c in ("gemma-4", "kimi-k2.5")},
    "axial_given": lambda: AxialRoPE(DIM, frequencies=[[1.0, 0.3, 0.1], [2.0, 0.5, 0.0]]),
    "axial_dinov3": lambda: AxialRoPE(DIM, convention="dinov3", min_period=0.5, max_period=90.0),
    "mixed": lambda: MixedRoPE(DIM, num_heads=HEADS),
    "mixed_grouped": lambda: MixedRoPE(DIM, num_heads=HEADS, num_kv_heads=2, axes=3, layout="half"),
    "mixed_golden": lambda: MixedRoPE(DIM, num_heads=HEADS, axes=3, directions="golden", learned=False),
    "mrope": lambda: MRoPE(DIM, sections=(2, 2, 2)),
    "mrope_interleaved": lambda: MRoPE(DIM, sections=(3, 1, 2), interleaved=True, layout="interleaved"),
    "mhrope": lambda: MHRoPE(DIM, num_heads=HEADS, heads=(1, 1, 2)),
    "vjepa": lambda: VJEPARoPE(DIM),
}
each = pytest.mark.parametrize("kind", KINDS)


def matrices(encoding: RotaryEncoding, position, heads: int = HEADS) -> torch.Tensor:
    """R(position) of each head, float64 ``(heads, head_dim, head_dim)``."""
    width = encoding.head_dim
    x = torch.eye(width, dtype=torch.float64).expand(1, heads, width, width)
    here = torch.as_tensor(position).expand(width, -1)
    return encoding.rotate(x, encoding.table(here, like=x))[0].mT.detach()


@each
@bounded
@given(data=st.data(), whole=st.booleans())
def test_rotations_see_the_difference_alone(kind, data, whole):
    """R(x)ᵀ R(y) = R(y − x), and both are rotations; fractions are such that y − x is not rounded."""
    encoding = KINDS[kind]()
    number = st.integers(-(10**6), 10**6) if whole else st.integers(-(10**4), 10**4).map(lambda n: n / 64)
    dtype = torch.int64 if whole else torch.float64
    shift = 1 if "llama-4" in kind else 0  # its coordinates count from 1, so a difference of 0 lies at −1
    x, y = (torch.tensor(data.draw(st.tuples(*[number] * encoding.axes)), dtype=dtype) for _ in range(2))
    of_x, of_y = matrices(encoding, x), matrices(encoding, y)
    assert gap(of_x.mT @ of_y, matrices(encoding, y - x - shift)) < 1e-12
    assert gap(of_x.mT @ of_x, torch.eye(DIM, dtype=torch.float64).expand(HEADS, -1, -1)) < 1e-12
    assert gap(torch.linalg.det(of_x), torch.ones(HEADS, dtype=torch.float64)) < 1e-12


@each
def test_one_table_serves_queries_and_keys(kind):
    encoding, positions = KINDS[kind](), torch.randint(-99, 99, (2, 6, 3), generator=torch.Generator().manual_seed(0))
    positions = positions[..., : encoding.axes]
    q, k, _ = qkv(2, HEADS, 6, head_dim=DIM, num_kv_heads=HEADS)
    table = encoding.table(positions)
    assert table[0].dtype == torch.float32
    together = encoding(q, k, positions, positions)
    for x, rotated in zip((q, k), together, strict=True):
        assert torch.equal(encoding.rotate(x, table), rotated)
    last = encoding(q[:, :, -1:], k[:, :, -1:], *[positions[:, -1:]] * 2)  # a decoding step
    for step, full in zip(last, together, strict=True):
        assert gap(step, full[:, :, -1:]) < 1e-6
    wide = encoding.table(positions, like=q.double())
    assert all(gap(a, b) < 3e-7 and b.dtype == torch.float64 for a, b in zip(table, wide, strict=True))


def test_no_gain_without_a_place():
    """Beside a gain on all others."""
    rope = MRoPE(12, sections=(2, 2, 2), scaling=YaRN(4.0, original_length=64))
    cos, _ = rope.table(torch.tensor([[NO_POSITION, 0, 0], [0, 0, 0]]))
    assert torch.equal(cos[0], torch.ones(6))
    assert (cos[1] > 1.1).all()


@pytest.mark.parametrize("kind", ["axial", "mixed"])
def test_one_coordinate_with_its_axis(kind):
    """(tokens, 1) is not a batch of single tokens: read so, it broadcast to tokens × tokens."""
    rope = AxialRoPE(DIM, axes=1) if kind == "axial" else MixedRoPE(DIM, num_heads=HEADS, axes=1)
    at = torch.arange(6)
    q, k, _ = qkv(2, HEADS, 6, head_dim=DIM, num_kv_heads=HEADS)
    expected = rope(q, k, at, at)
    for positions in (at[:, None], at[None], at[None, :, None], at.expand(2, 6)[..., None]):
        for x, y in zip(rope(q, k, positions, positions), expected, strict=True):
            assert torch.equal(x, y)
    assert gap(rope(q[:, :, 2:], k, at[2:, None], at[:, None])[0], expected[0][:, :, 2:]) < 1e-6
    step = torch.tensor([[3], [5]])  # the next token of each row
    rotated = rope(q[:, :, :1], k[:, :, :1], step, step)[0]
    assert gap(rotated[1], rope(q[1:, :, :1], k[1:, :, :1], step[1], step[1])[0][0]) < 1e-6
    with pytest.raises(ValueError, match="positions"):
        rope.table(torch.zeros(2, 6, 2))
