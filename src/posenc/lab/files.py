"""Files that survive a power cut: either the old content or the new one, never half of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file beside ``path``, flush it to the disk, and put it in its place in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (the system call is the point)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record of plain data; NaN and infinities are refused because other readers of JSON refuse them."""
    write_atomically(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path, fields: tuple[str, ...]) -> dict[str, Any]:
    """Read a record and check that it holds ``fields``; a truncated or foreign file is a ValueError naming it."""
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(
            f"{path} is truncated or not JSON; it was left as it is: move it away to start again"
        ) from error
    missing = [field for field in fields if not isinstance(record, dict) or field not in record]
    if missing:
        raise ValueError(
            f"{path} was not written by posenc compare ({', '.join(missing)} missing); it was left as it is: "
            "move it away to start again"
        )
    return dict(record)
