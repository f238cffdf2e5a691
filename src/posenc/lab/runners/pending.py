"""What a runner is handed: a job's folder, and which rows of the table must come out of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from posenc.lab.own import Permission


class Pending(NamedTuple):
    """A job that is not finished."""

    name: str
    folder: Path
    rows: list[str]
    phase: int = 0  # jobs of a phase start when all of the phase before have ended
    own: Permission = Permission()  # the classes of one's own that it is trained with, and where they lie


_END = 2**16  # bytes that its last line is looked for in


def last_line(log: Path) -> str:
    """The last line of a log that says anything."""
    lines = _end(log).decode(errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "ended without a word")


def _end(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _END))
        return file.read(_END)
