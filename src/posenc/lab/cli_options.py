"""Command-line options made from the dataclasses of a configuration: one option per field, with help text and type."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from posenc.lab.config import Config, Evaluation, Machine, Model, Training, option

PANEL = "Numbers of the profile"
Encodings = Annotated[
    list[str] | None,
    typer.Argument(
        help="Names from `posenc list`, a class of your own as my_module:MyClass, mixes like rope+alibi. Default: the "
        "profile's.",
        show_default=False,
    ),
]
ClassesFrom = Annotated[
    Path | None, typer.Option(help="Folder with your own classes; searched before Python's path.", show_default=False)
]
Workers = Annotated[
    int | None,
    typer.Option(help="Jobs at a time. Default: one per core, or per GPU.", min=1, max=2**12, show_default=False),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=VALUE: any number, also of a task of your own.")
]


def with_numbers(command: Callable[..., Any], options: Sequence[type[Any]] = ()) -> Callable[..., Any]:
    """A command that also takes every number of a configuration, and hands what was given to its ``numbers``.

    Args:
        command: a function for typer whose parameter ``numbers`` is a dict.
        options: dataclasses with more options, of tasks; one that several have is one option.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "numbers"]
    typed = {f.name: f for part in (Training, Evaluation, Model, *options, Machine) for f in dataclasses.fields(part)}
    typed = {name: f for name, f in typed.items() if f.metadata["typed"]}
    parameters = [*own, *map(_parameter, typed.values())]

    @functools.wraps(command)
    def taking(**arguments: Any) -> Any:
        given = {name: value for name in typed if (value := arguments.pop(name)) is not None}
        lists = {name for name in given if isinstance(typed[name].default, tuple)}  # which come as texts
        numbers = {name: parse_value(tuple, name, v) if name in lists else v for name, v in given.items()}
        return command(**arguments, numbers=numbers)

    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {p.name: p.annotation for p in parameters}
    return taking


def chosen(numbers: dict[str, Any], set_: Sequence[str], config: Config) -> Config:
    """The configuration with what was given, also as ``--set NAME=VALUE``, which an own task's numbers need."""
    fields = {f.name: f for _, f in config.fields()}
    for text in set_:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in fields:
            known = ", ".join(sorted(fields))
            raise ValueError(f"--set {text}: NAME=VALUE is needed, with one of {known}")
        numbers = {**numbers, name: parse_value(type(fields[name].default), name, value.strip())}
    return config.replaced(numbers)


def _parameter(f: dataclasses.Field[Any]) -> inspect.Parameter:
    """The option of a field, for typer."""
    kind: Any = type(f.default) if type(f.default) in (bool, int, float) else str
    names = [f"{option(f.name)}/--no-{option(f.name)[2:]}"] if kind is bool else []
    option_info = typer.Option(*names, help=f.metadata["text"], rich_help_panel=PANEL, show_default=False)
    annotation = Annotated[kind | None, option_info]
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def parse_value(kind: type, name: str, text: str) -> Any:
    """The value of an option from its text; a ValueError that says what is needed."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{option(name)} {text}: true or false is needed")
        return text.lower() == "true"
    try:
        return tuple(map(_number, text.split(","))) if kind is tuple else kind(text)
    except ValueError:
        needed = "numbers separated by commas, like 1,2,4," if kind is tuple else f"a number ({kind.__name__})"
        raise ValueError(f"{option(name)} {text!r}: {needed} is needed") from None


def _number(text: str) -> float:
    """A whole number if it is one, so that 2 and 2.0 are the same configuration."""
    value = float(text)
    return int(value) if value.is_integer() else value
