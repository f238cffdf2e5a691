"""What transformers' config classes decide of each model type, and records completed with it.

The numbers are generated (benchmarks/model_types.py writes defaults.json from the classes themselves); a record gives
a number only where its code has another one than the class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from posenc.hf.families.family import Family, RotationRules, Sizes
from posenc.hf.families.position_schemes import PositionScheme

FILE = Path(__file__).with_name("defaults.json")
SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")
_PLAIN, _NONE = RotationRules(), Family()

Defaults = dict[str, Any]


class Completed(Mapping[str, Family]):
    """Records by model type, each completed when it is first asked for: a command reads one or two of 550."""

    def __init__(self, records: Mapping[str, Family]) -> None:
        self._records: Mapping[str, Family] = records
        self._known: dict[str, Defaults] = json.loads(FILE.read_bytes())
        self._names = dict.fromkeys((*records, *self._known))
        self._done: dict[str, Family] = {}

    def __getitem__(self, name: str) -> Family:
        if name not in self._done:
            if name not in self._names:
                raise KeyError(name)
            self._done[name] = completed(self._records.get(name, _NONE), self._known.get(name, {}))
        return self._done[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def completed(record: Family, known: Defaults) -> Family:
    """The record with the numbers that it leaves to the config class."""
    changes: dict[str, Any] = {key: known[key] for key in ("since", "text_type") if key in known}
    if record.text_type:
        changes.pop("text_type", None)
    if "sizes" in known and record.sizes is None:
        changes["sizes"] = Sizes(*known["sizes"])
    rotation, layers, attention = record.rotation, record.layers, record.attention
    if rotation is not None:
        left = {key: known[key] for key in _NUMBERS if key in known and getattr(rotation, key) == getattr(_PLAIN, key)}
        changes["rotation"] = replace(rotation, **left)
    if "window" in known and layers.window.size is None:
        changes["layers"] = replace(layers, window=replace(layers.window, size=known["window"]))
    of_class = {key: known[key] for key in ("top_k", "softcap") if getattr(attention, key) == 0 and key in known}
    if of_class:
        changes["attention"] = replace(attention, **of_class)
    if record.schemes:
        changes["schemes"] = tuple(_of_scheme(scheme, known) for scheme in record.schemes)
    return replace(record, **changes)


_NUMBERS = ("base", "share", "block", "head_dim", "full_head_dim")


def _of_scheme(scheme: PositionScheme, known: Defaults) -> PositionScheme:
    if scheme.table is not None and not scheme.table.default and "rows" in known:
        return replace(scheme, table=replace(scheme.table, default=known["rows"]))
    if scheme.patches is not None and not scheme.patches.image_size and "patch_size" in known:
        sizes: dict[str, Any] = {key: _side(known[key]) for key in ("image_size", "patch_size") if key in known}
        return replace(scheme, patches=replace(scheme.patches, **sizes))
    return scheme


def _side(size: int | list[int]) -> int | tuple[int, int]:
    return size if isinstance(size, int) else (size[0], size[1])
