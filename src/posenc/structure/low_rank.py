"""Products of few numbers of each query with few of each key: biases decomposed by axes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, Structure, TileContext
from posenc.structure.tile import Tile


@dataclass(eq=False)
class LowRank(Structure):
    """s_ij ← s_ij + Σ_e left_ie · right_ej, ``right`` without a gradient."""

    left: Tensor  # (batch, heads, queries, entries)
    right: Tensor  # (entries, keys)

    description = "products of few numbers"

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        self.right = self.right.flip(-1)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        left = tile.of(self.left)[:, :, tile.start : tile.stop]
        right = self.right[:, tile.near : tile.far]
        scores.view(-1, scores.shape[-1]).addmm_(left.reshape(-1, left.shape[-1]), right)
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        right = self.right[:, tile.near : tile.far]
        tile.add_to(self.gradients["left"], grad @ right.T, slice(tile.start, tile.stop))
        return NO_INPUT_GRADIENTS
