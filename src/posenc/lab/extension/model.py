"""The text model with RoPE whose frequencies can be scaled, for one text or for good."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.frequencies.clex import CLEX
from posenc.lab.model import Decoder
from posenc.lab.specs import Shape
from posenc.rotary.rope import RoPE
from posenc.search import Candidate

# Of CLEX's parameters, in learning rates of the model. A step of them turns the angles of all far tokens at once: with
# as much as the model's own, the loss of a short fine-tuning ends 0.1 bit higher.
_RATE = 0.1


class Extended(Decoder):
    """A decoder with RoPE under a scaling. Its parameters are those of plain RoPE, and the scaling's own.

    Args:
        shape: widths and counts, and the training length in bytes.
        hidden: width of the feed-forward layers.
        seed: decides the initial weights.
        scaling: of the frequencies; CLEX learns.

    Attributes:
        found: what searches on the trained model have found, by factor: no search is made twice.
    """

    def __init__(self, shape: Shape, *, hidden: int, seed: int, scaling: nn.Module | None = None) -> None:
        super().__init__("rope", shape, hidden=hidden, seed=seed)
        self.head_dim = shape.dim // shape.heads
        self.rope = RoPE(self.head_dim, scaling=scaling)
        if isinstance(scaling, CLEX):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                scaling.reset_parameters()
        self.lr_multipliers |= dict.fromkeys(self.rope.parameters(), _RATE)
        self.found: dict[int, Candidate] = {}

    def forward(
        self, tokens: Tensor, window: int | None = None, ids: Tensor | None = None, rope: RoPE | None = None
    ) -> Tensor:
        """Logits of what comes next.

        Args:
            tokens: ``(batch, length)`` integers.
            window: how many tokens a token sees, itself included; None for all before it.
            ids: none; only Abacus has them.
            rope: turns queries and keys of this call, in the place of the model's own.

        Returns:
            ``(batch, length, vocabulary)``.
        """
        x = self.embed(tokens)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        tables = [(self.rope if rope is None else rope).table(places, like=x)]
        for block in self.blocks:
            x = block(x, window=window, tables=tables)
        logits: Tensor = self.head(self.norm(x))
        return logits
