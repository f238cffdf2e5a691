"""What a configuration says of its rotation: which keys a block may have, which values, and where each stands.

Version 4 of transformers: ``rope_theta`` and a share of the head next to ``rope_scaling``; version 5: all in
``rope_parameters``, flat or one block for each kind of layers. `find_rope_blocks` reads either; `write` puts new
values back to where the old ones stood, so that a configuration keeps its spelling. A block is checked as a whole
(`problems`): whatever is wrong comes as one `ValueError` that names each key, what is allowed there and what was found.

Source: transformers 5.23, modeling_rope_utils.py (RopeParameters and the validators of RotaryEmbeddingConfigMixin),
    RotaryEmbeddingConfigMixin.convert_rope_params_to_dict and its overrides in the families; the types and keys of
    vLLM and SGLang: get_rope of each, rotary_embedding/__init__.py and factory.py.
Departs from the source: what transformers only logs (unknown keys, factors below 1, wrong lists) is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.config.text_config import (
    TextConfig,
    check_layers,
    count_at,
    kinds_without_rope,
    layer_types,
    max_length,
    position_schemes,
)
from posenc.hf.families.family import FULL, SLIDING, DynamicKeys, RotationRules
from posenc.hf.findings import NotReadError
from posenc.hf.limits import BASE, CHANNELS, LARGEST, LARGEST_FACTOR, SMALLEST, TIMES, TOKENS, is_count, is_number
from posenc.hf.sources.config_files import REMOVED
from posenc.hf.sources.load import Config

ORIGINAL = "original_max_position_embeddings"
SECTION, INTERLEAVED = "mrope_section", "mrope_interleaved"  # which pairs of M-RoPE read time, row, column
Block = dict[str, Any]


class Rule(NamedTuple):
    """What a key may be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


class RopeType(NamedTuple):
    """Keys of a rope type in addition to the common ones."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class Problem(NamedTuple):
    """What is wrong with a key."""

    key: str
    text: str


def _are_factors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_number(x, SMALLEST, LARGEST_FACTOR) for x in value)


_COUNT = Rule(f"an integer of at least 1, at most {TOKENS}, in tokens", is_count)
_FLAG = Rule("true or false", lambda value: isinstance(value, bool))
_SHARE = Rule("a number in 0..1", lambda value: is_number(value, 0, 1))
_FACTORS = Rule(f"a list of numbers above 0 ({SMALLEST:g} to {LARGEST_FACTOR:g}), one for each pair", _are_factors)
_SECTIONS = Rule(
    "a list of three integers of at least 1, the pairs that read each of time, row and column",
    lambda value: isinstance(value, list) and len(value) == 3 and all(is_count(x) for x in value),
)
_BOUNDS = {  # of numbers
    **dict.fromkeys(("factor", "alpha"), (1, TIMES)),
    **dict.fromkeys(("mscale", "mscale_all_dim", "llama_4_scaling_beta"), (0, LARGEST)),
    **dict.fromkeys(("attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor",
                     "short_mscale", "long_mscale", "attn_factor", "mixed_b"), (SMALLEST, LARGEST)),
}  # fmt: skip
RULES: dict[str, Rule] = {
    "rope_theta": Rule(f"a number above 1, at most {BASE:g}", lambda value: is_number(value, 1, BASE, above=True)),
    "partial_rotary_factor": _SHARE,
    "rotary_dim": Rule(
        f"an even integer of at least 2, at most {CHANNELS}", lambda value: is_count(value, CHANNELS) and value % 2 == 0
    ),
    "mrope_section": _SECTIONS, "extrapolation_factor": _SHARE,
    **dict.fromkeys(("original_max_position_embeddings", "max_position_embeddings", "max_trained_positions"), _COUNT),
    **dict.fromkeys(("short_factor", "long_factor"), _FACTORS),
    **{key: Rule(f"a number of at least {least:g}, at most {most:.10g}", partial(is_number, least=least, most=most))
       for key, (least, most) in _BOUNDS.items()},
    **dict.fromkeys(("truncate", "mrope_interleaved", "interleaved", "finetuned", "apply_yarn_scaling"), _FLAG),
}  # fmt: skip

COMMON = ("rope_type", "rope_theta", "partial_rotary_factor", "rotary_dim", "original_max_position_embeddings")
PRESERVED = ("mrope_interleaved", "interleaved", "finetuned", "llama_4_scaling_beta", "max_position_embeddings")
FREE = (*COMMON, "mrope_section", *PRESERVED)  # what a block of any type may hold
VLLM = ("attn_factor", "extrapolation_factor", "apply_yarn_scaling")  # of older vLLM; 0.33 ignores them
TRAINED = "max_trained_positions"  # from which vLLM's dynamic NTK grows
_YARN = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
TYPES: dict[str, RopeType] = {
    "default": RopeType(),
    "linear": RopeType(("factor",)),
    "dynamic": RopeType(("factor",)),
    "yarn": RopeType(("factor",), _YARN),
    "longrope": RopeType(
        ("short_factor", "long_factor"), ("factor", "attention_factor", "short_mscale", "long_mscale")
    ),
    "llama3": RopeType(("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": RopeType((), ("factor",)),
}
ALIASES = {"su": "longrope", "mrope": "default"}
ENGINES = ("vllm", "sglang")
WITH_ALPHA = "dynamic with alpha"  # how a block is called here whose type is "dynamic", and that has alpha
_DEEPSEEK = RopeType(("factor",), ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", *VLLM[:2]))
OF_ENGINES = {
    "ntk": RopeType(("factor",), ("mixed_b",)), "deepseek_yarn": _DEEPSEEK, "deepseek_llama_scaling": _DEEPSEEK,
}  # fmt: skip
_PLAIN = {
    **TYPES,
    "yarn": RopeType(("factor",), (*_YARN, *VLLM)),  # released files have them, and transformers only warns
    WITH_ALPHA: RopeType(("alpha",), ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")),
}
TYPES_OF = {  # by convention
    "transformers": _PLAIN, "deepseek": _PLAIN,
    "vllm": {**_PLAIN, **OF_ENGINES, "dynamic": RopeType(("factor",), (TRAINED,))},
    "sglang": {**_PLAIN, "deepseek_yarn": _DEEPSEEK, "yarn": RopeType(("factor",), (*_YARN, *VLLM[:2]))},
}  # fmt: skip
REFUSED = {
    "axial": "rotates by row and column of an image, each model in its own way, and is no RoPE of text: it is "
    "AxialRoPE(head_dim, convention=...)",
    "mllama4": "rotates by row and column of an image, as Llama 4's vision tower does, and is no RoPE of text: it is "
    "AxialRoPE(head_dim, convention='llama4')",
    "xdrope": "rotates the two channels of a pair by different axes of four (Hunyuan-VL), which no RoPE can stand for",
    "openpangu": "deals out pairs of M-RoPE in an order of its own (openPangu), which no MRoPE can stand for",
}
REFUSED_KEYS = {
    "use_fope": "sums waves by learned weights (FoPE), which no RoPE can stand for",
    "video_rope": "deals out pairs of M-RoPE in an order of its own (Bailing), which no MRoPE can stand for",
    "mrope_interleaved_glm": "deals out pairs of M-RoPE in an order of its own (GLM), which no MRoPE can stand for",
}

_LONGEST_KEY = 100  # characters of a key that an error repeats
_NAMED = 20  # unknown keys that are named one by one


def problems(block: Block, pairs: int | None, convention: str) -> list[Problem]:
    """All that is wrong with a block whose nulls were dropped.

    Args:
        block: its keys under the names of version 5.
        pairs: that rotate, or None where that is not known.
        convention: as in `read_rope`.
    """
    rope_type = block.get("rope_type", "default")
    if not isinstance(rope_type, str) or rope_type not in TYPES_OF[convention]:
        return [Problem("rope_type", _unknown_type(block, pairs, convention))]
    scaling_keys = [key for key in block if key not in FREE]
    if "rope_type" not in block and scaling_keys:
        return [Problem("rope_type", f"is missing, and without it {', '.join(scaling_keys[:_NAMED])} would be ignored")]
    required, optional = TYPES_OF[convention][rope_type]
    allowed = (*FREE, *required, *optional)
    wrong = [
        Problem(key, f"must be {RULES[key].words}, found {shown(value)}")
        for key, value in block.items()
        if key in allowed and key in RULES and not RULES[key].holds(value)
    ]
    unknown = [key for key in block if key not in allowed]
    wrong += [Problem(key, _unknown_key(key, rope_type, block, allowed)) for key in unknown[:_NAMED]]
    if unknown[_NAMED:]:
        text = f"and {len(unknown) - _NAMED - 1} more are not keys of rope type {rope_type!r}"
        wrong.append(Problem(unknown[_NAMED], text))
    wrong += [
        Problem(key, f"is missing; rope type {rope_type!r} needs {RULES[key].words}")
        for key in required
        if key not in block
    ]
    return wrong or list(_contradictions(block, pairs))


def _unknown_type(block: Block, pairs: int | None, convention: str) -> str:
    """What to know of a rope type that a convention does not have."""
    name: object = block["rope_type"]
    normalized = name.lower().replace("-", "_") if isinstance(name, str) else ""
    if normalized in REFUSED:
        return f"{name!r} {REFUSED[normalized]}"
    text = f"is none of {', '.join(each for each in TYPES_OF[convention] if each != WITH_ALPHA)}, found {shown(name)}"
    readers = [engine for engine in ENGINES if normalized in TYPES_OF[engine] and normalized not in TYPES]
    if readers:
        conventions = " or ".join(f"convention={engine!r}" for engine in readers)
        text += f"; {normalized!r} is a rope type of {' and '.join(readers)}: read it with {conventions}"
    if normalized in ("ntk", "ntk_aware"):
        text += "; NTK-aware scaling is 'default' with a larger base in transformers: rope_theta times "
        text += "factor^(d / (d - 2)), with d rotated channels"
        known = all(RULES[key].holds(block.get(key)) for key in ("factor", "rope_theta"))
        if known and pairs is not None and pairs > 1:
            text += f", here {block['rope_theta'] * block['factor'] ** (pairs / (pairs - 1)):.10g}"
        return text
    near = difflib.get_close_matches(normalized, [*TYPES, *ALIASES], n=1, cutoff=0.5)
    return text if readers or not near else f"{text}, did you mean {ALIASES.get(near[0], near[0])!r}?"


def _unknown_key(key: str, rope_type: str, block: Block, allowed: Collection[str]) -> str:
    """What to know of a key that a rope type does not have."""
    if key in REFUSED_KEYS:
        return f"{REFUSED_KEYS[key]}; where it is false, drop it"
    text = f"is no key of rope type {rope_type!r}"
    near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.9)  # also what a default has put into the block
    near = near or difflib.get_close_matches(key, [name for name in allowed if name not in block], n=1, cutoff=0.7)
    if near:
        return f"{text}, did you mean {near[0]}?"
    return text if len(key) > _LONGEST_KEY else f"{text}; ignore=[{key!r}] keeps it and reads the rest"


def _contradictions(block: Block, pairs: int | None) -> Iterator[Problem]:
    """What is wrong between keys that are right one by one."""
    fast, slow = block.get("beta_fast", 32.0), block.get("beta_slow", 1.0)
    if fast < slow:
        yield Problem("beta_fast", f"must not be below beta_slow = {slow}, found {fast}")
    low, high = block.get("low_freq_factor", 1.0), block.get("high_freq_factor", 4.0)
    if high < low:
        yield Problem("high_freq_factor", f"must be at least low_freq_factor = {low}, found {high}")
    for key in ("short_factor", "long_factor"):
        if pairs is not None and key in block and len(block[key]) != pairs:
            yield Problem(key, f"must have {pairs} numbers, one for each rotated pair, found {len(block[key])}")
    if block.get("rope_type", "default") != "proportional" and block.get("partial_rotary_factor") == 0:
        yield Problem("partial_rotary_factor", "must be above 0 but for rope type 'proportional', found 0")


def shortened(key: str) -> str:
    """A key as an error repeats it."""
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}… ({len(key)} characters)"


# Where values stand

ALL = "all"  # the kind of layers of a flat configuration
BLOCKS = ("rope_parameters", "rope_scaling")
OUTSIDE = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct", "rope_pct"),
    "rotary_dim": ("rotary_dim",),
    "original_max_position_embeddings": ("original_max_position_embeddings",),
}
SHARES = ("partial_rotary_factor", "rotary_dim")
# Rope types that start from the original length.
SCALED_FROM = ("yarn", "llama3", "longrope", "deepseek_yarn", "deepseek_llama_scaling")

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

    def places(self, key: str) -> tuple[Path, ...]:
        """Where a key stands, or would stand."""
        if key in self.sources:
            return self.sources[key]
        if key in self.renames:
            return ((self.renames[key],),)
        return tuple((*home, key) for home in (self.target, *self.mirrors))

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
        for name in at(text_config, home) or ():
            key = "rope_type" if name == "type" else name
            sources.setdefault(key, []).append((*home, name))
    for key, paths in outside.items():
        for path in paths:
            if path[0] in text_config:
                sources.setdefault(key, []).append(path)
    block: Block = {}
    conflicts = []
    for key, paths in sources.items():
        if key == "rope_type":  # of two places, transformers obeys the first
            paths.sort(key=lambda path: path[-1] == "type")
        else:  # the block, but for an original length next to it
            paths.sort(key=lambda path: len(path) == 1, reverse=key == ORIGINAL)
        values = [value for path in paths if (value := at(text_config, path)) is not None]
        if key == "rope_type":
            values = [canonical(value) for value in values]
        if values or not (key in RULES or key == "rope_type"):
            block[key] = values[0] if values else None  # an unknown key is wrong even if it is null
        if any(value != values[0] for value in values[1:]):
            places = [f"{text_config.key_path(*path)} = {shown(at(text_config, path))}" for path in paths]
            text = f"stands twice, and differs: {' and '.join(places)}; transformers obeys {places[0]}"
            conflicts.append(Problem(key, text))
    if block.get("rope_type") == "yarn" and "short_factor" in block:
        block["rope_type"] = "longrope"  # Phi-3's first spelling
    if block.get("rope_type") == "dynamic" and "alpha" in block:
        block["rope_type"] = WITH_ALPHA
    family, longest = text_config.rotation, max_length(text_config)
    defaults: Block = {"rope_theta": family.base, **section_keys(family)}
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


def canonical(rope_type: Any) -> Any:
    """A rope type as it is read: another name of it ("su") becomes the name that transformers has."""
    return ALIASES.get(rope_type, rope_type) if isinstance(rope_type, str) else rope_type


def at(config: Mapping[str, Any], path: Path) -> Any:
    value: Any = config
    for name in path:
        value = None if value is None else value.get(name)
    return value


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


_OF_A_BLOCK = {*RULES, "rope_type", "type"}


def find_rope_blocks(text_config: TextConfig) -> list[RopeBlock]:
    """One `RopeBlock` for each kind of layers.

    Raises:
        ValueError: where no key can be read at all: a block that is no dictionary, two different blocks, a flat
            block of a family that has several kinds of layers, nothing in a family that is not known, or a family
            that is unsupported.
    """
    family = text_config.rotation
    if text_config.family.unsupported:
        raise NotReadError(
            f"{text_config.key_path('model_type')} {text_config.model_type!r} is not read: it "
            f"{text_config.family.unsupported}"
        )
    if position_schemes(text_config):  # whatever stray keys of a rotation the configuration has: the code has none
        return [RopeBlock(ALL, None)]
    homes = _homes(text_config)
    block: Config = text_config[homes[0]] if homes else {}
    if block and _nested(text_config, block):
        every = [
            kind for kind in dict.fromkeys([*block, *family.kinds]) if kind not in unread_block_keys(text_config, block)
        ]
        return [_nested_part(text_config, homes, kind, block.get(kind, {})) for kind in every]
    if family.by_layer:
        return _parts_by_layer(text_config, homes)
    if family.flat_dropped:
        return [_kind_part(text_config, [name for name in homes if name != "rope_parameters"], k) for k in family.kinds]
    if block and (family.nested or (family.kinds and homes[0] == "rope_parameters")):
        kinds = " and ".join(family.kinds) or "its kinds of layers, as transformers 5 saves them"
        raise ValueError(
            f"{text_config.key_path(homes[0])} is flat, and {text_config.model_type} has several kinds of layers: give "
            f"it a block for each of {kinds}; found {shown(block)}"
        )
    if family.kinds:
        return [_kind_part(text_config, homes, kind) for kind in family.kinds]
    if not block and family.nested:
        return _default_parts(text_config)
    unrotated = kinds_without_rope(text_config) if family.unrotated_kinds else ()
    rotating = _flat_part(text_config, homes, SLIDING if unrotated else ALL)
    if family.null_base and "rope_theta" in rotating.sources and "rope_theta" not in (rotating.values or {}):
        return [RopeBlock(ALL, None)]
    if not (text_config.known or rotating.sources):
        raise NotReadError(
            f"{text_config.key_path('model_type')} {shown(text_config.model_type or None)} is unknown to posenc, and "
            "there is no rope_parameters, rope_scaling or rope_theta: whether and how this model rotates queries and "
            "keys is not read"
        )
    return [rotating, *(RopeBlock(kind, None) for kind in unrotated)]


def _homes(text_config: TextConfig) -> list[str]:
    """The blocks that a configuration has.

    Raises:
        ValueError: for what is no block, and for two that differ.
    """
    config, homes = text_config, []
    for name in BLOCKS:
        block = config.get(name)
        if block is not None and not isinstance(block, dict):
            raise ValueError(f"{text_config.key_path(name)} must be an object or null, found {shown(block)}")
        strange = next((key for key in block or {} if not isinstance(key, str)), None)
        if strange is not None:
            raise ValueError(f"{text_config.key_path(name)} must have strings for keys, found {shown(strange)}")
        homes += [name] if block else []
    if len(homes) == 2 and not _agree(config[homes[0]], config[homes[1]]):
        raise ValueError(
            f"{text_config.key_path('rope_scaling')} and rope_parameters differ, found {shown(config['rope_scaling'])} "
            f"and {shown(config['rope_parameters'])}; transformers obeys rope_scaling: keep the block that is meant"
        )
    return homes


def _agree(new: Config, old: Config) -> bool:
    """Whether the blocks of versions 5 and 4 agree; version 4 has base and share outside its block."""
    new_keys, old_keys = dict(new), dict(old)
    for block in (new_keys, old_keys):
        for key in [key for key in block if key in ("type", "rope_type")]:
            block["rope_type"] = canonical(block.pop(key))
    only_outside = set(new_keys) - set(old_keys) <= {"rope_theta", "partial_rotary_factor"}
    return only_outside and all(key in new_keys and new_keys[key] == value for key, value in old_keys.items())


def _nested(text_config: TextConfig, block: Config) -> bool:
    """Whether a block has one block for each kind of layers, rather than values or objects of somebody else."""
    inner = [kind for kind, value in block.items() if isinstance(value, dict) and kind not in _OF_A_BLOCK]
    named = {*layer_types(text_config), *text_config.rotation.kinds, *(text_config.rotation.block or {})}
    values = [key for key, value in block.items() if key in _OF_A_BLOCK and not isinstance(value, dict)]
    return any(kind in named or kind.endswith("_attention") for kind in inner) or (bool(inner) and not values)


def unread_block_keys(text_config: TextConfig, block: Config) -> list[str]:
    """Keys of a nested block that belong to no layer kind of this model: transformers reads none of them.

    ``original_max_position_embeddings`` stands so in released files of Laguna.
    """
    kinds = {*layer_types(text_config), *text_config.rotation.kinds, *(text_config.rotation.block or {})}
    unknown = [kind for kind, value in block.items() if isinstance(value, dict) and kinds and kind not in kinds]
    unread = [key for key, value in block.items() if key == ORIGINAL and not isinstance(value, dict)]
    return [*(unknown if text_config.known else []), *unread]


def _parts_by_layer(text_config: TextConfig, homes: list[str]) -> list[RopeBlock]:
    """A part for each kind of layers of a config that lists base and share of each layer.

    Raises:
        ValueError: for a list that is none of a number for each layer, and where layers of a kind differ.
    """
    types, parts = layer_types(text_config), []
    scaled = text_config.get("yarn_only_types")
    for kind in dict.fromkeys(types) or (FULL,):
        rope_block = collect(
            text_config, [(name,) for name in homes] if scaled is None or kind in scaled else [], {}, kind
        )
        keys = {"rope_theta": "rope_theta", "partial_rotary_factor": "partial_rotary_factors"}
        found = {key: _of_kind(text_config, name, kind, types) for key, name in keys.items() if name in text_config}
        values = {**(rope_block.values or {}), **{key: value for key, value in found.items() if value is not None}}
        sources = {**rope_block.sources, **{key: ((keys[key],),) for key in found}}
        parts.append(replace(rope_block, values=values, sources=sources))
    return parts


def _of_kind(text_config: TextConfig, key: str, kind: str, types: list[str]) -> Any:
    """The number of one kind of layers under a key that lists one for each layer, or has one for all."""
    listed = text_config[key]
    if not isinstance(listed, list):
        return listed
    check_layers(text_config, key, listed)
    numbers = {number for number, of in zip(listed, types or [kind] * len(listed), strict=True) if of == kind}
    if len(numbers) != 1:
        raise NotReadError(f"{text_config.key_path(key)} differs between layers of {kind}: {shown(sorted(numbers))}")
    return numbers.pop()


def _flat_part(text_config: TextConfig, homes: list[str], kind: str) -> RopeBlock:
    family = text_config.rotation
    rope_block = collect(text_config, [(name,) for name in homes], _TOP_LEVEL, kind)
    if family.fixed:  # whose code reads no scaling, which a finding says
        rope_block = rope_block.without([key for key in rope_block.values or {} if key not in OUTSIDE])
    if not homes and family.dynamic_keys is not None:
        return _with_dynamic_keys(text_config, rope_block, family.dynamic_keys)
    if homes and homes[0] == "rope_parameters":
        return rope_block
    renames = {"rope_theta": family.theta_key, share_key(family): family.share_key}
    return replace(rope_block, target=("rope_scaling",), renames=renames)


def _with_dynamic_keys(text_config: TextConfig, rope_block: RopeBlock, keys: DynamicKeys) -> RopeBlock:
    """A block of dynamic NTK from keys outside a block, which starts from the length that the model was trained at."""
    factor = text_config.get(keys.factor_key)
    if factor is None:
        return rope_block
    trained = count_at(text_config, keys.trained_key, TOKENS) or keys.trained
    return replace(
        rope_block,
        values={**(rope_block.values or {}), "rope_type": "dynamic", "factor": factor},
        sources={**rope_block.sources, "factor": ((keys.factor_key,),), keys.trained_key: ((keys.trained_key,),)},
        longest=trained, trained=trained,
    )  # fmt: skip


_TOP_LEVEL: dict[str, list[Path]] = {key: [(name,) for name in names] for key, names in OUTSIDE.items()}


def _kind_part(text_config: TextConfig, homes: list[str], kind: str) -> RopeBlock:
    """One of the kinds that a flat configuration spells in one go."""
    keys = text_config.rotation.kinds[kind]
    outside: dict[str, list[Path]] = {"rope_theta": [(keys.theta_key,)]}
    rope_block = collect(text_config, [(name,) for name in homes] if keys.scaled else [], outside, kind)
    if keys.theta_key in text_config and text_config[keys.theta_key] is None:
        text = "is null: transformers 4 then takes the base of the other layers, transformers 5 fails"
        rope_block = replace(rope_block, conflicts=(Problem("rope_theta", text),))
    renames = {"rope_theta": keys.theta_key}
    target = ("rope_scaling",) if keys.scaled else ()
    defaults = {**rope_block.defaults, "rope_theta": keys.base}
    if keys.scaled and (rope_block.values or {}).get("rope_type") == "yarn":
        defaults |= text_config.rotation.scaled
    if (
        text_config.rotation.width_key
        and (width := count_at(text_config, text_config.rotation.width_key, CHANNELS)) is not None
    ):
        head = count_at(text_config, "head_dim", CHANNELS) or text_config.rotation.head_dim
        if head is not None:
            defaults["partial_rotary_factor"] = width / head
    return replace(rope_block, defaults=defaults, target=target, renames=renames)


def _nested_part(text_config: TextConfig, homes: list[str], kind: str, inner: Any) -> RopeBlock:
    """One of the blocks of a nested configuration; keys outside them are defaults of each block."""
    keys = text_config.rotation.kinds.get(kind)
    if inner is None and keys is None:
        return RopeBlock(kind, None)
    if inner is None:
        raise ValueError(
            f"{text_config.key_path(homes[0], kind)} is null, and {text_config.model_type} rotates in all its layers; "
            "give it a block, such as {'rope_type': 'default'}"
        )
    if not isinstance(inner, dict):
        raise ValueError(
            f"{text_config.key_path(homes[0], kind)} must be an object or null among the blocks of other layers, "
            f"found {shown(inner)}; move it into each block, or drop it"
        )
    rope_block = collect(text_config, [(name, kind) for name in homes], {}, kind)
    outside: dict[str, list[Path]] = _TOP_LEVEL if keys is None else {"rope_theta": [(keys.theta_key,)]}
    base = {} if keys is None else {"rope_theta": keys.base}
    outer = collect(text_config, [], outside, kind)
    return replace(rope_block, defaults={**rope_block.defaults, **base, **(outer.values or {})})


def _default_parts(text_config: TextConfig) -> list[RopeBlock]:
    """The blocks that the config class of a family puts where the configuration has none."""
    if text_config.rotation.block is None:
        raise NotReadError(
            f"{text_config.key_path('rope_parameters')} is missing, and {text_config.model_type} has several kinds of "
            "layers with rotations of their own, whose defaults are not read: give a block for each, as transformers 5 "
            "saves them"
        )
    parts = []
    for kind, values in text_config.rotation.block.items():
        part = collect(text_config, [], {}, kind)
        defaults = {**part.defaults, **(values or {})}
        rotating = replace(part, defaults=defaults, target=("rope_parameters", kind))
        parts.append(RopeBlock(kind, None) if values is None else rotating)
    return parts


def share_key(family: RotationRules) -> str:
    """The key of version 5 that says the same as the family's own key for its share."""
    return "rotary_dim" if family.share_key == "rotary_dim" else "partial_rotary_factor"


def section_keys(family: RotationRules) -> Block:
    """The default sections of a model type, as keys of a block; empty without M-RoPE."""
    if family.sections is None:
        return {}
    return {SECTION: list(family.sections), **({INTERLEAVED: True} if family.order == "interleaved" else {})}
