"""Copies a GGUF file under another rotation: metadata and factors change, weights are copied byte for byte.

The idea: the package gguf reads the whole file and writes it again, but a rotation is a few numbers among gigabytes. So
nothing is converted. The copy gets the source's fields and tensors in their order, with the changed keys and factor
tensors in the place of the old ones.

The invariant: what is not named in `GGUFChanges` is the same, byte for byte. It is not trusted but checked: the copy is
written next to its place, read back, and compared in each other key, each byte of each other tensor, and the rotation
that `read_rope` finds. Only then does it take its place; a failure leaves no file. Changes below float32's rounding,
which is all that GGUF holds, are dropped first, so an unchanged rotation gives an identical file.

Keys are compared as raw bytes (`_key_bytes`): decoded values would hide a changed type, and to decode a
vocabulary of 250,000 tokens takes 0.42 s, to compare its bytes 0.007 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import torch

from posenc.arguments import check_flag, one_line
from posenc.hf.atomic_write import write_atomically
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import Layers, Rotation, equivalent, text_rope, with_axes_of
from posenc.hf.gguf.keys import ROUNDING, GGUFChanges, changes_for
from posenc.hf.sources.gguf_file import metadata_of, reader_of

_HEADER_FIELDS = "GGUF."  # fields that the reader adds for the file's header
_ARCH = "general.architecture"


RotationChange = RopeConfig | Rotation | Layers | Callable[[RopeConfig], RopeConfig]


class Rewritten(NamedTuple):
    """What became of a file.

    Attributes:
        config: the new file, read back.
        keys: that changed, with their new values; None for those that went.
        tensors: of factors that changed: how many numbers each has now, None for those that went.
    """

    config: RopeConfig
    keys: Mapping[str, int | float | str | None]
    tensors: Mapping[str, int | None]


def rewrite(source: Path, target: Path, rope: RotationChange, *, replace: bool) -> Rewritten:
    """Copy a GGUF file under another rotation; see `posenc.hf.gguf.write_gguf`."""
    _check_place(source, target, check_flag("replace", replace))
    old = reader_of(source)
    metadata = metadata_of(source)
    if (parts := metadata.get("split.count") or 1) > 1:
        raise ValueError(f"{source} is one of {parts} parts; join them first: llama-gguf-split --merge")
    before = read_rope(metadata)
    if isinstance(rope, Rotation | Mapping):
        after = before.with_rope(rope)
    else:
        after = rope if isinstance(rope, RopeConfig) else rope(before)
    changes = _effective(metadata, changes_for(metadata, before, after))

    def make(copy: Path) -> RopeConfig:
        try:
            _copy(old, copy, metadata[_ARCH], changes)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{source}: the package gguf cannot write this file again: {error}") from error
        written = reader_of(copy)
        _compare(old, written, metadata[_ARCH], changes)
        config = read_rope(metadata_of(copy))
        _check_meaning(after, config)
        return config

    config = write_atomically(target, make, replace=replace)
    sizes = {name: None if values is None else len(values) for name, values in changes.tensors.items()}
    return Rewritten(config, {f"{metadata[_ARCH]}.{key}": value for key, value in changes.keys.items()}, sizes)


def _check_place(source: Path, target: Path, replace: bool) -> None:
    if not source.is_file():
        raise FileNotFoundError(f"source: {source} does not exist; give a GGUF file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"target: the folder {target.parent} does not exist")
    if target.exists() and not replace:
        what = "is the original itself" if target.samefile(source) else "exists"
        raise ValueError(f"target: {target} {what}; choose another name, or ask for it to be replaced")


def _effective(metadata: Mapping[str, Any], changes: GGUFChanges) -> GGUFChanges:
    """The changes without those that change nothing in float32."""
    arch = metadata[_ARCH]
    keys = {key: value for key, value in changes.keys.items() if _single(value) != metadata.get(f"{arch}.{key}")}
    tensors = {
        name: values
        for name, values in changes.tensors.items()
        if metadata.get(name) != (None if values is None else [_single(value) for value in values])
    }
    return GGUFChanges(keys, tensors)


def _single(value: Any) -> Any:
    """A number as GGUF holds it."""
    return float(torch.tensor(value, dtype=torch.float32)) if isinstance(value, float) else value


def _copy(reader: gguf.GGUFReader, target: Path, arch: str, changes: GGUFChanges) -> None:
    """Write the file with its changes."""
    writer = gguf.GGUFWriter(target, arch, endianess=reader.endianess)
    writer.data_alignment = int(reader.alignment)
    pending = {f"{arch}.{key}": value for key, value in changes.keys.items()}
    types = {str: gguf.GGUFValueType.STRING, float: gguf.GGUFValueType.FLOAT32, int: gguf.GGUFValueType.UINT32}
    for name, field in reader.fields.items():
        if name.startswith(_HEADER_FIELDS) or name == _ARCH:
            continue
        kind, inner = field.types[0], field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        value = pending.pop(name, field.contents()) if name in pending else field.contents()
        if value is not None:
            writer.add_key_value(name, value, kind, sub_type=inner)
    for name, value in pending.items():
        if value is not None:
            writer.add_key_value(name, value, types[type(value)])
    unchanged = [tensor for tensor in reader.tensors if tensor.name not in changes.tensors]
    for tensor in unchanged:
        writer.add_tensor_info(
            tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type
        )
    factors = {name: values for name, values in changes.tensors.items() if values is not None}
    arrays = [torch.tensor(values, dtype=torch.float32).numpy() for values in factors.values()]
    for name, array in zip(factors, arrays, strict=True):
        writer.add_tensor_info(name, array.shape, array.dtype, array.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in unchanged:
        writer.write_tensor_data(tensor.data, tensor_endianess=reader.endianess)
    for array in arrays:
        writer.write_tensor_data(array)
    writer.close()


def _compare(old: gguf.GGUFReader, new: gguf.GGUFReader, arch: str, changes: GGUFChanges) -> None:
    """Raise a ValueError unless all but the changes is as it was, byte for byte."""
    keys = {f"{arch}.{key}": _single(value) for key, value in changes.keys.items()}
    old_keys, new_keys = _key_bytes(old), _key_bytes(new)
    wrong = [name for name in {**old_keys, **new_keys} if name not in keys and old_keys.get(name) != new_keys.get(name)]
    wrong += [
        name for name, value in keys.items() if value != (new.fields[name].contents() if name in new_keys else None)
    ]
    tensors = {tensor.name: tensor for tensor in new.tensors}
    unchanged = [tensor for tensor in old.tensors if tensor.name not in changes.tensors]
    wrong += [tensor.name for tensor in unchanged if not _same_bytes(tensor, tensors.pop(tensor.name, None))]
    factors = {name: list(map(_single, values)) for name, values in changes.tensors.items() if values is not None}
    written = {name: tensor.data.tolist() for name, tensor in tensors.items()}
    wrong += [name for name in {**factors, **written} if written.get(name) != factors.get(name)]
    if wrong:
        raise ValueError(f"target: read back, the copy differs in {', '.join(wrong)}; nothing was written")


def _key_bytes(reader: gguf.GGUFReader) -> dict[str, bytes]:
    """The bytes of each key with its value, which lie one after another."""
    fields = [field for name, field in reader.fields.items() if not name.startswith(_HEADER_FIELDS)]
    end = reader.tensors[0].field.offset if reader.tensors else reader.data_offset
    ends = [*(field.offset for field in fields[1:]), end]
    return {field.name: reader.data[field.offset : at].tobytes() for field, at in zip(fields, ends, strict=True)}


def _same_bytes(first: Any, second: Any) -> bool:
    if second is None or first.tensor_type != second.tensor_type or first.shape.tolist() != second.shape.tolist():
        return False
    return bool((first.data.view("u1") == second.data.view("u1")).all())


def _check_meaning(expected: RopeConfig, written: RopeConfig) -> None:
    """Raise a ValueError unless the file rotates as it should, up to its float32 numbers."""
    for kind, rotation in expected.rotations.items():
        back = written.rotations.get(kind)
        if rotation is not None and back is not None:
            rotation = with_axes_of(text_rope(rotation).replace(layout=text_rope(back).layout), rotation)
        if not equivalent(rotation, back, ROUNDING):
            texts = (one_line(rope) for rope in (back, rotation))
            raise ValueError("layers: {} would be read back as {}, not as {}".format(kind, *texts))
