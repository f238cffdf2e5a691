"""The parser of a command, whose errors are raised, for `posenc_cli` to print."""

from __future__ import annotations

import argparse
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
