"""Documents, and how they are read: from a file, a folder, a dataset of the Hugging Face hub, or installed packages.

Packages need no download. Their files are nearly the same on every machine, but not quite: a corpus states the
packages' versions, and its hash tells two of them apart. Whole documents are files as their authors wrote them, of at
least 8 KiB; installed packages hold little documentation, so that nearly all of them are single sources.

Byte 0 never occurs in a document: it separates them in training.
"""

from __future__ import annotations

import itertools
import platform
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from posenc.lab.files import MOST_RESULTS, read_bytes

if TYPE_CHECKING:
    import datasets


class Document(NamedTuple):
    """One text. Windows of the evaluation never leave it."""

    name: str  # relative path or row, in posix form: its hash decides on which side of the split the text lies
    text: bytes
    held_out: bool | None = None  # True: validation, False: training, None: the hash of the name decides


class Source(NamedTuple):
    """What ``--data`` names."""

    title: str
    documents: list[Document]
    independent: bool  # whether documents are independent of each other; otherwise they may be single books
    within_documents: bool = False  # whether a piece that a model is trained on lies inside one document, as windows do


def file_documents(path: Path) -> list[Document]:
    """One text file: the last tenth is held out, so that training never sees what follows a validation window."""
    text = _text_of(path)
    if text is None:
        raise ValueError(f"data: {path} is not UTF-8 text")
    if not text:
        raise ValueError(f"data: {path} is empty")
    cut = len(text) - len(text) // 10
    return [Document(path.name, text[:cut], held_out=False), Document(f"{path.name}#2", text[cut:], held_out=True)]


def folder_documents(root: Path) -> list[Document]:
    """All files of a folder that are UTF-8 text; hidden files and folders are passed over."""
    documents = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if not path.is_file() or any(part.startswith(".") for part in relative.parts):
            continue
        text = _text_of(path)
        if text:
            documents.append(Document(relative.as_posix(), text))
    if not documents:
        raise ValueError(f"data: folder {root} holds no text (files that are UTF-8 and not empty)")
    return documents


def hub_documents(reference: str) -> list[Document]:
    """The rows of a dataset's text column: of the hub, or of a local folder of parquet, JSON or text files.

    Args:
        reference: ``NAME``, ``NAME:CONFIG`` or a path. A split called validation or test is held out if there
            is one, otherwise the hash of split and row number decides.
    """
    import datasets  # as late as this because it takes a second

    name, config = reference, None
    if ":" in reference and not Path(reference).exists():
        name, config = reference.split(":", maxsplit=1)
    try:
        loaded = datasets.load_dataset(name, config)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"data: cannot load the dataset {reference!r}: {line}") from error
    held_out = next((split for split in ("validation", "test") if split in loaded and len(loaded) > 1), None)
    chosen = {"train": False, held_out: True} if held_out and "train" in loaded else dict.fromkeys(loaded)
    return [
        Document(f"{split}/{row:09d}", text.encode(), side)
        for split, side in chosen.items()
        for row, text in enumerate(_text_column(loaded[split], reference))
        if text and "\0" not in text
    ]


def _text_column(rows: datasets.Dataset, reference: str) -> list[str]:
    strings = [
        name for name, feature in rows.features.items() if getattr(feature, "dtype", None) in ("string", "large_string")
    ]
    if not strings:
        raise ValueError(f"data: {reference!r} has no text column; its columns are {', '.join(rows.features)}")
    column: list[str] = rows["text" if "text" in strings else strings[0]][:]
    return column


def is_utf8(content: bytes) -> bool:
    """Whether bytes are text in UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text_of(path: Path) -> bytes | None:
    try:
        text = read_bytes(path, MOST_RESULTS)
    except OSError as error:
        raise ValueError(f"data: cannot read {path}: {error.strerror}") from error
    return text if is_utf8(text) and b"\0" not in text else None


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
