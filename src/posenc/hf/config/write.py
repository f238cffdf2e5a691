"""RoPE → configuration: new values go where the old ones stood, so that its spelling stays.

The declared length follows the rotation. Under YaRN, LongRoPE and Llama 3's recipe the training length stands in the
block, as original_max_position_embeddings, and ``max_position_embeddings`` is the extended one: transformers compares
their ratio with the factor, generation and serving stop there. Linear scaling and dynamic NTK have no key for the
training length, so that there ``max_position_embeddings`` stays (dynamic NTK starts from it).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf, nextafter
from typing import Any

from posenc.frequencies.by_parts import NTKByParts
from posenc.frequencies.host import steps_of
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import DynamicNTK
from posenc.frequencies.rotation import RoPESpec
from posenc.frequencies.yarn import YaRN
from posenc.hf.config.block_schema import PRESERVED, VLLM, Block
from posenc.hf.config.rope_block import Path, RopeBlock
from posenc.hf.config.rope_keys import share_key
from posenc.hf.config.rotation import Rotation, keys_of, text_rope
from posenc.hf.config.scalings import LENGTH, SILENT, Convention, block_of
from posenc.hf.config.text_config import TextConfig, head_dim, length_key
from posenc.hf.json_text import REMOVED
from posenc.hf.sources.load import Config

_EXTENDED = (LongRoPE, YaRN)  # whose factor says by how much
Layers = Mapping[str, Rotation | None]


def extended_length(layers: Layers, *, recipes: bool = True) -> int | None:
    """The context length that these rotations extend to: training length times factor; None without a factor.

    Args:
        layers: by kind.
        recipes: whether Llama 3's counts, whose factor says less than the length that such models declare.
    """
    kinds = (*_EXTENDED, Llama3, NTKByParts) if recipes else _EXTENDED
    steps = [step for step in _scalings(layers) if isinstance(step, kinds) and step.factor > 1]
    return max((round(step.original_length * step.factor) for step in steps), default=None)


def length_after(declared: int | None, before: Layers, after: Layers) -> int | None:
    """What ``max_position_embeddings`` becomes; None: it stays.

    It grows to what the new rotations reach, and follows them where it was what the old ones reached. A configuration
    that declared the training length next to a scaling keeps declaring it.

    Args:
        declared: its value so far.
        before, after: the rotations, by kind of layers.
    """
    extended = extended_length(after)
    if declared is None or extended is None or any(isinstance(step, DynamicNTK) for step in _scalings(after)):
        return None
    old = extended_length(before)
    if old not in (None, declared) and all(declared in _trained(layers) for layers in (before, after)):
        return None
    return extended if extended > declared or old == declared else None


def _trained(layers: Layers) -> set[object]:
    return {getattr(step, "original_length", None) for step in _scalings(layers)}


def _scalings(layers: Layers) -> list[object]:
    ropes = [text_rope(rope) for rope in layers.values() if rope is not None]
    return [step for rope in ropes for step in steps_of(rope.scaling)]


SHARES = ("partial_rotary_factor", "rotary_dim")
_FROM_LENGTH = ("original_max_position_embeddings", "factor")  # keys for which the declared length can stand


def write_rotations(
    text_config: TextConfig,
    rope_blocks: list[RopeBlock],
    ropes: Mapping[str, Rotation | None],
    convention: Convention,
    ignore: Collection[str],
    longest: int | None = None,
) -> Config:
    """The text part of a configuration with these rotations; a key that says the same already stays as it is.

    Args:
        text_config: the text model's config as it was read.
        rope_blocks: what it says, by kind of layers.
        ropes: by kind of layers, what it is to say.
        convention: as in `read_rope`.
        ignore: keys to leave alone.
        longest: another length that the configuration will declare, so that blocks must not lean on the old one.

    Raises:
        ValueError: where a rotation has no rope type, or other layers rotate than before.
    """
    config = copy.deepcopy(text_config.config)
    for rope_block in (block.without(ignore) for block in rope_blocks):
        if rope_block.kind not in ropes:
            raise ValueError(
                f"rotations must have a rotation or None for {rope_block.kind}, got {', '.join(ropes) or 'none'}"
            )
        rope = ropes[rope_block.kind]
        if (rope is None) != (rope_block.values is None):
            raise ValueError(f"layers: {rope_block.kind} cannot start or stop rotating in this spelling; use version=5")
        if rope is None or rope_block.values is None:
            continue
        block = {
            **block_of(text_rope(rope), convention, rope_block.values),
            **keys_of(rope, text_config.rotation, rope_block.values),
        }
        if block["rope_type"] != "proportional":
            block |= _share(text_config, rope_block, text_rope(rope))
        for path, value in _changes(text_config, rope_block, block, longest).items():
            put(config, path, value)
    return config


def _changes(text_config: TextConfig, rope_block: RopeBlock, block: Block, longest: int | None) -> dict[Path, Any]:
    """New values by the place where they go; `REMOVED` for keys that no longer apply."""
    changes: dict[Path, Any] = {}
    same_type = rope_block.effective.get("rope_type", "default") == block["rope_type"]
    keys = text_config.rotation.dynamic_keys
    if keys is not None and not same_type and (keys.factor_key,) in rope_block.sources.get("factor", ()):
        changes[(keys.factor_key,)] = None  # it is the factor of dynamic NTK alone: that of another type goes elsewhere
        sources = {key: paths for key, paths in rope_block.sources.items() if key != "factor"}
        rope_block = replace(rope_block.without(("factor",)), sources=sources)
    old = rope_block.values or {}
    any_type = {"rope_theta": rope_block.effective_defaults["rope_theta"], **text_config.rotation.section_keys}
    silent = {**SILENT, **(rope_block.effective_defaults if same_type else any_type)}
    if longest is not None:
        silent = {key: value for key, value in silent.items() if key not in _FROM_LENGTH}
    for key, value in block.items():
        if key == LENGTH:
            if rope_block.longest != value:
                changes[(length_key(text_config),)] = value
        elif old.get(key) != value and (key in old or key not in silent or silent[key] != value):
            changes |= dict.fromkeys(places(rope_block, key), value)
    kept = VLLM if not changes else ()  # which only engines read, and which speak of this scaling
    for key, value in old.items():
        trained = key == "original_max_position_embeddings" and block.get(LENGTH, value) == value  # that nothing reads
        idle = key in (*SHARES, *PRESERVED, *kept) or (same_type and (trained or SILENT.get(key) == value))
        if key not in block and not idle:
            changes |= {path: REMOVED for path in places(rope_block, key) if len(path) > 1}
    return changes


def places(rope_block: RopeBlock, key: str) -> tuple[Path, ...]:
    """Where a key stands, or would stand."""
    if key in rope_block.sources:
        return rope_block.sources[key]
    return (
        ((rope_block.renames[key],),)
        if key in rope_block.renames
        else tuple((*home, key) for home in (rope_block.target, *rope_block.mirrors))
    )


def _share(text_config: TextConfig, rope_block: RopeBlock, rope: RoPESpec) -> Block:
    """The share of the head that rotates, if it is another one than before."""
    width = head_dim(text_config, rope_block.kind, rope.head_dim)
    if text_config.rotation.latent or rotary_dim(rope_block.effective, width) == rope.rotary_dim:
        return {}
    key = next((key for key in SHARES if key in (rope_block.values or {})), share_key(text_config.rotation))
    return {key: rope.rotary_dim if key == "rotary_dim" else share_of(rope)}


def rotary_dim(values: Block, width: int) -> int:
    """Channels of a head of ``width`` that rotate."""
    if values.get("rope_type") == "proportional":
        return width
    return int(values.get("rotary_dim", int(width * values.get("partial_rotary_factor", 1.0))))


def share_of(rope: RoPESpec) -> float:
    """The share of the head that rotates, such that int(head_dim · share) is exactly rotary_dim."""
    share = rope.rotary_dim / rope.head_dim
    return share if int(rope.head_dim * share) == rope.rotary_dim else nextafter(share, inf)


def put(config: Config, path: Path, value: Any) -> None:
    """Set a value, or take the key away for `REMOVED`."""
    inner = config
    for name in path[:-1]:
        if not isinstance(inner.get(name), dict):
            inner[name] = {}
        inner = inner[name]
    if value is REMOVED:
        inner.pop(path[-1], None)
    else:
        inner[path[-1]] = value
