"""Files that survive a power cut, either the old content or the new one; and files of others, read as plain data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posenc import input_files

MOST_BYTES = 2**26  # of a record; what is written is far below
MOST_RESULTS = 2**29  # bytes of a table of records, and its like


class UnwritableError(OSError):
    """A file that could not be written, by name; what there was before is as it was."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file next to ``path``, flush it to the disk, and put it in its place in one step.

    Raises:
        UnwritableError: naming ``path``; what was there before is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)  # noqa: PTH105  (the system call is the point)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system say which file could not be written; the error of a full disk names none."""
    try:
        yield
    except OSError as error:
        if isinstance(error, UnwritableError):
            raise
        named = UnwritableError(f"cannot write {path}: {error.strerror or error}")
        named.errno = error.errno
        raise named from error


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record of plain data; NaN and infinities are refused because other readers of JSON refuse them."""
    write_atomically(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a plain file of at most ``most`` bytes; anything else is a ValueError naming it.

    Raises:
        OSError: as the system says.
    """
    return input_files.read_bytes(path, most)


def parse_json(path: Path, content: bytes) -> Any:
    """JSON, in UTF-8; anything else is a ValueError naming the file."""
    try:
        return input_files.parse_json(path, content)
    except ValueError as error:
        raise ValueError(f"{error}; it was left as it is: move it away to start again") from error


def read_json(path: Path) -> Any:
    """The contents of a JSON file; a ValueError names a file that is missing, truncated or not JSON."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    return parse_json(path, content)
