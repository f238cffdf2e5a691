"""Where texts come from: a corpus is one function without arguments that returns documents.

``--data`` takes the name of one below, ``my_module:my_corpus`` for a plugin, a file, a folder, or
``hf:NAME[:CONFIG]`` for a dataset of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from posenc.lab.data.documents import (
    PACKAGES,
    PYTHON,
    Source,
    file_documents,
    folder_documents,
    hub_documents,
    python_sources,
    versions,
    whole_documents,
)
from posenc.lab.data.documents import Document as Document
from posenc.lab.plugins import is_plugin, load_function


class BuiltIn(NamedTuple):
    """A corpus that comes with the laboratory."""

    documents: Callable[[], list[Document]]
    title: str
    packages: Sequence[str]  # that its texts come from; reports state their versions
    within_documents: bool = False  # see `Source`


CORPORA = {
    "python": BuiltIn(python_sources, "Python sources", PYTHON),
    "documents": BuiltIn(whole_documents, "whole documents of 8 KiB and more", PACKAGES, within_documents=True),
}


def read_source(name: str) -> Source:
    """The documents that ``--data`` names; a ValueError where there are none."""
    if name in CORPORA:
        corpus = CORPORA[name]
        title = f"{corpus.title} ({versions(corpus.packages)})"
        return Source(title, corpus.documents(), independent=True, within_documents=corpus.within_documents)
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
        f"data: no file or folder {name!r} ({', '.join(CORPORA)} are built in; a function of your own is written "
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
