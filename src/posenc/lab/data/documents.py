"""Documents, and where they come from: ``--data`` takes ``python``, a file, a folder, ``hf:NAME[:CONFIG]`` for a
dataset of the Hugging Face hub, or ``my_module:my_corpus`` for a function of one's own that returns documents.

``python`` needs no download. Its files are nearly the same on every machine, but not quite: a corpus states the
versions, and its hash tells two of them apart.

Byte 0 never occurs in a document: it separates them in training.
"""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import torch

from posenc.lab.files import MOST_RESULTS, read_bytes
from posenc.lab.plugins import is_plugin, load_function

if TYPE_CHECKING:
    import datasets

PYTHON = "python"


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


def read_source(name: str) -> Source:
    """The documents that ``--data`` names; a ValueError where there are none."""
    if name == PYTHON:
        versions = f"Python {platform.python_version()}, torch {torch.__version__}"
        return Source(f"Python sources ({versions})", python_sources(), independent=True)
    if name.startswith("hf:"):
        return Source(name, hub_documents(name.removeprefix("hf:")), independent=False)
    path = Path(name).expanduser()
    if path.is_dir():
        return Source(f"folder {path.resolve().name}", folder_documents(path), independent=False)
    if path.is_file():
        return Source(f"file {path.name}", file_documents(path), independent=False)
    if is_plugin(name):
        return Source(name, _plugin_documents(name), independent=True)
    raise ValueError(
        f"data: no file or folder {name!r} ({PYTHON} is built in; a function of your own is written "
        "my_module:my_corpus, a dataset of the hub hf:NAME)"
    )


def _plugin_documents(name: str) -> list[Document]:
    documents = load_function(name)()
    if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
        raise ValueError(f"data: {name} must return a list of posenc.lab.data.Document")
    for document in documents:
        if not isinstance(document.text, bytes) or b"\0" in document.text:
            raise ValueError(f"data: {name}: the text of {document.name!r} must be bytes without byte 0")
    return documents


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


# What some distributions lack, and what does not read like code: tests, tables of character sets, one huge literal.
EXCLUDED_FOLDERS = frozenset(
    [
        "test",
        "tests",
        "testing",
        "idle_test",
        "site-packages",
        "dist-packages",
        "pydoc_data",
        "encodings",
        "__pycache__",
    ]
)
EXCLUDED_PREFIXES = ("lib2to3/pgen",)
LEAST, MOST = 2**8, 2**17  # bytes of a file; longer ones are mostly generated tables


def python_sources() -> list[Document]:
    """Python sources: the standard library's and torch's, which is installed wherever this library is."""
    roots = {"": Path(sysconfig.get_path("stdlib")), "torch/": Path(torch.__file__).parent}
    return [Document(name, text) for prefix, root in roots.items() for name, text in _sources(root, prefix)]


def _sources(root: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files of a package, in order of names."""
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if EXCLUDED_FOLDERS.intersection(PurePosixPath(name).parts) or name.startswith(EXCLUDED_PREFIXES):
            continue
        text = path.read_bytes()
        if LEAST <= len(text) <= MOST and b"\0" not in text:
            yield f"{prefix}{name}", text
