"""RoPE → configuration: new values go where the old ones stood, so that it keeps its spelling."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from math import inf, nextafter
from typing import Any

from posenc.hf.mrope import Rotation, keys_of, of_text
from posenc.hf.part import Part, Path
from posenc.hf.scalings import LENGTH, SILENT, Convention, block_of
from posenc.hf.schema import KEPT, Block
from posenc.hf.section import Section, head_dim, length_key, max_length
from posenc.hf.source import Config
from posenc.hf.spelling import share_key
from posenc.rotary.rope import RoPE

SHARES = ("partial_rotary_factor", "rotary_dim")
GONE = object()
_FROM_LENGTH = ("original_max_position_embeddings", "factor")  # keys for which the declared length can stand


def rewritten(
    section: Section,
    parts: list[Part],
    ropes: Mapping[str, Rotation | None],
    convention: Convention,
    ignore: Collection[str],
    longest: int | None = None,
) -> Config:
    """The text part of a configuration with these rotations; a key that says the same already stays as it is.

    Args:
        section: the text part as it was read.
        parts: what it says, by kind of layers.
        ropes: by kind of layers, what it is to say.
        convention: as in `read_rope`.
        ignore: keys to leave alone.
        longest: another length that the configuration will declare, so that blocks must not lean on the old one.

    Raises:
        ValueError: where a rotation has no rope type, or other layers turn than before.
    """
    config = copy.deepcopy(section.config)
    for part in (one.without(ignore) for one in parts):
        if part.kind not in ropes:
            raise ValueError(f"layers must have a rotation or None for {part.kind}, got {', '.join(ropes) or 'none'}")
        rope = ropes[part.kind]
        if (rope is None) != (part.found is None):
            raise ValueError(f"layers: {part.kind} cannot start or stop to turn in this spelling; use version=5")
        if rope is None or part.found is None:
            continue
        block = {**block_of(of_text(rope), convention, part.found), **keys_of(rope, section.rotation, part.found)}
        if block["rope_type"] != "proportional":
            block |= _share(section, part, of_text(rope))
        for path, value in _changes(section, part, block, longest).items():
            put(config, path, value)
    return config


def _changes(section: Section, part: Part, block: Block, longest: int | None) -> dict[Path, Any]:
    """New values by the place where they go; `GONE` for keys that no longer apply."""
    found = part.found or {}
    same_type = part.values.get("rope_type", "default") == block["rope_type"]
    any_type = {"rope_theta": part.defaults["rope_theta"], **section.rotation.section_keys}
    silent = {**SILENT, **(part.defaults if same_type else any_type)}
    if longest is not None:
        silent = {key: value for key, value in silent.items() if key not in _FROM_LENGTH}
    changes: dict[Path, Any] = {}
    for key, value in block.items():
        if key == LENGTH:
            if max_length(section) != value:
                changes[(length_key(section),)] = value
        elif found.get(key) != value and (key in found or key not in silent or silent[key] != value):
            changes |= dict.fromkeys(places(part, key), value)
    for key, value in found.items():
        trained = key == "original_max_position_embeddings" and block.get(LENGTH, value) == value  # that nothing reads
        idle = key in (*SHARES, *KEPT) or (same_type and (trained or SILENT.get(key) == value))
        if key not in block and not idle:
            changes |= {path: GONE for path in places(part, key) if len(path) > 1}
    return changes


def places(part: Part, key: str) -> tuple[Path, ...]:
    """Where a key stands, or would stand."""
    if key in part.places:
        return part.places[key]
    return ((part.beside[key],),) if key in part.beside else tuple((*home, key) for home in (part.home, *part.also))


def _share(section: Section, part: Part, rope: RoPE) -> Block:
    """The share of the head that turns, if it is another one than before."""
    width = head_dim(section, part.kind, rope.head_dim)
    if section.rotation.latent or rotary_dim(part.values, width) == rope.rotary_dim:
        return {}
    key = next((key for key in SHARES if key in (part.found or {})), share_key(section.rotation))
    return {key: rope.rotary_dim if key == "rotary_dim" else share_of(rope)}


def rotary_dim(values: Block, width: int) -> int:
    """Channels of a head of ``width`` that turn."""
    if values.get("rope_type") == "proportional":
        return width
    return int(values.get("rotary_dim", int(width * values.get("partial_rotary_factor", 1.0))))


def share_of(rope: RoPE) -> float:
    """The share of the head that turns, such that int(head_dim · share) is exactly rotary_dim."""
    share = rope.rotary_dim / rope.head_dim
    return share if int(rope.head_dim * share) == rope.rotary_dim else nextafter(share, inf)


def put(config: Config, path: Path, value: Any) -> None:
    """Set a value, or take the key away for `GONE`."""
    inner = config
    for name in path[:-1]:
        if not isinstance(inner.get(name), dict):
            inner[name] = {}
        inner = inner[name]
    if value is GONE:
        inner.pop(path[-1], None)
    else:
        inner[path[-1]] = value
