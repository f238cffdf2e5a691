"""The text model with RoPE whose frequencies can be scaled, and LongRoPE's search for the scaling of a trained one.

A candidate of the search is judged by the bits that the second half of a few pieces of training text costs, of the
length that the factor is for. The windows that rows are scored on are never looked at. What is found is a function of
the weights alone, so it is not kept: a fine-tuning that starts from them finds it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from posenc.encoding import ScoreEncoding
from posenc.frequencies.by_name import Trained
from posenc.frequencies.clex import CLEX
from posenc.lab.model import Decoder
from posenc.lab.specs import Shape
from posenc.lab.tasks.batching import batches_within, counter_seed
from posenc.lab.tasks.bits import judged, window_losses
from posenc.lab.tasks.stretching import BASE, longrope
from posenc.layers import SelfAttention
from posenc.rotary.rope import RoPE
from posenc.search import Candidate, Settings, search

# Of CLEX's parameters, in learning rates of the model. A step of them turns the angles of all far tokens at once: with
# as much as the model's own, the loss of a short fine-tuning ends 0.1 bit higher.
CLEX_RATE = 0.1
_SEED = 0  # of the search: its pieces and candidates are the same for all training seeds


class Extended(Decoder):
    """A decoder with RoPE under a scaling. Its parameters are those of plain RoPE, and the scaling's own.

    Args:
        shape: widths and counts, and the training length in bytes.
        hidden: width of the feed-forward layers.
        seed: decides the initial weights.
        scaling: of the frequencies; CLEX learns.

    Attributes:
        found: what searches on these weights have found, by factor: none is made twice.
    """

    def __init__(self, shape: Shape, *, hidden: int, seed: int, scaling: nn.Module | None = None) -> None:
        super().__init__(BASE, shape, hidden=hidden, seed=seed)
        self.head_dim = shape.dim // shape.heads
        self.rope = RoPE(self.head_dim, scaling=scaling)
        if isinstance(scaling, CLEX):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                scaling.reset_parameters()
        self.lr_multipliers |= dict.fromkeys(self.rope.parameters(), CLEX_RATE)
        self.found: dict[int, Candidate] = {}

    def forward(
        self,
        tokens: Tensor,
        window: int | None = None,
        ids: Tensor | None = None,
        *,
        start: int = 0,
        rope: RoPE | None = None,
        moved: ScoreEncoding | None = None,
    ) -> Tensor:
        """Logits of what comes next.

        Args:
            tokens: ``(batch, length)`` integers.
            window: how many tokens a token sees, itself included; None for all before it.
            ids: none; only Abacus has them.
            start: position of the first token.
            rope: turns queries and keys of this call, in the place of the model's own.
            moved: stands in the place of all rotations in this call.

        Returns:
            ``(batch, length, vocabulary)``.
        """
        x = self.embed(tokens)
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        tables = [(self.rope if rope is None else rope).table(places, like=x)]
        with instead(self.blocks, moved):
            for block in self.blocks:
                x = block(x, window=window, tables=tables if moved is None else None)
        logits: Tensor = self.head(self.norm(x))
        return logits


@contextmanager
def instead(blocks: nn.ModuleList, moved: ScoreEncoding | None) -> Iterator[None]:
    """Attention with one other encoding in the place of its own; None: with its own."""
    if moved is None:
        yield
        return
    layers = [part for part in blocks.modules() if isinstance(part, SelfAttention)]
    own = [layer.encodings for layer in layers]
    try:
        for layer in layers:
            layer.encodings = nn.ModuleList([moved])
        yield
    finally:
        for layer, encodings in zip(layers, own, strict=True):
            layer.encodings = encodings


def searched(
    model: Extended, text: Tensor, factor: int, trained: Trained, *, sizes: Settings, pieces: int, device: torch.device
) -> Candidate:
    """The best factors that the search finds for a trained model.

    Args:
        model: on ``device``.
        text: that it was trained on, bytes.
        factor: how many times longer than trained.
        trained: on what.
        sizes: of the search.
        pieces: of text that a candidate is judged on.
        device: of the model.
    """
    if factor in model.found:
        return model.found[factor]
    length, heads = factor * trained.length, model.head.in_features // model.head_dim
    ends = piece_ends(len(text), length, pieces)

    def bits(candidate: Candidate) -> float:
        rope = RoPE(model.head_dim, scaling=longrope(candidate, factor, trained))
        parts = [
            window_losses(lambda tokens: model(tokens, rope=rope), text, batch, length, device)
            for batch in batches_within(ends, length, heads)
        ]
        return float(torch.cat(parts)[:, length // 2 :].mean())

    with judged(model):
        result = search(
            bits, pairs=trained.pairs, base=model.rope.base, original_length=trained.length, factor=float(factor),
            start_tokens=trained.start_tokens, seed=_SEED, settings=sizes,
        )  # fmt: skip
    model.found[factor] = Candidate(result.factors, result.start_tokens)
    return model.found[factor]


def piece_ends(size: int, length: int, pieces: int) -> list[int]:
    """Where pieces end in a text of ``size`` bytes; they go on over borders of documents, as in training."""
    generator = torch.Generator().manual_seed(counter_seed("search", _SEED, length))
    return sorted(torch.randint(length + 1, size + 1, (pieces,), generator=generator).tolist())
