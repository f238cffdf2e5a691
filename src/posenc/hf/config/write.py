"""The one writer of rotations: into the spelling of a file, or into the keys of transformers 4, 5 or both.

    write_rotations   RoPE → the places where the old values stand, so that a file keeps its spelling
    changes_to        a file's own blocks → keys to set or to remove for a spelling
    keys_in_version   RoPE → keys from nothing

Version 4: ``rope_theta`` and a share of the head next to ``rope_scaling`` (null where nothing is scaled). Version 5:
all of it in ``rope_parameters``, one block for each kind of layers where they differ. A config with both is read alike
by old and new readers: transformers 5 takes ``rope_scaling`` and the keys next to it where they stand. Both are made
from the same blocks by kind of layers, with rope type, base and share (`version_4`, `version_5`).

The declared length follows the rotation. Under YaRN, LongRoPE and Llama 3's recipe the training length stands in the
block, as original_max_position_embeddings, and ``max_position_embeddings`` is the extended one: transformers compares
their ratio with the factor, generation and serving stop there. Linear scaling and dynamic NTK have no key for the
training length, so that there ``max_position_embeddings`` stays (dynamic NTK starts from it).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf, nextafter
from typing import Any, Literal

from posenc.arguments import one_line, shown
from posenc.frequencies.by_parts import NTKByParts
from posenc.frequencies.host import geometric, steps_of
from posenc.frequencies.interpolation import PositionInterpolation
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import LongRoPE, gain_of
from posenc.frequencies.ntk import DynamicNTK, NTKAware
from posenc.frequencies.proportional import Proportional
from posenc.frequencies.rotation import MRoPESpec, RoPESpec
from posenc.frequencies.yarn import YaRN
from posenc.hf.config.rope_keys import (
    ALL,
    BLOCKS,
    ENGINES,
    INTERLEAVED,
    ORIGINAL,
    PRESERVED,
    SECTION,
    SHARES,
    TYPES,
    VLLM,
    WITH_ALPHA,
    Block,
    Path,
    RopeBlock,
    at,
    find_rope_blocks,
    put,
    section_keys,
    share_key,
)  # fmt: skip
from posenc.hf.config.rotation import (
    LENGTH,
    SILENT,
    Convention,
    Layers,
    Reading,
    Rotation,
    check_block,
    equivalent,
    has_one_spectrum,
    rope_of,
    rotary_dim,
    text_rope,
    with_axes_of,
    yarn_of,
)  # fmt: skip
from posenc.hf.config.text_config import TextConfig, find_text_config, head_dim
from posenc.hf.families.family import RotationRules
from posenc.hf.sources.config_files import REMOVED
from posenc.hf.sources.load import Config

Spelling = Literal["both", "v4", "v5"]
SPELLINGS: tuple[Spelling, ...] = ("both", "v4", "v5")
_UNSCALED: Block = {"rope_type": "default"}

_EXTENDED = (LongRoPE, YaRN)  # whose factor says by how much


def extended_length(layers: Layers, *, recipes: bool = True) -> int | None:
    """The context length that these rotations extend to: training length times factor; None without a factor.

    Args:
        layers: by kind.
        recipes: whether Llama 3's counts, whose factor says less than the length that such models declare.
    """
    kinds = (*_EXTENDED, Llama3, NTKByParts) if recipes else _EXTENDED
    steps = [step for step in _scalings(layers) if isinstance(step, kinds) and step.factor > 1]
    return max((round(step.original_length * step.factor) for step in steps), default=None)


def length_after(declared: int | None, before: Layers, after: Layers) -> int | None:
    """What ``max_position_embeddings`` becomes; None: it stays.

    It grows to what the new rotations reach, and follows them where it was what the old ones reached. A configuration
    that declared the training length next to a scaling keeps declaring it.

    Args:
        declared: its value so far.
        before, after: the rotations, by kind of layers.
    """
    extended = extended_length(after)
    if declared is None or extended is None or any(isinstance(step, DynamicNTK) for step in _scalings(after)):
        return None
    old = extended_length(before)
    if old not in (None, declared) and all(declared in _trained(layers) for layers in (before, after)):
        return None
    return extended if extended > declared or old == declared else None


def _trained(layers: Layers) -> set[object]:
    return {getattr(step, "original_length", None) for step in _scalings(layers)}


def _scalings(layers: Layers) -> list[object]:
    ropes = [text_rope(rope) for rope in layers.values() if rope is not None]
    return [step for rope in ropes for step in steps_of(rope.scaling)]


_FROM_LENGTH = (ORIGINAL, "factor")  # keys for which the declared length can stand


def write_rotations(
    text_config: TextConfig,
    rope_blocks: Sequence[RopeBlock],
    ropes: Mapping[str, Rotation | None],
    convention: Convention,
    ignore: Collection[str],
    longest: int | None = None,
) -> Config:
    """The text part of a configuration with these rotations; a key that says the same already stays as it is.

    Args:
        text_config: the text model's config as it was read.
        rope_blocks: what it says, by kind of layers.
        ropes: by kind of layers, what it is to say.
        convention: as in `read_rope`.
        ignore: keys to leave alone.
        longest: another length that the configuration will declare, so that blocks must not lean on the old one.

    Raises:
        ValueError: where a rotation has no rope type, or other layers rotate than before.
    """
    config = copy.deepcopy(dict(text_config))
    for rope_block in (block.without(ignore) for block in rope_blocks):
        rope = ropes[rope_block.kind]
        if (rope is None) != (rope_block.values is None):
            raise ValueError(f"layers: {rope_block.kind} cannot start or stop rotating in this spelling; use version=5")
        if rope is None or rope_block.values is None:
            continue
        block = {
            **block_of(text_rope(rope), convention, rope_block.values),
            **keys_of(rope, text_config.rotation, rope_block.values),
        }
        if block["rope_type"] != "proportional":
            block |= _share(text_config, rope_block, text_rope(rope))
        for path, value in _changes(text_config, rope_block, block, longest).items():
            put(config, path, value)
    return config


def _changes(text_config: TextConfig, rope_block: RopeBlock, block: Block, longest: int | None) -> dict[Path, Any]:
    """New values by the place where they go; `REMOVED` for keys that no longer apply."""
    changes: dict[Path, Any] = {}
    same_type = rope_block.effective.get("rope_type", "default") == block["rope_type"]
    keys = text_config.rotation.dynamic_keys
    if keys is not None and not same_type and (keys.factor_key,) in rope_block.sources.get("factor", ()):
        changes[(keys.factor_key,)] = None  # it is the factor of dynamic NTK alone: that of another type goes elsewhere
        sources = {key: paths for key, paths in rope_block.sources.items() if key != "factor"}
        rope_block = replace(rope_block.without(("factor",)), sources=sources)
    old = rope_block.values or {}
    any_type = {"rope_theta": rope_block.effective_defaults["rope_theta"], **section_keys(text_config.rotation)}
    silent = {**SILENT, **(rope_block.effective_defaults if same_type else any_type)}
    if longest is not None:
        silent = {key: value for key, value in silent.items() if key not in _FROM_LENGTH}
    for key, value in block.items():
        if key == LENGTH:
            if rope_block.longest != value:
                changes[(text_config.length_key,)] = value
        elif old.get(key) != value and (key in old or key not in silent or silent[key] != value):
            changes |= dict.fromkeys(rope_block.places(key), value)
    preserved = VLLM if not changes else ()  # which only engines read, and which speak of this scaling
    for key, value in old.items():
        trained = key == "original_max_position_embeddings" and block.get(LENGTH, value) == value  # that nothing reads
        idle = key in (*SHARES, *PRESERVED, *preserved) or (same_type and (trained or SILENT.get(key) == value))
        if key not in block and not idle:
            changes |= {path: REMOVED for path in rope_block.places(key) if len(path) > 1}
    return changes


def _share(text_config: TextConfig, rope_block: RopeBlock, rope: RoPESpec) -> Block:
    """The share of the head that rotates, if it is another one than before."""
    width = head_dim(text_config, rope_block.kind, rope.head_dim)
    if text_config.rotation.latent or rotary_dim(rope_block.effective, width) == rope.rotary_dim:
        return {}
    key = next((key for key in SHARES if key in (rope_block.values or {})), share_key(text_config.rotation))
    return {key: rope.rotary_dim if key == "rotary_dim" else share_of(rope.rotary_dim, rope.head_dim)}


def share_of(rotated: int, head: int) -> float:
    """The share of a head such that int(head · share) is exactly the number of rotated channels."""
    share = rotated / head
    return share if int(head * share) == rotated else nextafter(share, inf)


class NoOldFormError(ValueError):
    """Version 4 has no keys for a rotation; the text says why."""


def check_spelling(spelling: object) -> Spelling:
    """The name of a spelling; a ValueError for any other."""
    for known in SPELLINGS:
        if spelling == known:
            return known
    raise ValueError(f"spelling must be one of {', '.join(SPELLINGS)}, got {shown(spelling)}")


def changes_to(spelling: Spelling, text_config: TextConfig, blocks: Sequence[RopeBlock]) -> dict[str, Any]:
    """Keys of the text config to set, or to remove (`posenc.hf.sources.config_files.REMOVED`), for a spelling.

    Raises:
        NoOldFormError: for "v4" and "both", where version 4 has no keys for the rotation.
        ValueError: for a model that does not rotate.
    """
    if all(block.values is None for block in blocks):
        raise ValueError(f"{text_config.model_type or 'the config'}: no layer rotates, so there is nothing to convert")
    if text_config.rotation.fixed:
        raise ValueError(f"{text_config.model_type}: its code reads no rope block, so there is nothing to convert")
    changes = {} if spelling == "v4" else block_to_add(text_config, blocks)
    if spelling != "v5":  # keys that stand stay as they are
        if text_config.known and text_config.family.since > 4:
            raise NoOldFormError(f"version 4 of transformers does not have model_type {text_config.model_type!r}")
        heads = {block.kind: head_dim(text_config, block.kind, None) for block in blocks if block.values is not None}
        old = version_4(given_blocks(text_config, blocks, version=4), text_config.rotation, heads)
        changes |= {
            key: value for key, value in old.items()
            if key not in text_config or (text_config[key] is None and value is not None)
        }  # fmt: skip
    removed: set[str] = set()
    if spelling == "v5":
        removed = {"rope_scaling", *_outside(blocks), *(keys.theta_key for keys in text_config.rotation.kinds.values())}
    elif spelling == "v4":
        removed = {"rope_parameters"}
    return {**changes, **{key: REMOVED for key in sorted(removed) if key in text_config}}


def block_to_add(text_config: TextConfig, blocks: Sequence[RopeBlock]) -> dict[str, Any]:
    """The keys of version 5 where they are missing, next to whatever a config has."""
    block = version_5(given_blocks(text_config, blocks), text_config.rotation)
    return {} if _has_bases(text_config.get("rope_parameters"), block) else {"rope_parameters": block}


def _has_bases(present: Any, target: Block) -> bool:
    """Whether ``rope_parameters`` is there, with a base in each block."""
    if not isinstance(present, dict) or not present:
        return False
    if "rope_theta" in target:
        return present.get("rope_theta") is not None
    inner = [present.get(kind) for kind, block in target.items() if block is not None]
    return all(isinstance(block, dict) and block.get("rope_theta") is not None for block in inner)


def given_blocks(text_config: TextConfig, blocks: Sequence[RopeBlock], version: int = 5) -> dict[str, Block | None]:
    """By kind of layers, the block as a config gives it, with rope type, base and share; None where none rotates.

    Args:
        text_config: that the blocks were read from.
        blocks: of it.
        version: that it is for; a flat ``rope_scaling`` of version 4 has defaults that a block of version 5 lacks.
    """
    family, result = text_config.rotation, dict[str, Block | None]()
    for block in blocks:
        result[block.kind] = None
        if block.values is None:
            continue
        keys, effective = dict(block.values), block.effective
        paths = block.sources.get(ORIGINAL, ())
        if paths and all(len(path) == 1 for path in paths):  # outside the block (Phi-3), where both versions read it
            keys.pop(ORIGINAL, None)
        rope_type = effective.get("rope_type", "default")
        if rope_type == WITH_ALPHA:  # posenc's name for it
            spelled = [at(text_config, path) for path in block.sources.get("rope_type", ())]
            rope_type = next((name for name in spelled if isinstance(name, str)), rope_type)
        rotated = keys.pop("rotary_dim", None)
        if rotated is not None:
            keys["partial_rotary_factor"] = share_of(rotated, head_dim(text_config, block.kind, None))
        elif family.share != 1:
            keys.setdefault("partial_rotary_factor", effective["partial_rotary_factor"])
        defaults = family.scaled if family.kinds and rope_type == "yarn" and version == 5 else {}
        rest = {key: value for key, value in keys.items() if key not in ("rope_type", "rope_theta")}
        result[block.kind] = {"rope_type": rope_type, "rope_theta": effective["rope_theta"], **defaults, **rest}
    return result


def blocks_of(
    ropes: Layers, before: Mapping[str, Block], family: RotationRules, convention: Convention, ignore: Collection[str]
) -> tuple[dict[str, Block | None], Config]:
    """By kind of layers, the block that means a rotation; and the declared length where a rotation names it.

    Args:
        ropes: by kind of layers.
        before: by kind, the block that was read, if any.
        family: whose keys are used.
        convention: as in `read_rope`.
        ignore: keys to copy, in addition to those that are known not to affect the rotation.

    Raises:
        ValueError: where a rotation has no rope type.
    """
    blocks, outside = dict[str, Block | None](), Config()
    for kind, rotation in ropes.items():
        blocks[kind] = None
        if rotation is None:
            continue
        old = before.get(kind, {})
        read = {key: value for key, value in old.items() if key not in ignore}
        rope = text_rope(rotation)
        block = block_of(rope, convention, read)
        if rope.rotary_dim != rope.head_dim or family.share != 1:
            block.setdefault("partial_rotary_factor", share_of(rope.rotary_dim, rope.head_dim))
        block |= keys_of(rotation, family, read)
        if LENGTH in block:
            outside["max_position_embeddings"] = block.pop(LENGTH)
        same = all(block.get(key) == old.get(key) for key in ("rope_type", "factor", "attention_factor"))
        preserved = (*PRESERVED, *ignore, *(VLLM if same else ()))
        blocks[kind] = block | {key: value for key, value in old.items() if key in preserved and key not in block}
    return blocks, outside


def keys_in_version(
    version: int, ropes: Layers, before: Mapping[str, Block], family: RotationRules,
    convention: Convention = "transformers", ignore: Collection[str] = (),
) -> Config:  # fmt: skip
    """Keys of a version of transformers that mean these rotations; `ALL` alone makes a flat block.

    Raises:
        ValueError: where a rotation has no rope type, or the version no keys for it.
    """
    blocks, outside = blocks_of(ropes, before, family, convention, ignore)
    if family.fixed:
        return {**outside, **_of_fixed(next(iter(ropes.values())))}
    if version == 5:
        return {**outside, "rope_parameters": version_5(blocks, family)}
    heads = {kind: rope.head_dim for kind, rope in ropes.items() if rope is not None}
    try:
        return {**outside, **version_4(blocks, family, heads)}
    except NoOldFormError as error:
        raise NoOldFormError(f"{error}; use version=5") from error


def _of_fixed(rotation: Rotation | None) -> Config:
    rope = None if rotation is None else text_rope(rotation)
    if rope is None or rope.scaling is not None or rope.base != RotationRules().base:
        raise ValueError(
            "rope_theta: this family's code has a base of 10000 and no scaling, whatever a configuration says"
        )
    return {"rotary_dim": rope.rotary_dim}


def version_5(blocks: Mapping[str, Block | None], family: RotationRules) -> Block:
    """The value of ``rope_parameters``: a block with its base, or one for each kind of layers."""
    by_kind = {kind: block for kind, block in blocks.items() if kind not in family.unrotated_kinds}
    rotating = [block for block in by_kind.values() if block is not None]
    flat = list(by_kind) == [ALL] or (bool(family.unrotated_kinds) and len(rotating) == 1)
    return rotating[0] if flat and rotating else dict(by_kind)


def version_4(blocks: Mapping[str, Block | None], family: RotationRules, heads: Mapping[str, int]) -> Config:
    """The keys of version 4, next to each other.

    Args:
        blocks: by kind of layers, with rope type, base and share.
        family: whose keys are used.
        heads: by kind of layers that rotates, channels of a head.

    Raises:
        NoOldFormError: where version 4 has none.
    """
    rotating = {kind: block for kind, block in blocks.items() if block is not None}
    for kind, block in rotating.items():
        if block["rope_type"] == "proportional":
            raise NoOldFormError(f"{kind}: version 4 of transformers does not have rope type 'proportional'")
    if family.kinds:
        return _kinds_of_version_4(rotating, family)
    if not rotating:
        raise NoOldFormError("version 4 has no keys for a model without any rotation")
    if len(rotating) > 1 or family.nested:
        raise NoOldFormError(f"version 4 has no keys for layers of several kinds: {', '.join(rotating)}")
    ((kind, block),) = rotating.items()
    keys: Config = {family.theta_key: block["rope_theta"]}
    share = block.get("partial_rotary_factor")
    if share is not None:
        keys[family.share_key] = int(heads[kind] * share) if family.share_key == "rotary_dim" else share
    return {**keys, "rope_scaling": _old_block(block)}


def _kinds_of_version_4(rotating: Mapping[str, Block], family: RotationRules) -> Config:
    """Keys of a family whose flat config spells several kinds of layers side by side."""
    result: Config = {}
    for kind, keys in family.kinds.items():
        block = rotating.get(kind, {**_UNSCALED, "rope_theta": keys.base})
        old = _old_block(block)
        if old is not None and not keys.scaled:
            raise NoOldFormError(f"rope_scaling of version 4 is not for {kind}")
        values = {keys.theta_key: block["rope_theta"], **({"rope_scaling": old} if keys.scaled else {})}
        for key, value in values.items():
            if result.setdefault(key, value) != value:
                raise NoOldFormError(f"{key} of version 4 stands for all kinds of layers, and these differ")
    return result


def _old_block(block: Block) -> Block | None:
    """The value of ``rope_scaling``: the block without base and share; null where nothing is scaled."""
    old = {key: value for key, value in block.items() if key not in ("rope_theta", *SHARES)}
    return None if old == _UNSCALED else old


def without_rope(text_config: TextConfig, rope_blocks: Sequence[RopeBlock]) -> Config:
    """The text part without the keys of its rotation, except a training length outside the blocks."""
    config = copy.deepcopy(dict(text_config))
    for name in (*BLOCKS, *_outside(rope_blocks)):
        config.pop(name, None)
    return config


def _outside(blocks: Sequence[RopeBlock]) -> set[str]:
    """Keys of the rotation outside the blocks, but for a training length, which both versions read there."""
    paths = {path for block in blocks for key, of in block.sources.items() if key != ORIGINAL for path in of}
    return {path[0] for path in paths if len(path) == 1}


def check_meaning(config: Config, layers: Layers, reading: Reading) -> None:
    """Read what was written; raise a ValueError unless it rotates as it should."""
    text_config = find_text_config(config)
    written = {}
    for block in find_rope_blocks(text_config):
        check_block(text_config, block, reading)
        written[block.kind] = rope_of(text_config, block, reading)
    for kind in {**layers, **written}:
        expected, written_rope = layers.get(kind), written.get(kind)
        if kind not in layers or kind not in written or not equivalent(expected, written_rope):
            back, expected_text = (one_line(rope) for rope in (written_rope, expected))
            raise ValueError(f"layers: {kind} would be read back as {back}, not as {expected_text}")


# A rotation as a block


def block_of(rope: RoPESpec, convention: Convention, before: Block) -> Block:
    """The block that means ``rope``, without keys that say what silence says; the share of the head aside.

    Args:
        rope: the rotation.
        convention: whose keys to use.
        before: the block that it takes the place of.

    Raises:
        ValueError: where no block can say it.
    """
    steps = steps_of(rope.scaling)
    base: Block = {"rope_type": "default", "rope_theta": rope.base}
    if not steps:
        return base
    first, *rest = steps
    if isinstance(first, Proportional):
        share = {**base, "rope_type": "proportional", "partial_rotary_factor": first.fraction}
        if not rest:
            return {**share, "factor": 1.0} if "factor" in before else share
        if len(rest) == 1 and isinstance(rest[0], PositionInterpolation):
            return {**share, "factor": rest[0].factor}
    if rest:
        raise ValueError(refusal(rope))
    if isinstance(first, NTKAware):
        dim = rope.rotary_dim  # another base says the same
        return {**base, "rope_theta": rope.base * first.factor ** (dim / (dim - 2))}
    if isinstance(first, PositionInterpolation):
        return {**base, "rope_type": "linear", "factor": first.factor}
    if isinstance(first, DynamicNTK) and first.schedule == "continuous":
        return {**base, "rope_type": "dynamic", "factor": first.factor, LENGTH: first.original_length}
    if isinstance(first, Llama3):
        low, high = first.low_freq_factor, first.high_freq_factor
        return {**base, **_from(first, "llama3"), "low_freq_factor": low, "high_freq_factor": high}
    if isinstance(first, NTKByParts):
        return {**base, **_from(first, "llama3"), "low_freq_factor": first.alpha, "high_freq_factor": first.beta}
    if isinstance(first, LongRoPE) and not first.start_tokens:
        return {**base, **_from(first, "longrope"), **_longrope_keys(first, rope, convention, before)}
    if isinstance(first, YaRN) and first.ramp == "index":
        return {**base, **_from(first, "yarn"), **_yarn_keys(first, rope, convention, before)}
    raise ValueError(refusal(rope))


def _from(scaling: Llama3 | NTKByParts | LongRoPE | YaRN, rope_type: str) -> Block:
    original = scaling.original_length
    return {"rope_type": rope_type, "factor": scaling.factor, "original_max_position_embeddings": original}


def _longrope_keys(scaling: LongRoPE, rope: RoPESpec, convention: Convention, before: Block) -> Block:
    """Factors, and the gains that differ from their defaults."""
    keys: Block = {"short_factor": list(scaling.short), "long_factor": list(scaling.long)}
    gains = {"short_mscale": scaling.short_gain, "long_mscale": scaling.long_gain}
    if convention in ENGINES:  # which read no attention_factor, and make a gain of lengths where these are missing
        return {**keys, **gains}
    named = {key: gain for key, gain in gains.items() if key in before}
    rest = {gain for key, gain in gains.items() if key not in named}
    if len(rest) > 1:  # transformers heeds keys of their own in one family only
        raise ValueError(refusal(rope))
    gain = rest.pop() if rest else before.get("attention_factor")
    silent = gain_of("su", scaling.factor, scaling.original_length)
    if gain is not None and (gain != silent or "attention_factor" in before):
        keys["attention_factor"] = gain
    return {**keys, **named}


def _yarn_keys(scaling: YaRN, rope: RoPESpec, convention: Convention, before: Block) -> Block:
    """Keys of YaRN that differ from their defaults."""
    options = {key: getattr(scaling, key) for key in ("beta_fast", "beta_slow", "truncate")}
    options |= {key: getattr(scaling, key) for key in ("attention_factor", "mscale", "mscale_all_dim")}
    extra = {key: getattr(scaling, key) for key in ("attn_factor", "extrapolation_factor")}
    if convention == "sglang":
        options |= extra
        if options["attention_factor"] is not None:  # which SGLang does not read
            scaled = YaRN(scaling.factor, original_length=scaling.original_length)
            options |= {"attn_factor": options["attention_factor"] / scaled.gain, "attention_factor": None}
            options |= {"mscale": None, "mscale_all_dim": None}
    elif extra["extrapolation_factor"] != 1:
        raise ValueError(refusal(rope))
    elif extra["attn_factor"] != 1:
        options["attention_factor"] = scaling.gain
    alone = {key: before[key] for key in ("mscale", "mscale_all_dim") if before.get(key) is not None}
    if convention == "deepseek" and len(alone) == 1 and before.get("attention_factor") is None:
        read = yarn_of({**before, "factor": scaling.factor}, scaling.original_length, convention)
        if read.gain == scaling.gain:  # the number that `yarn_of` computed by DeepSeek's rule for a missing key
            options |= {"attention_factor": None, "mscale": None, "mscale_all_dim": None, **alone}
    return {key: value for key, value in options.items() if value != SILENT.get(key)}


def refusal(rope: RoPESpec) -> str:
    """What to say of a rotation that no rope type means."""
    scaling = one_line(rope.scaling)
    return (
        f"scaling: no rope type of transformers means {scaling}; there are {', '.join(TYPES)}. A spectrum that depends "
        "on neither length nor head can be written as a factor for each pair: rope_to_config(..., as_longrope=True)"
    )


def keys_of(rope: Rotation, family: RotationRules, before: Block) -> Block:
    """The keys that share out the pairs; none for RoPE.

    Args:
        rope: the rotation.
        family: whose code reads them.
        before: the block that they go to; its mrope_interleaved stays where the family's code decides.
    """
    if not isinstance(rope, MRoPESpec):
        return {}
    if rope.has_own_order:
        raise ValueError("order: a configuration has sections, chunked or interleaved, and no other order of the pairs")
    keys: Block = {SECTION: list(rope.sections)}
    flag_stands = INTERLEAVED in before
    if (flag_stands and family.sections is None) or (rope.interleaved and not flag_stands):
        keys[INTERLEAVED] = rope.interleaved
    return keys


def to_longrope(rotation: Rotation, original_length: int | None) -> Rotation:
    """The same rotation with a factor for each pair, as LongRoPE has them.

    Raises:
        ValueError: for a rotation that no fixed factors can make.
    """
    rope = text_rope(rotation)
    spectrum = rope.spectrum()
    if not has_one_spectrum(rope):
        raise ValueError(
            "as_longrope needs one fixed spectrum for all heads and positions, and this scaling depends on the length, "
            f"is learned, or differs between heads or first tokens: {one_line(rope.scaling)}"
        )
    theta = spectrum.theta.tolist()
    if not all(frequency > 0 for frequency in theta):
        raise ValueError("as_longrope needs every pair to rotate, and this spectrum has pairs that do not")
    length = original_length
    for step in steps_of(rope.scaling):
        length = length or getattr(step, "original_length", None)
    if length is None:
        raise ValueError("original_length must be given: this scaling has none")
    unscaled = geometric(rope.rotary_dim, rope.base)
    factors = [before / after for before, after in zip(unscaled, theta, strict=True)]
    scaling = LongRoPE(factors, factors, original_length=length, factor=1.0, gain=float(spectrum.gain))
    return with_axes_of(rope.replace(scaling=scaling), rotation)
