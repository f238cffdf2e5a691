"""Where commands of the laboratory print, as wide as the terminal and unwrapped where there is none; and how they stop.

Ctrl-C, SIGTERM and a terminal that is closed (SIGHUP) alike stop a command, and nothing is lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.segment import Segment

from posenc_cli.printable import neutral

_UNWRAPPED = 100_000  # columns


def plain_console(*, quiet: bool = False) -> Console:
    """A console without markup. Into a file or a pipe each row of a table is one line, unless COLUMNS says how wide."""
    console = _NeutralConsole(highlight=False, markup=False, quiet=quiet)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = _UNWRAPPED
    return console


class _NeutralConsole(Console):
    """A console whose texts steer no terminal; rich itself removes five control signs and leaves escape sequences."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        texts = (part if part.control else part._replace(text=neutral(part.text)) for part in buffer)
        return super()._render_buffer(texts)


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
