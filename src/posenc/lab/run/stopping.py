"""How a long command is stopped: Ctrl-C, SIGTERM and a terminal that is closed (SIGHUP) alike; nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class FailedJobsError(Exception):
    """Some jobs did not reach their result; each line says which and why."""


class StoppedByUserError(Exception):
    """Ctrl-C, SIGTERM or SIGHUP; the parser would otherwise end the process in its own way.

    Args:
        text: what to say.
        number: of the signal, by default Ctrl-C's.
    """

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.exit_code = 128 + number  # as a shell counts


class _EndedError(KeyboardInterrupt):
    """An interruption by a signal other than Ctrl-C's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stoppable(command: str) -> Iterator[None]:
    """A part of a program in which a terminated process stops like an interrupted one: its workers save and end."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if number == signal.SIGTERM or handler is not signal.SIG_IGN:  # nohup's wish is heeded
            signal.signal(number, _as_interrupt)
    try:
        yield
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, _EndedError) else signal.SIGINT
        raise StoppedByUserError(f"nothing is lost; to go on: {command}", number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    for other in _ENDING:  # a terminal that is closed may say so twice; workers are being stopped by then
        signal.signal(other, signal.SIG_IGN)
    raise _EndedError(number)
