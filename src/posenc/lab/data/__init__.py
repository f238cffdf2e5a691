"""Where texts come from: ``--data`` takes ``python``, a file, a folder, ``hf:NAME[:CONFIG]`` for a dataset of the
Hugging Face hub, or ``my_module:my_corpus`` for a plugin, a function without arguments that returns documents.
"""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from posenc.lab.data.documents import Document as Document
from posenc.lab.data.documents import Source, file_documents, folder_documents, hub_documents, python_sources
from posenc.lab.plugins import is_plugin, load_function

PYTHON = "python"


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
