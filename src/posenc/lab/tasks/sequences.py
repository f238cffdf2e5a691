"""Generated sequences: a small decoder trains on short sequences and answers questions in long ones.

Which answers count is the same at every length:

- answers due in the last half of the training length, as for text: at k× they lie at least k − ½ training lengths into
  the sequence, so that beyond 1× none of them is at a trained position;
- where a task controls the distance of an answer (`beyond`), and beyond the training length, only those that depend on
  tokens farther back than that; a sequence without one has no value;
- where only fully correct sequences count (`exact_match`), all answers.

Where a task controls distances, the answers at the training length T that depend on tokens farther back than T/4 are
also recorded by themselves: they show whether a model uses far context.

A task of this kind is a subclass that names its question and draws sequences (docs/extending.md). If it also returns
the distance of each answer, the report has a curve of accuracy by distance.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.lab.config import Config, Options, Profile
from posenc.lab.data.batching import batches_within, counter_seed
from posenc.lab.decoder import Decoder, LabModel
from posenc.lab.metrics import FAR, FULL, MAJORITY, WINDOW, Curve, Metric, Values
from posenc.lab.specs import ends_at_table, standard_encodings
from posenc.lab.tasks.task import READ, Data, Task, profiles

NO_ANSWER = -100  # where nothing is to be said; what `cross_entropy` ignores


class DrawnSequences(NamedTuple):
    """Sequences, and what is to be said after each of their tokens."""

    tokens: Tensor  # (count, length) int64
    answers: Tensor  # (count, length) int64, NO_ANSWER where nothing is to be said; each row has an answer
    distances: Tensor | None = None  # (count, length) int64: so many tokens back lies what an answer needs; 0: not said

    def checked(self, task: str, count: int, length: int, vocabulary: int) -> DrawnSequences:
        """The same, if it is what a puzzle must draw; a ValueError that says what is wrong."""
        for name, part in zip(self._fields, self, strict=True):
            if part is not None and (part.shape != (count, length) or part.dtype != torch.int64):
                has = f"{part.dtype} {tuple(part.shape)}"
                raise ValueError(f"--task {task} drew {name} as {has}; torch.int64 {(count, length)} is needed")
        due = self.answers != NO_ANSWER
        for name, part in (("tokens", self.tokens), ("answers", self.answers[due])):
            if part.numel() and not 0 <= int(part.min()) <= int(part.max()) < vocabulary:
                has = f"{int(part.min())} to {int(part.max())}"
                raise ValueError(f"--task {task} drew {name} {has}; its vocabulary has 0 to {vocabulary - 1}")
        if not bool(due.any(1).all()):
            raise ValueError(f"--task {task} drew a sequence of {length} tokens without an answer")
        return self


@dataclass(frozen=True)
class SequenceData:
    """The tests, which are the same in every run; training needs nothing but the numbers."""

    task: str
    tests: tuple[DrawnSequences, ...]  # by length

    def identity(self) -> dict[str, str]:
        """SHA-256 of the sequences of each length."""
        return {f"tests_{n}_sha256": hashlib.sha256(content).hexdigest() for n, content in self._contents()}

    def facts(self) -> dict[str, str]:
        """Sizes."""
        lengths = ", ".join(f"{test.tokens.shape[1]:,}" for test in self.tests)
        answers = ", ".join(f"{int((test.answers != NO_ANSWER).sum()):,}" for test in self.tests)
        return {
            "sequences": f"{self.task}, generated",
            "training": "drawn anew for each step, from seed and step",
            "tests": f"{len(self.tests[0].tokens):,} sequences each of {lengths} tokens, with {answers} answers",
        }

    def save(self, folder: Path) -> None:
        """Nothing is stored: whoever needs the tests draws them again, and compares their `identity`."""

    def _contents(self) -> Iterator[tuple[int, bytes]]:
        for tokens, answers, distances in self.tests:
            parts = torch.stack([tokens, answers, torch.zeros_like(tokens) if distances is None else distances])
            yield tokens.shape[1], parts.numpy().astype("<i4").tobytes()


BY_DISTANCE = Curve("accuracy_by_distance", axis="distance in tokens", of="accuracy")


def by_sequence(metric: str, right: Tensor, counted: Tensor, *, exact_match: bool) -> Values:
    """The share of right answers of each sequence; items are the numbers of those that have an answer that counts.

    Args:
        metric: its name.
        right: ``(count, length)`` of bool, where the right answer was given.
        counted: as ``right``, which answers count.
        exact_match: whether a sequence has 1 if all of them are right, and otherwise 0.
    """
    counts, right_counts = counted.sum(1), (right & counted).sum(1)
    items = counts.nonzero()[:, 0]
    shares = (right_counts == counts).double() if exact_match else right_counts / counts.clamp(min=1).double()
    return Values(metric, shares[items].tolist(), items=items.tolist())


def by_distance(right: Tensor, counted: Tensor, distances: Tensor) -> Values:
    """The share of right answers in bins of distance; items are the bins' upper edges: 1, 2, 4, 8 … tokens."""
    known = counted & (distances > 0)
    edges = 2 ** distances[known].double().log2().ceil().long()
    bins = sorted(set(edges.tolist()))
    means = [right[known][edges == edge].double().mean().item() for edge in bins]
    return Values(BY_DISTANCE.name, means, items=bins)


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

    metrics: ClassVar[tuple[Metric, ...]] = (Metric("accuracy", "of answers", "higher", learned=0.95, percent=True),)
    per_second = "sequences"
    unit: ClassVar[int] = 2  # tokens that every length is a multiple of
    exact_match: ClassVar[bool] = False  # whether a sequence counts only if all its answers are right
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
    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
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

    def defined(self, spec: str, config: Config, test: DrawnSequences) -> bool:
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
        numbers = {profile: {**SIZES[profile], **self.sizes.get(profile, {})} for profile in SIZES}
        quick = Config(self.name, options=self.options()).replaced(numbers["quick"])
        standard = quick.replaced(numbers["standard"])
        longer = {"train_length": 4 * quick.training.train_length, "steps": 5 * standard.training.steps}
        full = standard.replaced({**longer, **numbers["full"]})
        every = (*standard_encodings(), "rope+alibi", "rope+fox")
        defined = (
            Profile("quick", EIGHT, 2, quick),
            Profile("standard", TWELVE, 10, standard),
            Profile("full", every, 3, full),
        )
        return profiles({profile.name: profile for profile in defined}, name)

    def data(self, source: str, config: Config) -> SequenceData:
        """Draw the tests."""
        if source != self.source:
            raise ValueError(f"--data {source}: --task {self.name} makes its own sequences; leave --data away")
        tests, count = [], config.evaluation.windows
        for length in config.tested:
            generator = torch.Generator().manual_seed(counter_seed(f"{self.name} test", TEST_SEED, length))
            test = self.draw(config, length, count, generator)
            tests.append(test.checked(self.name, count, length, self.vocabulary(config)))
            if int(self.counted(config, test).any(1).sum()) < 2:
                raise ValueError(
                    f"--windows {count}: fewer than two sequences of {length} tokens have answers that count"
                )
        return SequenceData(self.name, tuple(tests))

    def load(self, folder: Path, config: Config) -> SequenceData:
        """Draw them again; the folder holds none."""
        return self.data(self.source, config)

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
        losses = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=NO_ANSWER, reduction="none")
        return (losses.sum(1) / (answers != NO_ANSWER).sum(1)).mean()

    def evaluate(
        self, model: LabModel, data: Data, spec: str, config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Accuracy of each sequence whose answers count, at each length at which an encoding is defined."""
        trained = config.training.train_length
        for test in cast(SequenceData, data).tests:
            views = self.views if test.tokens.shape[1] > trained else (FULL,)
            for view in views if self.defined(spec, config, test) else ():
                right = self._right(model, test, config, device, trained if view == WINDOW else None)
                for values in self._accuracies(right, test, config):
                    yield replace(values, length=test.tokens.shape[1], view=view)

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """Accuracy at the trained length on at most `PROBED` sequences."""
        tokens, answers, distances = cast(SequenceData, data).tests[0]
        first = DrawnSequences(tokens[:PROBED], answers[:PROBED], None if distances is None else distances[:PROBED])
        accuracy, *_ = self._accuracies(self._right(model, first, config, device, None), first, config)
        return sum(accuracy.values) / len(accuracy.values)

    def read_for_attention(self, data: Data, config: Config) -> tuple[Tensor, Tensor | None] | None:
        """A few of the tests at the training length."""
        tokens = cast(SequenceData, data).tests[0].tokens[:READ]
        return tokens, self.ids_of(config, tokens)

    def baselines(self, data: Data, config: Config) -> Iterator[Values]:
        """What always giving the most frequent answer of the tests at the training length reaches."""
        test = cast(SequenceData, data).tests[0]
        counted = self.counted(config, test)
        right = test.answers == test.answers[counted].mode().values
        yield replace(
            by_sequence(MAJORITY, right, counted, exact_match=self.exact_match), length=config.training.train_length
        )

    def late(self, config: Config, test: DrawnSequences) -> Tensor:
        """Answers due in the last half of the trained length, all under `exact_match`: as ``answers``, bool."""
        length, due = test.tokens.shape[1], test.answers != NO_ANSWER
        return due if self.exact_match else due & (torch.arange(length) >= length - config.training.train_length // 2)

    def counted(self, config: Config, test: DrawnSequences) -> Tensor:
        """Answers that count, as ``answers``, bool; see the module."""
        late, trained = self.late(config, test), config.training.train_length
        if not self.beyond or test.distances is None or test.tokens.shape[1] <= trained:
            return late
        return late & (test.distances > trained)

    @torch.no_grad()
    def _right(
        self, model: LabModel, test: DrawnSequences, config: Config, device: torch.device, window: int | None
    ) -> Tensor:
        """Where a model, shown the right answers before, gives the right one: ``(count, length)`` of bool."""
        right = []
        for rows in batches_within(range(len(test.tokens)), test.tokens.shape[1], config.model.heads):
            tokens = test.tokens[rows]
            ids = self.ids_of(config, tokens)
            logits = model(tokens.to(device), window=window, ids=None if ids is None else ids.to(device))
            right.append(logits.argmax(-1).cpu() == test.answers[rows])
        return torch.cat(right)

    def _accuracies(self, right: Tensor, test: DrawnSequences, config: Config) -> Iterator[Values]:
        """Accuracy by sequence; under `exact_match` also of single answers; of far ones and by distance if known."""
        counted, trained = self.counted(config, test), config.training.train_length
        yield by_sequence(self.decides.name, right, counted, exact_match=self.exact_match)
        for metric in self.metrics[1:] if self.exact_match else ():
            yield by_sequence(metric.name, right, counted, exact_match=False)
        if self.beyond and test.distances is not None and test.tokens.shape[1] == trained:
            yield by_sequence(FAR, right, counted & (test.distances > trained // 4), exact_match=False)
        if BY_DISTANCE in self.curves and test.distances is not None:
            yield by_distance(right, self.late(config, test), test.distances)
