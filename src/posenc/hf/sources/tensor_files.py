"""Headers of a folder's weight files: names, types and shapes of tensors, without the weights.

The package safetensors checks a header against its file, so that an error names a damaged or half-downloaded one.
Pickled weights are never opened here: reading one can run code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from posenc.input_files import (
    UnreadableFileError,
    is_lfs_pointer,
    lfs_text,
    open_regular,
    path_text,
    printable,
    read_json,
)

INDEX_BYTES = 64 * 2**20
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_PICKLED = ("*.bin", "*.pth", "*.pt")
_NOT_WEIGHTS = ("consolidated", "adapter_model", "optimizer")  # files of another program, of an adapter, of a trainer


class Entry(NamedTuple):
    """One tensor of a safetensors file: where it lies, its type as the file names it ("BF16"), its shape."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def tensors_in(path: Path) -> dict[str, Entry]:
    """The tensors of a safetensors file, by name.

    Raises:
        UnreadableFileError: for a file that is none, is damaged or truncated, or was not downloaded; it names the path.
        ModuleNotFoundError: without the package safetensors.
        OSError: as the system says.
    """
    with open_regular(path) as file:
        if is_lfs_pointer(file.read(64)):
            raise UnreadableFileError(lfs_text(path))
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as opened:  # whose file may be larger than the memory
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
            entries = {name: Entry(path, each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
    except SafetensorError as error:
        text = f"is damaged, truncated or no safetensors file: download it again ({printable(str(error))[:100]})"
        raise UnreadableFileError(f"{path_text(path)} {text}") from None
    if not entries:
        raise UnreadableFileError(f"{path_text(path)} is a safetensors file without tensors")
    return entries


def problems_of_weights(folder: Path, known: Mapping[str, dict[str, Entry]] | None = None) -> Iterator[tuple[str, str]]:
    """What is wrong with the weight files of a folder: the name of each such file, and an error.

    Args:
        folder: with the files.
        known: tensors of files whose headers were read already, by the names of the files.
    """
    tensors: dict[str, dict[str, Entry]] = dict(known or {})
    weights = sorted(path for path in folder.glob("*.safetensors") if path.name not in tensors)
    pickled = sorted(file for pattern in _PICKLED for file in folder.glob(pattern))
    indexes = [folder / name for name in _INDEXES if os.path.lexists(folder / name)]
    for path in (*weights, *pickled, *indexes):
        try:
            if path in indexes:
                yield from _on_index(path, tensors)
            elif path in weights:
                tensors[path.name] = tensors_in(path)
            else:
                with open_regular(path) as file:
                    start = file.read(64)
                if is_lfs_pointer(start):
                    raise UnreadableFileError(lfs_text(path))
                if not start:
                    yield path.name, "is empty: download it again"
        except OSError as error:
            yield path.name, f"cannot be read: {error.strerror or error}"
        except ValueError as error:
            yield path.name, str(error).removeprefix(path_text(path)).lstrip(": ")
        except ModuleNotFoundError:  # without safetensors nothing is known of its files
            continue


def shards_of(index: Path) -> dict[str, str]:
    """The file of each tensor, as an index of shards says.

    Raises:
        UnreadableFileError: for a file that is no index, and for a shard that is no name of a file in the same folder.
        OSError: as the system says.
    """
    known = read_json(index, INDEX_BYTES)
    shards = known.get("weight_map") if isinstance(known, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise UnreadableFileError(
            f"{path_text(index)} is no index of shards: weight_map must be an object of file names"
        )
    strange = next(
        (shard for shard in shards.values() if Path(shard).name != shard or shard in ("", "..") or "\0" in shard), None
    )
    if strange is not None:
        raise UnreadableFileError(
            f"{path_text(index)} names {printable(strange[:100])}, which is no file of the same folder"
        )
    return shards


def loaded_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder that transformers loads: one file, or else those that the index names.

    Without both, every file except files of other programs and of trainers; missing shards are left out.
    """
    single, index = folder / "model.safetensors", folder / _INDEXES[0]
    if single.exists():
        return [single]
    if index.exists():
        try:
            return [folder / name for name in sorted(set(shards_of(index).values())) if (folder / name).exists()]
        except (ValueError, OSError):
            pass  # reported by `problems_of_weights`; the shards can still be looked at
    return [path for path in sorted(folder.glob("*.safetensors")) if not path.name.startswith(_NOT_WEIGHTS)]


def _on_index(path: Path, tensors: dict[str, dict[str, Entry]]) -> Iterator[tuple[str, str]]:
    if path.name == _INDEXES[0] and "model.safetensors" in tensors:
        return  # transformers takes the one file and never looks at the index
    shards = shards_of(path)
    names = set(shards.values())
    missing = sorted(name for name in names if not (path.parent / name).exists())
    if missing and len(missing) < len(names):  # all missing: a folder without weights, as one to look at
        more = "" if len(missing) == 1 else f" and {len(missing) - 1} more"
        yield path.name, f"names {printable(missing[0][:100])}{more}, which the folder lacks: download it again"
    lost = [name for name, shard in shards.items() if shard in tensors and name not in tensors[shard]]
    if lost:
        shard = shards[lost[0]]
        text = f"says that the tensor {printable(lost[0][:100])} lies in {shard}, which has none of that name"
        yield path.name, text + ("" if len(lost) == 1 else f"; the same holds of {len(lost) - 1} more")
