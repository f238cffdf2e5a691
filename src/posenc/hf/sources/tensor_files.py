"""Headers of a folder's weight files: names, types and shapes of tensors, without the weights.

A safetensors file begins with the length of its header (8 bytes), then the header in JSON: of each tensor its type, its
shape and where its bytes lie. All of that is checked against the length of the file before anything is believed, so
that an error names a damaged or half-downloaded file. Pickled weights are never opened here: reading one can run
code.

Source: the format's description and the limits of the safetensors package (a header of at most 100 MB, no gaps between
tensors, none that overlap).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.limits import is_count
from posenc.input_files import (
    UnreadableFileError,
    is_lfs_pointer,
    lfs_text,
    open_regular,
    parse_json,
    path_text,
    printable,
    read_json,
)

HEADER_BYTES = 100_000_000
INDEX_BYTES = 64 * 2**20
TENSORS = 2**18  # of one file: the largest checkpoints have about as many in all their files together
_AXES = 16
_LARGEST = 2**63 - 1
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_PICKLED = ("*.bin", "*.pth", "*.pt")
_NOT_WEIGHTS = ("consolidated", "adapter_model", "optimizer")  # files of another program, of an adapter, of a trainer


class Entry(NamedTuple):
    """One tensor of a safetensors file.

    Attributes:
        file: where it lies.
        dtype: as the file names it: "BF16".
        shape: of the tensor.
        begin, end: of its bytes, counted from the beginning of the file.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> bytes:
        """Its bytes."""
        return self.slices([(0, self.end - self.begin)])[0]

    def slices(self, places: list[tuple[int, int]]) -> list[bytes]:
        """Some of its bytes: offset from its begin and length of each slice."""
        contents = []
        with open_regular(self.file) as file:
            for offset, length in places:
                file.seek(self.begin + offset)
                contents.append(file.read(length))
                if len(contents[-1]) != length:
                    raise UnreadableFileError(f"{path_text(self.file)} is truncated")
        return contents


def tensors_in(path: Path) -> dict[str, Entry]:
    """The tensors of a safetensors file, by name.

    Raises:
        UnreadableFileError: for a file that is none, is damaged or truncated, or was not downloaded; it names the path.
        OSError: as the system says.
    """
    with open_regular(path) as file:
        length = os.fstat(file.fileno()).st_size
        start = file.read(64)
        if is_lfs_pointer(start):
            raise UnreadableFileError(lfs_text(path))
        if len(start) < 10:
            raise UnreadableFileError(
                f"{path_text(path)} has {len(start)} bytes, which no safetensors file is: download it again"
            )
        size = int.from_bytes(start[:8], "little")
        if size > min(HEADER_BYTES, length - 8):
            text = f"says of its header that it has {size:,} bytes, and the file has {length:,}"
            raise UnreadableFileError(f"{path_text(path)} {text}: it is damaged, truncated or no safetensors file")
        file.seek(8)
        header = parse_json(path, file.read(size))
    if not isinstance(header, dict) or not header:
        raise UnreadableFileError(f"{path_text(path)} is no safetensors file: its header is no object of tensors")
    if len(header) > TENSORS:
        raise UnreadableFileError(
            f"{path_text(path)} has {len(header):,} tensors, more than the limit of {TENSORS:,} for a file"
        )
    tensors = {name: _entry(path, name, entry, 8 + size) for name, entry in header.items() if name != "__metadata__"}
    _check_offsets(path, tensors, 8 + size, length)
    return tensors


def _entry(path: Path, name: str, entry: Any, base: int) -> Entry:
    values = entry if isinstance(entry, dict) else {}
    dtype, shape, places = values.get("dtype"), values.get("shape"), values.get("data_offsets")
    sizes: list[Any] = shape if isinstance(shape, list) and len(shape) <= _AXES else [None]
    if (
        not isinstance(dtype, str)
        or not all(number == 0 or is_count(number, _LARGEST) for number in sizes)
        or not (isinstance(places, list) and len(places) == 2)
        or not all(type(number) is int and 0 <= number <= _LARGEST for number in places)
    ):
        raise UnreadableFileError(f"{path_text(path)} is damaged: of the tensor {_brief(name)} it says {shown(entry)}")
    begin, end = places
    bits = _BITS.get(dtype)  # a type that is newer than this table is left to those who know it
    if end < begin or (bits is not None and (end - begin) * 8 != math.prod(sizes) * bits):
        text = f"{_brief(name)} of type {_brief(dtype)} and shape {shown(sizes)} cannot have bytes {begin:,} to {end:,}"
        raise UnreadableFileError(f"{path_text(path)} is damaged: the tensor {text}")
    return Entry(path, dtype, tuple(sizes), base + begin, base + end)


def _check_offsets(path: Path, tensors: dict[str, Entry], base: int, length: int) -> None:
    """Raise a ValueError unless the tensors lie one after another and end where the file does."""
    at = base
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            what = "overlaps another" if entry.begin < at else f"begins {entry.begin - at:,} bytes behind the last"
            raise UnreadableFileError(f"{path_text(path)} is damaged: the tensor {_brief(name)} {what}")
        at = entry.end
    if at > length:
        raise UnreadableFileError(
            f"{path_text(path)} is truncated: its tensors need {at:,} bytes, and it has {length:,}"
        )
    if at < length:
        raise UnreadableFileError(f"{path_text(path)} is damaged: it has {length - at:,} bytes behind its last tensor")


def _brief(name: str) -> str:
    return printable(name[:100])


def problems_of_weights(folder: Path, known: Mapping[str, dict[str, Entry]] | None = None) -> Iterator[tuple[str, str]]:
    """What is wrong with the weight files of a folder: the name of each such file, and an error.

    Args:
        folder: with the files.
        known: tensors of files whose headers were read already, by the names of the files.
    """
    tensors: dict[str, dict[str, Entry]] = dict(known or {})
    damaged = set[str]()
    for path in sorted(path for path in folder.glob("*.safetensors") if path.name not in tensors):
        try:
            tensors[path.name] = tensors_in(path)
        except (ValueError, OSError) as error:
            damaged.add(path.name)
            yield path.name, _without(path, error)
    for path in sorted(file for pattern in _PICKLED for file in folder.glob(pattern)):
        try:
            with open_regular(path) as file:
                start = file.read(64)
        except (ValueError, OSError) as error:
            yield path.name, _without(path, error)
            continue
        if is_lfs_pointer(start):
            yield path.name, _without(path, lfs_text(path))
        elif not start:
            yield path.name, "is empty: download it again"
    for path in (folder / name for name in _INDEXES):
        if os.path.lexists(path):
            try:
                yield from _on_index(path, tensors, damaged)
            except (ValueError, OSError) as error:
                yield path.name, _without(path, error)


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
        raise UnreadableFileError(f"{path_text(index)} names {_brief(strange)}, which is no file of the same folder")
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


def _on_index(path: Path, tensors: dict[str, dict[str, Entry]], damaged: set[str]) -> Iterator[tuple[str, str]]:
    if path.name == _INDEXES[0] and "model.safetensors" in tensors:
        return  # transformers takes the one file and never looks at the index
    shards = shards_of(path)
    names = set(shards.values())
    missing = sorted(name for name in names if not (path.parent / name).exists())
    if missing and len(missing) < len(names):  # all missing: a folder without weights, as one to look at
        more = "" if len(missing) == 1 else f" and {len(missing) - 1} more"
        yield path.name, f"names {_brief(missing[0])}{more}, which the folder lacks: download it again"
    lost = [name for name, shard in shards.items() if shard in tensors and name not in tensors[shard]]
    if lost:
        shard = shards[lost[0]]
        text = f"says that the tensor {_brief(lost[0])} lies in {shard}, which has none of that name"
        yield path.name, text + ("" if len(lost) == 1 else f"; the same holds of {len(lost) - 1} more")


def _without(path: Path, error: Exception | str) -> str:
    """An error without the path that it begins with."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return str(error).removeprefix(path_text(path)).lstrip(": ")
