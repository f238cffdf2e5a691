"""Images: a small vision transformer, trained on one grid of tokens and measured on moved, finer and larger ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import RenderableType
from torch import Tensor, nn

from posenc.lab.images import report, words
from posenc.lab.images import settings as image_settings
from posenc.lab.images.folder import folder_pictures
from posenc.lab.images.measure import measure
from posenc.lab.images.model import Classifier, patches
from posenc.lab.images.pictures import PictureFacts, Pictures, batch_index, digits, load_pictures, store_pictures
from posenc.lab.images.settings import ImageSettings
from posenc.lab.images.specs import check_specs, tables_end
from posenc.lab.images.table import ImageRow, rows_of
from posenc.lab.record import RunRecord
from posenc.lab.report.section import Section
from posenc.lab.tasks.task import Measured, Model, Profile, Task

DIGITS_SIZE = 8  # pixels


class Images(Task[ImageSettings, Pictures, ImageRow]):
    """Accuracy where positions, tokens and pictures are not those of training."""

    name = "images"
    source, facts = "digits", PictureFacts
    loss_unit, loss_name = 1.0, "loss"
    rate_name = "images_per_second"
    fresh = False  # every image is seen once an epoch
    slow = ("liere", "comrope", "mixed", "log_cpb", "swin", "beit")

    def profile(self, name: str) -> Profile[ImageSettings]:
        """See `posenc.lab.images.settings`."""
        return image_settings.profile(name)

    def settings(self, record: dict[str, Any]) -> ImageSettings:
        """JSON has no tuples."""
        return ImageSettings(**{**record, "constants": tuple(record["constants"])})

    def check(self, settings: ImageSettings) -> None:
        """See `posenc.lab.images.settings`."""
        image_settings.check(settings)

    def specs(self, asked: Sequence[str], settings: ImageSettings, *, control: bool) -> tuple[list[str], str]:
        """Images have no control."""
        return check_specs(asked, settings.shape), ""

    def read(self, source: str, settings: ImageSettings) -> tuple[Pictures, ImageSettings]:
        """The digits, or a folder; how many pictures there are decides how many steps an epoch has."""
        if source == "digits":
            if settings.image_size != DIGITS_SIZE:
                raise ValueError(f"--image-size {settings.image_size}: the digits have {DIGITS_SIZE} pixels each way")
            pictures = digits()
        else:
            path = Path(source).expanduser()
            if not path.is_dir():
                raise ValueError(f"data: no folder {source!r}; it needs a folder of pictures for each class")
            pictures = folder_pictures(path, settings.image_size)
        return pictures, dataclasses.replace(settings, train_images=pictures.facts.train_images)

    def found(self, data: Pictures) -> str:
        """Name and sizes."""
        f = data.facts
        return (
            f"Pictures: {f.name}, {len(f.classes)} classes, {f.train_images:,} to train on, {f.test_images:,} held out."
        )

    def store(self, data: Pictures, out: Path) -> None:
        """OUT/corpus/."""
        store_pictures(data, out / "corpus")

    def load(self, out: Path) -> Pictures:
        """OUT/corpus/."""
        return load_pictures(out / "corpus")

    def model(self, spec: str, settings: ImageSettings, data: Pictures, seed: int) -> Model:
        """A classifier."""
        s = settings
        return Classifier(spec, s.shape, patch=s.patch, classes=len(data.facts.classes), hidden=s.hidden, seed=seed)

    def batch(self, data: Pictures, settings: ImageSettings, seed: int, step: int) -> tuple[Tensor, ...]:
        """Patches ``(batch_size, tokens, patch²)`` and labels."""
        chosen = batch_index(len(data.train.labels), seed=seed, step=step, size=settings.batch_size)
        part = data.train._replace(pixels=data.train.pixels[chosen], labels=data.train.labels[chosen])
        return patches(data.canvas(part, settings.patch), settings.patch), part.labels

    def amount(self, settings: ImageSettings) -> int:
        """Images."""
        return settings.batch_size

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the class."""
        tokens, labels = batch
        return F.cross_entropy(model(tokens).float(), labels)

    def progress(self, loss: float, rate: float) -> str:
        """Loss and speed."""
        return f"loss {loss:.2f}, {rate:,.0f} images/s"

    def train_share(self, settings: ImageSettings) -> float:
        """A step is about three forwards; there are about a third as many test images as training images."""
        s, n = settings, settings.grid
        views = (9 + len(s.constants)) * n**2 + 2 * (2 * n - 1) ** 2 + 2 * (2 * n) ** 2
        training = 3 * s.steps * s.batch_size * n**2
        return training / (training + s.train_images / 3 * views)

    def measure(
        self,
        model: nn.Module,
        data: Pictures,
        row: str,
        settings: ImageSettings,
        device: torch.device,
        on_forward: Callable[[float], None] = lambda share: None,
    ) -> Measured:
        """The share recognised in each test."""
        table = tables_end(row)
        return {"accuracy": measure(model, data, settings, table=table, device=device, on_forward=on_forward)}

    def rows(self, measured: dict[str, list[Measured]]) -> list[ImageRow]:
        """In the order of the catalogue."""
        return rows_of(measured)

    def table(self, rows: list[ImageRow], settings: ImageSettings) -> RenderableType:
        """Accuracy by test."""
        return report.terminal_table(rows, settings)

    def closing(self, rows: list[ImageRow], record: RunRecord[Any, Any]) -> list[tuple[RenderableType, str]]:
        """How the numbers were made, training, and the summary."""
        return [
            (words.protocol_text(record.settings, record.facts), "dim"),
            (report.training_table(rows), ""),
            (words.summary(rows, record.settings, record.facts), ""),
            (words.CAUTION, "dim"),
        ]

    def title(self, settings: ImageSettings) -> str:
        """Grids."""
        return words.title(settings)

    def summary(self, rows: list[ImageRow], record: RunRecord[Any, Any]) -> str:
        """Who is ahead as trained, what a constant does, and finer tokens."""
        return words.summary(rows, record.settings, record.facts)

    def sections(self, rows: list[ImageRow], record: RunRecord[Any, Any]) -> list[Section]:
        """Verdicts, figures, numbers, trainings."""
        return report.sections(rows, record)

    def write_report(self, out: Path, rows: list[ImageRow], record: RunRecord[Any, Any]) -> list[Path]:
        """Table, results, figures."""
        return report.write_report(out, rows, record)


TASK = Images()
