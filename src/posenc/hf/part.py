"""One part of a configuration: what it says of one kind of layers, and where each value stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from posenc.hf.numbers import is_count, shown
from posenc.hf.schema import ALIASES, RULES, WITH_ALPHA, Block, Problem
from posenc.hf.section import Section, max_length

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
class Part:
    """What a configuration says of one kind of layers.

    Attributes:
        kind: of layers; `ALL` in a flat configuration.
        found: values that it gives, under the keys of version 5, nulls dropped; None for layers that do not turn.
        silent: values that hold where it gives none.
        places: where each key stands, also if it is null there.
        home: the dictionary where new keys go.
        also: others that say the same, as that of version 4 beside that of version 5.
        beside: keys that go beside the block instead, and under which name (version 4).
        conflicts: values that it gives twice, differently.
        longest: ``max_position_embeddings``.
        trained: trained length where no key gives it.
    """

    kind: str
    found: Block | None
    silent: Block = field(default_factory=dict)
    places: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    home: Path = ("rope_parameters",)
    also: tuple[Path, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Problem, ...] = ()
    longest: int | None = None
    trained: int | None = None

    @property
    def defaults(self) -> Block:
        """Values that hold where none is given, for the rope type that is."""
        found, defaults = self.found or {}, dict(self.silent)
        rope_type = found.get("rope_type", defaults.get("rope_type"))
        if "rotary_dim" in found:
            defaults.pop("partial_rotary_factor", None)
        if rope_type in SCALED_FROM and self.trained is not None:
            defaults.setdefault("original_max_position_embeddings", self.trained)
        original: Any = {**defaults, **found}.get("original_max_position_embeddings")
        null_factor = rope_type == "yarn" and "factor" in self.places
        if (rope_type == "longrope" or null_factor) and self.longest and is_count(original):
            defaults["factor"] = self.longest / original
        elif rope_type == "longrope":
            defaults["factor"] = 1.0
        return defaults

    @property
    def values(self) -> Block:
        """Given values over the defaults."""
        return {**self.defaults, **(self.found or {})}

    def without(self, keys: Collection[str]) -> Part:
        """The same as if it did not give these keys."""
        if self.found is None:
            return self
        found = {key: value for key, value in self.found.items() if key not in keys}
        return replace(self, found=found, conflicts=tuple(one for one in self.conflicts if one.key not in keys))


def collect(section: Section, homes: list[Path], outside: Mapping[str, list[Path]], kind: str) -> Part:
    """Gather all values of one kind of layers, from its blocks and from beside them."""
    places: dict[str, list[Path]] = {}
    for home in homes:
        for name in at(section.config, home) or ():
            key = "rope_type" if name == "type" else name
            places.setdefault(key, []).append((*home, name))
    for key, paths in outside.items():
        for path in paths:
            if path[0] in section.config:
                places.setdefault(key, []).append(path)
    found: Block = {}
    conflicts = []
    for key, paths in places.items():
        paths.sort(key=lambda path: _rank(key, path))
        values = [_canonical(key, at(section.config, path)) for path in paths]
        values = [value for value in values if value is not None]
        if values or not (key in RULES or key == "rope_type"):
            found[key] = values[0] if values else None  # an unknown key is wrong even if it is null
        if any(value != values[0] for value in values[1:]):
            spelled = " and ".join(f"{section.named(*path)} = {shown(at(section.config, path))}" for path in paths)
            conflicts.append(Problem(key, f"stands twice, and differs: {spelled}", {key: values[0]}))
    if found.get("rope_type") == "yarn" and "short_factor" in found:
        found["rope_type"] = "longrope"  # Phi-3's first spelling
    if found.get("rope_type") == "dynamic" and "alpha" in found:
        found["rope_type"] = WITH_ALPHA
    family, longest = section.rotation, max_length(section)
    silent: Block = {"rope_theta": family.base, **family.section_keys}
    if family.share != 1:
        silent["partial_rotary_factor"] = family.share
    if not homes and not family.nested:
        silent |= family.block or {}
    where = {key: tuple(paths) for key, paths in places.items()}
    home = homes[0] if homes else ("rope_parameters",)
    also = tuple(homes[1:])
    return Part(kind, found, silent, where, home, also, {}, tuple(conflicts), longest, family.original or longest)


def _rank(key: str, path: Path) -> int:
    """Which of two places transformers obeys: the lower one; places of one rank hold by their order."""
    if key == "rope_type":
        return int(path[-1] == "type")
    beside = len(path) == 1
    return int(not beside) if key == "original_max_position_embeddings" else int(beside)


def _canonical(key: str, value: Any) -> Any:
    return ALIASES.get(value, value) if key == "rope_type" and isinstance(value, str) else value


def at(config: Mapping[str, Any], path: Path) -> Any:
    value: Any = config
    for name in path:
        value = None if value is None else value.get(name)
    return value
