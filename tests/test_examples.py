"""What examples show of one encoding, or two, holds for others; `test_documentation.py` runs every example as it is."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import posenc
from posenc import Encoding

EXAMPLES = Path(__file__).parents[1] / "examples"
IN_THE_PLANE: dict[str, Callable[[], Encoding]] = {
    "AxialRoPE, DINOv3's": lambda: posenc.AxialRoPE(16, convention="dinov3"),
    "MixedRoPE, golden": lambda: posenc.rotary.MixedRoPE(16, num_heads=4, directions="golden"),
    "LieRE in planes": lambda: posenc.rotary.LieRE(16, num_heads=4, block=2),
    "ComRoPEAP in small blocks": lambda: posenc.rotary.ComRoPEAP(16, num_heads=4, block=4),
    "ComRoPELD": lambda: posenc.rotary.ComRoPELD(16, num_heads=4, block=8),
    "BEiTBias": lambda: posenc.bias.BEiTBias(4, window=(8, 8)),
    "LogCPB": lambda: posenc.bias.LogCPB(4, axes=2),
    "SinusoidalGrid, SimpleViT's": lambda: posenc.embedding.SinusoidalGrid(64, family="simplevit"),
    "LearnedGrid with a class token": lambda: posenc.LearnedGrid(64, size=(8, 8), prefix=1),
}


@pytest.fixture(scope="module")
def vision_transformer() -> dict[str, Any]:
    pytest.importorskip("transformers")
    return runpy.run_path(str(EXAMPLES / "vision_transformer.py"))


@pytest.mark.parametrize("name", IN_THE_PLANE)
def test_a_vit_takes_any_encoding_of_the_plane(vision_transformer: dict[str, Any], name: str) -> None:
    torch.manual_seed(0)
    vision_transformer["check"](IN_THE_PLANE[name])


def test_a_vit_without_positions_ignores_order(vision_transformer: dict[str, Any]) -> None:
    """The table of transformers is gone, so that without an encoding patches could lie anywhere."""

    class Nothing(posenc.EmbeddingEncoding):
        def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return x

    config = vision_transformer["ViTConfig"](
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, patch_size=8
    )
    model = vision_transformer["GridViT"](config, Nothing).eval()
    pixels = torch.randn(1, 3, 16, 16)
    rotated = pixels.roll(8, -1)  # the columns of patches change places
    with torch.no_grad():
        assert torch.allclose(model(pixels)[:, 0], model(rotated)[:, 0], atol=1e-5)
    placed = vision_transformer["GridViT"](config, lambda: posenc.bias.SwinBias(4, window=(2, 2))).eval()
    with torch.no_grad():
        for layer in placed.layers:
            layer.attention.encodings[0].table.normal_()
        assert not torch.allclose(placed(pixels)[:, 1:], placed(rotated)[:, 1:], atol=1e-3)
