"""What a block of `rope_parameters` may hold: the keys of each rope type, what each key may be, and what is wrong.

A block is checked as a whole (`problems`). Whatever is wrong comes as one `ValueError` that names each key, says what
is allowed there and what was found.

Source: transformers 5.23, modeling_rope_utils.py (RopeParameters and the validators of RotaryEmbeddingConfigMixin);
    the types and keys of vLLM and SGLang: get_rope of each, rotary_embedding/__init__.py and factory.py.
Departs from the source: what transformers only logs (unknown keys, factors below 1, wrong lists) is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.limits import BASE, CHANNELS, LARGEST, LARGEST_FACTOR, SMALLEST, TIMES, TOKENS, is_count, is_number

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
_ENGINE_ALPHA = {WITH_ALPHA: RopeType(("alpha",), ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"))}
OF_ENGINES = {
    "ntk": RopeType(("factor",), ("mixed_b",)), "deepseek_yarn": _DEEPSEEK, "deepseek_llama_scaling": _DEEPSEEK,
}  # fmt: skip
_PLAIN = {**TYPES, **_ENGINE_ALPHA}
TYPES_OF = {  # by convention
    "transformers": _PLAIN, "deepseek": _PLAIN, "vllm": {**_PLAIN, **OF_ENGINES},
    "sglang": {**_PLAIN, "deepseek_yarn": _DEEPSEEK},
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


def keys_of(rope_type: str, convention: str) -> tuple[str, ...]:
    """All keys that a block of this type may hold in addition to the common and the preserved ones."""
    required, optional = TYPES_OF[convention][rope_type]
    extra = {("sglang", "yarn"): VLLM[:2], ("vllm", "dynamic"): (TRAINED,)}
    if rope_type == "yarn" and convention != "sglang":
        extra[convention, rope_type] = (
            VLLM  # released files have them, and transformers passes over them with a warning
        )
    return required + optional + extra.get((convention, rope_type), ())


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
    allowed = (*FREE, *keys_of(rope_type, convention))
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
        for key in TYPES_OF[convention][rope_type].required
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
