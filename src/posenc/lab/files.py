"""Files that survive a power cut, either the old content or the new one; and files of others, read as plain data."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 2**26  # of a record; what is written is far below
MOST_RESULTS = 2**29  # bytes of a table of records, and its like


class UnwritableError(OSError):
    """A file that could not be written, by name; what there was before is as it was."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file beside ``path``, flush it to the disk, and put it in its place in one step.

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
    """Let an error of the system say which file could not be written: that of a full disk names none by itself."""
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
    if path.is_dir():
        raise ValueError(f"{path} is a folder, where a file is needed")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe is not waited for
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no plain file")
        if found.st_size > most:
            raise ValueError(f"{path} has {found.st_size:,} bytes, more than the {most:,} that are read of it")
        return file.read(most)


def parse_json(path: Path, content: bytes) -> Any:
    """JSON, in UTF-8; anything else is a ValueError naming the file."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is truncated or not JSON; it was left as it is: move it away to start again"
        ) from error


def read_json(path: Path, fields: tuple[str, ...]) -> dict[str, Any]:
    """Read a record and check that it holds ``fields``; a truncated or foreign file is a ValueError naming it."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    record = parse_json(path, content)
    missing = [field for field in fields if not isinstance(record, dict) or field not in record]
    if missing:
        raise ValueError(
            f"{path} was not written by posenc compare ({', '.join(missing)} missing); it was left as it is: "
            "move it away to start again"
        )
    return dict(record)
