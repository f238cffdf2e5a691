"""Generated sequences: a small decoder, trained on short ones and asked long ones. Every puzzle derives from one class.

What counts is the same at every length:

- answers due in the last half of the trained length, as for text: at k× they lie k − ½ trained lengths or more into
  the sequence, so that past 1× none of them is where training put one;
- where a puzzle controls how far back an answer lies (`beyond`), and past the trained length, only those of them that
  lie farther back than that; a sequence without one has no value;
- where only whole sequences count (`whole`), all answers.

A puzzle of your own is a subclass, which says what is asked and draws sequences (docs/extending.md). If it also says
how far back answers lie, there is a curve of accuracy by distance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.lab.config import Config, Options, Profile
from posenc.lab.metrics import FULL, WINDOW, Metric, Values
from posenc.lab.model import Decoder, LabModel
from posenc.lab.specs import ends_at_table, standard_encodings
from posenc.lab.tasks.batching import batches_within, counter_seed
from posenc.lab.tasks.drawn import UNASKED, Drawn, SequenceData, read_sequences
from posenc.lab.tasks.scoring import BY_DISTANCE, by_distance, by_sequence
from posenc.lab.tasks.task import Data, Task, profiles, with_options

TEST_SEED = 0  # the same sequences for all encodings and all training seeds
PROBED = 64  # sequences

EIGHT = ("nope", "sinusoidal", "rope", "alibi", "t5", "fire", "fox", "stick-breaking")
TWELVE = (
    "nope", "sinusoidal", "rope", "rope+alibi", "xpos", "alibi", "t5", "kerple", "fire", "fox", "cope",
    "stick-breaking",
)  # fmt: skip
SIZES: Mapping[str, Mapping[str, Any]] = {
    "quick": {"dim": 64, "layers": 2, "steps": 400, "windows": 64},
    "standard": {"steps": 1600, "windows": 128},
    "full": {"dim": 256, "layers": 4, "heads": 8, "windows": 256, "lr": 1e-3, "warmup": 500, "checkpoint_every": 250},
}
N = TypeVar("N", bound=Options)


class Sequences(Task, Generic[N]):
    """Accuracy at growing lengths. A puzzle says what is asked; everything else is here."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", "of answers", "higher", margin=0.02, learnt=0.95, fails=0.3, percent=True),
    )
    per_second = "sequences"
    unit: ClassVar[int] = 2  # tokens that every length is a multiple of
    whole: ClassVar[bool] = False  # whether a sequence counts only if all its answers are right
    beyond: ClassVar[bool] = False  # whether, past the trained length, only answers that lie beyond it count
    sizes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # own numbers, by profile; each has those before it too

    @abstractmethod
    def vocabulary(self, config: Config) -> int:
        """How many different tokens there are, answers included."""

    @abstractmethod
    def shortest(self, config: Config) -> int:
        """Tokens of the shortest sequence that can be asked."""

    @abstractmethod
    def chance(self, config: Config) -> float:
        """The share of right answers of the best guess that does not look back."""

    @abstractmethod
    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> Drawn:
        """``count`` sequences of ``length`` tokens, a multiple of ``unit``, by this generator alone.

        Each has an answer that is due in its last half or the last half of the trained length, whichever is shorter.
        """

    def trained_lengths(self, config: Config) -> range:
        """Lengths that batches of the training have: from half of the trained length to all of it."""
        least = max(self.shortest(config), config.training.train_length // 2)
        return range(-(-least // self.unit) * self.unit, config.training.train_length + 1, self.unit)

    def ids_of(self, config: Config, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor | None:
        """Places of digits in their numbers, ``(count, length)``, moved at random in training; None without numbers."""
        return None

    def defined(self, spec: str, config: Config, test: Drawn) -> bool:
        """Whether no table of an encoding ends before a test does."""
        return test.tokens.shape[1] <= config.training.train_length or not ends_at_table(spec)

    def numbers(self, config: Config) -> N:
        """The puzzle's own numbers."""
        return cast(N, config.options)

    def metrics_of(self, config: Config) -> tuple[Metric, ...]:
        """The metrics, with what a guess reaches at these numbers."""
        return replace(self.decides, chance=self.chance(config)), *self.metrics[1:]

    def check(self, config: Config) -> None:
        """See `Task`."""
        length, least = config.training.train_length, self.shortest(config)
        if length < least:
            raise ValueError(f"--train-length {length}: at least {least} is needed")
        if length % self.unit:
            raise ValueError(f"--train-length {length}: --task {self.name} needs a multiple of {self.unit}")

    def profile(self, name: str) -> Profile:
        """Minutes on a few cores (quick); encodings of all kinds with ten seeds (standard); all, on a GPU (full)."""
        own = {profile: {**SIZES[profile], **self.sizes.get(profile, {})} for profile in SIZES}
        quick = with_options(Config(self.name), self.options()).replaced(own["quick"])
        standard = quick.replaced(own["standard"])
        longer = {"train_length": 4 * quick.training.train_length, "steps": 5 * standard.training.steps}
        full = standard.replaced({**longer, **own["full"]})
        every = (*standard_encodings(), "rope+alibi", "rope+fox")
        found = (
            Profile("quick", EIGHT, 2, quick),
            Profile("standard", TWELVE, 10, standard),
            Profile("full", every, 3, full),
        )
        return profiles({profile.name: profile for profile in found}, name)

    def data(self, source: str, config: Config) -> SequenceData:
        """Draw the tests."""
        if source != self.source:
            raise ValueError(f"--data {source}: --task {self.name} makes its own sequences; leave --data away")
        tests, count = [], config.evaluation.windows
        for length in config.tested:
            generator = torch.Generator().manual_seed(counter_seed(f"{self.name} test", TEST_SEED, length))
            drawn = self.draw(config, length, count, generator)
            tests.append(drawn.checked(self.name, count, length, self.vocabulary(config)))
            if int(self.counted(config, drawn).any(1).sum()) < 2:
                raise ValueError(
                    f"--windows {count}: fewer than two sequences of {length} tokens have answers that count"
                )
        return SequenceData(self.name, tuple(tests))

    def load(self, folder: Path, config: Config) -> SequenceData:
        """See `posenc.lab.tasks.drawn`."""
        return read_sequences(folder, config)

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """A decoder."""
        hidden, vocabulary = config.model.hidden, self.vocabulary(config)
        return Decoder(spec, self.shape(config), hidden=hidden, seed=seed, vocabulary=vocabulary)

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """Tokens, answers and, where there are any, ids."""
        generator = torch.Generator().manual_seed(counter_seed(f"{self.name} batch", seed, step))
        lengths = self.trained_lengths(config)
        length = lengths[int(torch.randint(len(lengths), (), generator=generator))]
        tokens, answers, _ = self.draw(config, length, config.training.batch_size, generator)
        ids = self.ids_of(config, tokens, generator)
        return (tokens, answers) if ids is None else (tokens, answers, ids)

    def amount(self, config: Config) -> int:
        """Sequences."""
        return config.training.batch_size

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the answers: their mean in each sequence, so that ranks that share a batch weigh it as one would."""
        tokens, answers, *ids = batch
        logits = model(tokens, ids=ids[0] if ids else None).float()
        losses = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=UNASKED, reduction="none")
        return (losses.sum(1) / (answers != UNASKED).sum(1)).mean()

    def evaluate(
        self, model: LabModel, data: Data, rows: Sequence[str], config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Accuracy of each sequence whose answers count, at each length at which an encoding is defined."""
        trained = config.training.train_length
        for row in rows:
            for test in cast(SequenceData, data).tests:
                views = self.views if test.tokens.shape[1] > trained else (FULL,)
                for view in views if self.defined(row, config, test) else ():
                    right = self._right(model, test, config, device, trained if view == WINDOW else None)
                    for one in self._found(right, test, config):
                        yield replace(one, length=test.tokens.shape[1], view=view, spec=row)

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """Accuracy at the trained length on at most `PROBED` sequences."""
        tokens, answers, distances = cast(SequenceData, data).tests[0]
        first = Drawn(tokens[:PROBED], answers[:PROBED], None if distances is None else distances[:PROBED])
        found, *_ = self._found(self._right(model, first, config, device, None), first, config)
        return sum(found.values) / len(found.values)

    def late(self, config: Config, test: Drawn) -> Tensor:
        """Answers due in the last half of the trained length, all if sequences count whole: as ``answers``, bool."""
        length, due = test.tokens.shape[1], test.answers != UNASKED
        return due if self.whole else due & (torch.arange(length) >= length - config.training.train_length // 2)

    def counted(self, config: Config, test: Drawn) -> Tensor:
        """Answers that count, as ``answers``, bool; see the module."""
        late, trained = self.late(config, test), config.training.train_length
        if not self.beyond or test.distances is None or test.tokens.shape[1] <= trained:
            return late
        return late & (test.distances > trained)

    @torch.no_grad()
    def _right(self, model: LabModel, test: Drawn, config: Config, device: torch.device, window: int | None) -> Tensor:
        """Where a model, shown the right answers before, gives the right one: ``(count, length)`` of bool."""
        right = []
        for rows in batches_within(range(len(test.tokens)), test.tokens.shape[1], config.model.heads):
            tokens = test.tokens[rows]
            ids = self.ids_of(config, tokens)
            logits = model(tokens.to(device), window=window, ids=None if ids is None else ids.to(device))
            right.append(logits.argmax(-1).cpu() == test.answers[rows])
        return torch.cat(right)

    def _found(self, right: Tensor, test: Drawn, config: Config) -> Iterator[Values]:
        """Accuracy by sequence; where sequences count whole, that of single answers too; and by distance if known."""
        counted = self.counted(config, test)
        yield by_sequence(self.decides.name, right, counted, whole=self.whole)
        for metric in self.metrics[1:] if self.whole else ():
            yield by_sequence(metric.name, right, counted, whole=False)
        if BY_DISTANCE in self.curves and test.distances is not None:
            yield by_distance(right, self.late(config, test), test.distances)
