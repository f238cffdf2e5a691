"""Terms that read what a tile already holds: a kernel that multiplies dot products, a network across heads (DAPE).

Each contains a bias, a term that fills a tile of its own. The kernel acts on the bare dot products, so it comes first;
the network acts on everything added before it, so gradients pass through the terms in reverse order. Keys are hidden
after both, because both need finite numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.tiled.terms import NOTHING, Change, Term
from posenc.backends.tiled.tile import Tile, room

UNITS = 1 << 18  # numbers of a network's units at a time: 1 MiB, which stays near the processor


class _Inside(Term):
    """A term with a bias inside."""

    def __init__(self, inside: Term, *tensors: Tensor) -> None:
        super().__init__(*tensors, *inside.tensors)
        self.inside = inside

    def start_backward(self, wide: torch.dtype) -> None:
        super().start_backward(wide)
        self.inside.gradients = self.gradients[len(self.gradients) - len(self.inside.tensors) :]

    def bias(self, scores: Tensor, q: Tensor, tile: Tile) -> tuple[Tensor, object]:
        """The bias of a tile, ``(1, heads, rows, columns)``, and what `bias_gradient` wants back."""
        bias = scores.new_zeros(1, *scores.shape[1:])
        return bias, self.inside.add(bias, q, tile, None)

    def bias_gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> None:
        """Gather the gradients of the bias, ``grad`` of its shape."""
        self.inside.gradient(room(grad).copy_(grad), q, tile, saved)


class Kernel(_Inside):
    """See `posenc.structure.Kernel`."""

    acts_on_products = True

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        products, (bias, saved) = scores.clone(), self.bias(scores, q, tile)
        lost = bias.expm1_()
        scores.addcmul_(products, lost)
        return products, lost, saved

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        assert isinstance(saved, tuple)
        products, lost, of_inside = saved
        of_bias = (grad * products).sum(0, keepdim=True).mul_(lost + 1)
        self.bias_gradient(of_bias, q, tile, of_inside)
        return Change(capped=grad * lost)


class HeadMixing(_Inside):
    """See `posenc.structure.HeadMixing`: inner, inner_bias, outer, outer_bias, and the tensors of the bias."""

    mixes_heads = True

    def __init__(self, inside: Term, *tensors: Tensor, slope: float) -> None:
        super().__init__(inside, *tensors)
        self.slope = slope

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        before, (bias, saved) = scores.clone(), self.bias(scores, q, tile)
        outer, outer_bias = self.tensors[2:4]
        flat = bias.view(bias.shape[1], -1)
        for row, out in zip(before, scores, strict=True):
            seen, changed = row.view(row.shape[0], -1), out.view(out.shape[0], -1)
            changed.add_(flat).add_(outer_bias[:, None])
            for some in self._stretches(seen):
                units = F.leaky_relu_(self._units(seen[:, some], flat[:, some]), self.slope)
                changed[:, some].addmm_(outer, units)
        return before, bias, saved

    def _stretches(self, seen: Tensor) -> Iterator[slice]:
        """Ranges of scores, so many at a time that their units take little room."""
        step = max(1, UNITS // len(self.tensors[1]))
        for first in range(0, seen.shape[1], step):
            yield slice(first, min(first + step, seen.shape[1]))

    def _units(self, scores: Tensor, bias: Tensor) -> Tensor:
        """What enters the units, ``(units, numbers)``."""
        (inner, inner_bias), heads = self.tensors[:2], len(scores)
        return torch.addmm(inner_bias[:, None], inner[:, :heads], scores).addmm_(inner[:, heads:], bias)

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        assert isinstance(saved, tuple)
        before, bias, of_inside = saved
        (inner, _, outer, _), heads = self.tensors[:4], bias.shape[1]
        of_inner, of_inner_bias, of_outer, of_outer_bias = self.gradients[:4]
        of_outer_bias += grad.sum((0, 2, 3))
        of_bias, flat = grad.sum(0, keepdim=True), bias.view(heads, -1)
        into = of_bias.view(heads, -1)
        for row, lower in zip(before, grad, strict=True):
            seen, of_lower = row.view(heads, -1), lower.reshape(heads, -1)  # which lies in rows with gaps
            down = torch.empty_like(seen)
            for some in self._stretches(seen):
                units = self._units(seen[:, some], flat[:, some])
                slopes = (units > 0).to(units.dtype).mul_(1 - self.slope).add_(self.slope)
                units.mul_(slopes)
                of_outer.addmm_(of_lower[:, some], units.mT)
                of_units = torch.mm(outer.mT, of_lower[:, some]).mul_(slopes)
                of_inner_bias += of_units.sum(1)
                of_inner[:, :heads].addmm_(of_units, seen[:, some].mT)
                of_inner[:, heads:].addmm_(of_units, flat[:, some].mT)
                down[:, some] = inner[:, :heads].mT @ of_units
                into[:, some].addmm_(inner[:, heads:].mT, of_units)
            lower.add_(down.view(lower.shape))
        self.bias_gradient(of_bias, q, tile, of_inside)
        return NOTHING
