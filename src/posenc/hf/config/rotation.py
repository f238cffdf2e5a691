"""The rotations that a configuration gives, `RoPE` and `MRoPE`: read from checked blocks, compared, built.

    default → None                       linear → PositionInterpolation       dynamic → DynamicNTK
    yarn → YaRN                          longrope → LongRoPE                  llama3 → Llama3
    proportional → Proportional          default with another base ← NTKAware      llama3 ← NTKByParts

Rope types that transformers does not have, by the scalings that do the same: vLLM's and SGLang's, and ``alpha``.

    ntk                     theta_j / exp(a (j + 1)^b),  a = ln(factor) / pairs^b,  b = mixed_b, or else 1 (vLLM)
    dynamic with alpha      the frequencies of base · alpha^(d/(d−2)): Hunyuan, in every convention
    dynamic with factor f   computed once. SGLang: the same with f² − f + 1 for alpha, for f times the length.
                            vLLM: with f L/M − (f − 1), L max_position_embeddings and M max_trained_positions; M is L
                            where it is missing, and then nothing changes
    deepseek_yarn           yarn, where mscale_all_dim is 0 unless it is given
    deepseek_llama_scaling  the same on rotated q and k; the softmax keeps its scale (vLLM)

Without mixed_b vLLM writes "ntk" as a base factor times larger over factor^(2/d), which is b = 1. SGLang multiplies the
gain of deepseek_yarn by attn_factor and reads extrapolation_factor; vLLM reads neither.
Source: transformers 5.23, modeling_hunyuan_v1_dense.py; vLLM 0.33, layers/rotary_embedding (ntk_scaling_rope.py,
    dynamic_ntk_alpha_rope.py, dynamic_ntk_scaling_rope.py, deepseek_scaling_rope.py); SGLang 0.5.23, its factory.py.

Conventions for YaRN: the gain on rotated q and k, and the factor on the softmax scale; s the factor of the block and
m(s, a) = 0.1 a ln s + 1:

    transformers   gain: attention_factor; or else m(s, mscale) / m(s, mscale_all_dim); or else m(s, 1)
                   softmax: m(s, mscale_all_dim)² in families with multi-head latent attention
    deepseek       gain: the same;  softmax: m(s, mscale_all_dim)² in every family
    vllm           as transformers; attn_factor, extrapolation_factor and apply_yarn_scaling, which older versions
                   read, count for nothing
    sglang         gain: m(s, mscale) / m(s, mscale_all_dim), or else m(s, 1), times attn_factor; softmax: the same

LongRoPE's gain is attention_factor in transformers, or else √(1 + ln s / ln L₀) with the factor s of the block. In vLLM
and SGLang s is max_position_embeddings over the original length L₀, attention_factor counts for nothing, and
short_mscale and long_mscale take the gain's place.

Source: transformers 5.23, modeling_rope_utils.py; DeepSeek-V3, inference/model.py; vLLM 0.33 and SGLang 0.5.23, their
    layers/rotary_embedding (`posenc.hf.serving.table` has how far their own classes are from transformers).
    One of mscale and mscale_all_dim alone, or 0, counts as absent in transformers and vLLM, and here; in SGLang one
    alone does, and 0 counts; DeepSeek's own code (convention "deepseek") takes 1 and 0 for a missing one.
Of M-RoPE the weights know which pairs read time, row and column, so that in a family that has an order
(`RotationRules.order`) its code decides, whatever mrope_interleaved says; elsewhere the key does.
Source: transformers 5.23, recomposition_frequencies of each family; vLLM, mrope.py, which reads mrope_interleaved.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from posenc.arguments import shown
from posenc.frequencies.host import Chain, Formula, steps_of
from posenc.frequencies.interpolation import PositionInterpolation
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import LongRoPE, check_factors
from posenc.frequencies.ntk import DynamicNTK, NTKAware
from posenc.frequencies.proportional import Proportional
from posenc.frequencies.rotation import Layout, MRoPESpec, RoPESpec
from posenc.frequencies.yarn import YaRN, mscale_gain
from posenc.hf.config.rope_keys import (
    ALL,
    ENGINES,
    INTERLEAVED,
    OF_ENGINES,
    ORIGINAL,
    RULES,
    SCALED_FROM,
    SECTION,
    SHARES,
    TRAINED,
    VLLM,
    WITH_ALPHA,
    Block,
    Path,
    Problem,
    RopeBlock,
    at,
    problems,
    shortened,
)  # fmt: skip
from posenc.hf.config.text_config import TextConfig, flag_at, head_dim, head_words
from posenc.hf.families.family import Order
from posenc.hf.findings import MalformedError, NotReadError
from posenc.hf.limits import TOKENS
from posenc.hf.sources.load import dotted

if TYPE_CHECKING:
    from posenc.rotary.mrope import MRoPE
    from posenc.rotary.rope import RoPE

Rotation = RoPESpec | MRoPESpec
AXES = ("time", "row", "column")
Layers = Mapping[str, Rotation | None]  # by kind of layers; None for those that do not rotate
Convention = Literal["transformers", "deepseek", "vllm", "sglang"]
LENGTH = "max_length"  # stands for max_position_embeddings, outside the block

# What a missing key of a block means.
SILENT: Block = {
    "rope_type": "default", "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "attn_factor": 1.0,
    "extrapolation_factor": 1.0, "apply_yarn_scaling": True, "partial_rotary_factor": 1.0,
}  # fmt: skip
GAINS_OF_THEIR_OWN = ("phimoe",)  # families of transformers that heed short_mscale and long_mscale


class Reading(NamedTuple):
    """How to read a configuration.

    Attributes:
        head_dim: channels of a head, if the caller knows better.
        layout: of the pairs, if the caller knows better.
        convention: whose reading of YaRN's keys.
        ignore: keys not to read.
    """

    head_dim: int | None = None
    layout: Layout | None = None
    convention: Convention = "transformers"
    ignore: tuple[str, ...] = ()


AS_IT_SAYS = Reading()


def check_block(text_config: TextConfig, rope_block: RopeBlock, reading: Reading) -> None:
    """Raise a ValueError for whatever is wrong with the values of one kind of layers.

    It names the key, what is allowed and what was found.
    """
    if rope_block.values is None:
        return
    if reading.ignore:
        rope_block = rope_block.without(reading.ignore)
    values, head = rope_block.effective, head_dim(text_config, rope_block.kind, reading.head_dim)
    share_holds = all(RULES[key].holds(values[key]) for key in SHARES if key in values)
    rotated = head if text_config.rotation.latent else rotary_dim(values, head) if share_holds else 0
    derived, rule = rope_block.effective_defaults.get("factor", 1.0), RULES["factor"]
    if "factor" not in (rope_block.values or {}) and not rule.holds(derived) and rope_block.longest is not None:
        text = f"= {rope_block.longest} is {derived:g} times {ORIGINAL} = {values.get(ORIGINAL)}, and stands for factor"
        wrong = [Problem(LENGTH, f"{text}, which must be {rule.words}")]
    else:  # the keys, or else what they mean for heads of this width
        pairs = rotated // 2 or None
        wrong = (
            problems(values, pairs, reading.convention)
            or list(_in_context(rope_block, values, head, rotated, reading.convention))
            or (_section_problems(rope_block, values[SECTION], pairs) if SECTION in values else [])
        )
    if wrong or rope_block.conflicts:
        raise _malformed(text_config, rope_block, [*rope_block.conflicts, *wrong], reading)


def rope_of(text_config: TextConfig, rope_block: RopeBlock, reading: Reading) -> Rotation | None:
    """The rotation of one kind of layers, whose block holds (`check_block`); None where it has none."""
    if rope_block.values is None:
        return None
    if reading.ignore:
        rope_block = rope_block.without(reading.ignore)
    head = head_dim(text_config, rope_block.kind, reading.head_dim)
    values = rope_block.effective
    rotated = head if text_config.rotation.latent else rotary_dim(values, head)
    if reading.convention not in ENGINES and text_config.model_type not in GAINS_OF_THEIR_OWN:
        values = {key: value for key, value in values.items() if key not in ("short_mscale", "long_mscale")}
    scaling = scaling_of(values, rope_block.longest, rotated // 2, reading.convention)
    rope = RoPESpec(
        head,
        base=values["rope_theta"],
        layout=reading.layout or layout_of(text_config),
        rotary_dim=rotated,
        scaling=scaling,
    )
    if SECTION not in values:
        return rope
    family, interleaved = text_config.rotation, values.get(INTERLEAVED)
    order: Order = family.order if family.sections is not None else "interleaved" if interleaved else "chunked"
    return with_sections(rope, tuple(values[SECTION]), order)


def layout_of(text_config: TextConfig) -> Layout:
    """The pairs of channels: what the family's code has, or ``rope_interleave`` where that decides."""
    interleaved, family = flag_at(text_config, "rope_interleave"), text_config.rotation
    heeded = "rope_interleave" in text_config if family.layout_key else interleaved is not None
    if not heeded or (text_config.known and not family.layout_key):
        return family.layout
    return "interleaved" if interleaved else "half"


def _malformed(text_config: TextConfig, rope_block: RopeBlock, wrong: list[Problem], reading: Reading) -> ValueError:
    """One error for all that is wrong with a block."""
    values = rope_block.values or {}
    texts: dict[str, str] = {}
    for problem in wrong:
        path = text_config.key_path(*_stands(text_config, rope_block, problem.key))
        texts[path] = f"{texts[path]}; {problem.text}" if path in texts else problem.text
    lines = [f"{shortened(path)} {text}" for path, text in texts.items()]
    if any(problem.key in _OF_HEADS for problem in wrong):
        lines.append(f"head: {head_words(text_config, rope_block.kind, reading.head_dim)}")
    lines.append(f"found: {{{', '.join(f'{shown(key)}: {shown(value)}' for key, value in values.items())}}}")
    return MalformedError("\n".join(lines), texts, dotted(text_config.path) if text_config.path else "")


_OF_HEADS = ("short_factor", "long_factor", "mrope_section", "partial_rotary_factor", "rotary_dim")


def _stands(text_config: TextConfig, rope_block: RopeBlock, key: str) -> Path:
    """Where a key stands that is wrong, or where it would."""
    if key == LENGTH:
        return (text_config.length_key,)
    paths = rope_block.places(key)
    wrong = (rope_block.values or {}).get(key)
    of_it = [path for path in paths if at(text_config, path) == wrong]  # where it is given twice
    return (of_it or list(paths))[0]


def _in_context(
    rope_block: RopeBlock, values: Block, head: int, rotated: int, convention: Convention
) -> Iterator[Problem]:
    """What is wrong with a block only in its configuration."""
    rope_type, original = values.get("rope_type", "default"), values.get(ORIGINAL)
    static = of_an_engine(values, convention)
    if rope_type in SCALED_FROM and original is None:
        yield Problem(ORIGINAL, "is missing, and so is max_position_embeddings, which would take its place")
    if rope_type == "longrope" and original == 1 and "attention_factor" not in values:
        yield Problem(ORIGINAL, "must be at least 2, found 1: the gain is divided by its logarithm")
    if rope_type == "ntk" and rope_block.longest is None:
        yield Problem(LENGTH, "is missing, which is the trained length")
    elif rope_type == "yarn" and rotated == 2:  # transformers computes it: no fault of the configuration
        raise NotReadError("rope_type 'yarn' over one pair is not read here: its ramp needs at least two pairs")
    elif (static or rope_type == "dynamic") and rotated == 2:
        yield Problem("rope_type", "spreads a factor over the pairs, and only one pair is rotated")
    elif rope_type == "dynamic" and not static and rope_block.longest is None:
        yield Problem(LENGTH, "is missing; dynamic NTK starts from it")
    elif rope_type == "dynamic" and not static and original not in (None, rope_block.longest):
        text = f"must be max_position_embeddings = {rope_block.longest}, from which rope type 'dynamic' starts"
        yield Problem(ORIGINAL, f"{text}, found {original}")
    key = "rotary_dim" if "rotary_dim" in values else "partial_rotary_factor"
    share = values.get("partial_rotary_factor")
    if rotated < 2 or rotated % 2 or rotated > head:
        yield Problem(key, f"must rotate an even number of at most head_dim = {head} channels, found {rotated}")
    elif key == "rotary_dim" and share is not None and int(head * share) != rotated:
        text = f"is {rotated}, but partial_rotary_factor = {share} rotates {int(head * share)} of {head} channels"
        yield Problem(key, text)


def _section_problems(rope_block: RopeBlock, sections: list[int], pairs: int | None) -> list[Problem]:
    """What is wrong with the sections of M-RoPE, which are right one by one, for this many pairs that rotate."""
    if pairs is None or sum(sections) == pairs:
        return []
    given, of_family = SECTION in (rope_block.values or {}), rope_block.defaults.get(SECTION)
    if not given or (sections == of_family and sum(sections) > pairs):  # of a tiny model
        text = f"is {sections}, as this family has it, and does not add up to the {pairs} pairs that are rotated"
        raise NotReadError(f"{SECTION} {text}: how the pairs read the axes is not read")
    text = f"must add up to the {pairs} pairs that are rotated, found {sections}, which is {sum(sections)}"
    return [Problem(SECTION, text)]


# Scalings


def of_an_engine(values: Block, convention: str) -> bool:
    """Whether a block's rope type is none of transformers, or engines understand it otherwise."""
    rope_type = values.get("rope_type", "default")
    return rope_type == WITH_ALPHA or rope_type in OF_ENGINES or (rope_type == "dynamic" and convention in ENGINES)


def scaling_of(values: Block, longest: int | None, pairs: int, convention: Convention) -> Formula | None:
    """The scaling that a checked block means.

    Args:
        values: of the block, over its defaults.
        longest: ``max_position_embeddings``, from which dynamic NTK starts.
        pairs: that rotate.
        convention: as in `read_rope`.
    """
    rope_type, factor, original = values.get("rope_type", "default"), values.get("factor", 1.0), values.get(ORIGINAL)
    if rope_type == "default":
        return None
    if rope_type == "linear":
        return PositionInterpolation(factor)
    if rope_type == "proportional":
        share = Proportional(values.get("partial_rotary_factor", 1.0))
        return share if factor == 1 else Chain(share, PositionInterpolation(factor))
    if rope_type == WITH_ALPHA:
        return NTKAware(values["alpha"])
    if rope_type == "dynamic" and convention in ENGINES:
        larger = factor * factor - factor + 1
        if convention == "vllm":
            longer = 1.0 if longest is None else longest / values.get(TRAINED, longest)
            larger = factor * longer - (factor - 1)
        return NTKAware(larger) if larger > 1 or convention == "sglang" else None
    if rope_type == "dynamic":
        assert longest is not None
        return DynamicNTK(factor, original_length=longest)
    if rope_type == "ntk":
        assert longest is not None
        power = values.get("mixed_b", 1.0)
        factors = [math.exp(math.log(factor) * ((pair + 1) / pairs) ** power) for pair in range(pairs)]
        return LongRoPE(factors, factors, original_length=longest, factor=1.0, gain=1.0)
    assert original is not None
    if rope_type == "llama3":
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        return Llama3(factor, original_length=original, low_freq_factor=low, high_freq_factor=high)
    if rope_type == "longrope":
        of_engine = convention in ENGINES
        return LongRoPE(
            values["short_factor"], values["long_factor"], original_length=original,
            factor=max(1.0, longest / original) if of_engine and longest is not None else factor,
            gain="su" if of_engine else values.get("attention_factor", "su"),
            short_gain=values.get("short_mscale"), long_gain=values.get("long_mscale"),
        )  # fmt: skip
    return yarn_of(values, original, convention)


_RAMP = ("beta_fast", "beta_slow", "truncate", "extrapolation_factor")


def yarn_of(values: Block, original: int, convention: Convention) -> YaRN:
    """YaRN as a convention reads it, or as vLLM and SGLang have the types of DeepSeek's own code."""
    if convention != "sglang":
        values = {key: value for key, value in values.items() if key not in VLLM}
    ramp, attn_factor = {key: values[key] for key in _RAMP if key in values}, values.get("attn_factor", 1.0)
    factor, mscale, all_dim = values["factor"], values.get("mscale"), values.get("mscale_all_dim")
    attention_factor = None if convention == "sglang" else values.get("attention_factor")
    # DeepSeek's own code, and engines for its types, take 1 and 0 for a missing one.
    by_ratio = values.get("rope_type") in OF_ENGINES and not (mscale and all_dim)
    if convention == "deepseek" and attention_factor is None and (mscale is None) != (all_dim is None):  # as there
        mscale, all_dim, by_ratio = 1.0 if mscale is None else mscale, all_dim or 0.0, True
    if convention == "sglang" and mscale is not None and all_dim is not None:  # there 0 is a number like others
        by_ratio = not (mscale and all_dim)
    if by_ratio and attention_factor is None:
        ratio = mscale_gain(factor, 1.0 if mscale is None else mscale) / mscale_gain(factor, all_dim or 0.0)
        attention_factor = ratio * attn_factor
    yarn = YaRN(factor, original_length=original, attention_factor=attention_factor, mscale=mscale,
                mscale_all_dim=all_dim, attn_factor=attn_factor, **ramp)  # fmt: skip
    if values.get("rope_type") != "deepseek_llama_scaling":
        return yarn
    return YaRN(factor, original_length=original, attention_factor=yarn.gain, **ramp)


# Rotations


def text_rope(rope: Rotation) -> RoPESpec:
    """The rotation of text tokens: the RoPE whose pairs M-RoPE assigns to axes."""
    return rope.rope if isinstance(rope, MRoPESpec) else rope


def with_axes_of(rope: RoPESpec, old: Rotation) -> Rotation:
    """The same rotation with its pairs assigned to axes as in ``old``."""
    if isinstance(old, MRoPESpec) and old.has_own_order:
        return MRoPESpec(**{**rope.arguments(), "order": old.order(), "axes": old.axes})
    return with_sections(rope, old.sections, order_of(old), old.axes) if isinstance(old, MRoPESpec) else rope


def order_of(rope: MRoPESpec) -> Order:
    """How the pairs are dealt out."""
    return "time last" if rope.time_last else "interleaved" if rope.interleaved else "chunked"


def read_alike(first: Rotation, second: Rotation) -> bool:
    """Whether each pair of two rotations reads the same coordinate."""
    if isinstance(first, MRoPESpec) and isinstance(second, MRoPESpec):
        return (first.axes, first.order()) == (second.axes, second.order())
    return isinstance(first, MRoPESpec) == isinstance(second, MRoPESpec)


def rotary_dim(values: Block, width: int) -> int:
    """Channels of a head of ``width`` that rotate."""
    if values.get("rope_type") == "proportional":
        return width
    return int(values.get("rotary_dim", int(width * values.get("partial_rotary_factor", 1.0))))


def with_sections(rope: RoPESpec, sections: tuple[int, ...], order: Order, axes: int = 3) -> MRoPESpec:
    """The M-RoPE whose pairs are those of a rotation, dealt out in sections."""
    dealt: dict[str, Any] = {"interleaved": order == "interleaved", "time_last": order == "time last", "axes": axes}
    return MRoPESpec(**{**rope.arguments(), "sections": sections, **dealt})


SLOWEST = 2.0**-53 / TOKENS  # radians a token: a slower pair stands still in any length, to float64's last digit
_LENGTHS = (None, 1 << 10, 1 << 13, 1 << 16, 1 << 20)


def equivalent(first: Rotation | None, second: Rotation | None, rtol: float = 1e-12) -> bool:
    """Whether two rotations do the same at every length, up to the last digits of float64; None: no rotation.

    Args:
        first, second: rotations.
        rtol: relative difference of frequencies and gains that counts as none.
    """
    if first is None or second is None or first is second:
        return first is second
    if not read_alike(first, second):
        return False
    first, second = text_rope(first), text_rope(second)
    if (first.head_dim, first.rotary_dim, first.layout) != (second.head_dim, second.rotary_dim, second.layout):
        return False
    for length in _LENGTHS:
        a, b = first.spectrum(length), second.spectrum(length)
        if not (_close(a.theta.tolist(), b.theta.tolist(), rtol) and _close(float(a.gain), float(b.gain), rtol)):
            return False
        if (a.start is None) != (b.start is None):
            return False
    return True


def _close(first: Any, second: Any, rtol: float) -> bool:
    """Whether numbers, or lists of them, agree up to a relative difference of the second."""
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(_close(a, b, rtol) for a, b in zip(first, second, strict=True))
    return not isinstance(first, list) and not isinstance(second, list) and abs(first - second) <= rtol * abs(second)


def rotates_nothing(rotation: Rotation) -> bool:
    """Whether every pair stands still at every length, to the last digit of float64: layers without positions (NoPE).

    DroPE leaves such a rotation (examples/long_context/drope.py). Its gain may still scale the attention logits.
    """
    rope = text_rope(rotation)
    return has_one_spectrum(rope) and all(frequency <= SLOWEST for frequency in rope.spectrum().theta.tolist())


def has_one_spectrum(rope: RoPESpec, length: int | None = None) -> bool:
    """Whether all heads and positions have the same fixed frequencies, of texts of a length where they depend on it."""
    learned = any(True for step in steps_of(rope.scaling) if not isinstance(step, Formula) for _ in step.parameters())
    spectrum = rope.spectrum(length)
    return (length is not None or not rope.length_dependent) and not (
        learned or isinstance(spectrum.theta.tolist()[0], list) or spectrum.start is not None
    )


def built(rotation: Rotation) -> RoPE | MRoPE:
    """The module that rotates tensors; made once for each description."""
    from posenc.rotary.mrope import MRoPE
    from posenc.rotary.rope import RoPE

    if isinstance(rotation, RoPE | MRoPE):
        return rotation
    known: RoPE | MRoPE | None = vars(rotation).get("_built")
    if known is None:
        known = (MRoPE if isinstance(rotation, MRoPESpec) else RoPE)(**rotation.arguments())
        vars(rotation)["_built"] = known
    return known


def scale_frequencies(
    layers: Mapping[str, Rotation | None], factors: Sequence[float], length: int | None
) -> dict[str, Rotation | None]:
    """Rotations with each frequency times its factor; ``length`` is the longest, in tokens."""
    if length is None:
        raise ValueError("factors need max_position_embeddings in the configuration, the longest length")
    checked = check_factors("factors", factors)
    slower = [1 / factor for factor in checked]
    scaled: dict[str, Rotation | None] = {}
    for kind, rotation in layers.items():
        scaled[kind] = None
        if rotation is not None:
            rope, last = text_rope(rotation), LongRoPE(slower, slower, original_length=length, factor=1.0)
            if len(checked) != rope.rotary_dim // 2:
                raise ValueError(
                    f"factors must have one factor for each of {rope.rotary_dim // 2} pairs, got {len(checked)}"
                )
            scaling = last if rope.scaling is None else Chain(*steps_of(rope.scaling), last)
            scaled[kind] = with_axes_of(rope.replace(scaling=scaling), rotation)
    return scaled


# Meanings


def meaning(text_config: TextConfig, blocks: Sequence[RopeBlock]) -> dict[str, dict[str, Any]]:
    """By kind of layers, the values that decide, with the share as a number of channels; none where none rotates."""
    result: dict[str, dict[str, Any]] = {}
    for block in blocks:
        result[block.kind] = {}
        if block.values is None:
            continue
        values = {"rope_type": "default", **block.effective}
        if values["rope_type"] != "proportional":
            values = {key: value for key, value in values.items() if key not in SHARES}
            values["rotated channels"] = rotary_dim(block.effective, head_dim(text_config, block.kind, None))
        if values["rope_type"] == "dynamic":  # whose start is a length outside the block
            values["trained length"] = block.longest
        result[block.kind] = values
    return result


def misread(
    read: Mapping[str, Mapping[str, Any]], meant: Mapping[str, Mapping[str, Any]], by_length: Collection[str] = ()
) -> list[str]:
    """What a written config says otherwise than was meant, by kind of layers and key; empty where all holds.

    Args:
        read, meant: as `meaning` has them.
        by_length: kinds whose original length may follow the declared one.
    """
    wrong = []
    for kind, values in meant.items():
        other = read.get(kind)
        if other is None:
            wrong.append(f"{kind}: the rotation")
            continue
        different = {key for key in {**values, **other} if values.get(key) != other.get(key)}
        if kind in by_length:
            different.discard("original_max_position_embeddings")
        wrong += [key if kind == ALL else f"{kind}: {key}" for key in sorted(different)]
    return wrong
