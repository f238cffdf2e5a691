"""The parser of a command, whose errors are raised, for `posenc_cli` to print."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from posenc_cli.commands import COMMANDS, nearest

PATH = "the folder of a checkpoint, a config.json, a GGUF file, or a model of the Hugging Face Hub (org/name)"


class UsageError(ValueError):
    """A command line that cannot be read."""


_SHARED: dict[str, dict[str, Any]] = {
    "--json": {"action": "store_true", "dest": "as_json", "help": "print the result as JSON"},
    "--dtype": {"default": "auto", "help": "of the weights (default: unchanged; float32 for GGUF)"},
    "--device": {"default": "cpu", "help": "cpu, cuda, ..., or auto: a GPU if there is one (default: %(default)s)"},
    "--trust-remote-code": {
        "action": "store_true", "help": "allow code of the folder to run; by default none does",
    },
}  # fmt: skip


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

    def add_shared(self, *options: str) -> None:
        """Add options that mean the same in every command."""
        for option in options:
            self.add_argument(option, **_SHARED[option])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but an option that does not exist is named before those that are missing."""
        known = [*self._option_string_actions]
        for word in [] if args is None else args:
            name = word.partition("=")[0]
            if word == "--":
                break
            if name.startswith("--") and not any(option.startswith(name) for option in known):
                self.error(f"{name} is no option{nearest(name, known)}")
        return super().parse_known_args(args, namespace)

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
