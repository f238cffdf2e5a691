"""A network across heads, which reads what a tile already holds: DAPE.

It contains a bias, a structure that fills a tile of its own, and acts on everything that was added before it. Keys are
hidden after it, because it needs finite numbers; and gradients pass through structures in reverse order, as it hands
those that were added before it another gradient than it received.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.structure.counts import Counts
from posenc.structure.decay import Decay
from posenc.structure.interface import NO_INPUT_GRADIENTS, Bias, InputGradients, Structure, TileContext, TileFacts
from posenc.structure.reflections import Reflections
from posenc.structure.tile import Tile, with_zero_tail

UNITS = 1 << 18  # numbers of a network's units at a time: 1 MiB, which stays near the processor


@dataclass(eq=False)
class HeadMixing(Structure):
    """s_ij ← s_ij + b_ij + outer · f(inner · [s_ij; b_ij] + inner_bias) + outer_bias, across heads.

    s_ij has all that was added before; f(x) is x, and slope · x below 0.
    """

    bias: Bias | Structure  # of positions; in tiles, the structure that it has there
    inner: Tensor  # (units, 2 · heads)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)
    slope: float

    description = "a network across heads"

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if facts.few_queries:
            return "the definition takes few queries in fewer steps"
        if not facts.softmax:
            return f"{encoding} looks at scores, of which stick-breaking has some at a time"
        others = [structure for structure in facts.structures if structure is not self]
        if any(isinstance(other, Reflections | HeadMixing) for other in others):
            return f"{encoding} looks at products that another encoding changes"
        if any(isinstance(other, Counts | Decay) for other in others):
            return f"{encoding} looks at whole scores, of which gates leave out what softmax does not see"
        return None

    def with_bias(self, structure: Structure) -> HeadMixing:
        """The same with the structure of its bias."""
        return HeadMixing(structure, self.inner, self.inner_bias, self.outer, self.outer_bias, self.slope)

    @property
    def bias_structure(self) -> Structure:
        """The bias, in tiles."""
        assert isinstance(self.bias, Structure)
        return self.bias

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        self.bias_structure.prepare(context._replace(constants_cancel=False))

    def start_backward(self) -> None:
        super().start_backward()
        self.bias_structure.start_backward()

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        before, bias = scores.clone(), scores.new_zeros(1, *scores.shape[1:])  # the same for all rows of the batch
        saved = self.bias_structure.add(bias, q, tile, None)
        flat = bias.view(bias.shape[1], -1)
        for row, out in zip(before, scores, strict=True):
            seen, changed = row.view(row.shape[0], -1), out.view(out.shape[0], -1)
            changed.add_(flat).add_(self.outer_bias[:, None])
            for some in self._ranges(seen):
                units = F.leaky_relu_(self._units(seen[:, some], flat[:, some]), self.slope)
                changed[:, some].addmm_(self.outer, units)
        return before, bias, saved

    def _ranges(self, seen: Tensor) -> Iterator[slice]:
        """Ranges of scores, so many at a time that their units take little memory."""
        step = max(1, UNITS // len(self.inner_bias))
        for first in range(0, seen.shape[1], step):
            yield slice(first, min(first + step, seen.shape[1]))

    def _units(self, scores: Tensor, bias: Tensor) -> Tensor:
        """What enters the units, ``(units, numbers)``."""
        heads = len(scores)
        return torch.addmm(self.inner_bias[:, None], self.inner[:, :heads], scores).addmm_(self.inner[:, heads:], bias)

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        """Also turns ``grad`` into the gradient of what was added before, in place."""
        assert isinstance(saved, tuple)
        before, bias, saved_bias = saved
        heads, totals = bias.shape[1], self.gradients
        totals["outer_bias"] += grad.sum((0, 2, 3))
        grad_bias, flat = grad.sum(0, keepdim=True), bias.view(heads, -1)
        into = grad_bias.view(heads, -1)
        for row, grad_row in zip(before, grad, strict=True):
            seen, grad_out = row.view(heads, -1), grad_row.reshape(heads, -1)  # which lies in rows with gaps
            grad_seen = torch.empty_like(seen)
            for some in self._ranges(seen):
                units = self._units(seen[:, some], flat[:, some])
                slopes = (units > 0).to(units.dtype).mul_(1 - self.slope).add_(self.slope)
                units.mul_(slopes)
                totals["outer"].addmm_(grad_out[:, some], units.mT)
                grad_units = torch.mm(self.outer.mT, grad_out[:, some]).mul_(slopes)
                totals["inner_bias"] += grad_units.sum(1)
                totals["inner"][:, :heads].addmm_(grad_units, seen[:, some].mT)
                totals["inner"][:, heads:].addmm_(grad_units, flat[:, some].mT)
                grad_seen[:, some] = self.inner[:, :heads].mT @ grad_units
                into[:, some].addmm_(self.inner[:, heads:].mT, grad_units)
            grad_row.add_(grad_seen.view(grad_row.shape))
        self.bias_structure.gradient(with_zero_tail(grad_bias).copy_(grad_bias), q, tile, saved_bias)
        return NO_INPUT_GRADIENTS
