"""What the page has to know to read a pasted configuration: rope types, and families without surprises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from posenc.hf.config.block_schema import ALIASES, FREE, REFUSED_KEYS, TYPES
from posenc.hf.families import ROTARY, ROTATIONS, Family, RotationRules

COMMAND = "posenc doctor"  # which judges what the page does not
_LLAMA, _DEFAULTS = ROTARY["llama"], RotationRules()
_MAY_DIFFER = (  # between families that are read alike
    "base", "share", "default_share", "layout", "block", "original", "head_dim", "sections", "order",
    "rope_types",
)  # fmt: skip
_STRANGE = (  # keys that change what layers do, whatever the family
    "alibi", "position_embedding_type", "qk_rope_head_dim", "kv_channels", "no_rope_layers", "no_rope_layer_interval",
    "per_layer_config", "attention_chunk_size", "rope_local_base_freq", "global_head_dim", "rope_interleave",
)  # fmt: skip


def forms() -> dict[str, Any]:
    """Plain values for the page: ``types`` of a block, and ``families`` whose configurations it can read."""
    return {
        "command": COMMAND,
        "types": {name: {"required": kind.required, "optional": kind.optional} for name, kind in TYPES.items()},
        "free": FREE,
        "aliases": ALIASES,
        "strange": [*_STRANGE, *REFUSED_KEYS],
        "llama": _facts(ROTARY["llama"]),
        "families": {name: _facts(family) for name, family in ROTARY.items() if _read_alike(ROTATIONS[name])},
    }


def _read_alike(rotation: RotationRules) -> bool:
    decides = (field.name for field in fields(RotationRules) if field.name not in _MAY_DIFFER)
    return all(getattr(rotation, name) == getattr(_DEFAULTS, name) for name in decides)


def _facts(family: Family) -> dict[str, Any]:
    rotation = family.rotation or _DEFAULTS
    block: Mapping[str, Any] = rotation.block or {}
    return {
        "base": rotation.base,
        "share": rotation.share,
        "layout": rotation.layout,
        "original": rotation.original,
        "head_dim": rotation.head_dim,
        "block": {**rotation.section_keys, **block},
        "ropeTypes": rotation.rope_types,  # none: all
        # every layer attends to all of the past, unless a config lists kinds
        "uniform": (family.layers, family.attention) == (_LLAMA.layers, _LLAMA.attention),
    }
