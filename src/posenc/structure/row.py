"""A function of the distance as one row of numbers a head: what biases by distance become for a call's length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, ScoreMod, Structure, TileContext, Visible
from posenc.structure.tile import Tile, skew_view, toeplitz_view


@dataclass(eq=False)
class Row(Structure):
    """s_ij ← s_ij + values_h[n + queries − 1], a function of the distance."""

    values: Tensor  # (heads | 1, queries + keys − 1), at n = −(queries − 1) … keys − 1

    description = "a bias by distance"
    adds_only = True
    skewed = True

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        values, one_head = self.values, self.values.shape[0] == 1
        shift = torch.full((), keys - 1, device=values.device)  # as a number it would mean a kernel for each length

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + values[h * 0 if one_head else h, i - j + shift]  # n + queries − 1 = i − j + keys − 1

        return term

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        if context.constants_cancel:
            # Softmax takes no notice of a number a head. Without it, scores near a query's own key, which has most of
            # the weight, are small and keep their digits: T5's and KERPLE's biases may be far from 0 everywhere.
            own_entry = min(context.queries - 1, self.values.shape[-1] - 1)
            self.values = self.values - self.values[:, own_entry : own_entry + 1]

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        scores.add_(toeplitz_view(self._of_heads(self.values, tile), tile))
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        total = self._of_heads(self.gradients["values"], tile)
        sums = skew_view(grad, tile.rows + tile.columns - 1).sum((0, 2))
        first = tile.offset + tile.queries - 1
        total[:, first : first + sums.shape[-1]] += sums.sum(0, keepdim=True) if len(total) == 1 < len(sums) else sums
        return NO_INPUT_GRADIENTS

    @staticmethod
    def _of_heads(row: Tensor, tile: Tile) -> Tensor:
        return row if row.shape[0] == 1 else row[tile.heads]
