"""Text: a byte-level language model, trained on short pieces and measured on longer ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import RenderableType
from torch import Tensor, nn

from posenc.lab import words
from posenc.lab.model import Decoder
from posenc.lab.record import RunRecord
from posenc.lab.report.section import Section
from posenc.lab.report.sections import sections
from posenc.lab.report.summary import summary
from posenc.lab.specs import WINDOW, check_specs, ends_at_table, is_control, normal, trained
from posenc.lab.tasks.task import Measured, Model, Profile, Task
from posenc.lab.text import profiles
from posenc.lab.text.corpus import Corpus, Facts, draw_batch, load_corpus, make_corpus, store_corpus
from posenc.lab.text.documents import read_documents
from posenc.lab.text.measure import measure
from posenc.lab.text.profiles import Settings
from posenc.lab.text.report import terminal_table, training_table, write_report
from posenc.lab.text.table import Row, rows_of


class Text(Task[Settings, Corpus, Row]):
    """Bits per byte at growing lengths."""

    name = "text"
    source, facts = "stdlib", Facts
    loss_unit, loss_name = math.log(2), "loss_bits"
    rate_name = "bytes_per_second"
    # Encodings that need every score.
    slow = ("cope", "stick", "fox", "forget", "fire", "shaw", "transformer", "mixture", "t5", "kerple")

    def profile(self, name: str) -> Profile[Settings]:
        """See `posenc.lab.text.profiles`."""
        return profiles.profile(name)

    def settings(self, record: dict[str, Any]) -> Settings:
        """JSON has no tuples."""
        return Settings(**{**record, "lengths": tuple(record["lengths"])})

    def check(self, settings: Settings) -> None:
        """See `posenc.lab.text.profiles`."""
        profiles.check(settings)

    def specs(self, asked: Sequence[str], settings: Settings, *, control: bool) -> tuple[list[str], str]:
        """The specs of a profile, and the control that every table needs."""
        specs, remark = [normal(spec) for spec in asked], ""
        if control and WINDOW not in specs:
            if trained(WINDOW) not in specs:
                remark = f"{trained(WINDOW)} is trained too, for the control {WINDOW} (--no-control leaves it out)."
            specs.append(WINDOW)
        return check_specs(specs, settings.shape), remark

    def read(self, source: str, settings: Settings) -> tuple[Corpus, Settings]:
        """The corpus of a run, large enough for its windows."""
        name, documents = read_documents(source)
        window, windows = settings.longest + 1, settings.windows
        return make_corpus(name, documents, window=window, windows=windows, stride=settings.scored), settings

    def found(self, data: Corpus) -> str:
        """Name and sizes."""
        f = data.facts
        return (
            f"Corpus: {f.name}, {f.train_bytes / 1e6:.2f} MB to train on, {f.validation_bytes / 1e6:.2f} MB held out."
        )

    def remark(self, data: Corpus, settings: Settings) -> str:
        """How often the text is read."""
        return profiles.epochs_in_words(settings, data.facts.train_bytes)

    def store(self, data: Corpus, out: Path) -> None:
        """OUT/corpus/."""
        store_corpus(data, out / "corpus")

    def load(self, out: Path) -> Corpus:
        """OUT/corpus/."""
        return load_corpus(out / "corpus")

    def model(self, spec: str, settings: Settings, data: Corpus, seed: int) -> Model:
        """A decoder."""
        return Decoder(spec, settings.shape, hidden=settings.hidden, seed=seed)

    def batch(self, data: Corpus, settings: Settings, seed: int, step: int) -> tuple[Tensor, ...]:
        """Pieces of text, ``(batch_size, train_length + 1)``."""
        s = settings
        return (draw_batch(data.train, seed=seed, step=step, batch_size=s.batch_size, length=s.train_length),)

    def amount(self, settings: Settings) -> int:
        """Bytes."""
        return settings.batch_size * settings.train_length

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the next byte, at every byte."""
        (tokens,) = batch
        logits = model(tokens[:, :-1])  # (batch, length, 256)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def progress(self, loss: float, rate: float) -> str:
        """Bits and speed."""
        return f"{loss:.2f} bits, {rate / 1000:.1f} kB/s"

    def train_share(self, settings: Settings) -> float:
        """A step is about three forwards, and attention grows with the square."""
        s, lengths = settings, [k * settings.train_length for k in settings.lengths]
        training = 3 * s.steps * s.batch_size * s.train_length * (1 + s.train_length / 256)
        measuring = s.windows * sum(n * (1 + n / 256) for n in lengths)
        return training / (training + measuring)

    def measure(
        self,
        model: nn.Module,
        data: Corpus,
        row: str,
        settings: Settings,
        device: torch.device,
        on_forward: Callable[[float], None] = lambda share: None,
    ) -> Measured:
        """Bits in the windows, in float32 and with the model's own attention path."""
        s = settings
        return dict(
            measure(
                partial(model, window=s.train_length if is_control(row) else None),
                data,
                train_length=s.train_length,
                lengths=s.lengths,
                windows=s.windows,
                heads=s.heads,
                table=s.train_length if ends_at_table(row) else None,
                device=device,
                on_forward=on_forward,
            )
        )

    def rows(self, measured: dict[str, list[Measured]]) -> list[Row]:
        """Best at the longest length first."""
        return rows_of(measured)

    def table(self, rows: list[Row], settings: Settings) -> RenderableType:
        """Bits by length."""
        return terminal_table(rows, settings.lengths)

    def closing(self, rows: list[Row], record: RunRecord[Any, Any]) -> list[tuple[RenderableType, str]]:
        """Compressors, training, and the summary."""
        return [
            (words.compressor_line(record.facts), "dim"),
            (training_table(rows), ""),
            (summary(rows, record.settings, record.facts), ""),
            (words.CAUTION, "dim"),
        ]

    def title(self, settings: Settings) -> str:
        """Lengths."""
        return words.title(settings)

    def summary(self, rows: list[Row], record: RunRecord[Any, Any]) -> str:
        """Who stays flat, who fails, who is ahead."""
        return summary(rows, record.settings, record.facts)

    def sections(self, rows: list[Row], record: RunRecord[Any, Any]) -> list[Section]:
        """Verdicts, ranks, curves, numbers, costs."""
        return sections(rows, record)

    def write_report(self, out: Path, rows: list[Row], record: RunRecord[Any, Any]) -> list[Path]:
        """Table, results, figures."""
        return write_report(out, rows, record)


TASK = Text()
