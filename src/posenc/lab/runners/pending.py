"""What a runner is handed: a job's folder, and which rows of the table must come out of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Pending(NamedTuple):
    """A job that is not finished."""

    name: str
    folder: Path
    rows: list[str]
    phase: int = 0  # jobs of a phase start when all of the phase before have ended


def last_line(log: Path) -> str:
    """The last line of a log that says anything."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "ended without a word")
