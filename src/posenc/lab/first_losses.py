"""The first losses of every job, kept in its folder: what shows on resuming that posenc still computes the same.

A run's identity does not depend on source text, so that a study of months survives a changed docstring, a moved file or
a refactoring. What guards it instead is a recomputation: `posenc.lab.reproduce` compares these losses with new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.lab.config import Config
from posenc.lab.files import write_json
from posenc.lab.machine import processor
from posenc.lab.schema import Count, Line, Number, read_record

FILE = "first_losses.json"
COUNT = 10


@dataclass(frozen=True)
class FirstLosses:
    """Losses of the first steps of one job; of a given model, which is not trained, those of its first texts."""

    losses: tuple[Number, ...]  # nats
    seconds: Number  # spent on them
    processor: Line
    device: Line
    threads: Count


def write_first_losses(folder: Path, config: Config, losses: Sequence[float], seconds: float) -> None:
    """Write the first losses of a job and the machine that computed them."""
    machine = {"processor": processor(), "device": config.machine.device, "threads": config.machine.threads}
    write_json(folder / FILE, {"losses": list(losses), "seconds": seconds, **machine})


def read_first_losses(folder: Path) -> FirstLosses | None:
    """The first losses of a job; None where it has not come as far."""
    path = folder / FILE
    return read_record(path, FirstLosses) if path.exists() else None
