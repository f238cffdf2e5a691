"""A structure of one's own, as CONTRIBUTING tells how to write one: tiles, compilers and graphs take it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from posenc import Context, ScoreEncoding, attention, explain_backend
from posenc.encoding import Reads
from posenc.structure import Structure
from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients
from posenc.structure.tile import Tile
from tests.backends.tiles.test_operator import Recorded
from tests.samples import gap, qkv

TOKENS = 40


@dataclass(eq=False)
class Stripes(Structure):
    """s_ij ← s_ij + values_h for odd j."""

    values: Tensor  # (heads,)
    keys: int

    description = "stripes of keys"
    adds_only = True

    def _odd(self, tile: Tile) -> Tensor:
        """Whether keys of the tile are odd ones; a tile begins at the newest key."""
        index = self.keys - 1 - torch.arange(tile.near, tile.far)
        return (index % 2).to(self.values.dtype)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        scores.add_(self.values[tile.heads, None, None] * self._odd(tile))
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        self.gradients["values"][tile.heads] += (grad * self._odd(tile)).sum((0, 2, 3))
        return NO_INPUT_GRADIENTS


class Striped(ScoreEncoding):
    """A bias for odd keys."""

    axes = 0
    reads = Reads(rotated=False)

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.randn(num_heads))

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        odd = torch.arange(scores.shape[-1]) % 2
        return scores + self.values.to(scores.dtype).view(-1, 1, 1) * odd

    def structure(self, context: Context, *, future: bool) -> tuple[Stripes]:
        wide = torch.promote_types(context.q.dtype, torch.float32)
        return (Stripes(self.values.to(wide), context.k.shape[2]),)


@pytest.fixture
def striped() -> Striped:
    torch.manual_seed(0)
    return Striped(4).double()


def test_tiles_take_it_with_its_gradients(striped: Striped) -> None:
    q, k, v = qkv(2, 4, TOKENS, dtype=torch.float64)
    assert explain_backend(q, k, v, [striped], backend="tiled").backend == "tiled"
    found = {}
    for backend in ("dense", "tiled"):
        out = attention(q, k, v, [striped], backend=backend)
        found[backend] = out, *torch.autograd.grad(out.square().sum(), striped.values)
    assert all(gap(a, b) < 1e-12 for a, b in zip(*found.values(), strict=True))


def test_the_operator_of_compiled_graphs_takes_it(striped: Striped) -> None:
    q, k, v = (t.requires_grad_() for t in qkv(2, 4, TOKENS, dtype=torch.float64))
    with Recorded() as mode:
        attention(q, k, v, [striped], backend="tiled")
    ((learned, fixed, numbers, text),) = mode.arguments
    assert f"{__name__}.Stripes" in text
    out = torch.ops.posenc.attend_tiled(learned, fixed, numbers, text)[0]
    assert gap(out, attention(q, k, v, [striped], backend="dense")) < 1e-12
