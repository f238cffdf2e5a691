"""How a long command is stopped: Ctrl-C and SIGTERM alike, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class FailedJobsError(Exception):
    """Some jobs did not reach their result; each line says which and why."""


class StoppedByUserError(Exception):
    """Ctrl-C or SIGTERM; the parser would otherwise end the process in its own way."""


@contextmanager
def stoppable(command: str) -> Iterator[None]:
    """A part of a program in which a terminated process stops like an interrupted one: its workers save and end."""
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedByUserError(f"nothing is lost; to go on: {command}") from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
