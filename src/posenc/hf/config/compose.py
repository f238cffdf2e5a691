"""RoPE → configuration from nothing, in the keys of transformers 4 or 5.

Version 4: ``rope_theta`` and a share of the head next to ``rope_scaling`` (null where nothing is scaled).
Version 5: all of it in ``rope_parameters``, one block for each kind of layers where they differ.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.config.arguments import check_rotations, check_version
from posenc.hf.config.block_schema import PRESERVED, VLLM, Block
from posenc.hf.config.parse import Layers, Reading, check_meaning
from posenc.hf.config.rope_block import ALL, BLOCKS, RopeBlock
from posenc.hf.config.rotation import Rotation, keys_of, text_rope, to_longrope
from posenc.hf.config.scalings import LENGTH, Convention, block_of
from posenc.hf.config.text_config import TextConfig
from posenc.hf.config.write import extended_length, share_of
from posenc.hf.families import ROTATIONS, RotationRules
from posenc.hf.limits import TOKENS
from posenc.hf.sources.load import Config

_DEFAULT_BLOCK: Block = {"rope_type": "default"}


def without_rope(text_config: TextConfig, rope_blocks: list[RopeBlock]) -> Config:
    """The text part without the keys of its rotation, except a training length outside the blocks."""
    config = copy.deepcopy(text_config.config)
    for name in BLOCKS:
        config.pop(name, None)
    for rope_block in rope_blocks:
        for key, paths in rope_block.sources.items():
            for path in paths:
                if len(path) == 1 and key != "original_max_position_embeddings":
                    config.pop(path[0], None)
    return config


def convert_version(
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
        ignore: keys to copy, in addition to those that are known not to affect the rotation.

    Raises:
        ValueError: where a rotation has no rope type, or the version no spelling for it.
    """
    if not ropes:
        raise ValueError("rotations must have at least one kind, got none")
    blocks: dict[str, Block | None] = {}
    outside: Config = {}
    for kind, rope in ropes.items():
        old = before.get(kind, {})
        read = {key: value for key, value in old.items() if key not in ignore}
        block = None if rope is None else _explicit(rope, family, convention, read)
        if block is not None:
            if LENGTH in block:
                outside["max_position_embeddings"] = block.pop(LENGTH)
            same = all(block.get(key) == old.get(key) for key in ("rope_type", "factor", "attention_factor"))
            kept = (*PRESERVED, *ignore, *(VLLM if same else ()))
            block |= {key: value for key, value in old.items() if key in kept and key not in block}
        blocks[kind] = block
    rotating = [kind for kind in blocks if kind not in family.unrotated_kinds]
    if family.fixed:
        return {**outside, **_of_fixed(ropes[rotating[0]])}
    if version == 5:
        flat = rotating == [ALL] or bool(family.unrotated_kinds)
        return {**outside, "rope_parameters": blocks[rotating[0]] if flat else blocks}
    if family.kinds:
        return {**outside, **_of_kinds(blocks, family)}
    if len(rotating) > 1:
        raise ValueError(f"version 4 has no spelling for layers {rotating}; use version=5")
    return {**outside, **_version_4(blocks[rotating[0]], ropes[rotating[0]], family)}


def _explicit(rotation: Rotation, family: RotationRules, convention: Convention, before: Block) -> Block:
    rope = text_rope(rotation)
    block = block_of(rope, convention, before)
    if rope.rotary_dim != rope.head_dim or family.share != 1:
        block.setdefault("partial_rotary_factor", share_of(rope))
    return {**block, **keys_of(rotation, family, before)}


def _version_4(old_block: Block | None, rotation: Rotation | None, family: RotationRules) -> Config:
    if old_block is None or rotation is None:
        raise ValueError("version 4 has no spelling for a model without any rotation; use version=5")
    block = dict(old_block)
    _check_version_4(block)
    config: Config = {family.theta_key: block.pop("rope_theta")}
    share = block.pop("partial_rotary_factor", None)
    if share is not None:
        config[family.share_key] = text_rope(rotation).rotary_dim if family.share_key == "rotary_dim" else share
    return {**config, "rope_scaling": None if block == _DEFAULT_BLOCK else block}


def _of_kinds(blocks: Mapping[str, Block | None], family: RotationRules) -> Config:
    """Version 4 of a family that spells several kinds of layers in one go."""
    config: Config = {}
    for kind, keys in family.kinds.items():
        block = dict(blocks.get(kind) or {})
        _check_version_4(block)
        values: dict[str, Any] = {keys.theta_key: block.pop("rope_theta", keys.base)}
        if keys.scaled:
            values["rope_scaling"] = None if block == _DEFAULT_BLOCK else block
        elif block != _DEFAULT_BLOCK:
            raise ValueError(f"rope_scaling of version 4 is not for {kind}; use version=5")
        for key, value in values.items():
            if config.setdefault(key, value) != value:
                raise ValueError(f"{key} of version 4 stands for all kinds of layers, which differ; use version=5")
    return config


def _of_fixed(rotation: Rotation | None) -> Config:
    rope = None if rotation is None else text_rope(rotation)
    if rope is None or rope.scaling is not None or rope.base != RotationRules().base:
        raise ValueError(
            "rope_theta: this family's code has a base of 10000 and no scaling, whatever a configuration says"
        )
    return {"rotary_dim": rope.rotary_dim}


def _check_version_4(block: Block) -> None:
    if block.get("rope_type") == "proportional":
        raise ValueError("rope_type 'proportional' is not known to version 4; use version=5")


def rope_to_config(
    rope: Rotation | Layers,
    *,
    version: int = 5,
    model_type: str | None = None,
    as_longrope: bool = False,
    original_length: int | None = None,
) -> Config:
    """The keys of a configuration that make transformers rotate as ``rope`` does; merge them into a config.json.

    YaRN and LongRoPE come with ``max_position_embeddings``, the extended context length. Llama 3's recipe does
    not: models with it declare more than its factor says.

    Args:
        rope: one, or one for each kind of layers (None: they do not rotate).
        version: spelling of transformers 4 or 5.
        model_type: whose keys and layout to use, default Llama's.
        as_longrope: write any fixed spectrum as rope type "longrope", a factor for each pair.
        original_length: training length for ``as_longrope``, if the scaling has none.

    Raises:
        ValueError: where no rope type says what the rotation does, and what can be done then.

    >>> from posenc import RoPE
    >>> rope_to_config(RoPE(128, base=500000.0))
    {'head_dim': 128, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 500000.0}}
    """
    layers = check_rotations("rope", rope)
    check_version(version)
    if original_length is not None:
        check_whole("original_length", original_length, most=TOKENS)
    if check_flag("as_longrope", as_longrope):
        layers = {
            kind: None if rotation is None else to_longrope(rotation, original_length)
            for kind, rotation in layers.items()
        }
    if model_type is not None and (not isinstance(model_type, str) or model_type not in ROTATIONS):
        raise ValueError(f"model_type {shown(model_type)} is not known; known are {', '.join(sorted(ROTATIONS))}")
    family = RotationRules() if model_type is None else ROTATIONS[model_type]
    widths = {rotation.head_dim for rotation in layers.values() if rotation is not None}
    if len(widths) != 1:
        raise ValueError(
            f"rope: head_dim must be the same in all layers, and some layers must rotate, got {sorted(widths)}"
        )
    name: Config = {} if model_type is None else {"model_type": model_type}
    width = "qk_rope_head_dim" if family.latent else "head_dim"
    longest = extended_length(layers, recipes=False)
    config = {
        **name,
        width: widths.pop(),
        **({} if longest is None else {"max_position_embeddings": longest}),
        **convert_version(layers, {}, family=family, version=version, convention="transformers"),
    }
    layouts = {text_rope(rotation).layout for rotation in layers.values() if rotation is not None}
    layout = layouts.pop() if model_type is None and len(layouts) == 1 else None
    check_meaning(config, layers, Reading(layout=layout))
    return config
