"""The parser of a command, whose errors are raised, for `posenc_cli` to print."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from posenc_cli.commands import COMMANDS


class UsageError(ValueError):
    """A command line that cannot be read."""


class Parser(argparse.ArgumentParser):
    """The parser of one command.

    Args:
        command: its name.
        more: a sentence after the summary of the command.
        epilog: after the options.
    """

    def __init__(self, command: str, more: str = "", epilog: str | None = None) -> None:
        description = f"{COMMANDS[command].summary} {more}".strip()
        super().__init__(f"posenc {command}", description=description, epilog=epilog)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help tells more")


_UNITS = {"": 1, "k": 1024, "m": 1024**2}


def tokens(text: str) -> int:
    """A length in tokens as people write it: 131072, 128k (times 1,024) or 1M (times 1,048,576)."""
    match = re.fullmatch(r"(\d{1,11})([km]?)", text.strip().lower().replace(",", ""), re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"a number of tokens is needed, such as 131072 or 128k, got {text[:24]!r}")
    return int(match[1]) * _UNITS[match[2]]


def lengths(text: str) -> list[int]:
    """Lengths in tokens with commas between."""
    return [tokens(part) for part in text.split(",")]
