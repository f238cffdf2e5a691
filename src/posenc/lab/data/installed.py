"""Corpora from installed packages, which need no download: Python sources, and whole documents.

The files are nearly the same on every machine, but not quite: a corpus states the packages' versions, and its hash
tells two of them apart. Whole documents are files as their authors wrote them, of at least 8 KiB: documentation, and
single sources. Installed packages hold little documentation, so that nearly all of them are sources.
"""

from __future__ import annotations

import itertools
import platform
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from posenc.lab.data.documents import Document, is_utf8

STANDARD = "the standard library"
# What some distributions lack, and what does not read like code: tests, tables of character sets, one huge literal.
EXCLUDED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "testing",
        "idle_test",
        "site-packages",
        "dist-packages",
        "pydoc_data",
        "encodings",
        "__pycache__",
    }
)
EXCLUDED_PREFIXES = ("lib2to3/pgen",)
LEAST, MOST = 2**8, 2**17  # bytes of a file; longer ones are mostly generated tables
DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where a package is not called as what is imported
PYTHON = (STANDARD, "torch")


def sources(packages: Sequence[str], most: int = MOST, files: str = "*.py") -> Iterator[tuple[str, bytes]]:
    """Name and content of the files of packages, in order of names.

    Args:
        packages: names; packages that are not installed have no files.
        most: bytes of a file.
        files: pattern of the files' names.
    """
    for package in packages:
        root = folder_of(package)
        for path in sorted(root.rglob(files)) if root else []:
            name = path.relative_to(root or path).as_posix()
            if EXCLUDED_FOLDERS.intersection(PurePosixPath(name).parts) or name.startswith(EXCLUDED_PREFIXES):
                continue
            text = path.read_bytes()
            if LEAST <= len(text) <= most and b"\0" not in text:
                yield name if package == STANDARD else f"{package}/{name}", text


def folder_of(package: str) -> Path | None:
    """Where a package lies; None where it is not installed. Nothing of it is imported."""
    if package == STANDARD:
        return Path(sysconfig.get_path("stdlib"))
    spec = find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def versions(packages: Sequence[str]) -> str:
    """The installed ones of these packages with their versions, as text."""
    named = {f"{name} {metadata.version(DISTRIBUTIONS.get(name, name))}" for name in packages if _installed(name)}
    return ", ".join([f"Python {platform.python_version()}", *sorted(named)])


def python_sources() -> list[Document]:
    """Python sources: the standard library's and torch's, which is installed wherever this library is."""
    return [Document(name, text) for name, text in sources(PYTHON)]


DOCUMENT_LEAST, DOCUMENT_MOST = 2**13, 2**19  # bytes of a whole document
MOST_DIGITS = 0.1  # share of a document's bytes: tables of numbers have more


def whole_documents() -> list[Document]:
    """Files of at least 8 KiB of Python and of scientific packages, each from its first byte to its last.

    Sources, documentation (.rst, .md, .txt) and the chapters of Python's reference, in UTF-8; no tables of numbers.
    """
    patterns = ("*.py", "*.rst", "*.md", "*.txt")
    files = (sources(PACKAGES, most=DOCUMENT_MOST, files=pattern) for pattern in patterns)
    return whole_documents_of(itertools.chain(_topics(), *files))


def whole_documents_of(files: Iterable[tuple[str, bytes]]) -> list[Document]:
    """Those files that are whole documents, given as names and contents."""
    return [Document(name, text) for name, text in files if len(text) >= DOCUMENT_LEAST and _is_text(text)]


def _is_text(content: bytes) -> bool:
    digits = sum(content.count(digit) for digit in b"0123456789")
    return is_utf8(content) and digits <= MOST_DIGITS * len(content)


def _installed(package: str) -> bool:
    return package != STANDARD and folder_of(package) is not None


# Of the extra ``lab``, and what torch itself depends on.
PACKAGES = (STANDARD, "torch", "numpy", "scipy", "pandas", "statsmodels", "sklearn", "sympy", "networkx")


def _topics() -> Iterator[tuple[str, bytes]]:
    """The chapters of Python's reference that its help shows, where a distribution has them."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name, text in sorted(topics.items()):
        yield f"pydoc_data/{name}", text.encode()
