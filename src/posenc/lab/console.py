"""Where commands of the laboratory print: as wide as the terminal, and unwrapped where there is none."""

from __future__ import annotations

import os

from rich.console import Console

_UNWRAPPED = 100_000  # columns


def plain_console(*, quiet: bool = False) -> Console:
    """A console without markup. Into a file or a pipe each row of a table is one line, unless COLUMNS says how wide."""
    console = Console(highlight=False, markup=False, quiet=quiet)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = _UNWRAPPED
    return console
