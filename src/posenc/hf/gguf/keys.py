"""Keys and tensors with which llama.cpp rotates as a given rotation does; the inverse of `gguf_metadata`.

    default, another base    rope.freq_base, and no rope.scaling.*
    linear                   rope.scaling.type linear and factor
    yarn                     type yarn, factor, original_context_length, yarn_log_multiplier of latent attention;
                             attn_factor is the gain over m(factor, 1), which llama.cpp multiplies by itself. Betas
                             where llama.cpp reads them (mistral3); elsewhere such a YaRN is written as rope_freqs
    longrope                 rope_factors_short and rope_factors_long, original_context_length, attn_factor: the gain
    any other fixed one      rope_freqs, plain frequency over wanted one, for each pair; attn_factor: the gain

Numbers are float32 there, a relative 6e-8. The layout of the pairs belongs to the file's weights and stays.
Source: as `gguf_metadata`; which models read which tensors: llama.cpp, src/models (llama, granite, arcee, llama4,
    exaone4, falcon-h1, apertus, mistral3, phi3), and the package gguf, MODEL_TENSORS.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

from posenc.arguments import one_line
from posenc.frequencies.host import Formula, steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.rotation import RoPESpec
from posenc.frequencies.yarn import YaRN
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.rotation import Layers, equivalent, read_alike, text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.config.write import block_of, length_after, to_longrope
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.sources.gguf_metadata import FACTORS, SCALING, TAKE_BETAS, TEN
from posenc.hf.sources.load import Config

ROUNDING = 1e-6  # relative, of frequencies and gains computed from float32 numbers
_ORIGINAL_LENGTH, _BETA = "original_max_position_embeddings", "llama_4_scaling_beta"
_FREQS, _SHORT, _LONG = FACTORS
_READ_FREQS = {"llama", "granite", "granitemoe", "arcee", "llama4", "exaone4", "falcon-h1", "apertus", "mistral3"}
_READ_SHORT_AND_LONG = {"llama", "granite", "granitemoe", "phi3", "phimoe"}  # factors of short and long texts
_BETAS = {"beta_fast", "beta_slow"}
_READ_TEMPERATURE = {"mistral3", "mistral4", "deepseek2"}
_SCALED = (
    "type", "factor", "original_context_length", "attn_factor", "yarn_beta_fast", "yarn_beta_slow",
    "yarn_log_multiplier",
)  # fmt: skip

Value = int | float | str | None  # None: the key goes
Factors = list[float] | None  # None: the tensor goes


class GGUFChanges(NamedTuple):
    """What changes in a file.

    Attributes:
        keys: values by name without the architecture, None for those that go.
        tensors: factors by name, None for those that go.
    """

    keys: dict[str, Value]
    tensors: dict[str, Factors]


def changes_for(metadata: Config, before: RopeConfig, after: RopeConfig) -> GGUFChanges:
    """The changes that make a file say ``after``.

    Args:
        metadata: of the file, as `gguf_file.metadata_of` gives it.
        before: what it was read as.
        after: what it is to say.

    Raises:
        ValueError: for what GGUF, or llama.cpp's code of this model, cannot say; it names it.
    """
    arch = metadata["general.architecture"]
    _check_kinds(before.rotations, after.rotations)
    changes = GGUFChanges({}, {})
    for kind, rotation in after.rotations.items():
        old = before.rotations[kind]
        if rotation is None or old is None:
            continue
        if not read_alike(rotation, old):
            raise ValueError(f"layers: {kind} must share out its pairs as before, which its weights were trained with")
        was = text_rope(old)
        rope = _in_its_layout(arch, text_rope(rotation), was)
        if equivalent(rope, was):
            continue
        windowed = kind == SLIDING and before.rotations.get(FULL) is not None
        kind_changes = _with_window(kind, rope) if windowed else _without_window(metadata, rope, before)
        if rope.rotary_dim != was.rotary_dim:
            kind_changes.keys["rope.dimension_count"] = rope.rotary_dim
        changes.keys.update(kind_changes.keys)
        changes.tensors.update(kind_changes.tensors)
    changes.keys.update(_length(before, after))
    changes.keys.update(_temperature(arch, before, after))
    return changes


def _check_kinds(before: Layers, after: Layers) -> None:
    if set(before) != set(after):
        raise ValueError(f"layers must have the kinds of the file, {', '.join(before)}, got {', '.join(after)}")
    for kind, old in before.items():
        if (old is None) != (after[kind] is None):
            text = "is decided by llama.cpp's code of this model: GGUF has no key for which layers rotate"
            raise ValueError(f"layers: whether {kind} rotates {text}")


def _in_its_layout(arch: str, rope: RoPESpec, old: RoPESpec) -> RoPESpec:
    """The rotation with the pairs of the file's weights."""
    if rope.head_dim != old.head_dim:
        raise ValueError(f"head_dim must be {old.head_dim}, the width of the file's heads, got {rope.head_dim}")
    if rope.rotary_dim != old.rotary_dim and arch == "llama":
        raise ValueError(f"rotary_dim must stay {old.rotary_dim}: llama.cpp refuses another one for {arch}")
    return rope.replace(layout=old.layout)


def _with_window(kind: str, rope: RoPESpec) -> GGUFChanges:
    """Layers with a window have a base of their own and nothing else."""
    block = _block(rope)
    if block.get("rope_type") != "default":
        raise ValueError(f"layers: GGUF has a base for {kind} and no scaling, got {one_line(rope.scaling)}")
    return GGUFChanges({"rope.freq_base_swa": float(block["rope_theta"])}, {})


def _without_window(metadata: Config, rope: RoPESpec, before: RopeConfig) -> GGUFChanges:
    """The keys and tensors of the layers without a window."""
    arch, block = metadata["general.architecture"], _block(rope)
    there = [name for name in FACTORS if name in metadata]
    keys: dict[str, Value] = {SCALING + name: None for name in _SCALED}
    keys |= {"rope.scale_linear": None, "rope.freq_base": rope.base}
    tensors: dict[str, list[float]] = {}
    kind = block.get("rope_type")
    if kind == "default":
        keys["rope.freq_base"] = float(block["rope_theta"])
    elif kind == "linear":
        keys |= {SCALING + "type": "linear", SCALING + "factor": float(block["factor"])}
    elif kind == "yarn" and block.get("truncate", True) and (arch in TAKE_BETAS or not {*block} & _BETAS):
        keys |= _yarn(rope, before)
    else:
        gain, tensors = _factors(arch, rope, there, longrope=kind == "longrope")
        keys[SCALING + "attn_factor"] = None if gain == 1 else gain
        if _LONG in tensors:
            keys |= {SCALING + "type": "longrope", SCALING + "original_context_length": block.get(_ORIGINAL_LENGTH)}
    gone: dict[str, Factors] = dict.fromkeys(there)
    return GGUFChanges(keys, {**gone, **tensors})


def _block(rope: RoPESpec) -> Config:
    """What a configuration would say of it; empty for what no rope type means."""
    try:
        return block_of(rope, "transformers", {})
    except ValueError:
        return {}  # any fixed spectrum can be said as factors, and what is none is refused there


def _yarn(rope: RoPESpec, before: RopeConfig) -> dict[str, Value]:
    yarn = _part(rope, YaRN)
    power = yarn.mscale_all_dim or 0.0 if before.text_config.rotation.latent else 0.0
    if power and abs(yarn.gain - 1) > ROUNDING:
        raise ValueError(f"mscale must equal mscale_all_dim: GGUF has one number for both, got {yarn}")
    gain = 1.0 if power else yarn.gain / (0.1 * math.log(yarn.factor) + 1)
    return {
        SCALING + "type": "yarn",
        SCALING + "factor": yarn.factor,
        SCALING + "original_context_length": yarn.original_length,
        SCALING + "yarn_beta_fast": None if yarn.beta_fast == 32 else yarn.beta_fast,
        SCALING + "yarn_beta_slow": None if yarn.beta_slow == 1 else yarn.beta_slow,
        SCALING + "yarn_log_multiplier": power / TEN if power else None,
        SCALING + "attn_factor": None if abs(gain - 1) < ROUNDING else gain,
    }


_Kind = TypeVar("_Kind", bound=Formula)


def _part(rope: RoPESpec, kind: type[_Kind]) -> _Kind:
    """The scaling, which may stand alone in a Sequential."""
    assert rope.scaling is not None
    return next(rope_block for rope_block in steps_of(rope.scaling) if isinstance(rope_block, kind))


def _factors(arch: str, rope: RoPESpec, there: list[str], *, longrope: bool) -> tuple[float, dict[str, list[float]]]:
    """The gain and the tensors of a spectrum that keys cannot say."""
    try:
        fixed = rope if longrope else text_rope(to_longrope(rope, 1))
    except ValueError:
        shown = one_line(rope.scaling)
        text = "GGUF has one frequency for each pair, or two by the length, and cannot say this scaling"
        raise ValueError(f"scaling: {text}; declare one length and write that: {shown}") from None
    scaling = _part(fixed, LongRoPE)
    short, long, gain = list(scaling.short), list(scaling.long), scaling.short_gain
    if gain != scaling.long_gain:
        raise ValueError(
            f"scaling: GGUF has one gain, got {gain} for short texts and {scaling.long_gain} for long ones"
        )
    if short == long and (arch in _READ_FREQS or _FREQS in there):
        return gain, {_FREQS: short}
    if arch in _READ_SHORT_AND_LONG or _LONG in there:
        return gain, {_SHORT: short, _LONG: long}
    tensors = "rope_freqs" if short == long else "rope_factors_short and rope_factors_long"
    text = "linear scaling, YaRN with its own betas (others by --yarn-beta-fast and --yarn-beta-slow) and a base"
    raise ValueError(f"scaling: llama.cpp reads no {tensors} for {arch!r}; {text} it does read")


def _length(before: RopeConfig, after: RopeConfig) -> dict[str, Value]:
    declared = max_length(after.text_config)
    length = length_after(declared, before.rotations, after.rotations) or declared
    return {} if length in (None, max_length(before.text_config)) else {"context_length": length}


def _temperature(arch: str, before: RopeConfig, after: RopeConfig) -> dict[str, Value]:
    """Mistral's temperature, which stands in the block of a configuration."""
    (old_strength, _), (strength, length) = new = _temperature_of(before), _temperature_of(after)
    if new[0] == new[1]:
        return {}
    if old_strength is None and arch not in _READ_TEMPERATURE:
        raise ValueError(
            f"{_BETA}: llama.cpp reads no temperature for {arch!r}; it does for {', '.join(_READ_TEMPERATURE)}"
        )
    return {"attention.temperature_scale": strength, "attention.temperature_length": length}


def _temperature_of(config: RopeConfig) -> tuple[float | None, int | None]:
    values = [
        rope_block.effective for rope_block in find_rope_blocks(config.text_config) if rope_block.values is not None
    ]
    return next(((values[_BETA], values.get(_ORIGINAL_LENGTH)) for values in values if values.get(_BETA)), (None, None))
