"""Files that somebody else wrote: opened and parsed as plain data, within bounds of size and depth.

Every reader of posenc goes through here: configs, tensor headers, GGUF metadata and the laboratory's records. A named
pipe would block forever and a link to /dev/zero has no end, so that only regular files are opened, and only their
first bytes are read.

Each failure is an `UnreadableFileError` of one line that begins with the file's path, or the system's own OSError.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

DEPTH = 64  # objects and lists within one another; configs have 5
_LFS = b"version https://git-lfs"  # how a pointer of Git LFS begins
_SHOWN = 60  # characters of a foreign text in an error


class UnreadableFileError(ValueError):
    """A file is not what it should be, before a word of its content is understood; the text begins with its path."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        UnreadableFileError: for a folder, a named pipe, a device or a socket; it names the path.
        OSError: as the system says.
    """
    kind = path.stat().st_mode  # before it is opened: a pipe waits for its other end, and a device may act
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a pipe, a socket or a device"
        raise UnreadableFileError(f"{path_text(path)} is {what}; a regular file is needed")
    return path.open("rb")


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Raises:
        UnreadableFileError: for anything else; it names the path.
        OSError: as the system says.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UnreadableFileError(f"{path_text(path)} has more than the limit of {most:,} bytes for such a file")
    return content


def read_text(path: Path, most: int) -> str:
    """The text of a regular file in UTF-8, without a byte order mark, with which some editors begin a file.

    Raises:
        UnreadableFileError: for another encoding, for a pointer of Git LFS, and as `read_bytes`; it names the path.
        OSError: as the system says.
    """
    content = read_bytes(path, most)
    if content.startswith(_LFS):
        raise UnreadableFileError(lfs_text(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{path_text(path)} is not utf-8 (byte {error.start:,}); UTF-8 is needed") from None


def parse_json(path: Path, text: str) -> Any:
    """The value of a file's text in JSON. NaN and Infinity are numbers, as other programs in Python write them.

    Raises:
        UnreadableFileError: for what is no JSON, for objects and lists deeper than in any file of models, and for a key
            that stands twice in one object with different values; it names the path.
    """
    if not text.strip("\0 \t\r\n"):
        raise UnreadableFileError(f"{path_text(path)} is empty or filled with zeros: no JSON")
    try:
        value = json.loads(text, object_pairs_hook=_object)
        is_deep = text.count("{") + text.count("[") > DEPTH and _is_deep(value)  # fewer cannot be deeper
    except RecursionError:
        is_deep = True
    except ValueError as error:  # no JSON, a key that stands twice, or an integer of thousands of digits
        raise UnreadableFileError(f"{path_text(path)} cannot be read as JSON: {error}") from None
    if is_deep:
        raise UnreadableFileError(f"{path_text(path)} is nested deeper than {DEPTH} objects and lists")
    return value


def read_json(path: Path, most: int) -> Any:
    """The value that a regular file in JSON holds; errors as `read_text` and `parse_json`."""
    return parse_json(path, read_text(path, most))


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH + 1):
        inner = [outer.values() if isinstance(outer, dict) else outer for outer in level]
        level = [entry for entries in inner for entry in entries if isinstance(entry, dict | list)]
    return bool(level)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        for key, other in pairs:
            texts = [repr(each)[:_SHOWN] for each in (other, value[key])]
            if repr(other) != repr(value[key]):
                text = f"stands twice: {texts[0]} and {texts[1]}, and JSON does not say which"
                raise ValueError(f"{printable(key)} {text}")
    return value


def is_lfs_pointer(content: bytes) -> bool:
    """Whether a file begins as a pointer of Git LFS, which stands for a large file that was not downloaded."""
    return content.startswith(_LFS)


def lfs_text(path: Path) -> str:
    """The error about a pointer of Git LFS instead of a file."""
    return f"{path_text(path)} is a pointer of Git LFS, not the file itself: run git lfs pull in its folder"


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Let each ValueError about the content of a file begin with the file's path, unless it names it by itself."""
    try:
        yield
    except UnicodeError as error:  # whose arguments are no text
        raise UnreadableFileError(f"{path_text(path)}: {error}") from error
    except ValueError as error:
        if str(path) in str(error) or path_text(path) in str(error):
            raise
        error.args = (f"{path_text(path)}: {error}", *error.args[1:])
        raise


def path_text(path: Path | str) -> str:
    """A path for an error message, on one line."""
    return printable(str(path))


def printable(text: str) -> str:
    r"""A foreign text on one line of a terminal: control and invisible signs, which could rewrite it, are escaped.

    >>> printable("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "backslashreplace").decode("ascii")
