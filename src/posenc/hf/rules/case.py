"""What a rule is given, and helpers of rules.

A rule is a function from a `Case`, one kind of layers of a config, or from `ModelFacts` to the findings of one subject.
It says in its docstring where each mistake was met: a public thread, or a published file.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.rope_keys import RopeBlock
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import TextConfig, is_posenc_config
from posenc.hf.families.family import RotationRules
from posenc.hf.sources.load import Config

ORIGINAL, DECLARED = "original_max_position_embeddings", "max_position_embeddings"


class Case(NamedTuple):
    """A config, and one of its kinds of layers that rotate.

    Attributes:
        facts: the config.
        block: what it says of the kind of layers.
        rope: their rotation.
        text: the part of the config that describes the text model.
        family: the rules of its rotation.
        given: keys of the block that the file has, under the names of version 5.
        values: these, and defaults of the model type where it has none.
        rope_type: the rope type.
        gain: on rotated queries and keys, of a text of one token.
        slowest: tokens in which the slowest pair rotates once, before any scaling.
    """

    facts: ModelFacts
    block: RopeBlock
    rope: Rotation
    text: TextConfig
    family: RotationRules
    given: dict[str, Any]
    values: dict[str, Any]
    rope_type: str
    gain: float
    slowest: float


def case_of(facts: ModelFacts, block: RopeBlock, rope: Rotation) -> Case:
    """What rules are given of one kind of layers."""
    spec, values = text_rope(rope), block.effective
    slowest = 2 * math.pi * values["rope_theta"] ** ((spec.rotary_dim - 2) / spec.rotary_dim)
    rope_type, gain = str(values.get("rope_type", "default")), float(spec.spectrum(1).gain)
    given = block.values or {}
    return Case(facts, block, rope, facts.text, facts.text.rotation, given, values, rope_type, gain, slowest)


def in_block(case: Case, changes: Config) -> Config | None:
    """The block of a case with other values, null for a key that goes; None where it is one of several blocks."""
    home = case.block.target[0] if len(case.block.target) == 1 else ""
    block = case.text.get(home)
    if not isinstance(block, dict):
        return None
    return {home: {key: value for key, value in {**block, **changes}.items() if value is not None}}


def has_remote_code(config: Config) -> bool:
    """Whether a configuration names code in its folder, which may read the keys in another way than transformers."""
    return bool(config.get("auto_map")) and not is_posenc_config(config)
