"""Keys that concern positions, layers or heads in a family, and the nearest of them to a misspelt key."""

from __future__ import annotations

import difflib
from functools import cache

from posenc.hf.config.rope_block import BLOCKS
from posenc.hf.config.text_config import TextConfig
from posenc.hf.families import FAMILIES, Family

_COMMON = {"max_position_embeddings", "num_hidden_layers", "num_attention_heads"}
_OF_ROTATIONS = {"num_key_value_heads", "head_dim", "sliding_window", "layer_types", "original_max_position_embeddings",
                 "partial_rotary_factor", *BLOCKS}  # fmt: skip
_LIKENESS = 0.86  # of difflib's ratio, which finds candidates
_LETTERS = 2  # inserted, deleted or replaced at most; more make another name (max_2d_position_embeddings)
_CUT = 12  # letters of a key that lacks its last word; shorter ones are names of their own (rope_theta, head_dim)
_SHORTEST = 7  # letters of a key; shorter names are like too many others


def nearest_key(text_config: TextConfig, key: str) -> str | None:
    """The key of this family that a key is a misspelling of; None where it is a key of another family or like none.

    A longer name with a known one at its begin or end (``vision_rope_theta``) is a name of its own, but for a plural.
    """
    known = _keys_of_family(text_config.family)
    if len(key) < _SHORTEST or key in known or key in _NEIGHBOURS:
        return None
    longer = [name for name in known if name.startswith(f"{key}_")] if len(key) >= _CUT else []
    if len(longer) == 1 and key not in _keys_of_all():
        return longer[0]  # a name without its last word: rope_local_base of rope_local_base_freq
    near = difflib.get_close_matches(key.lower().replace("-", "_"), known, n=1, cutoff=_LIKENESS)
    if not near or key.endswith(f"_{near[0]}") or key.startswith(f"{near[0]}_"):
        return None
    return near[0] if _distance(key, near[0]) <= _LETTERS and key not in _keys_of_all() else None


def _distance(name: str, known: str) -> int:
    """Letters to insert, delete or replace to turn one name into another (Levenshtein's distance)."""
    row = list(range(len(known) + 1))
    for i, letter in enumerate(name, 1):
        previous, row[0] = row[0], i
        for j, known_letter in enumerate(known, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (letter != known_letter))
    return row[-1]


_NEIGHBOURS = {  # published keys of other meanings that are one or two letters away from a known one
    "num_key_value_groups", "nope_layer_interval", "compress_rates",
}  # fmt: skip


def _keys_of_family(family: Family) -> set[str]:
    """Keys that the code of a family reads and that decide its positions."""
    pattern, attention = family.layers, family.attention
    keys = {*_COMMON, pattern.period_key, pattern.sliding_from_key, pattern.count_key, pattern.window.switch}
    if pattern.listing is not None:
        keys |= {pattern.listing.parent or pattern.listing.key, pattern.listing.offset_key}
    if pattern.chunk is not None:
        keys.add("attention_chunk_size")
    if attention.scale in ("attention_multiplier", "query_pre_attn_scalar"):
        keys.add(attention.scale)
    if attention.bidirectional_if is not None:
        keys.add("use_bidirectional_attention")
    for scheme in family.schemes:
        keys |= {scheme.table.key, scheme.table.rows_key} if scheme.table else set()
        keys |= {scheme.buckets.count_key, scheme.buckets.distance_key} if scheme.buckets else set()
        keys |= {*scheme.switched_by}
    rotation = family.rotation
    if rotation is not None:
        keys |= {*_OF_ROTATIONS, pattern.types_key, pattern.cross_key, pattern.window.key}
        keys |= {rotation.theta_key, rotation.share_key, rotation.head_key, rotation.width_key}
        keys |= {kind.theta_key for kind in rotation.kinds.values()} | {rotation.bases_key or ""}
        keys |= {rotation.rotates_if[0]} if rotation.rotates_if else set()
        keys |= {"qk_rope_head_dim", "qk_nope_head_dim"} if rotation.latent else set()
        keys |= {"no_rope_layers", "no_rope_layer_interval"} if rotation.unrotated_every else set()
        keys |= {"rope_interleave"} if rotation.layout_key else set()
    return keys - {""}


@cache
def _keys_of_all() -> frozenset[str]:
    """Keys of all families, which are not misspellings wherever they stand."""
    return frozenset(key for family in FAMILIES.values() for key in _keys_of_family(family))
