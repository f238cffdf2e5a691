"""Whole documents to evaluate on: text files of a folder, or long sources of the installed standard library."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from posenc.input_files import read_text

BYTES = 2**24  # of one document
SUFFIXES = frozenset({".txt", ".md", ".rst", ".py", ".js", ".ts", ".c", ".h", ".cpp", ".java", ".go", ".rs", ".tex"})


class Document(NamedTuple):
    """One document: a name that identifies it within its collection, its text, and the SHA-256 of its bytes."""

    name: str
    text: str
    sha256: str


def read_documents(paths: Sequence[str | Path] = ()) -> list[Document]:
    """Documents by the hash of their names, which decides the order in which they are used; a copy of one is left out.

    Args:
        paths: text files, and folders that are searched for text files; none: the Python sources of the installed
            standard library, which need no download.

    Raises:
        ValueError: for a path that does not exist, a folder without text files, or a text that is not UTF-8.
    """
    documents: dict[str, Document] = {}
    texts: set[str] = set()
    for path in map(Path, paths or [sysconfig.get_path("stdlib")]):
        if not path.exists():
            raise ValueError(f"documents: there is nothing at {path}; give text files, or folders with them")
        files = [path] if path.is_file() else sorted(_text_files(path, library=not paths))
        if not files:
            raise ValueError(f"documents: {path} holds no text files ({', '.join(sorted(SUFFIXES))})")
        for file in files:
            text = read_text(file, BYTES)
            sha256 = hashlib.sha256(text.encode()).hexdigest()
            if sha256 in texts:
                continue
            name = file.name if path.is_file() else file.relative_to(path).as_posix()
            name = file.as_posix() if name in documents else name
            texts.add(sha256)
            documents[name] = Document(name, text, sha256)
    return sorted(documents.values(), key=lambda document: hashlib.sha256(document.name.encode()).digest())


def _text_files(folder: Path, *, library: bool) -> Iterator[Path]:
    """Text files below a folder; from the standard library's folder neither tests nor installed packages."""
    for file in folder.rglob("*"):
        parts = set(file.relative_to(folder).parts[:-1])
        if library and (file.suffix != ".py" or parts & {"test", "tests", "site-packages", "dist-packages"}):
            continue
        if file.suffix in SUFFIXES and file.is_file():
            yield file
