"""Files that somebody else wrote: opened and parsed as plain data, within bounds of size, time and memory.

Every reader of posenc goes through here: configs, tensor headers, GGUF metadata and the laboratory's records. A file is
hostile until it is read. A named pipe would block forever and a link to /dev/zero has no end, so that only regular
files are opened; a short text of brackets can become gigabytes of objects, so that objects are counted before parsing.

Each failure is an `UnreadableFileError` of one line that begins with the file's path, or the system's own OSError.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

DEPTH = 64  # objects and lists within one another; configs have 5
CONTAINERS = 2**19  # objects and lists of one file: each takes up to 232 bytes of memory for 2 bytes of text
VALUES = 2**21  # commas of one file: the index of the largest checkpoint has 2**18 tensors
_MARK = "\ufeff"  # byte order mark, with which some editors begin a file
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16 and UTF-32
_LFS = b"version https://git-lfs"  # how a pointer of Git LFS begins
_SHOWN = 60  # characters of a foreign text in an error


class UnreadableFileError(ValueError):
    """A file is not what it should be, before a word of its content is understood; the text begins with its path."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting for the other end of a pipe.

    Raises:
        UnreadableFileError: for a folder, a named pipe, a device or a socket; it names the path.
        OSError: as the system says.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    kind = path.stat().st_mode  # opening a socket or a device may fail or act before fstat could say what it is
    if not stat.S_ISREG(kind):
        raise UnreadableFileError(f"{path_text(path)} is {_kind(kind)}; a regular file is needed")
    file = os.fdopen(os.open(path, flags), "rb")
    kind = os.fstat(file.fileno()).st_mode  # another file may stand there by now
    if not stat.S_ISREG(kind):
        file.close()
        raise UnreadableFileError(f"{path_text(path)} is {_kind(kind)}; a regular file is needed")
    return file


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "no regular file")


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Raises:
        UnreadableFileError: for anything else; it names the path.
        OSError: as the system says.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnreadableFileError(
                f"{path_text(path)} has {size:,} bytes, more than the limit of {most:,} for such a file"
            )
        content = file.read(most + 1)  # a file of /proc says that it has 0
    if len(content) > most:
        raise UnreadableFileError(f"{path_text(path)} has more than the limit of {most:,} bytes for such a file")
    return content


def read_text(path: Path, most: int) -> str:
    """The text of a regular file in UTF-8, without a byte order mark; errors as `read_bytes`."""
    return decoded(path, read_bytes(path, most))


def decoded(path: Path, content: bytes) -> str:
    """Bytes of a file as text in UTF-8, without a byte order mark.

    Raises:
        UnreadableFileError: for another encoding; it names the path.
    """
    try:
        return content.decode("utf-8").removeprefix(_MARK)
    except UnicodeDecodeError as error:
        wide = "UTF-16 or UTF-32" if content.startswith(_WIDE) else f"not utf-8 (byte {error.start:,})"
        raise UnreadableFileError(f"{path_text(path)} is {wide}; UTF-8 is needed") from None


def parse_json(path: Path, content: bytes) -> Any:
    """The value that a file in JSON holds. NaN and Infinity are numbers, as other programs in Python write them.

    Raises:
        UnreadableFileError: for what is no JSON in UTF-8, for more objects, values or depth than any file of models
            has, and for a key that stands twice in one object with different values; it names the path.
    """
    if is_lfs_pointer(content):
        raise UnreadableFileError(lfs_text(path))
    if not content.strip(b"\0 \t\r\n"):
        raise UnreadableFileError(
            f"{path_text(path)} is {'filled with zeros' if content.strip() else 'empty'}: no JSON"
        )
    text = decoded(path, content)
    if content.count(b"{") + content.count(b"[") > CONTAINERS:
        raise UnreadableFileError(
            f"{path_text(path)} has more than {CONTAINERS:,} objects and lists; no such file of a model has"
        )
    if content.count(b",") > VALUES:
        raise UnreadableFileError(f"{path_text(path)} has more than {VALUES:,} values; no such file of a model has")
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except _TwiceError as error:
        raise UnreadableFileError(f"{path_text(path)}: {error}") from None
    except RecursionError:
        raise UnreadableFileError(f"{path_text(path)} is nested deeper than {DEPTH} objects and lists") from None
    except ValueError as error:  # no JSON, or an integer of thousands of digits
        raise UnreadableFileError(f"{path_text(path)} is no JSON: {error}") from None
    if isinstance(value, dict | list):
        _check_depth(path, value)
    return value


def read_json(path: Path, most: int) -> Any:
    """The value that a regular file in JSON holds; errors as `read_bytes` and `parse_json`."""
    return parse_json(path, read_bytes(path, most))


class _TwiceError(ValueError):
    """A key stands twice in one object, with different values."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    value = {}
    for key, inner in pairs:
        if key in value and not _same(value[key], inner):
            text = f"stands twice: {_brief(value[key])} and {_brief(inner)}, and JSON does not say which"
            raise _TwiceError(f"{printable(key)} {text}")
        value[key] = inner
    return value


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and (
        value == other or (value != value and other != other)
    )


def _brief(value: Any) -> str:
    text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) and abs(value) >= 2**64 else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _check_depth(path: Path, value: dict[str, Any] | list[Any]) -> None:
    """Raise a ValueError for more than `DEPTH` objects and lists within one another; it names the outermost keys."""
    level: list[tuple[str, dict[str, Any] | list[Any]]] = [("", value)]
    for _ in range(DEPTH + 1):
        inner: list[tuple[str, Any]] = []
        for name, outer in level:
            items: Iterable[tuple[Any, Any]] = outer.items() if isinstance(outer, dict) else enumerate(outer)
            for key, entry in items:
                if isinstance(entry, dict | list):
                    inner.append((name if name.count(".") > 2 else f"{name}.{printable(str(key)[:_SHOWN])}", entry))
        if not inner:
            return
        level = inner
    raise UnreadableFileError(
        f"{path_text(path)}: {level[0][0].strip('.')} is nested deeper than {DEPTH} objects and lists"
    )


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
