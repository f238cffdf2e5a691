"""Configurations of other programs, as those of Hugging Face that mean the same.

params         params.json beside Meta's and Mistral's own weights
gguf_keys      metadata of llama.cpp's files;  architectures: its names of models;  gguf_file: reads them from a file
gguf_said      the inverse: what a file must say;  gguf_write: copies a file under another rotation
"""

from __future__ import annotations

from pathlib import Path

from posenc.hf.formats import gguf_keys, params
from posenc.hf.formats.translated import Translated as Translated
from posenc.hf.source import Config, Source, load


def loaded(source: Source) -> Config:
    """A copy of a configuration, as `posenc.hf.source.load` makes it, or the metadata of a GGUF file.

    Raises:
        ValueError: as `load`, and for a GGUF file without the package gguf.
        OSError: where the file cannot be read.
    """
    if not isinstance(source, str | Path) or Path(source).suffix != ".gguf" or not Path(source).exists():
        return load(source)
    try:
        from posenc.hf.formats.gguf_file import metadata_of
    except ModuleNotFoundError as error:
        raise ValueError(
            f"config: {source} needs the package gguf: pip install 'posenc[gguf]', in a clone '.[gguf]'"
        ) from error
    return load(metadata_of(Path(source)))


def translated(config: Config) -> Translated:
    """A configuration as Hugging Face writes it; its own are left as they are.

    Raises:
        ValueError: for a key that cannot be understood, or means what no configuration can say.
    """
    if gguf_keys.is_one(config):
        return gguf_keys.translated(config)
    return params.translated(config) if params.is_one(config) else Translated(config)
