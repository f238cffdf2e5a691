"""The sources of installed packages: where they lie, and which of their files read like code.

What is there is nearly the same on every machine, but not quite: a corpus of it states the versions, and its hash
tells two of them apart.
"""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from posenc.lab.corpora.documents import Document

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
    """Name and content of the files of installed packages, of at most so many bytes, in order of names."""
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
    found = find_spec(package)
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def versions(packages: Sequence[str]) -> str:
    """Those of the packages that are installed, with their versions, in words."""
    named = {f"{name} {metadata.version(DISTRIBUTIONS.get(name, name))}" for name in packages if _installed(name)}
    return ", ".join([f"Python {platform.python_version()}", *sorted(named)])


def python_sources() -> list[Document]:
    """Python sources: the standard library's and those of torch, which lies beside this library everywhere."""
    return [Document(name, text) for name, text in sources(PYTHON)]


def cpp_headers() -> list[Document]:
    """C++ headers, those of torch, which no generator has written."""
    found = sources(("torch",), files="*.h")
    return [Document(name, text) for name, text in found if b"@generated" not in text and b"enerated by" not in text]


def _installed(package: str) -> bool:
    return package != STANDARD and folder_of(package) is not None
