"""Extension: a text model with RoPE, read at many times its training length under each method of context extension."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.frequencies.by_name import Trained
from posenc.lab.config import Config, Profile, number
from posenc.lab.data.batching import counter_seed
from posenc.lab.metrics import WINDOW, Values
from posenc.lab.models.decoder import LabModel
from posenc.lab.tasks.context_extension import (
    BASE,
    CLIPPED,
    CONTINUED,
    DISTANCES,
    DROPPED,
    SEARCHED,
    TUNED,
    ExtendedDecoder,
    MethodRow,
    check_row,
    has_factor,
    moved,
    normalize_row,
    parse_row,
    scaling,
    search_factors,
)
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
    with_sliding_window,
)
from posenc.rotary.rope import RoPE
from posenc.search import Candidate, Settings

CONTROL = f"{BASE}+{CONTINUED}"  # of rows that were trained further
RECALIBRATED = f"{DROPPED}+{CONTINUED}"
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

    @property
    def sizes(self) -> Settings:
        """Of the search."""
        return sizes_of(self.search_population, self.search_generations)


def sizes_of(population: int, generations: int) -> Settings:
    """Of a search that begins with so many candidates, and has generations of half as many after them."""
    quarter, half = population // 4, population // 2
    return Settings(
        population=population, mutations=quarter, crossovers=quarter, parents=half, generations=generations
    )  # fmt: skip


def profile(text: Profile) -> Profile:
    """The profile of the same name as one of texts, with its numbers."""
    texts = dataclasses.replace(text.config, task="extension")
    if text.name == "quick":
        return Profile(text.name, QUICK, 1, with_options(texts.replaced({"windows": 64}), ExtensionOptions()))
    if text.name == "standard":
        options = ExtensionOptions(fine_tune_steps=150)
        return Profile(text.name, STANDARD, 3, with_options(texts.replaced({"windows": 250}), options))
    # A model of 100 million parameters costs a GPU minutes for each row: the methods of quick, one seed.
    options = ExtensionOptions(max_epochs=4, fine_tune_steps=200, fine_tune_lr=3e-4)
    return Profile(text.name, QUICK, 1, with_options(texts, options))


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
    if not isinstance(config.options, ExtensionOptions):
        raise TypeError(f"numbers of an extension are needed, not {type(config.options).__name__}")
    return config.options


def trained_of(config: Config) -> Trained:
    """What the base was trained on."""
    return Trained(config.training.train_length, config.model.dim // config.model.heads // 2)


def text_length(config: Config) -> int:
    """Bytes of a training text."""
    return config.training.train_length * max(1, options_of(config).further)


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
        """Minutes on two cores (quick), hours with more methods and seeds (standard), for a GPU (full)."""
        return profile(Text.profile(self, name))

    def check(self, config: Config) -> None:
        """Fine-tunings have steps of as many bytes, at a length that is tested."""
        super().check(config)
        o, t, m, lengths = options_of(config), config.training, config.model, times_of(config)
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
        longest = times_of(config)[-1]
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
        """A decoder, its frequencies scaled for the fine-tuning if the spec says so."""
        scaling = _scaling(spec, config)
        return ExtendedDecoder(self.shape(config), hidden=config.model.hidden, seed=seed, scaling=scaling)

    def prepare(self, model: LabModel, planned: Planned, data: Data, config: Config, device: torch.device) -> None:
        """LongRoPE's factors are searched on the base's weights; again, if a training is continued."""
        if parse_row(planned.spec).method == SEARCHED:
            extended, factor = extended_of(model).to(device), options_of(config).fine_tune_length
            candidate = _searched(extended, data, factor, config, device)
            found = scaling(parse_row(planned.spec), factor, trained_of(config), candidate)
            extended.rope = RoPE(extended.head_dim, scaling=found)

    def amount(self, config: Config) -> int:
        """Bytes."""
        return config.training.batch_size * text_length(config)

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """Pieces of text; all fine-tunings of one length have the same ones, and the base has others."""
        seed = counter_seed("fine-tuning", seed, 0) if options_of(config).further else seed
        size, length = config.training.batch_size, text_length(config)
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
                logits: Logits = extended if unscaled else _scaled(extended, reading, data, config, device)
                yield from score_windows(logits, corpus, lengths, config, device, row)
                if unscaled:
                    yield from score_truncated(logits, corpus, config, device, row)
                if row in (BASE, CONTROL):
                    yield from score_windows(
                        with_sliding_window(extended, config), corpus, lengths[1:], config, device, row, view=WINDOW
                    )


def extended_of(model: LabModel) -> ExtendedDecoder:
    """The model of a task of this kind."""
    if not isinstance(model, ExtendedDecoder):
        raise TypeError(f"a model of this task is needed, not {type(model).__name__}")
    return model


def times_of(config: Config) -> tuple[int, ...]:
    """Test lengths in trained ones."""
    return tuple(map(int, config.evaluation.lengths))


def _scaling(spec: str, config: Config) -> torch.nn.Module | None:
    """Of a training; LongRoPE's factors are found later."""
    reading = parse_row(spec)
    if reading.method == BASE:
        return None
    return scaling(reading, options_of(config).fine_tune_length, trained_of(config))


def _searched(model: ExtendedDecoder, data: Data, factor: int, config: Config, device: torch.device) -> Candidate:
    o, text = options_of(config), corpus_of(data).train
    return search_factors(model, text, factor, trained_of(config), sizes=o.sizes, pieces=o.search_pieces, device=device)


def _moved(model: ExtendedDecoder, reading: MethodRow, config: Config, device: torch.device) -> Logits:
    """The model with the distances that a row has at the length of the text."""
    trained = trained_of(config)
    moved_by_length = {
        k * trained.length: moved(reading, reading.factor or k, trained, RoPE(model.head_dim)).to(device)
        for k in times_of(config)
    }

    def logits(tokens: Tensor) -> Tensor:
        out: Tensor = model(tokens, moved=moved_by_length[tokens.shape[1]])
        return out

    return logits


def _scaled(model: ExtendedDecoder, reading: MethodRow, data: Data, config: Config, device: torch.device) -> Logits:
    """The model with the frequencies that a row has at the length of the text."""
    if reading.method in DISTANCES:
        return _moved(model, reading, config, device)
    ropes, trained = {}, trained_of(config)
    for k in times_of(config):
        factor = reading.factor or k
        search = reading.method == SEARCHED and factor > 1
        candidate = _searched(model, data, factor, config, device) if search else None
        ropes[k * trained.length] = RoPE(model.head_dim, scaling=scaling(reading, factor, trained, candidate))

    def logits(tokens: Tensor) -> Tensor:
        out: Tensor = model(tokens, rope=ropes[tokens.shape[1]])
        return out

    return logits
