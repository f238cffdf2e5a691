"""Files of a run: written so that a power cut leaves the old content or the new one, and read as validated plain data.

A record is declared where it is written, as a dataclass or a TypedDict, and pydantic validates it where it is read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from posenc import input_files
from posenc.hf import atomic_write

T = TypeVar("T")
MOST_BYTES = 2**26  # of a record; what is written is far below
MOST_RESULTS = 2**29  # bytes of a table of records, and its like
MOST_SEEDS, LONGEST_NAME = 10_000, 200
_NAME = r"(?:[a-z0-9_-]+|[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*)"
_MIX = rf"{_NAME}(?:\+{_NAME})*(?:@[0-9]{{1,9}})?"
_SPEC = re.compile(rf"{_MIX}(?:/{_MIX}:[0-9]{{1,9}})*")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is complete at its path or not there at all; what was there before stays until then.

    Raises:
        UnwritableError: naming ``path``.
    """
    atomic_write.write_atomically(path, lambda temporary: temporary.write_bytes(content), replace=True)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record of plain data; NaN and infinities are refused because other readers of JSON refuse them."""
    write_atomically(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a plain file of at most ``most`` bytes; anything else is a ValueError naming it.

    Raises:
        OSError: as the system says.
    """
    return input_files.read_bytes(path, most)


def read_json(path: Path) -> Any:
    """The contents of a JSON file; a ValueError names a file that is missing, truncated or not JSON."""
    try:
        return input_files.read_json(path, MOST_BYTES)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{error}; it was left as it is: move it away to start again") from error


def encoding_spec(value: str) -> str:
    """The name of an encoding, a mix or a row of a table, which becomes part of a path; a ValueError where it is none.

    Letters, digits, ``_`` and ``-``, joined by ``+``; ``module:Class`` for a class of somebody's own; ``@`` and a
    number at the end; further such kinds of layers behind ``/``, each with ``:`` and a number.
    """
    if len(value) > LONGEST_NAME or not _SPEC.fullmatch(value):
        raise ValueError("not the name of an encoding")
    return value


Facts = dict[str, str]
Spec = Annotated[str, AfterValidator(encoding_spec)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**40)]
Factors = dict[Literal["lr", "own"], Annotated[float, Field(gt=0, allow_inf_nan=False)]]  # see `posenc.lab.run.job`


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
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"]) or "the content"
        message = input_files.printable(
            f"{where}: {first['msg'].removeprefix('Value error, ')}, got {first['input']!r:.60}"
        )
        raise ValueError(f"{path}: {message}; the file was left as it is") from None
