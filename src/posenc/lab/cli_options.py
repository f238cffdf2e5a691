"""Command-line options of the laboratory: those that commands share, and one for each field of a configuration."""

from __future__ import annotations

import argparse
import dataclasses
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from posenc.lab.config import Config, Evaluation, Machine, Model, Training, option
from posenc_cli.parsing import Parser


def from_one(text: str) -> int:
    """A whole number from 1 on, as argparse reads it."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number from 1 on is needed, got {text!r:.24}")
    return int(text)


def reading(kind: type) -> Callable[[str], Any]:
    """How argparse reads a value of this kind."""

    def read(text: str) -> Any:
        try:
            return _value(kind, text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read


def add_classes_from(parser: Parser) -> None:
    """The option that says where a user's own classes lie."""
    text = "with your own classes; searched before Python's path"
    parser.add_argument("--classes-from", type=Path, metavar="FOLDER", default=Path(), help=text)


def add_training(parser: Parser, options: Sequence[type[Any]]) -> None:
    """What commands that train take alike: encodings, workers, and every number of a configuration.

    Args:
        parser: of the command.
        options: dataclasses with more numbers, of tasks; one that several have is one option.
    """
    parser.usage = f"{parser.prog} [ENCODING ...] [OPTION ...]"
    parser.add_argument(
        "encodings", nargs="*", metavar="ENCODING",
        help="a name from `posenc list`, a class of your own as my_module:MyClass, or a mix like rope+alibi (default: "
        "the profile's)",
    )  # fmt: skip
    add_classes_from(parser)
    parser.add_argument("--workers", type=from_one, help="jobs at a time (default: one per core, or per GPU)")
    text = "any number, also of a task of your own"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)
    fields = [f for part in (Training, Evaluation, Model, *options, Machine) for f in dataclasses.fields(part)]
    numbers = {f.name: f for f in fields if f.metadata["typed"]}
    group = parser.add_argument_group("numbers of the profile")
    for name, f in numbers.items():
        kind = type(f.default)
        how: dict[str, Any] = {"metavar": "N" if kind in (int, float) else "TEXT", "type": reading(kind)}
        how = {"action": argparse.BooleanOptionalAction} if kind is bool else how
        group.add_argument(option(name), default=argparse.SUPPRESS, help=f.metadata["text"], **how)
    parser.set_defaults(number_names=tuple(numbers))


def given(options: Namespace) -> dict[str, Any]:
    """The numbers that were given as options of their own."""
    return {name: getattr(options, name) for name in options.number_names if hasattr(options, name)}


def chosen(options: Namespace, config: Config) -> Config:
    """The configuration with what was given, also as ``--set NAME=VALUE``, which an own task's numbers need."""
    numbers, fields = given(options), {f.name: f for _, f in config.fields()}
    for text in options.set:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in fields:
            known = ", ".join(sorted(fields))
            raise ValueError(f"--set {text}: NAME=VALUE is needed, with one of {known}")
        try:
            numbers[name] = _value(type(fields[name].default), value.strip())
        except ValueError as error:
            raise ValueError(f"{option(name)}: {error}") from None
    return config.replaced(numbers)


def _value(kind: type, text: str) -> Any:
    """The value of an option from its text; a ValueError that says what is needed."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"true or false is needed, got {text!r:.24}")
        return text.lower() == "true"
    try:
        return tuple(map(_number, text.split(","))) if kind is tuple else kind(text)
    except ValueError:
        needed = "numbers with commas between, like 1,2,4, are" if kind is tuple else f"a number ({kind.__name__}) is"
        raise ValueError(f"{needed} needed, got {text!r:.24}") from None


def _number(text: str) -> float:
    """A whole number if it is one, so that 2 and 2.0 are the same configuration."""
    value = float(text)
    return int(value) if value.is_integer() else value
