"""Weights of a new folder where only the configuration changes: linked to the files of the old one, not copied.

A hard link takes no space and outlives the old folder; across file systems it is a symbolic link, and where the system
has neither, a copy. safetensors writes a new file and renames it, so that saving a model into the new folder leaves the
old weights as they are; a program that writes into the file itself would change both.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

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


def link_files(files: Sequence[Path], target: Path) -> str:
    """Link files into a folder; returns how: "hard links", "symbolic links" or "copies", the least of them.

    Raises:
        OSError: where not even a copy can be written, as on a full disk.
    """
    kinds = ("hard links", "symbolic links", "copies")
    return kinds[max(_link(file.resolve(strict=True), target / file.name) for file in files)]


def _link(file: Path, target: Path) -> int:
    try:
        os.link(file, target)
    except (OSError, NotImplementedError):
        try:
            target.symlink_to(file)
        except (OSError, NotImplementedError):
            shutil.copy2(file, target)
            return 2
        return 1
    return 0
