"""What the files of a run may hold: types that pydantic validates once, where a file is read.

The folder of a run may come from anybody, and its names become paths, imports and lines on a terminal. So every text is
one printable line of bounded length, every number finite and in its bounds, and a name is that of an encoding or a
class, never a path. A record is declared where it is written, as a dataclass or a TypedDict of these types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from posenc.input_files import printable
from posenc.lab.files import read_json

T = TypeVar("T")
MOST_SEEDS = 10_000
LONGEST_NAME, LONGEST_TEXT, LONGEST_COMMAND, MOST_ENTRIES = 200, 1000, 2**16, 1000
_PART = re.compile(r"[a-z0-9_-]+")
_INTEGER = re.compile(r"[0-9]{1,9}")


def is_plugin_name(name: str) -> bool:
    """Whether a name is a plugin's, a user's class or function as it is imported: ``my_module:MyClass``."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), attribute))


def encoding_spec(value: str) -> str:
    """The name of an encoding, a mix or a row of a table; a ValueError where it is none.

    Letters, digits, ``_`` and ``-``, joined by ``+``; ``module:Class`` for a class of somebody's own; ``@`` and a
    number at the end; further such kinds of layers behind ``/``, each with ``:`` and a number.
    """
    if len(value) > LONGEST_NAME or not all(_is_rule(rule, n) for n, rule in enumerate(value.split("/"))):
        raise ValueError("not the name of an encoding")
    return value


def _is_rule(rule: str, place: int) -> bool:
    """Whether a part of a spec between slashes names encodings, with a window or a number of layers or neither."""
    if place > 0:
        rule, colon, every = rule.rpartition(":")
        if not colon or _INTEGER.fullmatch(every) is None:
            return False
    mix, at, window = rule.partition("@")
    known = all(_PART.fullmatch(part) or is_plugin_name(part) for part in mix.split("+"))
    return known and (not at or _INTEGER.fullmatch(window) is not None)


def _plugin_name(value: str) -> str:
    if not is_plugin_name(value):
        raise ValueError("not the name of a class like my_module:MyClass")
    return value


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("text with control characters")
    return value


def _lines(value: str) -> str:
    _one_line(value.replace("\n", ""))
    return value


Line = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_one_line)]
Lines = Annotated[str, Field(max_length=LONGEST_COMMAND), AfterValidator(_lines)]  # command lines, one under another
Facts = Annotated[dict[Line, Line], Field(max_length=MOST_ENTRIES)]
Spec = Annotated[str, AfterValidator(encoding_spec)]
PluginName = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_plugin_name)]
Trial = Annotated[str, Field(pattern=r"^(trial[0-9]{1,9})?$")]
Seed = Annotated[int, Field(ge=0, lt=MOST_SEEDS)]
Protocol = Annotated[int, Field(ge=0, lt=10_000)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**40)]
Factors = dict[Literal["lr", "own"], Annotated[float, Field(gt=0, allow_inf_nan=False)]]  # see `posenc.lab.run.rates`


def read_record(path: Path, kind: type[T]) -> T:
    """The record that a file in JSON holds, validated.

    Args:
        path: of the file.
        kind: a dataclass or a TypedDict; entries that it does not declare are ignored.

    Raises:
        ValueError: for a file that cannot be read or holds something else; one line that begins with the path.
    """
    return validated(path, kind, read_json(path))


def validated(path: Path, kind: type[T], record: object) -> T:
    """Plain data of a file as ``kind``, strictly: a text is no number and 1 is no truth value.

    Raises:
        ValueError: for anything else; one line that begins with the path.
    """
    try:
        # Through JSON, since strict validation of Python objects would refuse a list in the place of a tuple.
        return TypeAdapter(kind).validate_json(json.dumps(record), strict=True)
    except ValidationError as error:
        raise ValueError(f"{path}: {_described(error)}; the file was left as it is") from None


def _described(error: ValidationError) -> str:
    """The first complaint on one line: where, what is wrong, what stands there."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part)[:60] for part in first["loc"]) or "the content"
    return printable(f"{where}: {first['msg'].removeprefix('Value error, ')}, got {shown(first['input'])}")


def shown(value: object) -> str:
    """A value as an error quotes it: one short line."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def refuse_links(paths: Iterable[Path]) -> None:
    """Make sure that what is to be written into is no link: it could lead anywhere."""
    for path in paths:
        if path.is_symlink():
            raise ValueError(f"{path} is a link; a run writes into folders and files of its own alone: replace it")


__all__ = [
    "Count", "Facts", "Factors", "Line", "Lines", "Number", "PluginName", "Protocol", "Seed", "Spec", "Trial",
    "MOST_SEEDS", "encoding_spec", "is_plugin_name", "read_record", "refuse_links", "shown", "validated",
]  # fmt: skip
