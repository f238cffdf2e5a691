"""A GGUF file's metadata, and the factors of its frequencies, which stand there among the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf

from posenc.hf.formats.gguf_keys import FACTORS, NO_FACTORS
from posenc.hf.source import Config


def metadata_of(path: Path) -> Config:
    """What a file says but of its tokens, with the factors under the names of their tensors.

    Raises:
        ValueError: for a file that is no GGUF.
        OSError: where it cannot be read.
    """
    return metadata_in(reader_of(path))


def reader_of(path: Path) -> gguf.GGUFReader:
    """The open file; opening a real model's takes seconds, as each token is a field."""
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError) as error:
        raise ValueError(f"config: {path} is no GGUF: {error}") from error


def metadata_in(reader: gguf.GGUFReader) -> Config:
    """The same of an open file."""
    found: dict[str, Any] = {
        name: field.contents() for name, field in reader.fields.items() if not name.startswith(("tokenizer.", "GGUF."))
    }
    tokens = reader.fields.get("tokenizer.ggml.tokens")
    if tokens is not None:
        found.setdefault(f"{found.get('general.architecture')}.vocab_size", len(tokens.data))
    factors: dict[str, Any] = {one.name: [float(x) for x in one.data] for one in reader.tensors if one.name in FACTORS}
    return {**found, **(factors or {NO_FACTORS: True})}


def has_tokenizer(path: Path) -> bool:
    """Whether a file has the tokens of its model."""
    return "tokenizer.ggml.tokens" in gguf.GGUFReader(path).fields
