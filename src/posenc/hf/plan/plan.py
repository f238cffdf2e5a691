"""The one plan of a longer context: what to write into a config, or why nothing can be written and what to do instead.

    plan_extension(config, 131072)

`posenc recommend`, `posenc extend` with and without ``--config-only``, and `posenc serve` print what it says.
The authors' recipe comes first (`posenc.hf.plan.documented`), up to the length that they name. Beyond it, and for
other models, the rope type decides: a config without a scaling gets one, and a config with one keeps its rope type,
because the weights were trained under these frequencies. N is the new length, D the length that the config declares, O
the original one:

    none          YaRN by default, factor N / O; linear, dynamic or llama3 on request
    yarn          factor N / O, other keys kept; the gain follows the factor
    llama3        factor · N / D: slow pairs N / D times slower than in training, fast pairs as they are
    linear        factor · N / D
    proportional  factor · N / D; transformers divides all rotating frequencies by it
    longrope      refused: its factors were searched for D
    dynamic       refused: its frequencies follow the length already

Source: transformers 5.23, modeling_rope_utils.py, for what a factor does.
"""

from __future__ import annotations

import copy
import difflib
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from posenc.arguments import check_whole, one_line, shown
from posenc.hf.config.facts import ModelFacts, read_facts
from posenc.hf.config.rope_keys import ALL, WITH_ALPHA, Block, RopeBlock, at, put, section_keys
from posenc.hf.config.rotation import AS_IT_SAYS, GAINS_OF_THEIR_OWN, LENGTH, meaning, misread, rope_of, text_rope
from posenc.hf.config.text_config import OTHER_LENGTHS, SchemeFacts, TextConfig, attached_names, is_posenc_config
from posenc.hf.config.write import block_of, given_blocks, to_longrope, version_5
from posenc.hf.families.family import COMPRESSED, HEAVILY_COMPRESSED
from posenc.hf.limits import TIMES, TOKENS, is_count
from posenc.hf.plan.documented import DOCUMENTED, MSCALES, Documented
from posenc.hf.rules.keys import misspelt
from posenc.hf.sources.config_files import REMOVED
from posenc.hf.sources.load import Config

AUTO = "auto"
METHODS = (AUTO, "yarn", "linear", "dynamic", "llama3")
PLANNED = {**{name: name for name in METHODS}, "pi": "linear", "dynamic_ntk": "dynamic"}  # by the names of a method
_MEASURED = ("ntk", "longrope", "longrope2", "self_extend", "rerope", "dual_chunk", "part_ntk")
_NAMES = {"yarn": "YaRN", "linear": "Linear scaling", "dynamic": "Dynamic NTK", "llama3": "Llama 3's scaling",
          "longrope": "A factor for each pair"}  # fmt: skip
_UNSCALED = "default"
_SHORT = 512  # tokens
_COMPRESSED = (COMPRESSED, HEAVILY_COMPRESSED)  # kinds that attend to compressed tokens beyond their window
KeyPath = tuple[str, ...]
Reach = list[tuple[str | None, int | None, int]]  # of kinds of layers: the block, the window (None: all), how many
Code = Literal[
    "encodings of posenc", "table", "bias", "no positions", "fixed frequencies", "bases by layer", "windows",
    "longrope", "follows the length", "alpha", "rope type", "scaled already",
    "rope types of the class", "length not declared", "too many times", "read otherwise", "misspelt key",
]  # fmt: skip


class Refused(ValueError):  # noqa: N818
    """Why a config alone cannot extend a model.

    Attributes:
        code: the reason, for programs.
        reason: in words.
        next_step: what to do instead.
    """

    def __init__(self, code: Code, reason: str, next_step: str) -> None:
        super().__init__(f"{reason}. {next_step[0].upper()}{next_step[1:]}")
        argument, _, rest = reason.partition(": ")
        self.code, self.next_step = code, next_step
        self.reason = rest if argument in ("length", "method", "original_length") else reason

    def record(self) -> dict[str, Any]:
        """Code, reason and next step, as plain data."""
        return {"refused": self.code, "reason": self.reason, "next_step": self.next_step}


@dataclass(frozen=True)
class BlockChange:
    """The change of one rope block.

    Attributes:
        keys: keys of the block to set, ``rope_type`` first; empty: the rotation stays.
        method: rope type.
        factor: of the new block; None where it stays.
        original: tokens that the factor counts from; None where the rope type has no such key.
        documented: the recipe that was followed; None: no model card or paper that posenc knows documents it.
        notes: what a reader should know of this change.
    """

    keys: Block
    method: str
    factor: float | None = None
    original: int | None = None
    documented: Documented | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """How a model reaches a length.

    Attributes:
        facts: of the config that the plan is for.
        length: new context length, in tokens.
        start: tokens that the model reaches without the plan: the original length of a config without a scaling, the
            declared one of a config with a scaling; None: neither is known.
        after: the config with the new values, read again; None where nothing is written.
        keys: new values by their paths in the text config.
        method: rope type of the first block that changes; "none" where the declared length alone does; None: nothing
            is to be written, as the config reaches the length as it is.
        factor, original, documented: of that block, as `BlockChange` has them.
        notes: what a reader should know.
    """

    facts: ModelFacts
    length: int
    start: int | None
    after: ModelFacts | None = None
    keys: Mapping[KeyPath, Any] = field(default_factory=dict)
    method: str | None = None
    factor: float | None = None
    original: int | None = None
    documented: Documented | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The plan in a sentence: method, factor, original length, source."""
        if self.method is None:
            return f"Nothing to write: {self.facts.declared:,} tokens are declared, and {self.length:,} are wanted"
        if self.factor is None:
            return "Only the declared length changes: rotation does not limit this model"
        name = _NAMES.get(self.method, f"Rope type {self.method!r}")
        over = f" over {self.original:,} tokens" if self.original else ""
        change = f"{name}, factor {self.factor:.10g}{over}"
        if self.documented is not None:
            return f"{change}, as documented for {self.documented.model}: {self.documented.source}"
        return f"{change}; no model card or paper that posenc knows documents this length for this model"

    def applied_to(self, config: Config) -> Config:
        """The whole config that the plan is for, with its keys."""
        return _applied(config, self.facts.text, self.keys)

    def command(self, model: str) -> str:
        """The command that writes it."""
        return shlex.join(["posenc", "extend", model, "--length", str(self.length), "--config-only", "--out", "DIR"])

    def record(self) -> dict[str, Any]:
        """Type, factor, original length and source, as plain data."""
        recipe = self.documented
        return {
            "method": self.method, "factor": self.factor, "original_length": self.original,
            "documented": None if recipe is None else {"model": recipe.model, "source": recipe.source},
        }  # fmt: skip


def check_method(method: object) -> str:
    """The rope type that a method's name stands for, or "auto"; a ValueError for any other name."""
    if isinstance(method, str) and method in PLANNED:
        return PLANNED[method]
    if isinstance(method, str) and method.partition("+")[0] in _MEASURED:
        raise ValueError(
            f"method: {method} needs the model itself; without --config-only, posenc extend applies it and measures it"
        )
    near = difflib.get_close_matches(str(method), METHODS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"method must be one of {', '.join(METHODS)} for a config alone, got {shown(method)}{hint}")


def plan_extension(
    config: Config | ModelFacts, length: int, method: str = AUTO, original_length: int | None = None
) -> Plan:
    """Plan how a model reaches a length by its config.

    Args:
        config: in Hugging Face's keys, as `posenc.hf.read_rope` can read it; or what was read from it.
        length: new context length, in tokens.
        method: one of `METHODS`.
        original_length: training length in tokens, where the config says another.

    Raises:
        Refused: for a model that rotation does not limit (learned tables, biases, windows in every layer), a rope type
            that no rule extends, and a config whose class would read the new keys otherwise.
        ValueError: for lengths that contradict each other.
    """
    check_whole("length", length, most=TOKENS)
    if original_length is not None:
        check_whole("original_length", original_length, most=TOKENS)
    facts = config if isinstance(config, ModelFacts) else read_facts(config)
    _check_rotation_limits(facts)
    if (slip := misspelt(facts)) is not None:
        reason = f"{slip.key} {slip.text}".rstrip("?")
        raise Refused("misspelt key", reason, "correct it first: posenc doctor MODEL --fix OUT --guesses")
    text_config, declared = facts.text, facts.declared
    rotating = [block for block in facts.blocks if block.values is not None]
    unscaled = all(block.effective.get("rope_type", _UNSCALED) == _UNSCALED for block in rotating)
    plan = Plan(facts, length, start_of(facts, original_length))
    if declared is not None and length <= declared and not (
        unscaled and original_length is not None and length > original_length
    ):  # fmt: skip
        return replace(plan, notes=_declared_notes(rotating))
    reach = [
        (layer.rotated_by, None if layer.kind in _COMPRESSED else layer.window, max(1, len(numbers)))
        for layer, _, numbers in facts.patterns if layer.attends
    ]  # fmt: skip
    reaching = [block for block in rotating if _reaches(facts, reach, block, original_length or declared)]
    changes = tuple((block, _change_of(facts, block, length, method, original_length)) for block in reaching)
    change = changes[0][1] if changes else _without_rotation(facts, reach)
    if change.factor is not None and change.factor > TIMES:
        times = f"{length:,} tokens are {change.factor:,.0f} times the original length, and the most is {TIMES:,}"
        raise Refused("too many times", f"length: {times}", "check --length and the length that the config declares")
    left = [block.kind for block in rotating if block not in reaching]
    stay = (
        [f"{' and '.join(left)} keeps its rotation: these layers attend within a window"] if left and reaching else []
    )
    copies, other_lengths = _copied_lengths(text_config, length, declared)
    lengths: dict[KeyPath, Any] = {}
    if change.method != "dynamic":  # which transformers starts from the declared length
        lengths = {(key,): length for key in (text_config.length_key, *copies)}
    keys, after, respelled = _keys_that_hold(facts, changes, lengths)
    return replace(
        plan, keys=keys, after=after, method=change.method, factor=change.factor, original=change.original,
        documented=change.documented, notes=(*change.notes, *stay, *respelled, *other_lengths),
    )  # fmt: skip


def plan_or_refusal(config: Config | ModelFacts, length: int) -> Plan | Refused:
    """The plan of a config for a length, or why there is none: for what prints either."""
    try:
        return plan_extension(config, length)
    except Refused as refusal:
        return refusal


def start_of(facts: ModelFacts, original_length: int | None = None) -> int | None:
    """Tokens that a model reaches by training or by the scaling that it has; None where nothing says.

    The length that the authors' recipe counts from, where there is one: it need not be the declared one.
    """
    declared, blocks = facts.declared, [block for block in facts.blocks if block.values is not None]
    if original_length is not None or not blocks:
        return original_length or declared
    scaled = [block.effective for block in blocks if block.effective.get("rope_type", _UNSCALED) != _UNSCALED]
    if scaled:  # a block of YaRN or LongRoPE reaches factor times its original length, whatever the file declares
        reached = [
            round((values.get("factor") or 1) * values.get("original_max_position_embeddings", 0))
            for values in scaled if values["rope_type"] in ("yarn", "longrope")
        ]  # fmt: skip
        return max([*reached, declared or 0]) or None
    recipe = documented_for(facts.text.model_type, declared, blocks[0].effective["rope_theta"])
    return recipe.original if recipe is not None else declared or blocks[0].trained


def documented_for(model_type: str, declared: int | None, base: float) -> Documented | None:
    """The authors' recipe for a config without a scaling; None where none is known here."""
    for recipe in DOCUMENTED:
        if model_type in recipe.model_types and declared in recipe.declared and base == recipe.base:
            return recipe
    return None


def documented_block(model_type: str, block: Block, length: int) -> Documented | None:
    """The authors' recipe that a block follows already at a length; else None."""
    for recipe in DOCUMENTED:
        same = (block.get("rope_type"), block.get("rope_theta")) == (recipe.method, recipe.base)
        from_there = block.get("original_max_position_embeddings") == recipe.original
        if model_type in recipe.model_types and same and from_there:
            return recipe if factor_named(recipe, length) == block.get("factor") else None
    return None


def factor_named(recipe: Documented, length: int) -> float | None:
    """The factor that a source names for a length; None for a length that it does not cover."""
    if length > recipe.longest:
        return None
    factor = recipe.factors.get(length, length / recipe.original)
    return factor if recipe.largest is None else min(factor, recipe.largest)


def _check_rotation_limits(facts: ModelFacts) -> None:
    """Raise `Refused`, with what limits the length, where a model does not rotate queries and keys by its config."""
    text_config = facts.text
    if is_posenc_config(facts.config) or attached_names(facts.config) is not None:
        reason = "the encodings of this model are posenc's own, and no rope block decides"
        raise Refused("encodings of posenc", reason, "see posenc.hf.attach")
    if facts.schemes:
        _refuse_schemes(text_config, facts.schemes)
    if text_config.rotation.fixed:
        reason = f"{text_config.model_type}: its code fixes the frequencies, whatever a config says"
        raise Refused("fixed frequencies", reason, _REMAP)
    if text_config.rotation.bases_choose:
        key = text_config.key_path(text_config.rotation.bases_key or "")
        reason = f"{key} gives each layer a base, and the code reads no scaling next to it: nothing to extend"
        raise Refused("bases by layer", reason, "change the bases and fine-tune, or read the text in chunks")


_REMAP = "without --config-only, --method self_extend remaps distances instead"


def _refuse_schemes(text_config: TextConfig, schemes: tuple[SchemeFacts, ...]) -> None:
    """Raise `Refused` for a model with other encodings than a rotation."""
    reason = f"{text_config.model_type} has no rotation to extend. Its positions: {'; '.join(s.text for s in schemes)}"
    rows = next((scheme.positions for scheme in schemes if scheme.positions), None)
    if any(scheme.builds.startswith("ALiBi") for scheme in schemes):
        next_step = "use it as it is: ALiBi takes any length, and its weights decay with the distance"
        raise Refused("bias", reason, next_step)
    if any(scheme.buckets is not None for scheme in schemes) and not rows:
        next_step = "use it as it is: distances beyond the last bucket share one number"
        raise Refused("bias", reason, next_step)
    if any("Grid" in scheme.builds for scheme in schemes):
        next_step = "interpolate the table for a larger image (interpolate_pos_encoding=True), then fine-tune briefly"
        raise Refused("table", reason, next_step)
    if rows or any(scheme.rows is not None for scheme in schemes):
        ends = f"the table ends at {rows:,}; a longer one" if rows else "a longer table"
        next_step = f"{ends} must be trained (posenc.embedding.grow_table), or start from a checkpoint with RoPE"
        raise Refused("table", reason, next_step)
    raise Refused("no positions", reason, "test the length as it is, and fine-tune there where it fails")


def _reaches(facts: ModelFacts, reach: Reach, block: RopeBlock, original: int | None) -> bool:
    """Whether a layer that a block rotates attends to tokens further away than the original length."""
    keys = facts.text.rotation.kinds
    if block.kind in keys and not keys[block.kind].scaled and any(other.scaled for other in keys.values()):
        return False  # the rotation that the family leaves as it is
    windows = [window for rotated_by, window, _ in reach if rotated_by == block.kind]
    return any(window is None or (original is not None and window > original) for window in windows)


def _without_rotation(facts: ModelFacts, reach: Reach) -> BlockChange:
    """The declared length alone, where layers without rotation reach beyond the windows of the others.

    Raises:
        Refused: where every layer attends within a window.
    """
    free = sum(count for rotated_by, window, count in reach if rotated_by is None and window is None)
    widest = max((window for _, window, _ in reach if window is not None), default=None)
    within = "its layers' own pattern" if widest is None else f"{widest:,} tokens"
    if not free:
        reason = (
            f"length: rotation does not limit {facts.text.model_type}: every layer attends within a window of "
            f"{within}, so that no distance is new"
        )
        raise Refused("windows", reason, "the window limits what a layer attends to, and widening it needs training")
    text = f"layers that rotate attend within {within}, and the {free} layers that attend further have no rotation"
    return BlockChange({}, "none", notes=(f"{text}: the rope block stays as it is",))


def _change_of(facts: ModelFacts, block: RopeBlock, length: int, method: str, original: int | None) -> BlockChange:
    values, text_config, declared = block.effective, facts.text, facts.declared
    latent = text_config.rotation.latent and text_config.rotation.yarn_in_softmax
    if values.get("rope_type", _UNSCALED) != _UNSCALED:
        if declared is None:
            key = text_config.key_path(text_config.length_key)
            reason = f"{key} is missing, which says how far the scaling of this config reaches"
            raise Refused("length not declared", reason, f"add {key}")
        if original is not None:
            reason = "original_length: the config has a scaling, whose block says from which length it counts"
            raise Refused("scaled already", reason, "leave --original-length out")
        change = _grown_scaling(values, method, length, declared, latent=latent)
        return replace(change, documented=documented_block(text_config.model_type, {**values, **change.keys}, length))
    recipe = documented_for(text_config.model_type, declared, values["rope_theta"]) if original is None else None
    start = original or (recipe.original if recipe is not None else declared or block.trained)
    if start is None:
        reason = "original_length must be given: the config does not say the length that the model was trained at"
        raise Refused("length not declared", reason, "add --original-length TOKENS")
    if length <= start:
        raise ValueError(f"length must be more than the {start:,} tokens of the original length, got {length:,}")
    change = _new_scaling(method, length, start, recipe, MSCALES.get(text_config.model_type, 1.0) if latent else None)
    taken = text_config.rotation.rope_types
    return change if not taken or change.method in taken else _as_longrope(text_config, block, change, start, taken)


def _as_longrope(
    text_config: TextConfig, block: RopeBlock, change: BlockChange, start: int, taken: Sequence[str]
) -> BlockChange:
    """The same frequencies as a factor for each pair, for a config class that takes few rope types.

    Raises:
        Refused: where they depend on the length, so that no list of factors has them.
    """
    if change.method == "dynamic" or "longrope" not in taken:
        kinds = f"the rope types {' and '.join(taken)}" if len(taken) > 1 else f"rope type {taken[0]}"
        reason = f"method: transformers' code of {text_config.model_type} takes {kinds} alone"
        if "longrope" not in taken:
            raise Refused("rope types of the class", reason, _REMAP)
        raise Refused("rope types of the class", reason, "use a method with fixed frequencies, such as yarn")
    rotation = rope_of(text_config, replace(block, values={**(block.values or {}), **change.keys}), AS_IT_SAYS)
    assert rotation is not None
    # PhiMoE's class reads the gains under these keys alone.
    own_gains = dict.fromkeys(("short_mscale", "long_mscale")) if text_config.model_type in GAINS_OF_THEIR_OWN else {}
    keys = block_of(text_rope(to_longrope(rotation, start)), "transformers", own_gains)
    keys = {key: value for key, value in keys.items() if key not in ("rope_theta", LENGTH)}
    note = f"{_NAMES[change.method]}'s frequencies, as a factor for each pair: transformers' class takes no other type"
    return replace(change, keys=keys, method="longrope", notes=(*change.notes, note))


def _new_scaling(
    method: str, length: int, original: int, recipe: Documented | None, mscale: float | None
) -> BlockChange:
    """The scaling of a block that has none.

    Under latent attention YaRN's gain goes into the scale of the softmax (mscale and mscale_all_dim), which acts on all
    channels of a head; on rotated queries and keys it would act on the rotated channels alone, 64 of DeepSeek-V3's 192.

    Args:
        method: "auto" or a rope type of `METHODS`.
        length: new context length, in tokens.
        original: training length, in tokens.
        recipe: of the model's authors.
        mscale: YaRN's mscale and mscale_all_dim under latent attention; None: other attention.
    """
    notes: list[str] = []
    followed = recipe if recipe is not None and method in (AUTO, recipe.method) else None
    if followed is not None and followed.note:
        notes.append(f"{followed.model}: {followed.note}")
    named = None if followed is None else factor_named(followed, length)
    if followed is not None and named is None:
        notes.append(f"{followed.source} names at most {followed.longest:,} tokens, fewer than {length:,}")
        followed = None
    factor = length / original if named is None else named
    kind = method if method != AUTO else followed.method if followed is not None else "yarn"
    keys: Block = {"rope_type": kind, "factor": float(factor)}
    if kind == "llama3":
        keys |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind in ("yarn", "llama3"):
        keys["original_max_position_embeddings"] = original
    if kind == "yarn" and original < _SHORT:  # over so few tokens 32 full rotations are too many: every pair is slowed
        keys["beta_fast"] = max(2.0, original / 16)
    if kind == "yarn" and mscale is not None:
        keys |= {"mscale": mscale, "mscale_all_dim": mscale}
        notes.append(
            f"mscale and mscale_all_dim {mscale:g}, as published models with latent attention have them: no gain on "
            f"rotated channels, and the scale of the softmax times {yarn_gain(factor, mscale) ** 2:.5f}"
        )
    elif kind == "yarn":
        notes.append(f"YaRN multiplies rotated queries and keys by {yarn_gain(factor):.5f} (0.1 ln factor + 1)")
    if kind == "dynamic":
        keys["factor"] = 1.0  # the text's own length over the original one is the scale
        notes.append(
            "max_position_embeddings stays, because transformers starts dynamic NTK from it; the frequencies change as "
            "a text grows, and keys in a cache keep the frequencies of the shorter text"
        )
    return BlockChange(keys, kind, keys["factor"], original, followed, tuple(notes))


def _grown_scaling(block: Block, method: str, length: int, declared: int, *, latent: bool) -> BlockChange:
    """The block of a config that has a scaling, for a longer context.

    Args:
        block: with its defaults, under the keys of version 5.
        method: "auto", or the rope type that the block has.
        length: new context length, in tokens.
        declared: length that the config declares, in tokens.
        latent: whether the attention is latent, so that mscale_all_dim scales its softmax.
    """
    kind = block["rope_type"]
    if method not in (AUTO, kind):
        reason = (
            f"method: the config has rope type {kind!r} already, under which the weights were trained; {method} cannot "
            "start from it"
        )
        raise Refused("scaled already", reason, "use auto, which keeps the rope type")
    if kind == "longrope":
        reason = (
            f"method: rope type 'longrope' has a factor for each pair, searched for {declared:,} tokens, and no "
            "formula gives factors for another length, nor does posenc extend search on top of them"
        )
        raise Refused("longrope", reason, _REMAP)
    if kind == WITH_ALPHA:
        reason = (
            f"method: alpha = {block['alpha']:g} raises the base once, and no rule says how it grows with the length"
        )
        raise Refused("alpha", reason, _REMAP)
    if kind == "dynamic":
        reason = "method: rope type 'dynamic' needs no extension: its frequencies follow the length of the text already"
        next_step = "serve it at the length as it is; where an engine fixes one length, posenc serve --exact does"
        raise Refused("follows the length", reason, next_step)
    if kind not in ("yarn", "llama3", "linear", "proportional"):
        raise Refused("rope type", f"method: no rule extends rope type {kind!r}", _REMAP)
    old = block.get("factor") or 1.0
    original = block.get("original_max_position_embeddings") if kind in ("yarn", "llama3") else None
    factor: float = max(old, length / original) if kind == "yarn" and original else old * (length / declared)
    if isinstance(old, int) and float(factor).is_integer():
        factor = int(factor)  # as the file spells it
    notes = list(_yarn_notes(block, old, factor, latent)) if kind == "yarn" else []
    if kind == "llama3":
        notes.append(f"the factor grows as the length, {length / declared:.6g} times; fast pairs stay as they are")
    if kind == "proportional":
        notes.append("rope type 'proportional' has no YaRN form: all rotating pairs are slowed alike")
    return BlockChange({"factor": factor}, kind, factor, original, notes=tuple(notes))


def _yarn_notes(block: Mapping[str, Any], old: float, new: float, latent: bool) -> list[str]:
    """What a larger factor does to the gain of a YaRN block."""
    before, after = yarn_gain(old), yarn_gain(new)
    if (given := block.get("attention_factor")) is not None:
        return [f"attention_factor stays {given:g}; YaRN's formula gives {after:.5f} for the new factor"]
    scale, scale_all = block.get("mscale"), block.get("mscale_all_dim")
    if not (scale and scale_all):
        return [f"the gain on rotated queries and keys follows the factor: {before:.5f} becomes {after:.5f}"]
    gains = [yarn_gain(factor, scale) / yarn_gain(factor, scale_all) for factor in (old, new)]
    same = f"stays {gains[0]:g}" if gains[0] == gains[1] else f"becomes {gains[1]:.5f} instead of {gains[0]:.5f}"
    notes = [f"the gain on rotated queries and keys {same} (mscale and mscale_all_dim)"]
    if latent:
        scales = [yarn_gain(factor, scale_all) ** 2 for factor in (old, new)]
        notes.append(
            f"mscale_all_dim scales the softmax with the factor: by {scales[1]:.5f} instead of {scales[0]:.5f}"
        )
    return notes


def yarn_gain(factor: float, scale: float = 1.0) -> float:
    """0.1 · scale · ln(factor) + 1; 1 where nothing is slowed."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


_BY_KIND = (
    "written as rope_parameters with a block for each kind of layers, which transformers 5 reads: no keys of version 4 "
    "scale these layers alone"
)
Changes = tuple[tuple[RopeBlock, BlockChange], ...]


def _keys_that_hold(
    facts: ModelFacts, changes: Changes, lengths: Mapping[KeyPath, Any]
) -> tuple[dict[KeyPath, Any], ModelFacts, tuple[str, ...]]:
    """New values by their paths in the text config, what is read from them, and a note on their spelling.

    The spelling of the file stays where it can say what is meant. Where a block of version 4 would scale other layers
    too (ModernBERT) or none (MiMo-V2), the blocks of all kinds of layers are written in the spelling of version 5.

    Raises:
        Refused: where no spelling is read back as it is meant.
    """
    text_config, blocks = facts.text, facts.blocks
    new = {block.kind: change.keys for block, change in changes}
    after = [
        block if block.values is None else replace(block, values={**block.values, **new.get(block.kind, {})})
        for block in blocks
    ]
    meant, stay = meaning(text_config, after), {block.kind for block in blocks} - set(new)
    wrong = ["rope_type"]
    if all(block.target for block, _ in changes):  # version 4's spelling has a place for each
        keys: dict[KeyPath, Any] = {}
        for block, change in changes:
            keys |= _keys_of(text_config, block, change)
        keys |= lengths
        read, wrong = _reread(_applied(facts.config, text_config, keys), meant, stay)
        if read is not None and not wrong:
            return keys, read, ()
    keys = {("rope_parameters",): version_5(given_blocks(text_config, after), text_config.rotation), **lengths}
    if text_config.get("rope_scaling") is not None:
        keys[("rope_scaling",)] = REMOVED
    read, otherwise = _reread(_applied(facts.config, text_config, keys), meant, stay)
    if len(blocks) > 1 and read is not None and not otherwise:
        return keys, read, (_BY_KIND,)
    reason = f"{text_config.model_type}: the new block would be read back with another {', '.join(wrong)}"
    raise Refused("read otherwise", reason, _REMAP)


def _reread(
    config: Config, meant: Mapping[str, Mapping[str, Any]], stay: Collection[str]
) -> tuple[ModelFacts | None, list[str]]:
    """A config with new keys as it is read, None where it cannot be, and what it says otherwise than was meant."""
    try:
        read = read_facts(config)
    except ValueError as error:
        return None, [one_line(error)]
    return read, misread(meaning(read.text, read.blocks), meant, stay)


def _applied(config: Config, text_config: TextConfig, keys: Mapping[KeyPath, Any]) -> Config:
    """A config with other values at paths of its text part."""
    result = copy.deepcopy(config)
    for path, value in keys.items():
        put(result, (*text_config.path, *path), value)
    return result


def _keys_of(text_config: TextConfig, block: RopeBlock, change: BlockChange) -> dict[KeyPath, Any]:
    """New values by their paths in the text config, where the block has or would have them."""
    family, values = text_config.rotation, block.values or {}
    has_block = bool(at(text_config, block.target))
    spells_version_4 = "rope_theta" in block.sources or bool(family.kinds)
    if not has_block and not spells_version_4 and text_config.family.since > 4:
        block = replace(block, target=("rope_parameters",), renames={})
    keys = dict(change.keys)
    if not has_block:  # engines tell M-RoPE by these keys
        keys |= {key: value for key, value in section_keys(family).items() if key not in values}
    base: dict[KeyPath, Any] = {}
    if "rope_parameters" in (block.target[0], *(mirror[0] for mirror in block.mirrors)):
        home = next(path for path in (block.target, *block.mirrors) if path[0] == "rope_parameters")
        if at(text_config, (*home, "rope_theta")) is None:
            base = {(*home, "rope_theta"): block.effective["rope_theta"]}
    return {**{path: value for key, value in keys.items() for path in block.places(key)}, **base}


def _copied_lengths(text_config: TextConfig, length: int, declared: int | None) -> tuple[list[str], list[str]]:
    """Other keys that repeat the declared length, and notes on those that give another one.

    vLLM 0.33 grants the smallest of these lengths (model_arch_config_convertor.py), so that a copy would undo the new
    one.
    """
    copies, notes = [], []
    for key in OTHER_LENGTHS:
        value = text_config.get(key)
        if not is_count(value, TOKENS) or value >= length or key == text_config.length_key:
            continue
        if value == declared:
            copies.append(key)
        else:
            notes.append(f"{key} {value:,} stays; vLLM grants the smallest length that a config names")
    return copies, notes


def _declared_notes(rotating: list[RopeBlock]) -> tuple[str, ...]:
    """What the config does to reach the length that it declares."""
    notes = []
    for block in rotating:
        values = block.effective
        kind, where = values.get("rope_type", _UNSCALED), "" if block.kind == ALL else f"{block.kind}: "
        if kind == _UNSCALED:
            notes.append(f"{where}no scaling; the config does not say whether the model was trained at this length")
        else:
            factor = "" if values.get("factor") is None else f", factor {values['factor']:g}"
            notes.append(f"{where}its rope type {kind!r}{factor} stays as it is")
    return tuple(notes)
