"""The command ``posenc`` until torch is needed: the version, the help, the commands' arguments, the exit code.

The version, the help and usage errors are printed at once, configurations are read without torch, which takes seconds
to load, and Ctrl-C while it loads ends the program as at any other time. Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

from posenc_cli.arguments import PARSERS
from posenc_cli.commands import ALIASES, COMMANDS, LAB, STANDALONE, help_text, nearest
from posenc_cli.exit_codes import BAD_INPUT, BROKEN_PIPE, INTERRUPTED
from posenc_cli.parsing import UsageError
from posenc_cli.printable import neutral_streams

_EXTRA = {
    "rich", "accelerate", "submitit", "filelock", "altair", "vl_convert", "jinja2", "numpy", "pandas",
    "pyarrow", "pydantic", "datasets", "scipy", "sklearn", "PIL",
}  # fmt: skip
_OF_CHECKPOINTS = {"transformers", "tokenizers", "safetensors", "huggingface_hub"}


def main() -> None:
    """Entry point: exits with a code of `posenc_cli.exit_codes`."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # as of `posenc list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write goes nowhere
        code = BROKEN_PIPE
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code. Whatever is wrong with the input is said on stderr."""
    with neutral_streams():
        try:
            return _run(list(arguments))
        except BrokenPipeError:
            raise
        except (ValueError, OSError) as error:
            sys.stderr.write(f"error: {_text_of(error)}\n")
            return BAD_INPUT


def _text_of(error: ValueError | OSError) -> str:
    """An error in words; one of the system with the file first, and without its number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _run(arguments: list[str]) -> int:
    for words, name in ALIASES.items():
        if tuple(arguments[: len(words)]) == words:
            arguments = [name, *arguments[len(words) :]]
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if command == "--version":
        from posenc_cli.installed import report  # it looks through the installed packages, as no command does

        sys.stdout.write(report())
    elif command in ("--help", "-h"):
        sys.stdout.write(help_text())
    elif command in STANDALONE:
        return _execute(f"posenc.cli.{STANDALONE[command].function}", parser_of(command).parse_args(rest), command)
    elif command in LAB:
        return _execute("posenc.lab.commands.run", arguments, command)
    elif command.startswith("-"):
        raise UsageError(f"no such option: {command}; posenc --help lists the commands and what each takes")
    else:
        raise UsageError(f"no such command: {command}{nearest(command, list(COMMANDS))}; posenc --help lists them")
    return 0


def parser_of(command: str) -> ArgumentParser:
    """The parser of a command that is none of the laboratory's; what it reads are the arguments of its function."""
    if command in PARSERS:
        return PARSERS[command]()
    module, _, function = STANDALONE[command].function.partition(".")
    parser: ArgumentParser = getattr(import_module(f"posenc.cli.{module}"), f"{function}_parser")()
    return parser


def _execute(function: str, given: Namespace | list[str], command: str) -> int:
    """What a function of posenc, whose module may load torch, returns of the arguments of a command.

    Raises:
        ValueError: where the command needs an extra that is not installed; and whatever the function raises.
    """
    module, _, name = function.rpartition(".")
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # torch's own word, where there is no NumPy
    with _naming_extra(command):  # the module, or an option alone, may be the first that needs it
        with _leaving_at_once():
            execute: Callable[..., int] = getattr(import_module(module), name)
        return execute(given)


@contextmanager
def _naming_extra(command: str) -> Iterator[None]:
    """Raise a ValueError with the line to type where a package of an extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in _EXTRA | _OF_CHECKPOINTS:
            raise
        of_hf = _OF_CHECKPOINTS - {"tokenizers"} if command in LAB else _OF_CHECKPOINTS | {"scipy"}
        extra = "hf" if package in of_hf else "lab"
        raise ValueError(
            f"{command} needs {error.name}: pip install 'posenc[{extra}]', in a clone '.[{extra}]'"
        ) from error


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """Ctrl-C ends the process where it stands.

    Nothing is at stake before a command has begun, and an exception in the midst of torch's own start would be caught
    or reported by whatever is just being imported. Who has told the process to ignore Ctrl-C keeps that.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
