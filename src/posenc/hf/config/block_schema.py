"""What a block of `rope_parameters` may hold: the keys of each rope type, and what each key may be.

A block is checked as a whole (`posenc.hf.config.block_validation`). Whatever is wrong comes as one `ValueError` that
names each key, says what was found and what is allowed, and ends with a corrected block, ready to paste.

Source: transformers 5.23, modeling_rope_utils.py (RopeParameters and the validators of RotaryEmbeddingConfigMixin);
    the types and keys of vLLM and SGLang: get_rope of each, rotary_embedding/__init__.py and factory.py.
Departs from the source: what transformers only logs (unknown keys, factors below 1, wrong lists) is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from posenc.hf.limits import BASE, CHANNELS, LARGEST, LARGEST_FACTOR, SMALLEST, TIMES, TOKENS, is_count, is_number

Block = dict[str, Any]


class Rule(NamedTuple):
    """What a key may be, in words and as a test, and an example for the corrected block."""

    words: str
    holds: Callable[[Any], bool]
    example: Any


class RopeType(NamedTuple):
    """Keys of a rope type in addition to the common ones."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class Problem(NamedTuple):
    """What is wrong with a key, and the change of the block that mends it (None: the key goes)."""

    key: str
    text: str
    mended: Block


def _are_factors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_number(x, SMALLEST, LARGEST_FACTOR) for x in value)


def _from(least: float, example: float, most: float = LARGEST) -> Rule:
    words = f"a number of at least {least:g}, at most {most:.10g}"
    return Rule(words, lambda value: is_number(value, least, most), example)


_COUNT = f"an integer of at least 1, at most {TOKENS}"
_FLAG = Rule("true or false", lambda value: isinstance(value, bool), True)
_SHARE = Rule("a number in 0..1", lambda value: is_number(value, 0, 1), 1.0)
_FACTORS = Rule(
    f"a list of numbers above 0 ({SMALLEST:g} to {LARGEST_FACTOR:g}), one for each pair", _are_factors, None
)
_SECTIONS = Rule(
    "a list of three integers of at least 1, the pairs that read each of time, row and column",
    lambda value: isinstance(value, list) and len(value) == 3 and all(is_count(x) for x in value),
    None,
)

RULES: dict[str, Rule] = {
    "rope_theta": Rule(
        f"a number above 1, at most {BASE:g}", lambda value: is_number(value, 1, BASE, above=True), 10000.0
    ),
    "partial_rotary_factor": _SHARE,
    "rotary_dim": Rule(
        f"an even integer of at least 2, at most {CHANNELS}",
        lambda value: is_count(value, CHANNELS) and value % 2 == 0,
        64,
    ),
    "factor": _from(1, 4.0, TIMES),
    "original_max_position_embeddings": Rule(f"{_COUNT}, in tokens", is_count, 4096),
    "max_position_embeddings": Rule(f"{_COUNT}, in tokens", is_count, 4096),
    "attention_factor": _from(SMALLEST, 1.0),
    "beta_fast": _from(SMALLEST, 32.0),
    "beta_slow": _from(SMALLEST, 1.0),
    "mscale": _from(0, 1.0),
    "mscale_all_dim": _from(0, 1.0),
    "truncate": _FLAG,
    "low_freq_factor": _from(SMALLEST, 1.0),
    "high_freq_factor": _from(SMALLEST, 4.0),
    "short_factor": _FACTORS,
    "long_factor": _FACTORS,
    "short_mscale": _from(SMALLEST, 1.0),
    "long_mscale": _from(SMALLEST, 1.0),
    "mrope_section": _SECTIONS,
    "mrope_interleaved": _FLAG,
    "interleaved": _FLAG,
    "finetuned": _FLAG,
    "llama_4_scaling_beta": _from(0, 0.1),
    "attn_factor": _from(SMALLEST, 1.0),
    "extrapolation_factor": _SHARE,
    "apply_yarn_scaling": _FLAG,
    "max_trained_positions": Rule(f"{_COUNT}, in tokens", is_count, 4096),
    "alpha": _from(1, 1000.0, TIMES),
    "mixed_b": _from(SMALLEST, 1.0),
}

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
REFUSED = {
    "axial": "rotates by row and column of an image, each model in its own way, and is no RoPE of text: it is "
    "AxialRoPE(head_dim, convention=...), with one of {conventions}",
    "mllama4": "rotates by row and column of an image, as Llama 4's vision tower does, and is no RoPE of text: it is "
    "AxialRoPE(head_dim, convention=...), with one of {conventions}",
    "xdrope": "rotates the two channels of a pair by different axes of four (Hunyuan-VL), which no RoPE can stand for",
    "openpangu": "deals out pairs of M-RoPE in an order of its own (openPangu), which no MRoPE can stand for",
}
REFUSED_KEYS = {
    "use_fope": "sums waves by learned weights (FoPE), which no RoPE can stand for",
    "video_rope": "deals out pairs of M-RoPE in an order of its own (Bailing), which no MRoPE can stand for",
    "mrope_interleaved_glm": "deals out pairs of M-RoPE in an order of its own (GLM), which no MRoPE can stand for",
}


def types_of(convention: str) -> dict[str, RopeType]:
    """The rope types that a convention has."""
    extra = {"vllm": OF_ENGINES, "sglang": {"deepseek_yarn": _DEEPSEEK}}
    return {**TYPES, **_ENGINE_ALPHA, **extra.get(convention, {})}


def keys_of(rope_type: str, convention: str) -> tuple[str, ...]:
    """All keys that a block of this type may hold in addition to the common and the preserved ones."""
    required, optional = types_of(convention)[rope_type]
    extra = {("sglang", "yarn"): VLLM[:2], ("vllm", "dynamic"): (TRAINED,)}
    if rope_type == "yarn" and convention != "sglang":
        extra[convention, rope_type] = (
            VLLM  # released files have them, and transformers passes over them with a warning
        )
    return required + optional + extra.get((convention, rope_type), ())
