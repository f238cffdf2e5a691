"""Context extension of the text model: methods as rows of a table, the decoder they act on, and LongRoPE's search.

rope                         the trained model as it is
METHOD  METHOD+resonance     its frequencies scaled, with the ratio of text length to training length as the factor
METHOD@32  METHOD@max        a fixed factor, as on a server with one configuration
DISTANCE  DISTANCE@32        changed distances (self_extend, dual_chunk, …), untrained; some have a factor
clipped                      the slowest pairs slowed down to rest, at every length alike: no factor
drope                        no rotation in any layer, untrained; drope+continued is the method (arXiv 2512.12167)
METHOD+tuned  METHOD+resonance+tuned   after a short fine-tuning on longer texts, with the factor of that fine-tuning
rope+tuned                   the same fine-tuning without any scaling
rope+continued               as many bytes more at the training length: the control for more training alone
drope+continued              the same without rotation: DroPE's recalibration, which sees no longer text

A candidate of the search is judged by the bits of the second half of a few pieces of training text, at the length that
its factor is for. The search never sees the windows that rows are scored on. Its result depends on the weights alone,
so it is not stored: a fine-tuning that starts from the same weights finds it again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.catalogue import create_encoding, encoding_info, list_encodings
from posenc.encoding import RotaryEncoding, ScoreEncoding
from posenc.frequencies.by_name import DYNAMIC, FACTORED, Trained
from posenc.frequencies.clex import CLEX
from posenc.frequencies.clipped import Clipped, pairs_to_clip
from posenc.frequencies.modules import LongRoPE
from posenc.frequencies.resonance import Resonance
from posenc.lab.data.batching import batches_within, counter_seed
from posenc.lab.models.decoder import Decoder
from posenc.lab.specs import Shape
from posenc.lab.tasks.text import evaluation_mode, window_losses
from posenc.layers import SelfAttention
from posenc.rotary.rope import RoPE
from posenc.search import Candidate, Settings, search

BASE = "rope"
_CLEX_STEP = 0.05  # of its solver: five times the default, with frequencies that differ by less than 1e-6


SEARCHED, LEARNED, CLIPPED, DROPPED = "longrope", "clex", "clipped", "drope"
TUNED, CONTINUED = "tuned", "continued"
SCALED = (BASE, *FACTORED, SEARCHED, *DYNAMIC, LEARNED, CLIPPED, DROPPED)
DISTANCES = tuple(name for name in list_encodings("score") if encoding_info(name).extends_context)
GROWN = ("group", "factor")  # options of those that slow positions down by as much as a text needs
METHODS = (*SCALED, *DISTANCES)


class MethodRow(NamedTuple):
    """What a row says."""

    method: str
    resonance: bool
    factor: int | None  # None where it follows the length, or is that of the fine-tuning
    training: str  # "", "tuned" or "continued"

    @property
    def trained(self) -> str:
        """The training on whose weights the row is measured."""
        if not self.training:
            return BASE
        return "+".join([self.method, *(["resonance"] if self.resonance else []), self.training])


def parse_row(row: str) -> MethodRow:
    """Read a row; a ValueError that says what is wrong with it."""
    head, at, number = row.partition("@")
    method, *rest = head.split("+")
    if method not in METHODS:
        near = difflib.get_close_matches(method, METHODS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{row}: --task extension knows no {method!r}{hint} ({', '.join(METHODS)})")
    if at and not number.isdecimal():
        raise ValueError(f"{row}: a whole number, or max, is needed after the @, and nothing behind it")
    resonance = rest[:1] == ["resonance"]
    left = rest[1:] if resonance else rest
    if len(left) > 1 or not set(left) <= {TUNED, CONTINUED}:
        raise ValueError(
            f"{row}: after the method come +resonance, then @FACTOR or +tuned; rope and drope have +continued, and "
            "rope's sliding window is measured without a row of its own"
        )
    return MethodRow(method, resonance, int(number) if at else None, left[0] if left else "")


def normalize_row(row: str, longest: int) -> str:
    """A row as it stands in tables: without spaces, in lower case, with the ``longest`` test length for ``max``."""
    normalized = "".join(row.split()).lower()
    return normalized.removesuffix("@max") + f"@{longest}" if normalized.endswith("@max") else normalized


def check_row(row: str, longest: int) -> None:
    """Raise a ValueError unless a row can be measured, with tests of up to ``longest`` training lengths."""
    r = parse_row(row)
    if r.method == BASE and (r.resonance or r.factor is not None):
        raise ValueError(f"{row}: rope has no factor; it takes +tuned and +continued")
    if r.method not in (BASE, DROPPED) and r.training == CONTINUED:
        raise ValueError(f"{row}: +continued trains at the training length, which rope (the control) and drope do")
    if r.method == DROPPED and r.training == TUNED:
        raise ValueError(f"{row}: DroPE trains at the training length, not on longer sequences: use drope+continued")
    if r.method == LEARNED and (r.training != TUNED or r.resonance):
        raise ValueError(
            f"{row}: clex learns its frequencies; before that they are NTK-aware ones, of factor 2t − 1 at t times the "
            "trained length. clex+tuned is what can be compared"
        )
    if r.method in DISTANCES and (r.training or r.resonance):
        raise ValueError(f"{row}: {r.method} moves the distances of a trained model as it is: no +tuned, no +resonance")
    if r.method in DISTANCES and r.factor is not None and not has_factor(r.method):
        raise ValueError(f"{row}: {r.method} has no factor: it does the same in texts of any length")
    if r.resonance and r.method not in (*FACTORED, SEARCHED):
        raise ValueError(f"{row}: +resonance rounds the frequencies of a factor ({', '.join([*FACTORED, SEARCHED])})")
    if r.factor is None:
        return
    if r.method in (CLIPPED, DROPPED):
        raise ValueError(f"{row}: {r.method} has no factor: it changes the same pairs in the same way at every length")
    if r.training or r.method in DYNAMIC:
        raise ValueError(f"{row}: @ fixes the factor of an untrained row; this one has its own")
    if not 2 <= r.factor <= longest:
        raise ValueError(f"{row}: a factor from 2 to the longest of --lengths, {longest}, is needed")


def scaling(reading: MethodRow, factor: int, trained: Trained, candidate: Candidate | None = None) -> nn.Module:
    """The scaling of a row at a factor.

    Args:
        reading: of any row but those of ``rope``.
        factor: how many times longer than trained; 1 is plain RoPE, but for Resonance's rounding,
            clipped pairs and DroPE.
        trained: what the base was trained on.
        candidate: what a search found for this factor; LongRoPE without it has plain frequencies.
    """
    if reading.method == LEARNED:
        return CLEX(trained.pairs, original_length=trained.length, max_factor=factor, step=_CLEX_STEP)
    if reading.method == CLIPPED:
        return Clipped(pairs_to_clip(trained.pairs))
    if reading.method == DROPPED:
        return Clipped(trained.pairs, kind="hard")  # every frequency is 0
    if reading.method == SEARCHED:
        built: nn.Module = longrope(candidate or Candidate((1.0,) * trained.pairs, 0), factor, trained)
    else:
        built = {**FACTORED, **DYNAMIC}[reading.method](float(factor), trained)
    return nn.Sequential(built, Resonance()) if reading.resonance else built


def has_factor(method: str) -> bool:
    """Whether a method that moves distances has a factor."""
    return not encoding_info(method).takes.isdisjoint(GROWN)


def moved(reading: MethodRow, factor: int, trained: Trained, rotation: RotaryEncoding) -> ScoreEncoding:
    """The encoding that replaces ``rotation`` in a row whose method changes distances.

    Windows and chunks are the authors' for this training length, as in the catalogue.

    Args:
        reading: of a row of `DISTANCES`.
        factor: how many times longer than trained; at 1 what has a factor is plain RoPE.
        trained: what the base was trained on.
        rotation: of the base.
    """
    entry, length = encoding_info(reading.method), trained.length
    growth = {word: 1 for word in GROWN if word in entry.takes} if factor == 1 else {}
    encoding = create_encoding(entry.name, rotation=rotation, train_length=length, max_length=factor * length, **growth)
    assert isinstance(encoding, ScoreEncoding)
    return encoding


def longrope(candidate: Candidate, factor: int, trained: Trained) -> LongRoPE:
    """LongRoPE with searched factors past the trained length, plain frequencies up to it, and one gain for both."""
    return LongRoPE(
        (1.0,) * len(candidate.factors), candidate.factors, original_length=trained.length, factor=float(factor),
        start_tokens=candidate.start_tokens,
    )  # fmt: skip


# Of CLEX's parameters, in learning rates of the model. One step changes the angles of all distant tokens at once: with
# as much as the model's own, the loss of a short fine-tuning ends 0.1 bit higher.
CLEX_RATE = 0.1
_SEED = 0  # of the search: its pieces and candidates are the same for all training seeds


class ExtendedDecoder(Decoder):
    """A decoder with RoPE under a scaling. Its parameters are plain RoPE's and the scaling's.

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
            rope: rotates queries and keys in this call instead of the model's own.
            moved: replaces all rotations in this call.

        Returns:
            ``(batch, length, vocabulary)``.
        """
        x = self.embed(tokens)
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        tables = [(self.rope if rope is None else rope).table(places, like=x)]
        with replaced_encodings(self.blocks, moved):
            for block in self.blocks:
                x = block(x, window=window, tables=tables if moved is None else None)
        logits: Tensor = self.head(self.norm(x))
        return logits


@contextmanager
def replaced_encodings(blocks: nn.ModuleList, moved: ScoreEncoding | None) -> Iterator[None]:
    """Attention with one other encoding in the place of its own; None: with its own."""
    if moved is None:
        yield
        return
    layers = [part for part in blocks.modules() if isinstance(part, SelfAttention)]
    replaced = [layer.encodings for layer in layers]
    try:
        for layer in layers:
            layer.encodings = nn.ModuleList([moved])
        yield
    finally:
        for layer, encodings in zip(layers, replaced, strict=True):
            layer.encodings = encodings


def search_factors(
    model: ExtendedDecoder,
    text: Tensor,
    factor: int,
    trained: Trained,
    *,
    sizes: Settings,
    pieces: int,
    device: torch.device,
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
    ends = search_piece_ends(len(text), length, pieces)

    def bits(candidate: Candidate) -> float:
        rope = RoPE(model.head_dim, scaling=longrope(candidate, factor, trained))
        parts = [
            window_losses(lambda tokens: model(tokens, rope=rope), text, batch, length, device)
            for batch in batches_within(ends, length, heads)
        ]
        return float(torch.cat(parts)[:, length // 2 :].mean())

    with evaluation_mode(model):
        result = search(
            bits, pairs=trained.pairs, base=model.rope.base, original_length=trained.length, factor=float(factor),
            start_tokens=trained.start_tokens, seed=_SEED, settings=sizes,
        )  # fmt: skip
    model.found[factor] = Candidate(result.factors, result.start_tokens)
    return model.found[factor]


def search_piece_ends(size: int, length: int, pieces: int) -> list[int]:
    """Where pieces end in a text of ``size`` bytes; they go on over borders of documents, as in training."""
    generator = torch.Generator().manual_seed(counter_seed("search", _SEED, length))
    return sorted(torch.randint(length + 1, size + 1, (pieces,), generator=generator).tolist())
