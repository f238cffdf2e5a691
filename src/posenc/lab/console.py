"""Where commands of the laboratory print: as wide as the terminal, and unwrapped where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from posenc_cli.printable import neutral

_UNWRAPPED = 100_000  # columns


def plain_console(*, quiet: bool = False) -> Console:
    """A console without markup. Into a file or a pipe each row of a table is one line, unless COLUMNS says how wide."""
    console = _NeutralConsole(highlight=False, markup=False, quiet=quiet)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = _UNWRAPPED
    return console


@contextmanager
def working(console: Console, text: str) -> Iterator[None]:
    """Say what is being done; on a terminal with something that moves and the time so far, until it is done."""
    if not console.is_terminal:
        console.print(f"{text} …", style="dim")
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn(), TextColumn("so far"))
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(text, total=None)
        yield


class _NeutralConsole(Console):
    """A console whose texts steer no terminal; rich itself removes five control signs and leaves escape sequences."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        texts = (part if part.control else part._replace(text=neutral(part.text)) for part in buffer)
        return super()._render_buffer(texts)
