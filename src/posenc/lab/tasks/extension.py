"""Extension: a text model with RoPE, read at many times its trained length under every scaling of its frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from torch import Tensor, nn

from posenc.lab.extension import methods, report, words
from posenc.lab.extension import settings as extension_settings
from posenc.lab.extension.measure import measure_row
from posenc.lab.extension.methods import BASE, SEARCHED, parse
from posenc.lab.extension.model import Extended
from posenc.lab.extension.page import sections
from posenc.lab.extension.settings import CONTINUED, WINDOW, ExtensionSettings, FineTuning
from posenc.lab.extension.table import ExtensionRow, rows_of
from posenc.lab.jobs import read_job, read_result
from posenc.lab.record import RunRecord
from posenc.lab.report.section import Section
from posenc.lab.tasks.task import Measured, Model, Profile, Task
from posenc.lab.tasks.text import TASK as TEXT
from posenc.lab.text.corpus import Corpus, Facts, counter_seed, draw_batch
from posenc.lab.words import join, verb
from posenc.search import Candidate


@dataclass(frozen=True)
class RunCorpus:
    """A corpus, and the folder of the run whose jobs may need what others have found."""

    corpus: Corpus
    out: Path | None

    @property
    def facts(self) -> Facts:
        """Of the corpus."""
        return self.corpus.facts


class Extension(Task[ExtensionSettings, RunCorpus, ExtensionRow]):
    """Bits per byte at growing lengths, of one trained model and of its short fine-tunings."""

    name = "extension"
    source, facts = TEXT.source, Facts
    loss_unit, loss_name = TEXT.loss_unit, TEXT.loss_name
    rate_name = TEXT.rate_name
    slow = (f"{BASE}-seed", "clex")  # the base is measured as many rows

    def profile(self, name: str) -> Profile[ExtensionSettings]:
        """See `posenc.lab.extension.settings`."""
        return extension_settings.profile(name)

    def settings(self, record: dict[str, Any]) -> ExtensionSettings:
        """JSON has no tuples."""
        return ExtensionSettings(**{**record, "lengths": tuple(record["lengths"])})

    def check(self, settings: ExtensionSettings) -> None:
        """See `posenc.lab.extension.settings`."""
        extension_settings.check(settings)

    def specs(self, asked: Sequence[str], settings: ExtensionSettings, *, control: bool) -> tuple[list[str], str]:
        """The rows asked for, and those that they are compared with or start from."""
        rows = list(dict.fromkeys(methods.normal(row, settings) for row in asked))
        for row in rows:
            methods.check(row, settings)
        trained = any(parse(row).training for row in rows)
        controls = [WINDOW, *([CONTINUED] if trained else [])] if control else []
        starts = [BASE] if trained else []
        if f"{SEARCHED}+tuned" in rows and SEARCHED not in rows:
            starts.append(f"{SEARCHED}@{settings.fine_tune_length}")
        remarks = []
        for needed, reason in (
            (controls, "for comparison (not with --no-control)"),
            (starts, "since others start there"),
        ):
            if added := [row for row in needed if row not in rows]:
                remarks.append(f"{join(added)} {verb(added, 'is', 'are')} measured too, {reason}.")
                rows += added
        return rows, " ".join(remarks)

    def trained(self, row: str) -> str:
        """What is not trained is RoPE's checkpoint."""
        return parse(row).trained

    def base(self, spec: str) -> str | None:
        """Every other training goes on from RoPE."""
        return None if spec == BASE else BASE

    def numbers(self, spec: str, settings: ExtensionSettings) -> ExtensionSettings:
        """Equal budgets: as many steps of as many bytes, in longer texts or in those of the first training."""
        training = parse(spec).training
        if not training:
            return settings
        return settings.fine_tuning(settings.fine_tune_length if training == "tuned" else 1)

    def read(self, source: str, settings: ExtensionSettings) -> tuple[RunCorpus, ExtensionSettings]:
        """As of texts."""
        return RunCorpus(TEXT.read(source, settings)[0], None), settings

    def found(self, data: RunCorpus) -> str:
        """Name and sizes."""
        return TEXT.found(data.corpus)

    def remark(self, data: RunCorpus, settings: ExtensionSettings) -> str:
        """How often the first training reads the text."""
        return TEXT.remark(data.corpus, settings)

    def store(self, data: RunCorpus, out: Path) -> None:
        """OUT/corpus/."""
        TEXT.store(data.corpus, out)

    def load(self, out: Path) -> RunCorpus:
        """OUT/corpus/."""
        return RunCorpus(TEXT.load(out), out)

    def model(self, spec: str, settings: ExtensionSettings, data: RunCorpus, seed: int) -> Model:
        """A decoder, its frequencies scaled for the fine-tuning if the spec says so."""
        reading, scaling = parse(spec), None
        if reading.method != BASE:
            factor = settings.fine_tune_length
            found = _found(data.out, seed, factor) if reading.method == SEARCHED else None
            scaling = methods.scaling(reading, factor, settings, found)
        return Extended(settings.shape, hidden=settings.hidden, seed=seed, scaling=scaling)

    def batch(self, data: RunCorpus, settings: ExtensionSettings, seed: int, step: int) -> tuple[Tensor, ...]:
        """Pieces of text, ``(batch_size, text_length + 1)``; all fine-tunings of one length have the same ones."""
        s = settings
        seed = counter_seed("fine-tuning", seed, 0) if isinstance(s, FineTuning) else seed
        train = data.corpus.train
        return (draw_batch(train, seed=seed, step=step, batch_size=s.batch_size, length=s.text_length),)

    def amount(self, settings: ExtensionSettings) -> int:
        """Bytes."""
        return settings.batch_size * settings.text_length

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the next byte, at every byte."""
        return TEXT.loss(model, batch)

    def progress(self, loss: float, rate: float) -> str:
        """Bits and speed."""
        return TEXT.progress(loss, rate)

    def train_share(self, settings: ExtensionSettings) -> float:
        """Of a fine-tuning, as most jobs are: a step is about three forwards, and attention grows with the square."""
        s, tuning = settings, settings.fine_tuning(settings.fine_tune_length)
        training = 3 * tuning.steps * self.amount(tuning) * (1 + tuning.text_length / 1024)
        measuring = s.windows * math.fsum(n * (1 + n / 1024) for n in (k * s.train_length for k in s.lengths))
        return training / (training + measuring)

    def measure(
        self,
        model: nn.Module,
        data: RunCorpus,
        row: str,
        settings: ExtensionSettings,
        device: torch.device,
        on_forward: Callable[[float], None] = lambda share: None,
    ) -> Measured:
        """Bits in the windows."""
        if not isinstance(model, Extended):
            raise TypeError(f"a model of this task is needed, not {type(model).__name__}")
        return measure_row(model, data.corpus, row, settings, device, on_forward)

    def rows(self, measured: dict[str, list[Measured]]) -> list[ExtensionRow]:
        """Controls, and the others by kind."""
        return rows_of(measured)

    def table(self, rows: list[ExtensionRow], settings: ExtensionSettings) -> RenderableType:
        """Bits by length."""
        return report.terminal_table(rows, settings)

    def closing(self, rows: list[ExtensionRow], record: RunRecord[Any, Any]) -> list[tuple[RenderableType, str]]:
        """How the numbers were made, and the summary."""
        return [
            (words.protocol_text(record.settings), "dim"),
            (words.summary(rows, record.settings), ""),
            (words.CAUTION, "dim"),
        ]

    def title(self, settings: ExtensionSettings) -> str:
        """Lengths."""
        return words.title(settings)

    def summary(self, rows: list[ExtensionRow], record: RunRecord[Any, Any]) -> str:
        """Who beats the window, who reaches which length, at which price."""
        return words.summary(rows, record.settings)

    def sections(self, rows: list[ExtensionRow], record: RunRecord[Any, Any]) -> list[Section]:
        """The parts of a report's page."""
        return sections(rows, record)

    def write_report(self, out: Path, rows: list[ExtensionRow], record: RunRecord[Any, Any]) -> list[Path]:
        """Table, results, figure."""
        return report.write_report(out, rows, record)


def _found(out: Path | None, seed: int, factor: int) -> Candidate:
    """What the search on the base of this seed found; it is part of the base's result."""
    if out is None:
        raise ValueError(f"{SEARCHED}+tuned: its model needs the folder of a run, with the result of {BASE}")
    folder = out / "jobs" / f"{BASE}-seed{seed}"
    result = (read_result(folder, read_job(folder)) if folder.exists() else None) or {"rows": {}}
    for row in result["rows"].values():
        if str(factor) in row.get("searched", {}):
            found = row["searched"][str(factor)]
            return Candidate(tuple(found["factors"]), found["start_tokens"])
    raise ValueError(f"{SEARCHED}+tuned needs the factors that {SEARCHED} finds on {folder.name}: run both together")


TASK = Extension()
