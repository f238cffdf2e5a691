"""Generated sequences: a small decoder, trained on short ones and asked long ones. One class serves all puzzles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import RenderableType
from torch import Tensor, nn

from posenc.lab.model import Decoder
from posenc.lab.record import RunRecord
from posenc.lab.report.section import Section
from posenc.lab.sequences import report, words
from posenc.lab.sequences.addition import Addition
from posenc.lab.sequences.copying import Copy
from posenc.lab.sequences.counting import Counting
from posenc.lab.sequences.data import (
    SequenceFacts,
    Sequences,
    draw_batch,
    load_sequences,
    make_sequences,
    store_sequences,
)
from posenc.lab.sequences.flipflop import FlipFlop
from posenc.lab.sequences.measure import measure
from posenc.lab.sequences.passkey import Passkey
from posenc.lab.sequences.puzzle import UNASKED, Puzzle
from posenc.lab.sequences.recall import Recall
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.specs import check_specs, defined
from posenc.lab.sequences.table import SequenceRow, rows_of
from posenc.lab.specs import is_control
from posenc.lab.tasks.task import Measured, Model, Profile, Task


class Generated(Task[SequenceSettings, Sequences, SequenceRow]):
    """Accuracy at growing lengths.

    Args:
        puzzle: what is asked.
    """

    source, facts = "generated", SequenceFacts
    loss_unit, loss_name = 1.0, "loss"
    rate_name = "sequences_per_second"
    # Encodings that need every score.
    slow = ("cope", "stick", "path", "dape", "transformer", "mixture", "shaw", "fire", "fox", "distance", "cpb")

    def __init__(self, puzzle: Puzzle[Any]) -> None:
        self.puzzle, self.name = puzzle, puzzle.settings.task

    def profile(self, name: str) -> Profile[SequenceSettings]:
        """See `posenc.lab.sequences.sizes`."""
        chosen: Profile[SequenceSettings] = self.puzzle.profile(name)
        return chosen

    def settings(self, record: dict[str, Any]) -> SequenceSettings:
        """JSON has no tuples."""
        settings: SequenceSettings = self.puzzle.settings(**{**record, "lengths": tuple(record["lengths"])})
        return settings

    def check(self, settings: SequenceSettings) -> None:
        """See the puzzle."""
        self.puzzle.check(settings)

    def specs(self, asked: Sequence[str], settings: SequenceSettings, *, control: bool) -> tuple[list[str], str]:
        """What text has too; controls where they are asked for."""
        return check_specs(asked, self.puzzle, settings), ""

    def read(self, source: str, settings: SequenceSettings) -> tuple[Sequences, SequenceSettings]:
        """The tests."""
        if source != self.source:
            raise ValueError(f"--data {source}: --task {self.name} makes its own sequences; leave --data away")
        return make_sequences(self.puzzle, settings), settings

    def found(self, data: Sequences) -> str:
        """Name and sizes."""
        f = data.facts
        return f"Sequences: {f.name}; {f.count} asked at each of {', '.join(f'{n:,}' for n in f.lengths)} tokens."

    def store(self, data: Sequences, out: Path) -> None:
        """OUT/corpus/."""
        store_sequences(data, out / "corpus")

    def load(self, out: Path) -> Sequences:
        """OUT/corpus/."""
        return load_sequences(out / "corpus")

    def model(self, spec: str, settings: SequenceSettings, data: Sequences, seed: int) -> Model:
        """A decoder."""
        vocabulary = self.puzzle.vocabulary(settings)
        return Decoder(spec, settings.shape, hidden=settings.hidden, seed=seed, vocabulary=vocabulary)

    def batch(self, data: Sequences, settings: SequenceSettings, seed: int, step: int) -> tuple[Tensor, ...]:
        """Tokens, answers and, where there are any, ids."""
        return draw_batch(self.puzzle, settings, seed=seed, step=step)

    def amount(self, settings: SequenceSettings) -> int:
        """Sequences."""
        return settings.batch_size

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the answers: their mean in each sequence, so that ranks that share a batch weigh it as one would."""
        tokens, answers, *ids = batch
        logits = model(tokens, ids=ids[0] if ids else None).float()
        losses = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=UNASKED, reduction="none")
        return (losses.sum(1) / (answers != UNASKED).sum(1)).mean()

    def progress(self, loss: float, rate: float) -> str:
        """Loss and speed."""
        return f"loss {loss:.3f}, {rate:,.0f} sequences/s"

    def train_share(self, settings: SequenceSettings) -> float:
        """A step is about three forwards, and attention grows with the square."""
        s, trained = settings, self.puzzle.trained_lengths(settings)
        training = 3 * s.steps * s.batch_size * sum(n * (1 + n / 256) for n in trained) / len(trained)
        measuring = s.windows * sum(n * (1 + n / 256) for n in s.tested)
        return training / (training + measuring)

    def measure(
        self,
        model: nn.Module,
        data: Sequences,
        row: str,
        settings: SequenceSettings,
        device: torch.device,
        on_forward: Callable[[float], None] = lambda share: None,
    ) -> Measured:
        """The share of right answers at each length, in float32 and with the model's own attention path."""
        ids_of = partial(self.puzzle.ids_of, settings)
        window = settings.train_length if is_control(row) else None
        reach = {}
        for length, test in zip(settings.tested, data.tests, strict=True):
            ids = ids_of(test.tokens)
            reach[length] = defined(row, settings, length, 0 if ids is None else int(ids.max()))
        found = measure(
            lambda tokens, ids: model(tokens, window=window, ids=ids),
            data.tests,
            ids_of=ids_of,
            reach=reach.__getitem__,
            heads=settings.heads,
            device=device,
            on_forward=on_forward,
        )
        return {"lengths": report.names_of(settings), "chance": self.puzzle.chance(settings), **found}

    def rows(self, measured: dict[str, list[Measured]]) -> list[SequenceRow]:
        """In the order of the catalogue."""
        return rows_of(measured, whole=self.puzzle.whole)

    def table(self, rows: list[SequenceRow], settings: SequenceSettings) -> RenderableType:
        """Accuracy by length."""
        return report.terminal_table(rows, settings)

    def closing(self, rows: list[SequenceRow], record: RunRecord[Any, Any]) -> list[tuple[RenderableType, str]]:
        """What is asked, how the numbers were made, training, and the summary."""
        return [
            (words.introduction(self.puzzle), ""),
            (words.protocol_text(rows, self.puzzle, record.settings), "dim"),
            (report.training_table(rows), ""),
            (words.summary(rows, self.puzzle, record.settings), ""),
            (words.CAUTION, "dim"),
        ]

    def title(self, settings: SequenceSettings) -> str:
        """The task and its lengths."""
        return words.title(self.puzzle, settings)

    def summary(self, rows: list[SequenceRow], record: RunRecord[Any, Any]) -> str:
        """Who has learnt it, and who still can at the longest length."""
        return words.summary(rows, self.puzzle, record.settings)

    def sections(self, rows: list[SequenceRow], record: RunRecord[Any, Any]) -> list[Section]:
        """Verdicts, curves, numbers, trainings."""
        return report.sections(rows, self.puzzle, record)

    def write_report(self, out: Path, rows: list[SequenceRow], record: RunRecord[Any, Any]) -> list[Path]:
        """Table, results, picture."""
        return report.write_report(out, rows, self.puzzle, record)


PUZZLES: tuple[Puzzle[Any], ...] = (Passkey(), Recall(), FlipFlop(), Counting(), Copy(), Addition())
TASKS = {puzzle.settings.task: Generated(puzzle) for puzzle in PUZZLES}
