"""The vision transformer that every encoding is tried in: tokens of pixels in, logits of classes out.

    patches ─ linear ─ (+ embedding) ─ [ norm ─ attention ─ + ─ norm ─ SwiGLU ─ + ] × layers ─ norm ─ mean ─ head

Attention looks both ways, and there is no class token: without an encoding the model sees a bag of patches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.encoding import Encoding
from posenc.lab.images.coordinates import convention_of, convert
from posenc.lab.images.specs import GridShape
from posenc.lab.model import Block, initialise, shared_rotary
from posenc.lab.specs import build_encodings
from posenc.lab.tasks.task import Model
from posenc.positions import grid as trained_grid


def patches(pictures: Tensor, patch: int, stride: int | None = None) -> Tensor:
    """Square patches of pictures ``(batch, height, width)``, row by row: ``(batch, tokens, patch²)``."""
    return F.unfold(pictures.unsqueeze(1), patch, stride=patch if stride is None else stride).transpose(1, 2)


class Classifier(Model):
    """A classifier of small pictures with the encodings of ``spec``.

    Args:
        spec: encodings as the lab names them.
        shape: widths and counts, and the trained grid.
        patch: pixels of a token, each way.
        classes: how many.
        hidden: width of the feed-forward layers.
        seed: decides the initial weights; the shared parts depend on nothing else.
    """

    def __init__(self, spec: str, shape: GridShape, *, patch: int, classes: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.grid = shape.grid
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encodings = build_encodings(spec, shape)
            self.embed = nn.Linear(patch**2, shape.dim)
            self.embedding_encodings = nn.ModuleList(encodings.embedding)
            self.blocks = nn.ModuleList(
                Block(shape.dim, shape.heads, hidden, layer, causal=False) for layer in encodings.attention
            )
            self.norm = nn.RMSNorm(shape.dim, eps=1e-6)
            self.head = nn.Linear(shape.dim, classes, bias=False)
        self.lr_multipliers = encodings.lr_multipliers
        self.rotary = shared_rotary(encodings.attention)
        acting = encodings.attention[0]
        self.convention = convention_of(acting[0]) if acting else None
        nn.init.zeros_(self.embed.bias)
        initialise(self, torch.Generator().manual_seed(seed), std={})

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """Logits ``(batch, classes)``.

        Args:
            tokens: ``(batch, tokens, patch²)`` pixels.
            places: ``(tokens, 2)`` rows and columns, in tokens of the trained grid; default that grid.
        """
        if places is None:
            places = trained_grid(self.grid, self.grid).to(tokens.device)
        x = self.embed(tokens)
        for encoding in self.embedding_encodings:
            x = encoding(x, self._positions(encoding, places))
        positions = None if self.convention is None else convert(places, self.convention, self.grid)
        tables = None
        if positions is not None and self.rotary:
            tables = [encoding.table(positions, like=x) for encoding in self.rotary]
        for block in self.blocks:
            x = block(x, positions, tables=tables)
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits

    def _positions(self, encoding: nn.Module, places: Tensor) -> Tensor:
        convention = convention_of(encoding) if isinstance(encoding, Encoding) else "tokens"
        return convert(places, convention, self.grid)
