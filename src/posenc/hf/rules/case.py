"""What a rule is, and what it is given.

A rule is a function from a `Case`, one kind of layers of a config, to a `Finding` or None. It says in its docstring
where the mistake was met: a public thread, or a published file. `of_block` and `of_config` put it into the list in the
order of the files; a correction stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.parse import Layers
from posenc.hf.config.rope_block import RopeBlock
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import TextConfig
from posenc.hf.families.rotation import RotationRules
from posenc.hf.findings import Finding
from posenc.hf.sources.load import Config


@dataclass(frozen=True, eq=False)
class Case:
    """A config, and for rules of blocks one of its kinds of layers that rotate.

    Attributes:
        facts: the config.
        block: what it says of the kind of layers.
        rope: their rotation.
    """

    facts: ModelFacts
    block: RopeBlock
    rope: Rotation

    @property
    def text(self) -> TextConfig:
        """The part that describes the text model."""
        return self.facts.text

    @property
    def family(self) -> RotationRules:
        """The rules of its rotation."""
        return self.text.rotation

    @cached_property
    def given(self) -> dict[str, Any]:
        """Keys of the block that the file has, under the names of version 5."""
        return self.block.values or {}

    @cached_property
    def values(self) -> dict[str, Any]:
        """These, and defaults of the model type where it has none."""
        return self.block.effective

    @cached_property
    def rope_type(self) -> str:
        """The rope type."""
        return str(self.values.get("rope_type", "default"))

    @cached_property
    def gain(self) -> float:
        """The gain on rotated queries and keys, of a text of one token."""
        return float(text_rope(self.rope).spectrum(1).gain)

    @cached_property
    def slowest(self) -> float:
        """Tokens in which the slowest pair rotates once, before any scaling."""
        channels = text_rope(self.rope).rotary_dim
        return float(2 * math.pi * self.values["rope_theta"] ** ((channels - 2) / channels))


class Read(Protocol):
    """A config as `posenc.hf.config.rope_config` reads it, as far as corrections need it: that file imports these."""

    @property
    def config(self) -> Config: ...
    @property
    def facts(self) -> ModelFacts: ...
    @property
    def rotations(self) -> Layers: ...
    @property
    def rotation(self) -> Rotation: ...
    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def text_config(self) -> TextConfig: ...
    @property
    def model_type(self) -> str: ...
    def with_rope(self, rope: Rotation | Layers | None) -> Read: ...
    def like(self, config: Any) -> Read: ...
    def to_config(self, version: int | None = None) -> Config: ...


Fix = Callable[[Read], "Config | None"]
BlockRule = Callable[[Case], Finding | None]
ConfigRule = Callable[[ModelFacts], Finding | None]

OF_BLOCKS: list[BlockRule] = []
OF_CONFIGS: list[ConfigRule] = []
FIXES: dict[str, tuple[Fix, bool]] = {}
"""By the name of a finding: the keys that resolve it, and whether they are certain."""


def of_block(rule: BlockRule) -> BlockRule:
    """Put a rule on one kind of layers into the list."""
    OF_BLOCKS.append(rule)
    return rule


def of_config(rule: ConfigRule) -> ConfigRule:
    """Put a rule on a whole config into the list."""
    OF_CONFIGS.append(rule)
    return rule


def fixes(*names: str, certain: bool) -> Callable[[Fix], Fix]:
    """A correction of the findings of these names."""

    def keep(fix: Fix) -> Fix:
        FIXES.update(dict.fromkeys(names, (fix, certain)))
        return fix

    return keep


def in_block(case: Case, changes: Config) -> Config | None:
    """The block of a case with other values, null for a key that goes; None where it is one of several blocks."""
    home = case.block.target[0] if len(case.block.target) == 1 else ""
    block = case.text.get(home)
    if not isinstance(block, dict):
        return None
    return {home: {key: value for key, value in {**block, **changes}.items() if value is not None}}
