"""What an extension compares, as numbers and rows: its options, its profiles, and the numbers of a fine-tuning."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from posenc.frequencies.by_name import Trained
from posenc.lab.config import Config, Profile, number
from posenc.lab.tasks.stretching import BASE, CLIPPED, CONTINUED, DISTANCES, SEARCHED, TUNED, grows
from posenc.lab.tasks.task import with_options
from posenc.lab.tasks.text import TextOptions
from posenc.search import Settings

CONTROL = f"{BASE}+{CONTINUED}"  # of rows that were trained further
_FOLLOWS = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", SEARCHED)
_TUNED = (
    BASE, "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "dynamic_yarn", "llama3", SEARCHED, "ntk+resonance",
    "ntk_by_parts+resonance", "yarn+resonance", "clex", CLIPPED,
)  # fmt: skip
QUICK = (  # with T = 64 ntk_by_parts and llama3 are the same
    BASE, "pi", "ntk", "yarn", "llama3", SEARCHED, "yarn+resonance", "pi@max", "yarn@max", "longrope@max",
    "self_extend", "rerope", "dual_chunk", "lm_infinite",
    *(f"{method}+tuned" for method in (BASE, "pi", "ntk", "yarn", "dynamic_yarn", SEARCHED, "clex")), CONTROL,
)  # fmt: skip
STANDARD = (
    BASE, *DISTANCES, *(f"{method}@max" for method in DISTANCES if grows(method)),
    *_FOLLOWS, "yarn_by_turns", CLIPPED, "ntk+resonance", "ntk_by_parts+resonance", "yarn+resonance",
    *(f"{method}@max" for method in _FOLLOWS), *(f"{method}+tuned" for method in _TUNED), CONTROL,
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
