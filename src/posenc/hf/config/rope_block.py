"""What a configuration says of one kind of layers, and where each value stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.block_schema import ALIASES, RULES, WITH_ALPHA, Block, Problem
from posenc.hf.config.text_config import TextConfig, max_length
from posenc.hf.limits import is_count

ALL = "all"  # the kind of layers of a flat configuration
BLOCKS = ("rope_parameters", "rope_scaling")
OUTSIDE = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct", "rope_pct"),
    "rotary_dim": ("rotary_dim",),
    "original_max_position_embeddings": ("original_max_position_embeddings",),
}
SCALED_FROM = (
    "yarn",
    "llama3",
    "longrope",
    "deepseek_yarn",
    "deepseek_llama_scaling",
)  # rope types that start from the original length

Path = tuple[str, ...]


@dataclass(frozen=True)
class RopeBlock:
    """What a configuration says of one kind of layers, and where each value stands.

    Attributes:
        kind: of layers; `ALL` in a flat configuration.
        values: given ones, under the keys of version 5, nulls dropped; None for layers that do not rotate.
        defaults: values that hold where none is given.
        sources: the paths of each key, also if it is null there.
        target: path of the dictionary where new keys go.
        mirrors: paths of dictionaries that repeat the target, as the block of version 4 repeats the block of version 5.
        renames: keys that go outside the block instead, and under which name (version 4).
        conflicts: values that are given twice, differently.
        longest: ``max_position_embeddings``.
        trained: training length where no key gives it.
    """

    kind: str
    values: Block | None
    defaults: Block = field(default_factory=dict)
    sources: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    target: Path = ("rope_parameters",)
    mirrors: tuple[Path, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Problem, ...] = ()
    longest: int | None = None
    trained: int | None = None

    @property
    def effective_defaults(self) -> Block:
        """Values that hold where none is given, for the rope type that is."""
        block, defaults = self.values or {}, dict(self.defaults)
        rope_type = block.get("rope_type", defaults.get("rope_type"))
        if "rotary_dim" in block:
            defaults.pop("partial_rotary_factor", None)
        if rope_type in SCALED_FROM and self.trained is not None:
            defaults.setdefault("original_max_position_embeddings", self.trained)
        original: Any = {**defaults, **block}.get("original_max_position_embeddings")
        null_factor = rope_type == "yarn" and "factor" in self.sources
        if (rope_type == "longrope" or null_factor) and self.longest and is_count(original):
            defaults["factor"] = self.longest / original
        elif rope_type == "longrope":
            defaults["factor"] = 1.0
        return defaults

    @property
    def effective(self) -> Block:
        """Given values over the defaults."""
        return {**self.effective_defaults, **(self.values or {})}

    def without(self, keys: Collection[str]) -> RopeBlock:
        """The same as if it did not give these keys."""
        if self.values is None:
            return self
        values = {key: value for key, value in self.values.items() if key not in keys}
        return replace(
            self, values=values, conflicts=tuple(conflict for conflict in self.conflicts if conflict.key not in keys)
        )


def collect(text_config: TextConfig, homes: list[Path], outside: Mapping[str, list[Path]], kind: str) -> RopeBlock:
    """Gather all values of one kind of layers, from its blocks and from outside of them."""
    sources: dict[str, list[Path]] = {}
    for home in homes:
        for name in at(text_config.config, home) or ():
            key = "rope_type" if name == "type" else name
            sources.setdefault(key, []).append((*home, name))
    for key, paths in outside.items():
        for path in paths:
            if path[0] in text_config:
                sources.setdefault(key, []).append(path)
    block: Block = {}
    conflicts = []
    for key, paths in sources.items():
        paths.sort(key=lambda path: _rank(key, path))
        values = [canonical(key, at(text_config.config, path)) for path in paths]
        values = [value for value in values if value is not None]
        if values or not (key in RULES or key == "rope_type"):
            block[key] = values[0] if values else None  # an unknown key is wrong even if it is null
        if any(value != values[0] for value in values[1:]):
            places = [f"{text_config.key_path(*path)} = {shown(at(text_config.config, path))}" for path in paths]
            text = f"stands twice, and differs: {' and '.join(places)}; transformers obeys {places[0]}"
            conflicts.append(Problem(key, text))
    if block.get("rope_type") == "yarn" and "short_factor" in block:
        block["rope_type"] = "longrope"  # Phi-3's first spelling
    if block.get("rope_type") == "dynamic" and "alpha" in block:
        block["rope_type"] = WITH_ALPHA
    family, longest = text_config.rotation, max_length(text_config)
    defaults: Block = {"rope_theta": family.base, **family.section_keys}
    if family.share != 1:
        defaults["partial_rotary_factor"] = family.share
    if not homes and not family.nested:
        defaults |= family.block or {}
    return RopeBlock(
        kind,
        block,
        defaults,
        sources={key: tuple(paths) for key, paths in sources.items()},
        target=homes[0] if homes else ("rope_parameters",),
        mirrors=tuple(homes[1:]),
        conflicts=tuple(conflicts),
        longest=longest,
        trained=family.original or longest,
    )


def _rank(key: str, path: Path) -> int:
    """Which of two places transformers obeys: the lower one; places of one rank hold by their order."""
    if key == "rope_type":
        return int(path[-1] == "type")
    outside = len(path) == 1
    return int(not outside) if key == "original_max_position_embeddings" else int(outside)


def canonical(key: str, value: Any) -> Any:
    """A value as it is read: another name of a rope type ("su") becomes the name that transformers has."""
    return ALIASES.get(value, value) if key in ("rope_type", "type") and isinstance(value, str) else value


def at(config: Mapping[str, Any], path: Path) -> Any:
    value: Any = config
    for name in path:
        value = None if value is None else value.get(name)
    return value
