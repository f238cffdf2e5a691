"""Weights of a new folder where only the configuration changes: linked to the files of the old one, not copied.

safetensors writes a new file and renames it, so that saving a model into the new folder leaves the old weights as they
are; a program that writes into the file itself would change both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posenc.hf.sources.config_files import Link, link_file
from posenc.hf.sources.tensor_files import shards_of

_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that transformers loads the weights of a folder from, an index included; empty where it has none.

    A folder with an adapter has none: transformers adds the adapter to the weights that it loads.
    """
    if (folder / "adapter_config.json").exists():
        return ()
    first = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if first is None:
        return ()
    if first.suffix != ".json":
        return (first,)
    return (first, *(folder / name for name in sorted(set(shards_of(first).values()))))


def link_files(files: Sequence[Path], target: Path) -> Link:
    """Link files into a folder; returns how, the least of them.

    Raises:
        OSError: where not even a copy can be written, as on a full disk.
    """
    kinds: tuple[Link, ...] = ("hard links", "symbolic links", "copies")
    return max((link_file(file, target / file.name) for file in files), key=kinds.index)
