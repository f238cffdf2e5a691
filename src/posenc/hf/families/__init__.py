"""What is known of each model type: a record of what its code decides, and numbers that its config class decides.

To add a family, write one line in the file that fits (decoders, encoders, media): its model type, or several with
spaces between, and a `Family`. Then run benchmarks/model_types.py, which reads the class's own numbers into `defaults`.
The parts of a record are explained where they are defined: `RotationRules`, `LayerPattern`, `Attention`,
`PositionScheme`.
tests/reference holds every record against the code of transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.hf.families.family import Attention, Family, LayerPattern, RotationRules, Sizes
from posenc.hf.families.position_schemes import PositionScheme

__all__ = [
    "FAMILIES", "NON_ROTARY", "ROTARY", "ROTATIONS", "UNSUPPORTED", "Attention", "Family", "LayerPattern",
    "PositionScheme", "RotationRules", "Sizes", "family_of", "written_records",
]  # fmt: skip

if TYPE_CHECKING:
    ROTARY: dict[str, Family]
    ROTATIONS: dict[str, RotationRules]
    NON_ROTARY: dict[str, Family]
    UNSUPPORTED: dict[str, str]


def __getattr__(name: str) -> Any:
    """Lists of model types by what their code has, made where somebody goes through them."""
    lists: dict[str, Callable[[Family], Any]] = {
        "ROTARY": lambda family: family.rotation and family,
        "ROTATIONS": lambda family: family.rotation,
        "NON_ROTARY": lambda family: None if family.rotation or not family.schemes else family,
        "UNSUPPORTED": lambda family: family.unsupported,
    }
    if name not in lists:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    values = {model_type: value for model_type, family in FAMILIES.items() if (value := lists[name](family))}
    globals()[name] = values
    return values


def family_of(model_types: list[str], *, listed: bool, latent: bool) -> tuple[Family, bool]:
    """The record of the first of ``model_types``, or of its text part (``name`` + "_text"), that has one, and whether
    it rotates by known rules.

    A composite model's record, which only names its text model, does not count. Without any record the rotation is
    read as in a Llama, or in DeepSeek's models under latent attention.

    Args:
        model_types: of the text part, then of the parts around it.
        listed: whether the config has ``layer_types``.
        latent: whether the config has ``qk_rope_head_dim``.
    """
    for name in (each for model_type in model_types for each in (model_type, f"{model_type}_text")):
        family = FAMILIES.get(name, _NONE)
        if family.code_of:
            family = replace(FAMILIES[family.code_of], since=family.since)
        if listed and family.code_if_listed:
            family = FAMILIES[family.code_if_listed]
        if family.rotation or family.schemes or family.unsupported:
            return family, family.rotation is not None
    return Family(RotationRules(layout="interleaved", latent=True) if latent else _PLAIN), False


FILE = Path(__file__).with_name("defaults.json")
FILES = ("decoders", "encoders", "media")
SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")
_PLAIN, _NONE = RotationRules(), Family()

_NUMBERS: dict[str, dict[str, Any]] = json.loads(FILE.read_bytes())  # of the config classes, by model type
_COMPLETED: dict[str, Family] = {}


def written_records() -> Iterator[tuple[list[str], Family]]:
    """The records as they are written, without their classes' numbers, and the model types that share each.

    A file is imported when the ones before it are through, so that a search ends as early as it can.
    """
    for file in FILES:
        for names, record in vars(import_module(f"{__name__}.{file}"))[file.upper()].items():
            yield names.split(), record


class Completed(Mapping[str, Family]):
    """Records by model type, each completed when it is first asked for: a command reads one or two of 550."""

    def __getitem__(self, name: str) -> Family:
        if name not in _COMPLETED:
            record = next((record for names, record in written_records() if name in names), None)
            if record is None and name not in _NUMBERS:
                raise KeyError(name)
            _COMPLETED[name] = completed(record or _NONE, _NUMBERS.get(name, {}))
        return _COMPLETED[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*(name for names, _ in written_records() for name in names), *_NUMBERS)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


FAMILIES: Mapping[str, Family] = Completed()


def completed(record: Family, known: Mapping[str, Any]) -> Family:
    """The record with the numbers that it leaves to the config class."""
    changes: dict[str, Any] = {key: known[key] for key in ("since", "text_type") if key in known}
    if record.text_type:
        changes.pop("text_type", None)
    if "sizes" in known and record.sizes is None:
        changes["sizes"] = Sizes(*known["sizes"])
    rotation, layers, attention = record.rotation, record.layers, record.attention
    if rotation is not None:
        left = {
            key: known[key] for key in _OF_ROTATION if key in known and getattr(rotation, key) == getattr(_PLAIN, key)
        }
        changes["rotation"] = replace(rotation, **left)
    if "window" in known and layers.window.size is None:
        changes["layers"] = replace(layers, window=replace(layers.window, size=known["window"]))
    of_class = {key: known[key] for key in ("top_k", "softcap") if getattr(attention, key) == 0 and key in known}
    if "scale_number" in known:
        of_class["scale_number"] = known["scale_number"]
    if of_class:
        changes["attention"] = replace(attention, **of_class)
    if record.schemes:
        changes["schemes"] = tuple(_of_scheme(scheme, known) for scheme in record.schemes)
    return replace(record, **changes)


_OF_ROTATION = ("base", "share", "block", "block_only", "head_dim", "full_head_dim")


def _of_scheme(scheme: PositionScheme, known: Mapping[str, Any]) -> PositionScheme:
    if scheme.table is not None and not scheme.table.default and "rows" in known:
        return replace(scheme, table=replace(scheme.table, default=known["rows"]))
    if scheme.patches is not None and not scheme.patches.image_size and "patch_size" in known:
        sizes = {key: known[key] for key in ("image_size", "patch_size") if key in known}
        sides: dict[str, Any] = {key: tuple(size) if isinstance(size, list) else size for key, size in sizes.items()}
        return replace(scheme, patches=replace(scheme.patches, **sides))
    return scheme
