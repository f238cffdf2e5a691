"""docs/results/designs.py: the designs that recorded runs have as own classes are what their text says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from posenc import MRoPE, Sinusoidal, attention
from posenc.lab.models.decoder import Decoder
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.specs import Shape
from posenc.layers import FoXPro, SelfAttention
from posenc.positions import grid

FOLDER = Path(__file__).parents[2] / "docs" / "results"
NAMES = ("ConcatenatedSinusoidal", "FoXProGate", "ImageMRoPE", "ImageInterleavedMRoPE")


@pytest.fixture
def designs() -> Iterator[ModuleType]:
    with allow_imports(ImportAllowlist(frozenset(f"designs:{name}" for name in NAMES), FOLDER)):
        import designs

        yield designs
    sys.modules.pop("designs", None)


def test_a_gate_of_fox_pro_brings_its_layer(designs: ModuleType) -> None:
    shape = Shape(dim=16, heads=2, layers=2, train_length=8)
    model = Decoder("rope+designs:FoXProGate", shape, hidden=16, seed=0)
    tokens = torch.randint(256, (2, 8), generator=torch.Generator().manual_seed(0))
    gates = [block.attention.encodings[1] for block in model.blocks]
    for block, gate in zip(model.blocks, gates, strict=True):
        assert type(block.attention) is FoXPro
        assert type(gate) is designs.FoXProGate
        assert len(block.attention.encodings) == 2, "no second gate"
    assert {p for gate in gates for p in gate.parameters()} <= set(model.lr_multipliers)
    later = tokens.clone()
    later[:, -1] += 1
    torch.testing.assert_close(model(tokens)[:, :-1], model(later % 256)[:, :-1])
    assert type(Decoder("rope+fox", shape, hidden=16, seed=0).blocks[0].attention) is SelfAttention


def test_sinusoids_stand_beside_the_channels_of_the_token(designs: ModuleType) -> None:
    x, positions = torch.randn(2, 5, 16), torch.arange(3, 8)
    out = designs.ConcatenatedSinusoidal(16)(x, positions)
    assert torch.equal(out[..., :12], x[..., :12])
    assert torch.equal(out[..., 12:], Sinusoidal(4)(torch.zeros(2, 5, 4), positions))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ImageMRoPE", {"sections": (2, 3, 3)}),
        ("ImageInterleavedMRoPE", {"sections": (3, 3, 2), "interleaved": True}),
    ],
)
def test_m_rope_of_a_picture_is_m_rope_at_one_time(designs: ModuleType, name: str, options: dict[str, object]) -> None:
    places = grid(3, 4)
    with_time = torch.cat([torch.full((len(places), 1), 5), places], 1)
    q, k, v = torch.randn(3, 1, 2, len(places), 16, generator=torch.Generator().manual_seed(1))
    of_picture = attention(q, k, v, [getattr(designs, name)(16)], q_pos=places, causal=False)
    of_three_axes = attention(q, k, v, [MRoPE(16, **options)], q_pos=with_time, causal=False)  # type: ignore[arg-type]
    torch.testing.assert_close(of_picture, of_three_axes, atol=1e-5, rtol=1e-5)
