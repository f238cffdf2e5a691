"""The vision transformer of --task images, and where its tokens are as each encoding was made to read it.

    tokens     row, column = i, j                 exact while they are whole
    unit       i / (n − 1), from 0 to 1           LieRE
    centres    (i + ½) / n, between 0 and 1       ComRoPE

n tokens each way in training. What is asked of an encoding is the same for all in tokens; n never changes with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.encoding import Encoding
from posenc.lab.models.decoder import Block, LabModel, initialise, shared_rotary
from posenc.lab.specs import Shape, build_encodings
from posenc.positions import centred, grid, spaced
from posenc.rotary.comrope import ComRoPEAP, ComRoPELD
from posenc.rotary.liere import LieRE


def convention_of(encoding: nn.Module) -> str:
    """Which coordinates an encoding reads."""
    if isinstance(encoding, LieRE):
        return "unit"
    return "centres" if isinstance(encoding, ComRoPEAP | ComRoPELD) else "tokens"


def convert(places: Tensor, convention: str, side: int) -> Tensor:
    """Coordinates ``(tokens, 2)`` in tokens of the trained grid, ``side`` each way, as a convention has them."""
    if convention == "unit":
        return spaced(places, side, trained=side)
    return centred(places, side) if convention == "centres" else places


class Classifier(LabModel):
    """A classifier of small pictures with the encodings of ``spec``.

    Args:
        spec: encodings as the lab names them.
        shape: widths and counts.
        side: tokens each way in training.
        patch: pixels of a token, each way.
        classes: how many.
        hidden: width of the feed-forward layers.
        seed: decides the initial weights; the shared parts depend on nothing else.
    """

    def __init__(self, spec: str, shape: Shape, *, side: int, patch: int, classes: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.side = side
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
        acting: list[Encoding] = encodings.attention[0]
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
            places = grid(self.side, self.side).to(tokens.device)
        x = self.embed(tokens)
        for encoding in self.embedding_encodings:
            x = encoding(x, convert(places, convention_of(encoding), self.side))
        positions = None if self.convention is None else convert(places, self.convention, self.side)
        tables = None
        if positions is not None and self.rotary:
            tables = [encoding.table(positions, like=x) for encoding in self.rotary]
        for block in self.blocks:
            x = block(x, positions, tables=tables)
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits
