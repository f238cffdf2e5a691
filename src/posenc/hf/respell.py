"""RoPE → configuration in the spelling of transformers 4 or 5, from nothing.

Version 4: ``rope_theta`` and a share of the head beside ``rope_scaling`` (null where nothing is scaled).
Version 5: all of it in ``rope_parameters``, one block for each kind of layers where they differ.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from posenc.hf.families import RotationRules
from posenc.hf.mrope import Rotation, keys_of, of_text
from posenc.hf.part import ALL, BLOCKS, Part
from posenc.hf.scalings import LENGTH, Convention, block_of
from posenc.hf.schema import KEPT, Block
from posenc.hf.section import Section
from posenc.hf.source import Config
from posenc.hf.write import share_of

_PLAIN: Block = {"rope_type": "default"}


def without_rope(section: Section, parts: list[Part]) -> Config:
    """The text part without anything that speaks of its rotation, but a trained length beside the blocks."""
    config = copy.deepcopy(section.config)
    for name in BLOCKS:
        config.pop(name, None)
    for part in parts:
        for key, paths in part.places.items():
            for path in paths:
                if len(path) == 1 and key != "original_max_position_embeddings":
                    config.pop(path[0], None)
    return config


def spelled(
    ropes: Mapping[str, Rotation | None],
    before: Mapping[str, Block],
    *,
    family: RotationRules,
    version: int,
    convention: Convention,
    ignore: Collection[str] = (),
) -> Config:
    """Keys of a configuration that mean these rotations.

    Args:
        ropes: by kind of layers; `ALL` alone makes a flat block.
        before: by kind, the block that was read, if any.
        family: whose keys version 4 uses.
        version: 4 or 5.
        convention: as in `read_rope`.
        ignore: keys to take over beside those that are known to say nothing of the rotation.

    Raises:
        ValueError: where a rotation has no rope type, or the version no spelling for it.
    """
    if not ropes:
        raise ValueError("layers must have at least one kind, got none")
    blocks: dict[str, Block | None] = {}
    beside: Config = {}
    for kind, rope in ropes.items():
        old = before.get(kind, {})
        read = {key: value for key, value in old.items() if key not in ignore}
        block = None if rope is None else _explicit(rope, family, convention, read)
        if block is not None:
            if LENGTH in block:
                beside["max_position_embeddings"] = block.pop(LENGTH)
            block |= {key: value for key, value in old.items() if key in (*KEPT, *ignore) and key not in block}
        blocks[kind] = block
    turning = [kind for kind in blocks if kind not in family.unrotated_kinds]
    if family.fixed:
        return {**beside, **_of_fixed(ropes[turning[0]])}
    if version == 5:
        flat = turning == [ALL] or bool(family.unrotated_kinds)
        return {**beside, "rope_parameters": blocks[turning[0]] if flat else blocks}
    if family.kinds:
        return {**beside, **_of_kinds(blocks, family)}
    if len(turning) > 1:
        raise ValueError(f"version 4 has no spelling for layers {turning}; use version=5")
    return {**beside, **_version_4(blocks[turning[0]], ropes[turning[0]], family)}


def _explicit(rotation: Rotation, family: RotationRules, convention: Convention, before: Block) -> Block:
    rope = of_text(rotation)
    block = block_of(rope, convention, before)
    if rope.rotary_dim != rope.head_dim or family.share != 1:
        block.setdefault("partial_rotary_factor", share_of(rope))
    return {**block, **keys_of(rotation, family, before)}


def _version_4(found: Block | None, rotation: Rotation | None, family: RotationRules) -> Config:
    if found is None or rotation is None:
        raise ValueError("version 4 has no spelling for a model without any rotation; use version=5")
    block = dict(found)
    _check_version_4(block)
    config: Config = {family.theta_key: block.pop("rope_theta")}
    share = block.pop("partial_rotary_factor", None)
    if share is not None:
        config[family.share_key] = of_text(rotation).rotary_dim if family.share_key == "rotary_dim" else share
    return {**config, "rope_scaling": None if block == _PLAIN else block}


def _of_kinds(blocks: Mapping[str, Block | None], family: RotationRules) -> Config:
    """Version 4 of a family that spells several kinds of layers in one go."""
    config: Config = {}
    for kind, own in family.kinds.items():
        block = dict(blocks.get(kind) or {})
        _check_version_4(block)
        values: dict[str, Any] = {own.theta_key: block.pop("rope_theta", own.base)}
        if own.scaled:
            values["rope_scaling"] = None if block == _PLAIN else block
        elif block != _PLAIN:
            raise ValueError(f"rope_scaling of version 4 is not for {kind}; use version=5")
        for key, value in values.items():
            if config.setdefault(key, value) != value:
                raise ValueError(f"{key} of version 4 stands for all kinds of layers, which differ; use version=5")
    return config


def _of_fixed(rotation: Rotation | None) -> Config:
    rope = None if rotation is None else of_text(rotation)
    if rope is None or rope.scaling is not None or rope.base != RotationRules().base:
        raise ValueError(
            "rope_theta: this family's code has a base of 10000 and no scaling, whatever a configuration says"
        )
    return {"rotary_dim": rope.rotary_dim}


def _check_version_4(block: Block) -> None:
    if block.get("rope_type") == "proportional":
        raise ValueError("rope_type 'proportional' is not known to version 4; use version=5")
