"""One number for each key, the same for every query: the key term of Transformer-XL."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, ScoreMod, Structure, TileContext, Visible
from posenc.structure.tile import Tile


@dataclass(eq=False)
class Column(Structure):
    """s_ij ← s_ij + values_j: one term per key."""

    values: Tensor  # (batch | 1, heads, keys)

    description = "a term per key"
    adds_only = True

    def flex_refusal(self, encoding: str, *, ordered: bool, sink: bool) -> str | None:
        return None

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        values = self.values
        one_row, one_head = values.shape[0] == 1, values.shape[1] == 1

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + values[b * 0 if one_row else b, h * 0 if one_head else h, j]

        return term

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        self.values = self.values.flip(-1)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        scores.add_(tile.of(self.values)[:, :, None, tile.near : tile.far])
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        tile.add_to(self.gradients["values"], grad.sum(2), slice(tile.near, tile.far))
        return NO_INPUT_GRADIENTS

    def finish_backward(self) -> dict[str, Tensor]:
        return {"values": self.gradients["values"].flip(-1)}
