"""Checks of weight files as files: whole, all there, listed once, and no older ones next to them.

Which file counts is transformers' choice: ``model.safetensors`` where it is there, else the shards of the index, else
``pytorch_model.bin``. Other engines open every file that matches a pattern, so that a left-over file is read by some of
them alone.

Source: transformers 5.23, modeling_utils.py (_get_resolved_checkpoint_files).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posenc.hf.findings import Finding
from posenc.hf.sources.pickled_files import shapes_in
from posenc.hf.sources.tensor_files import INDEX_BYTES, Entry, loaded_files, problems_of_weights, shards_of, tensors_in
from posenc.input_files import printable, read_json

_SHARD = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.(safetensors|bin)$")
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
ADAPTER = "adapter_config.json"


class Weights:
    """The tensors of a folder that a loader takes.

    Attributes:
        entries: by name, of safetensors files only.
        shapes: by name; of pickled files too.
        files: the files that were read.
        unread: pickled files that were not, each with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: dict[str, Entry] = {}
        self.twice: dict[str, list[str]] = {}
        self.files: list[str] = []
        self.unread: list[str] = []
        self.by_file: dict[str, dict[str, Entry]] = {}
        for path in loaded_files(folder):
            try:
                tensors = tensors_in(path)
            except (ValueError, OSError):
                continue  # reported by `problems_of_weights`
            self.files.append(path.name)
            self.by_file[path.name] = tensors
            for name, entry in tensors.items():
                if name in self.entries:
                    self.twice.setdefault(name, [self.entries[name].file.name]).append(path.name)
                self.entries.setdefault(name, entry)
        self.shapes: dict[str, tuple[int, ...]] = {name: entry.shape for name, entry in self.entries.items()}
        if not self.files:
            for path in _pickled(folder):
                try:
                    self.shapes |= shapes_in(path)
                    self.files.append(path.name)
                except (ValueError, OSError):
                    self.unread.append(path.name)


def _pickled(folder: Path) -> list[Path]:
    """The pickled weights that transformers would load."""
    single = folder / "pytorch_model.bin"
    return [single] if single.exists() else sorted(folder.glob("pytorch_model-*.bin"))


def on_weight_files(folder: Path, weights: Weights) -> Iterator[Finding]:
    """What is wrong with the weight files of a folder, whatever they hold."""
    for name, text in problems_of_weights(folder, weights.by_file):
        yield Finding(name, text, "weights-unreadable", "fault")
    yield from _on_shards(folder)
    yield from _on_index(folder, weights)
    if weights.twice:
        name, files = next(iter(weights.twice.items()))
        more = len(weights.twice) - 1
        text = f"lies in {' and in '.join(files)}" + (f", as do {more} more tensors twice" if more else "")
        text += ": loaders take the one or the other; write the shards anew from the right one"
        yield Finding(printable(name[:100]), text, "tensor-twice", "suspicion")
    yield from _on_pickled(folder, weights)


def _on_shards(folder: Path) -> Iterator[Finding]:
    """Shards of several countings, shards that are missing, and one file next to shards."""
    counts: dict[tuple[str, str], dict[int, set[int]]] = {}
    for path in folder.iterdir():
        match = _SHARD.match(path.name)
        if match is not None and path.is_file():
            prefix, number, total, ending = match.groups()
            counts.setdefault((prefix, ending), {}).setdefault(int(total), set()).add(int(number))
    has_index = (folder / _INDEX).exists()
    for (prefix, ending), totals in sorted(counts.items()):
        if len(totals) > 1:
            words = " and ".join(f"{len(numbers)} of {total}" for total, numbers in sorted(totals.items()))
            text = f"are there in two countings ({words}): some are left over from another save, and engines that open "
            text += f"every {prefix}-*.{ending} read both; delete those that the index does not name"
            yield Finding(f"{prefix}-*.{ending}", text, "weights-left-over", "suspicion")
        for total, numbers in totals.items():
            index = f"{prefix}.{ending}.index.json"
            if len(totals) == 1 and len(numbers) < total and not (folder / index).exists():
                missing = min(set(range(1, total + 1)) - numbers)
                name = f"{prefix}-{missing:05}-of-{total:05}.{ending}"
                text = f"is missing: {len(numbers)} of {total} shards are there, and no index; download it again"
                yield Finding(name, text, "shards-missing", "fault")
            named = prefix in ("model", "pytorch_model") and not (folder / f"{prefix}.{ending}").exists()
            if named and len(totals) == 1 and len(numbers) == total > 1 and not (folder / index).exists():
                text = (
                    f"is missing next to {total} shards: transformers opens shards by their index alone and says that "
                )
                text += "the folder has no weights; engines that open every file load it"
                yield Finding(index, text, "index-missing", "fault")
    shards = sum(map(len, counts.get(("model", "safetensors"), {}).values()))
    if (folder / _SINGLE).exists() and (has_index or shards):
        what = f"{shards} shards" if shards else f"{_INDEX}, whose shards are not there"
        text = f"is next to {what}: transformers loads the one file and never opens the shards, other engines may read "
        text += "these; delete what is older"
        yield Finding(_SINGLE, text, "weights-left-over", "suspicion")


def _on_index(folder: Path, weights: Weights) -> Iterator[Finding]:
    path = folder / _INDEX
    if not path.is_file() or (folder / _SINGLE).exists():
        return
    try:
        shards, index = shards_of(path), read_json(path, INDEX_BYTES)
    except (ValueError, OSError):
        return  # reported by `problems_of_weights`
    listed = set(shards.values())
    totals = {match.group(3) for name in listed if (match := _SHARD.match(name))}
    extra = sorted(
        file.name for file in folder.glob("*.safetensors")
        if file.name not in listed and (match := _SHARD.match(file.name)) and match.group(3) in totals
    )  # fmt: skip
    if extra:
        text = f"does not name {printable(extra[0])}" + (f" and {len(extra) - 1} more files" if len(extra) > 1 else "")
        text += ", which is next to its shards: transformers does not load it, other engines may"
        yield Finding(_INDEX, text, "weights-left-over", "suspicion")
    unlisted = [name for file in weights.by_file.values() for name in file if name not in shards]
    if unlisted:
        text = f"does not list {printable(unlisted[0][:100])}"
        text += f" and {len(unlisted) - 1} more tensors" if len(unlisted) > 1 else ""
        text += ", which its shards hold: loaders that go by the index leave them at random"
        yield Finding(_INDEX, text, "tensors-unlisted", "suspicion")
    total_size = index.get("metadata", {}).get("total_size") if isinstance(index.get("metadata"), dict) else None
    size = sum(entry.end - entry.begin for entry in weights.entries.values())
    if isinstance(total_size, int | float) and set(weights.by_file) == listed and total_size != size:
        text = f"says that the tensors have {int(total_size):,} bytes, and they have {size:,}"
        yield Finding(_INDEX, text, "index-size-differs", "note")


def _on_pickled(folder: Path, weights: Weights) -> Iterator[Finding]:
    """Pickled weights next to safetensors: left over, where their names or shapes differ."""
    pickled = _pickled(folder)
    if not weights.entries or not pickled:
        return
    shapes: dict[str, tuple[int, ...]] = {}
    for path in pickled:
        try:
            shapes |= shapes_in(path)
        except (ValueError, OSError):
            return
    differ = _first_difference(weights.shapes, shapes)
    if differ is not None:
        text = f"has other tensors than the safetensors files next to it ({differ}): transformers loads safetensors, "
        text += "older programs this file; delete what is older"
        yield Finding(pickled[0].name, text, "weights-left-over", "suspicion")


def _first_difference(safe: Mapping[str, Any], pickled: Mapping[str, Any]) -> str | None:
    """The first tensor of both whose shape differs; names alone may differ, as tied weights and buffers do."""
    for name in safe:
        if name in pickled and safe[name] != pickled[name]:
            return f"{printable(name[:100])} {pickled[name]}, not {safe[name]}"
    common = len(set(safe) & set(pickled))
    return "no name is in both" if not common else None


def on_adapter(folder: Path, weights: Weights) -> Iterator[Finding]:
    """A folder of an adapter: what its base is."""
    if not (folder / ADAPTER).is_file():
        return
    try:
        known = read_json(folder / ADAPTER, INDEX_BYTES)
    except (ValueError, OSError) as error:
        yield Finding(ADAPTER, f"cannot be read: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    base = known.get("base_model_name_or_path") if isinstance(known, dict) else None
    text = f"makes this folder an adapter ({printable(str(known.get('peft_type', 'PEFT')))}) of "
    text += f"{printable(str(base))[:100]}: the base's config decides its positions"
    yield Finding(ADAPTER, text, "adapter", "note")
