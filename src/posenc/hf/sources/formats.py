"""Any format of a configuration as Hugging Face's keys: its own, params.json, litgpt's YAML, GGUF's metadata."""

from __future__ import annotations

from pathlib import Path

from posenc.hf.sources.load import Config, Source, load
from posenc.hf.sources.translated import Translated as Translated


def load_config(source: Source) -> Config:
    """A copy of a configuration, as `posenc.hf.sources.load.load` makes it, or the metadata of a GGUF file.

    Raises:
        ValueError: as `load`, and for a GGUF file without the package gguf.
        OSError: where the file cannot be read.
    """
    if not isinstance(source, str | Path) or Path(source).suffix != ".gguf" or not Path(source).exists():
        return load(source)
    try:
        from posenc.hf.sources.gguf_file import metadata_of
    except ModuleNotFoundError as error:
        raise ValueError(
            f"config: {source} needs the package gguf: pip install 'posenc[gguf]', in a clone '.[gguf]'"
        ) from error
    return load(metadata_of(Path(source)))


def translate(config: Config) -> Translated:
    """A configuration as Hugging Face writes it; its own are left as they are.

    Raises:
        ValueError: for a key that cannot be understood, or means what no configuration can say.
    """
    if "general.architecture" in config:
        from posenc.hf.sources.gguf_metadata import translate as read
    elif {"n_embd", "block_size", "rope_base"} <= config.keys():
        from posenc.hf.sources.litgpt import translate as read
    elif {"dim", "n_heads"} <= config.keys() and not {"hidden_size", "architectures"} & config.keys():
        from posenc.hf.sources.params_json import translate as read
    else:
        read = Translated
    return read(config)
