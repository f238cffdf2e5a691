"""Pipelines of diffusers as folders: ``model_index.json`` names their parts, and each part has a folder of its own.

    {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"], "vae": ["diffusers", …], …}

Transformers are the parts whose name begins with ``transformer`` (Wan 2.2 has two, transformer and transformer_2), or
ends with it (Ideogram 4's unconditional_transformer). A folder without the index is read by its ``transformer`` alone.

Source: diffusers 0.42, configuration_utils.py (``model_index.json``) and pipelines/pipeline_utils.py (parts as
    ``name: [library, class]``; an optional part that is missing has two nulls).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from posenc.hf.limits import FILE_BYTES
from posenc.input_files import UnreadableFileError, path_text, read_json

INDEX = "model_index.json"
_MAIN = "transformer"


def parts_of(index: Path) -> dict[str, str]:
    """The parts of a pipeline and their classes, as its ``model_index.json`` names them."""
    content = read_json(index, FILE_BYTES)
    if not isinstance(content, Mapping):
        raise UnreadableFileError(f"{path_text(index)} must hold a JSON object, found a {type(content).__name__}")
    pairs = {name: value for name, value in content.items() if isinstance(value, list) and len(value) == 2}
    return {name: value[1] for name, value in pairs.items() if all(isinstance(entry, str) for entry in value)}


def transformers_of(parts: Mapping[str, str]) -> list[str]:
    """The parts that are transformers, the main one first."""
    names = [name for name in parts if name.startswith(_MAIN) or name.endswith(f"_{_MAIN}")]
    return sorted(names, key=lambda name: (name != _MAIN, name))


def transformer_configs(folder: Path) -> dict[str, Path]:
    """The ``config.json`` of each transformer of a pipeline, by its part's name; empty for what is no pipeline.

    Raises:
        ValueError: for a pipeline without a transformer, and one whose transformers have no config.json.
    """
    index = folder / INDEX
    if not index.exists():
        config = folder / _MAIN / "config.json"
        return {_MAIN: config} if config.exists() else {}
    parts = parts_of(index)
    names = transformers_of(parts)
    if not names:
        raise ValueError(f"{path_text(index)} names no transformer, whose positions could be read: {', '.join(parts)}")
    configs = {name: folder / name / "config.json" for name in names}
    missing = [name for name, config in configs.items() if not config.exists()]
    if missing:
        raise FileNotFoundError(
            f"{path_text(folder)} has no {missing[0]}/config.json, which {INDEX} names: download it"
        )
    return configs
