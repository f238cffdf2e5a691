"""What the page has to know to read a pasted configuration: rope types, and families without surprises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posenc.hf.beside import BESIDE
from posenc.hf.config.block_schema import ALIASES, FREE, REFUSED_KEYS, TYPES
from posenc.hf.families import FAMILIES, Family
from posenc.hf.foreign import FOREIGN
from posenc.hf.instead import KNOWN

COMMAND = "posenc doctor"  # which judges what the page does not
_PLAIN = Family()
_MAY_DIFFER = (  # between families that are read alike
    "base", "share", "default_share", "layout", "block", "original", "head_dim", "sections", "order",
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
        "llama": _told("llama", FAMILIES["llama"]),
        "families": {
            name: _told(name, family)
            for name, family in FAMILIES.items()
            if _read_alike(family) and name not in FOREIGN and name not in KNOWN
        },
    }


def _read_alike(family: Family) -> bool:
    decides = (name for name in Family._fields if name not in _MAY_DIFFER)
    return all(getattr(family, name) == getattr(_PLAIN, name) for name in decides)


def _told(name: str, family: Family) -> dict[str, Any]:
    block: Mapping[str, Any] = family.block or {}
    return {
        "base": family.base,
        "share": family.share,
        "layout": family.layout,
        "original": family.original,
        "head_dim": family.head_dim,
        "block": {**family.shares, **block},
        "uniform": name not in BESIDE,  # every layer sees all of the past, unless a configuration lists kinds
    }
