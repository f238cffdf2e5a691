"""Extension: a text model with RoPE, read at many times its training length under each method of context extension.

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

LongRoPE's factors are searched. A candidate is judged by the bits of the second half of a few pieces of training text,
at the length that its factor is for; the search never sees the windows that rows are scored on. Its result depends on
the weights alone, so it is not stored: a fine-tuning that starts from the same weights finds it again.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
from posenc.lab.config import Config, Profile, number
from posenc.lab.data.batching import batches_within, counter_seed
from posenc.lab.metrics import WINDOW, Values
from posenc.lab.models.decoder import Decoder, LabModel
from posenc.lab.specs import Shape
from posenc.lab.tasks.task import Data, Planned, with_options
from posenc.lab.tasks.text import (
    Logits,
    Text,
    TextOptions,
    corpus_of,
    draw_pieces,
    evaluation_mode,
    score_truncated,
    score_windows,
    window_losses,
    with_sliding_window,
)
from posenc.layers import SelfAttention
from posenc.rotary.rope import RoPE
from posenc.search import Candidate, Settings, search

BASE, SEARCHED, LEARNED, CLIPPED, DROPPED = "rope", "longrope", "clex", "clipped", "drope"
TUNED, CONTINUED = "tuned", "continued"
SCALED = (BASE, *FACTORED, SEARCHED, *DYNAMIC, LEARNED, CLIPPED, DROPPED)
DISTANCES = tuple(name for name in list_encodings("score") if encoding_info(name).extends_context)
GROWN = ("group", "factor")  # options of those that slow positions down by as much as a text needs
METHODS = (*SCALED, *DISTANCES)
CONTROL = f"{BASE}+{CONTINUED}"  # of rows that were trained further
RECALIBRATED = f"{DROPPED}+{CONTINUED}"
# Of CLEX's parameters, in learning rates of the model. One step changes the angles of all distant tokens at once: with
# as much as the model's own, the loss of a short fine-tuning ends 0.1 bit higher.
CLEX_RATE = 0.1
_CLEX_STEP = 0.05  # of its solver: five times the default, with frequencies that differ by less than 1e-6
_SEED = 0  # of the search: its pieces and candidates are the same for all training seeds


def has_factor(method: str) -> bool:
    """Whether a method that moves distances has a factor."""
    return not encoding_info(method).takes.isdisjoint(GROWN)


# ---- Rows ----

_OF_A_FACTOR = ("", "@", "+tuned", "+resonance", "+resonance@", "+resonance+tuned")
FORMS: Mapping[str, Sequence[str]] = {  # what may follow a method's name; @ with a factor
    **dict.fromkeys((*FACTORED, SEARCHED), _OF_A_FACTOR),
    **dict.fromkeys(DYNAMIC, ("", "+tuned")),
    **{name: ("", "@") if has_factor(name) else ("",) for name in DISTANCES},
    BASE: ("", "+tuned", "+continued"),
    LEARNED: ("+tuned",),  # before that its frequencies are NTK-aware ones, of factor 2t − 1 at t trained lengths
    CLIPPED: ("", "+tuned"),
    DROPPED: ("", "+continued"),  # DroPE trains at the training length
}


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
    head, at, factor = row.partition("@")
    method, *rest = head.split("+")
    if method not in METHODS:
        near = difflib.get_close_matches(method, METHODS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{row}: --task extension knows no {method!r}{hint} ({', '.join(METHODS)})")
    if at and not factor.isdecimal():
        raise ValueError(f"{row}: a whole number, or max, is needed after the @, and nothing behind it")
    if not set(rest) <= {"resonance", TUNED, CONTINUED}:
        raise ValueError(f"{row}: after the method come +resonance, then @FACTOR, +tuned or +continued")
    training = rest[-1] if rest and rest[-1] in (TUNED, CONTINUED) else ""
    return MethodRow(method, "resonance" in rest, int(factor) if at else None, training)


def normalize_row(row: str, longest: int) -> str:
    """A row as it stands in tables: without spaces, in lower case, with the ``longest`` test length for ``max``."""
    normalized = "".join(row.split()).lower()
    return normalized.removesuffix("@max") + f"@{longest}" if normalized.endswith("@max") else normalized


def check_row(row: str, longest: int) -> None:
    """Raise a ValueError unless a row can be measured, with tests of up to ``longest`` training lengths."""
    method, factor = parse_row(row).method, parse_row(row).factor
    head, at, _ = row.partition("@")
    if head.removeprefix(method) + at not in FORMS[method]:
        known = ", ".join(method + form.replace("@", "@FACTOR") for form in FORMS[method])
        raise ValueError(f"{row}: {method} is measured as {known}")
    if factor is not None and not 2 <= factor <= longest:
        raise ValueError(f"{row}: a factor from 2 to the longest of --lengths, {longest}, is needed")


# ---- Scalings and distances of rows, and the decoder that they act on ----


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


def longrope(candidate: Candidate, factor: int, trained: Trained) -> LongRoPE:
    """LongRoPE with searched factors past the trained length, plain frequencies up to it, and one gain for both."""
    return LongRoPE(
        (1.0,) * len(candidate.factors), candidate.factors, original_length=trained.length, factor=float(factor),
        start_tokens=candidate.start_tokens,
    )  # fmt: skip


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


# ---- The task ----

_FOLLOWS = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", SEARCHED)
_TUNED = (
    BASE, "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "dynamic_yarn", "llama3", SEARCHED, "ntk+resonance",
    "ntk_by_parts+resonance", "yarn+resonance", "clex", CLIPPED,
)  # fmt: skip
QUICK = (  # with T = 64 ntk_by_parts and llama3 are the same
    BASE, "pi", "ntk", "yarn", "llama3", SEARCHED, "yarn+resonance", "pi@max", "yarn@max", "longrope@max",
    "self_extend", "rerope", "dual_chunk", "lm_infinite",
    *(f"{method}+tuned" for method in (BASE, "pi", "ntk", "yarn", "dynamic_yarn", SEARCHED, "clex")),
    RECALIBRATED, CONTROL,
)  # fmt: skip
STANDARD = (
    BASE, *DISTANCES, *(f"{method}@max" for method in DISTANCES if has_factor(method)),
    *_FOLLOWS, "yarn_by_turns", CLIPPED, "ntk+resonance", "ntk_by_parts+resonance", "yarn+resonance",
    *(f"{method}@max" for method in _FOLLOWS), *(f"{method}+tuned" for method in _TUNED),
    DROPPED, RECALIBRATED, CONTROL,
)  # fmt: skip


@dataclass(frozen=True)
class ExtensionOptions(TextOptions):
    """The numbers of the fine-tunings and of LongRoPE's search."""

    fine_tune_length: int = number(
        8, "Texts of a fine-tuning in training lengths; also the factor that it is done with.", least=2
    )
    fine_tune_steps: int = number(100, "Steps of a fine-tuning.", least=1, most=10**9)
    fine_tune_lr: float = number(1e-3, "Learning rate of a fine-tuning.", above=0)
    search_population: int = number(16, "Candidates that LongRoPE's search begins with.", least=4)
    search_generations: int = number(4, "Generations after them, each of half as many.", least=0)
    search_pieces: int = number(4, "Pieces of training text that a candidate is judged on.", least=1)
    further: int = number(
        0,
        "Texts of a training that starts from rope's weights, in training lengths; the rows decide it.",
        least=0,
        typed=False,
    )


def further(config: Config, training: str) -> Config:
    """The numbers of a training; those after the first have equal budgets, as many steps of as many bytes."""
    if not training:
        return config
    o = options_of(config)
    times = o.fine_tune_length if training == TUNED else 1
    size = config.training.batch_size // times
    return config.replaced({"steps": o.fine_tune_steps, "lr": o.fine_tune_lr, "batch_size": size, "further": times})


def options_of(config: Config) -> ExtensionOptions:
    """The task's own numbers."""
    assert isinstance(config.options, ExtensionOptions)
    return config.options


def trained_of(config: Config) -> Trained:
    """What the base was trained on."""
    return Trained(config.training.train_length, config.model.dim // config.model.heads // 2)


class Extension(Text):
    """Bits per byte at growing lengths, of one trained model and of its short fine-tunings."""

    name = "extension"
    title = "Context extension of a text model with RoPE, in bits per byte"
    question = (
        "How far beyond its training length does a model with RoPE work if its frequencies are scaled, at once or "
        "after a short fine-tuning on longer sequences, or if its rotation is dropped? At every length the same bytes "
        "are scored."
    )
    shows = (
        "A method helps where it is better than rope's sliding window of the training length, which is free; a "
        "fine-tuned one where it is better than rope+continued under that window, which was trained for as long."
    )
    options = ExtensionOptions

    def profile(self, name: str) -> Profile:
        """Minutes on two cores (quick), hours with more methods and seeds (standard), for a GPU (full).

        A model of 100 million parameters costs a GPU minutes for each row, so that full has the methods of quick.
        """
        texts = dataclasses.replace(Text.profile(self, name).config, task=self.name)
        if name == "quick":
            return Profile(name, QUICK, 1, with_options(texts.replaced({"windows": 64}), ExtensionOptions()))
        if name == "standard":
            options = ExtensionOptions(fine_tune_steps=150)
            return Profile(name, STANDARD, 3, with_options(texts.replaced({"windows": 250}), options))
        options = ExtensionOptions(max_epochs=4, fine_tune_steps=200, fine_tune_lr=3e-4)
        return Profile(name, QUICK, 1, with_options(texts, options))

    def check(self, config: Config) -> None:
        """Fine-tunings have steps of as many bytes, at a length that is tested."""
        super().check(config)
        o, t, m, lengths = options_of(config), config.training, config.model, config.evaluation.lengths
        if o.fine_tune_length not in lengths:
            longer = ", ".join(map(str, lengths[1:])) or "2 and more"
            raise ValueError(f"--fine-tune-length {o.fine_tune_length}: one of --lengths is needed ({longer})")
        ranks = config.machine.processes
        if t.batch_size % (o.fine_tune_length * ranks):
            by_ranks = f" and the {ranks} processes" if ranks > 1 else ""
            raise ValueError(
                f"--batch-size {t.batch_size}: a multiple of --fine-tune-length {o.fine_tune_length}{by_ranks} is "
                "needed, since a step of the fine-tuning has as many bytes in fewer, longer sequences"
            )
        if m.dim // m.heads < 4 or m.dim // m.heads % 2:
            raise ValueError(f"--dim {m.dim}: heads of an even width of at least 4 are needed, for two rotated pairs")
        if o.further:
            raise ValueError(f"--further {o.further}: ask for rows like yarn+tuned or rope+continued instead")

    def plan(self, specs: Sequence[str], config: Config) -> list[Planned]:
        """The base with all rows that need no training of their own, then its fine-tunings, with their control."""
        longest = config.evaluation.lengths[-1]
        rows = list(dict.fromkeys([BASE, *(normalize_row(row, longest) for row in specs)]))
        for row in rows:
            check_row(row, longest)
        if any(parse_row(row).training for row in rows):
            rows = list(dict.fromkeys([*rows, CONTROL]))
        trainings: dict[str, list[str]] = {}
        for row in rows:
            trainings.setdefault(parse_row(row).trained, []).append(row)
        return [
            Planned(spec, tuple(names), further(config, parse_row(spec).training), BASE if spec != BASE else None)
            for spec, names in trainings.items()
        ]

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """A decoder, its frequencies scaled for the fine-tuning if the spec says so; LongRoPE's are found later."""
        reading = parse_row(spec)
        factor, trained = options_of(config).fine_tune_length, trained_of(config)
        scaled = None if reading.method == BASE else scaling(reading, factor, trained)
        return ExtendedDecoder(self.shape(config), hidden=config.model.hidden, seed=seed, scaling=scaled)

    def prepare(self, model: LabModel, planned: Planned, data: Data, config: Config, device: torch.device) -> None:
        """LongRoPE's factors are searched on the base's weights; again, if a training is continued."""
        if parse_row(planned.spec).method == SEARCHED:
            extended, factor = extended_of(model).to(device), options_of(config).fine_tune_length
            candidate = searched(extended, data, factor, config, device)
            found = scaling(parse_row(planned.spec), factor, trained_of(config), candidate)
            extended.rope = RoPE(extended.head_dim, scaling=found)

    def amount(self, config: Config) -> int:
        """Bytes."""
        return config.training.batch_size * _text_length(config)

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """Pieces of text; all fine-tunings of one length have the same ones, and the base has others."""
        seed = counter_seed("fine-tuning", seed, 0) if options_of(config).further else seed
        size, length = config.training.batch_size, _text_length(config)
        return (draw_pieces(corpus_of(data), seed, step, batch_size=size, length=length),)

    def evaluate(
        self, model: LabModel, data: Data, rows: Sequence[str], config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Bits in the windows with the frequencies that each row says; of rope also under a sliding window."""
        extended, corpus, lengths = extended_of(model), corpus_of(data), config.tested
        with evaluation_mode(model):
            for row in rows:
                reading = parse_row(row)
                unscaled = bool(reading.training) or reading.method == BASE
                logits: Logits = extended if unscaled else _logits_of(reading, extended, data, config, device)
                yield from score_windows(logits, corpus, lengths, config, device, row)
                if unscaled:
                    yield from score_truncated(logits, corpus, config, device, row)
                if row in (BASE, CONTROL):
                    yield from score_windows(
                        with_sliding_window(extended, config), corpus, lengths[1:], config, device, row, view=WINDOW
                    )


def extended_of(model: LabModel) -> ExtendedDecoder:
    """The model of a task of this kind."""
    assert isinstance(model, ExtendedDecoder)
    return model


def _text_length(config: Config) -> int:
    """Bytes of a training text."""
    return config.training.train_length * max(1, options_of(config).further)


def _logits_of(reading: MethodRow, model: ExtendedDecoder, data: Data, config: Config, device: torch.device) -> Logits:
    """The model with the frequencies or the distances that a row has at the length of the text."""
    trained, by_length = trained_of(config), dict[int, Logits]()
    for k in config.evaluation.lengths:
        factor = reading.factor or k
        if reading.method in DISTANCES:
            encoding = moved(reading, factor, trained, RoPE(model.head_dim)).to(device)
            by_length[k * trained.length] = partial(model, moved=encoding)
            continue
        searching = reading.method == SEARCHED and factor > 1
        candidate = searched(model, data, factor, config, device) if searching else None
        rope = RoPE(model.head_dim, scaling=scaling(reading, factor, trained, candidate))
        by_length[k * trained.length] = partial(model, rope=rope)
    return lambda tokens: by_length[tokens.shape[1]](tokens)


def searched(model: ExtendedDecoder, data: Data, factor: int, config: Config, device: torch.device) -> Candidate:
    """The best factors that LongRoPE's search finds for a trained model, on the text that it was trained on."""
    if factor in model.found:
        return model.found[factor]
    o, text, trained = options_of(config), corpus_of(data).train, trained_of(config)
    length, heads, half = factor * trained.length, config.model.heads, o.search_population // 2
    quarter = o.search_population // 4
    settings = Settings(
        population=o.search_population, mutations=quarter, crossovers=quarter, parents=half,
        generations=o.search_generations,
    )  # fmt: skip
    ends = search_piece_ends(len(text), length, o.search_pieces)

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
            start_tokens=trained.start_tokens, seed=_SEED, settings=settings,
        )  # fmt: skip
    model.found[factor] = Candidate(result.factors, result.start_tokens)
    return model.found[factor]


def search_piece_ends(size: int, length: int, pieces: int) -> list[int]:
    """Where pieces end in a text of ``size`` bytes; they go on over borders of documents, as in training."""
    generator = torch.Generator().manual_seed(counter_seed("search", _SEED, length))
    return sorted(torch.randint(length + 1, size + 1, (pieces,), generator=generator).tolist())
