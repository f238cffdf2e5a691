"""What a rule is given, and what corrections are made of.

A rule is a function from a `Case`, one kind of layers of a config, or from `ModelFacts` to a `Finding` or None. It says
in its docstring where the mistake was met: a public thread, or a published file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.non_rotary import is_posenc_config
from posenc.hf.config.rope_keys import RopeBlock
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import TextConfig, with_text_config
from posenc.hf.families.family import RotationRules
from posenc.hf.findings import Finding
from posenc.hf.sources.load import Config


class Read(Protocol):
    """A config as `posenc.hf.config.rope_config` reads it, as far as corrections need it: that file imports these."""

    @property
    def config(self) -> Config: ...
    @property
    def rotations(self) -> Mapping[str, Rotation | None]: ...
    @property
    def rotation(self) -> Rotation: ...
    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def text_config(self) -> TextConfig: ...
    @property
    def model_type(self) -> str: ...
    def with_rope(self, rope: Rotation | Mapping[str, Rotation | None] | None) -> Read: ...
    def like(self, config: Any) -> Read: ...
    def to_config(self, version: int | None = None) -> Config: ...


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


BlockRule = Callable[[Case], Finding | None]
ConfigRule = Callable[[ModelFacts], Finding | None]
Fix = Callable[[Read], "Config | None"]


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


def text_path(read: Read) -> str:
    """The path of the text part in its file; "" where it is the whole."""
    return ".".join(read.text_config.path)


def with_keys(read: Read, keys: Config) -> Config:
    """The whole configuration with these keys in its text part; null removes one."""
    text_config = read.text_config
    text = {key: value for key, value in {**text_config.config, **keys}.items() if key not in keys or value is not None}
    return with_text_config(read.config, text_config, text)


def changed_keys(read: Read, config: Config) -> Config:
    """The keys of the text part that differ in another configuration, with its values; null for those it lacks."""
    before, after = read.text_config.config, config
    for name in read.text_config.path:
        after = after[name]
    new = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**new, **{key: None for key in before if key not in after}}


def single(read: Read) -> RoPESpec | None:
    """The rotation, where all layers that rotate have the same."""
    ropes = [rope for rope in read.rotations.values() if rope is not None]
    return text_rope(ropes[0]) if len(ropes) == 1 else None


def keys_for(read: Read, rope: RoPESpec | None) -> Config | None:
    """The keys that give all layers this rotation; None where a configuration cannot say it."""
    if rope is None:
        return None
    try:
        return changed_keys(read, read.with_rope(rope).to_config())
    except ValueError:
        return None
