"""Documents, and how they are read from what a user names: a file, a folder, a dataset of the Hugging Face hub.

Byte 0 never occurs in a document: it separates them in training.
"""

from __future__ import annotations

from pathlib import Path
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
        loaded = datasets.load_dataset(name, config, **_without_code(datasets.__version__))
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


def _without_code(version: str) -> dict[str, bool]:
    """The option without which datasets 3 asks on the terminal whether to run a folder's script; 4 has no scripts."""
    return {"trust_remote_code": False} if int(version.partition(".")[0]) < 4 else {}


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
