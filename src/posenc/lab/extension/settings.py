"""What a comparison of context extensions does, as numbers, and the checks every set of numbers must pass."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from posenc.lab.tasks.numbers import check_training, unknown_profile
from posenc.lab.tasks.task import Profile
from posenc.lab.text import profiles
from posenc.lab.text.profiles import Settings
from posenc.search import Settings as Sizes


@dataclass(frozen=True)
class ExtensionSettings(Settings):
    """The numbers that decide a result: as of texts, and those of the fine-tuning and of LongRoPE's search."""

    task: ClassVar[str] = "extension"

    lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 32)  # test lengths, in training lengths
    windows: int = 32
    fine_tune_length: int = 8  # of its texts, in training lengths; also the factor that it is done with
    fine_tune_steps: int = 100
    fine_tune_lr: float = 1e-3
    search_population: int = 16
    search_generations: int = 4  # after the population, each of half as many candidates
    search_pieces: int = 4  # of training text that a candidate is judged on

    @property
    def text_length(self) -> int:
        """Bytes of a training text."""
        return self.train_length

    @property
    def start_tokens(self) -> tuple[int, ...]:
        """LongRoPE's choices of tokens at the beginning that stay as they are."""
        return tuple(sorted({0, self.train_length // 32, self.train_length // 8}))

    @property
    def beta_fast(self) -> float:
        """Turns within the trained length above which YaRN and NTK-by-parts leave a pair alone.

        The published 32 belongs to models of 2048 tokens and more, whose fastest pair turns 326 times. Over 128 bytes
        it turns 20 times, and 32 would interpolate every pair.
        """
        return min(32.0, max(2.0, self.train_length / 16))

    @property
    def sizes(self) -> Sizes:
        """Of the search."""
        quarter, half = self.search_population // 4, self.search_population // 2
        return Sizes(
            population=self.search_population, mutations=quarter, crossovers=quarter, parents=half,
            generations=self.search_generations,
        )  # fmt: skip

    @property
    def evaluations(self) -> int:
        """Candidates that a search looks at."""
        return self.sizes.population + self.sizes.generations * (self.sizes.mutations + self.sizes.crossovers)

    def fine_tuning(self, times: int) -> FineTuning:
        """The numbers of a fine-tuning on texts that are ``times`` training lengths long; a step has as many bytes."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(ExtensionSettings)}
        changed = {
            "steps": self.fine_tune_steps,
            "lr": self.fine_tune_lr,
            "batch_size": self.batch_size // times,
        }
        return FineTuning(**{**fields, **changed}, times=times)

    def shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        shown = super().shown()
        shown["fine tune length"] = f"{self.fine_tune_length}×"
        shown["training bytes"] = shown.pop("training bytes per encoding")
        shown["fine-tuning bytes"] = f"{self.fine_tune_steps * self.batch_size * self.train_length:,}"
        shown["search evaluations"] = str(self.evaluations)
        return shown


@dataclass(frozen=True)
class FineTuning(ExtensionSettings):
    """The numbers of one fine-tuning."""

    times: int = 1  # its texts, in training lengths

    @property
    def text_length(self) -> int:
        """Bytes of a training text."""
        return self.train_length * self.times


WINDOW, CONTINUED = "rope+window", "rope+continued+window"  # the controls: of the untrained rows, of the trained ones
_FOLLOWS = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", "longrope")
_TUNED = (
    "rope", "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "dynamic_yarn", "llama3", "longrope",
    "ntk+resonance", "ntk_by_parts+resonance", "yarn+resonance", "clex",
)  # fmt: skip
QUICK = (  # with T = 64 ntk_by_parts and llama3 are the same
    "rope", WINDOW, "pi", "ntk", "yarn", "llama3", "longrope", "yarn+resonance", "pi@max", "yarn@max", "longrope@max",
    *(f"{method}+tuned" for method in ("rope", "pi", "ntk", "yarn", "dynamic_yarn", "longrope", "clex")), CONTINUED,
)  # fmt: skip
STANDARD = (
    "rope", WINDOW, *_FOLLOWS, "yarn_by_turns", "ntk+resonance", "ntk_by_parts+resonance", "yarn+resonance",
    *(f"{method}@max" for method in _FOLLOWS), *(f"{method}+tuned" for method in _TUNED), CONTINUED,
)  # fmt: skip


def profile(name: str) -> Profile[ExtensionSettings]:
    """A profile by name: minutes on a few cores (quick), longer and with more seeds (standard), for a GPU (full)."""
    if name == "quick":
        return Profile(name, QUICK, 1, ExtensionSettings())
    if name == "standard":
        return Profile(name, STANDARD, 3, dataclasses.replace(_as_text(name), windows=48, fine_tune_steps=150))
    if name == "full":
        # A model of 100 million parameters costs a GPU minutes for each row: the methods of quick, to 32k, one seed.
        settings = dataclasses.replace(
            _as_text(name), lengths=(1, 2, 4, 8, 16), windows=32, fine_tune_steps=200, fine_tune_lr=3e-4
        )
        return Profile(name, QUICK, 1, settings)
    raise unknown_profile(name)


def check(settings: ExtensionSettings) -> None:
    """Raise a ValueError that names the option and what it needs."""
    s = settings
    profiles.check(s)
    check_training(
        s,
        {
            "fine_tune_length": 2,
            "fine_tune_steps": 1,
            "search_population": 4,
            "search_generations": 0,
            "search_pieces": 1,
        },
    )
    if not 0 < s.fine_tune_lr < math.inf:
        raise ValueError(f"--fine-tune-lr {s.fine_tune_lr}: a positive number is needed")
    if s.fine_tune_length not in s.lengths:
        longer = ", ".join(map(str, s.lengths[1:])) or "2 and more"
        raise ValueError(f"--fine-tune-length {s.fine_tune_length}: one of --lengths is needed ({longer})")
    if s.batch_size % (s.fine_tune_length * s.processes):
        ranks = f" and the {s.processes} processes" if s.processes > 1 else ""
        raise ValueError(
            f"--batch-size {s.batch_size}: a multiple of --fine-tune-length {s.fine_tune_length}{ranks} is needed, "
            "since a step of the fine-tuning has as many bytes in longer texts"
        )
    if s.dim // s.heads < 4 or s.dim // s.heads % 2:
        raise ValueError(f"--dim {s.dim}: heads of an even width of at least 4 are needed, two pairs that turn")


def _as_text(name: str) -> ExtensionSettings:
    """The numbers of the text profile, but for the test lengths."""
    text = dataclasses.asdict(profiles.profile(name).settings)
    return ExtensionSettings(**{**text, "lengths": ExtensionSettings.lengths})
