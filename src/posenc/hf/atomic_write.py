"""Atomic writing of files and folders: complete at their path, or not there at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming_target(out: Path) -> Iterator[None]:
    """Let an error of the system, as that of a full disk, name what was to be written, not a temporary part of it."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OSError(f"{out}: cannot be written: {' '.join(str(reason).split())}; nothing was lost") from error


def write_whole(out: Path, make: Callable[[Path], object]) -> None:
    """Make something beside ``out``, and let it take that place when it is whole.

    Raises:
        ValueError: where something is there by then.
        OSError: where it cannot be written, as on a full disk; it names ``out``, and nothing of it is left.
    """
    with naming_target(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with naming_target(out), tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as name:
        temporary = Path(name) / out.name
        make(temporary)
        if os.path.lexists(out):
            raise ValueError(f"out: {out} exists; nothing is overwritten")
        temporary.rename(out)
