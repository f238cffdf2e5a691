"""Atomic writing of files and folders: complete at their path, or not there at all.

A new file or folder is built in a temporary folder next to its target, so on the same disk, flushed, and moved by
one rename, which POSIX makes atomic. A process that is killed, or a full disk, leaves the target as it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from posenc.arguments import one_line

T = TypeVar("T")
_BACKUP = ".original"


class UnwritableError(OSError):
    """A file or folder that could not be written, by name; what was there before is as it was."""


@contextmanager
def _naming_target(out: Path, outcome: str) -> Iterator[None]:
    """Let an error of the system, such as a full disk, name the target and not a temporary path.

    Args:
        out: the target.
        outcome: what is still there, for the message.
    """
    try:
        yield
    except Exception as error:
        unwritable = isinstance(error, OSError) or type(error).__name__ == "SafetensorError"
        if not unwritable or isinstance(error, UnwritableError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnwritableError(f"{out}: cannot be written: {one_line(reason)}; {outcome}") from error


def write_atomically(
    out: Path, make: Callable[[Path], T], *, replace: bool = False, outcome: str = "nothing was lost"
) -> T:
    """Build a file or folder at a temporary path, and move it to ``out`` once it is complete.

    Args:
        out: the path; missing folders above it are made.
        make: writes the file or folder at the path that it is given.
        replace: whether a file or folder at ``out`` may be replaced; it comes back where that fails.
        outcome: what is still there where it cannot be written, for the message.

    Returns:
        What ``make`` returns.

    Raises:
        ValueError: where something is at ``out`` by then that may not be replaced; and whatever ``make`` raises.
        OSError: where it cannot be written, as on a full disk; it names ``out``, and nothing of it is left.
    """
    with _naming_target(out, outcome):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
            temporary = Path(folder) / out.name
            result = make(temporary)
            if temporary.is_file():  # else a power cut after the rename could leave an empty file under the final name
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            if os.path.lexists(out) and not replace:
                raise ValueError(f"out: {out} exists; nothing is overwritten")
            old = Path(folder) / ".replaced"
            try:
                if temporary.is_dir() and os.path.lexists(out):  # which no rename replaces
                    out.replace(old)
                temporary.replace(out)
            except BaseException:  # an interruption as well: what is left in the temporary folder is deleted
                if os.path.lexists(old) and not os.path.lexists(out):
                    old.replace(out)
                raise
    return result


def replace_with_backup(path: Path, text: str) -> Path:
    """Replace a file's text, and keep the old file in the same folder under a new name, which is returned.

    The backup is NAME.original, or NAME.original-2 and on where there is one: none is overwritten.

    Raises:
        OSError: where it cannot be written; the file is then as it was.
    """
    backup, number = path.with_name(path.name + _BACKUP), 2
    while os.path.lexists(backup):
        backup, number = path.with_name(f"{path.name}{_BACKUP}-{number}"), number + 1

    def make(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.chmod(path.stat().st_mode)
        # Last, when the new file is complete: a full disk leaves the file as it was, and no backup next to it.
        write_atomically(backup, lambda copy: shutil.copy2(path, copy))

    write_atomically(path, make, replace=True)
    return backup
