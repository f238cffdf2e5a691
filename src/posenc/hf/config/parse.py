"""From one checked block of a configuration to its `RoPE`, and the rotations of a whole configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from posenc.frequencies.rotation import Layout, RoPESpec
from posenc.hf.config import block_schema, rotation
from posenc.hf.config.block_schema import Block, Problem
from posenc.hf.config.block_validation import error_message, problems, repair
from posenc.hf.config.rope_block import SCALED_FROM, Path, RopeBlock, at
from posenc.hf.config.rotation import Rotation
from posenc.hf.config.scalings import LENGTH, Convention, of_an_engine, scaling_of
from posenc.hf.config.text_config import (
    TextConfig,
    flag_at,
    head_dim,
    head_words,
    length_key,
)
from posenc.hf.config.write import SHARES, places, put, rotary_dim
from posenc.hf.findings import MalformedError, NotReadError
from posenc.hf.json_text import REMOVED
from posenc.hf.limits import is_count
from posenc.hf.sources.load import Config, dotted

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


def rope_of(text_config: TextConfig, rope_block: RopeBlock, reading: Reading) -> rotation.Rotation | None:
    """The rotation of one kind of layers, or None where it has none.

    Raises:
        ValueError: for whatever is wrong; it names the key, what is allowed, and shows a corrected block.
    """
    if rope_block.values is None:
        return None
    rope_block = rope_block.without(reading.ignore)
    head = head_dim(text_config, rope_block.kind, reading.head_dim)
    check(text_config, rope_block, head, reading)
    values = rope_block.effective
    rotated = head if text_config.rotation.latent else rotary_dim(values, head)
    if reading.convention not in block_schema.ENGINES and text_config.model_type not in GAINS_OF_THEIR_OWN:
        values = {key: value for key, value in values.items() if key not in ("short_mscale", "long_mscale")}
    scaling = scaling_of(values, rope_block.longest, rotated // 2, reading.convention)
    rope = RoPESpec(
        head,
        base=values["rope_theta"],
        layout=reading.layout or layout_of(text_config),
        rotary_dim=rotated,
        scaling=scaling,
    )
    return rotation.shared_out(rope, values, text_config.rotation)


def layout_of(text_config: TextConfig) -> Layout:
    """The pairs of channels: what the family's code has, or ``rope_interleave`` where that decides."""
    interleaved, family = flag_at(text_config, "rope_interleave"), text_config.rotation
    heeded = "rope_interleave" in text_config if family.layout_key else interleaved is not None
    if not heeded or (text_config.known and not family.layout_key):
        return family.layout
    return "interleaved" if interleaved else "half"


def check(text_config: TextConfig, rope_block: RopeBlock, head: int, reading: Reading) -> None:
    """Raise one ValueError for all that is wrong with a part, with a corrected configuration."""

    def again(values: Block) -> list[Problem]:
        block_values = {key: value for key, value in values.items() if key != LENGTH}
        mended = replace(rope_block, values=block_values, longest=values.get(LENGTH, rope_block.longest))
        return _problems(mended, head, text_config.rotation.latent, reading)

    values = rope_block.values or {}
    wrong_keys = [*rope_block.conflicts, *again(values)]
    if not wrong_keys:
        return
    mended = repair(values, wrong_keys, again)
    rope_type = {**rope_block.defaults, **mended}.get("rope_type", "default")
    sections = rotation.KEYS if rotation.SECTION in {**rope_block.defaults, **mended} else ()
    allowed = ", ".join((*block_schema.COMMON, *sections, *block_schema.keys_of(rope_type, reading.convention)))
    texts: dict[str, str] = {}
    for problem in wrong_keys:
        path = text_config.key_path(*_stands(text_config, rope_block, problem))
        texts[path] = f"{texts[path]}; {problem.text}" if path in texts else problem.text
    corrected = _corrected(text_config, rope_block, mended)
    inside, allowed = dotted(text_config.path) if text_config.path else "", f"for {rope_type!r}: {allowed}"
    wrong = dict(texts)
    if any(word in text for text in texts.values() for word in ("pair", "channels")):
        texts["head:"] = head_words(text_config, rope_block.kind, reading.head_dim)
    message = error_message(texts, values, corrected, inside=inside, allowed=allowed)
    raise MalformedError(message, wrong, corrected, inside)


def _stands(text_config: TextConfig, rope_block: RopeBlock, problem: Problem) -> Path:
    """Where a key stands that is wrong, or where it would."""
    if LENGTH in problem.mended:
        return (length_key(text_config),)
    paths = places(rope_block, problem.key)
    wrong = (rope_block.values or {}).get(problem.key)
    of_it = [path for path in paths if at(text_config.config, path) == wrong]  # where it is given twice
    return (of_it or list(paths))[0]


def _problems(rope_block: RopeBlock, head: int, latent: bool, reading: Reading) -> list[Problem]:
    values = rope_block.effective
    share_holds = all(block_schema.RULES[key].holds(values[key]) for key in SHARES if key in values)
    rotated = head if latent else rotary_dim(values, head) if share_holds else None
    original, hints = values.get("original_max_position_embeddings"), {}
    if rope_block.longest is not None and is_count(original) and rope_block.longest > original:
        hints = {"factor": rope_block.longest / original}
    pairs = rotated // 2 if rotated else None
    derived = rope_block.effective_defaults.get("factor", 1.0)
    if (
        "factor" not in (rope_block.values or {})
        and not block_schema.RULES["factor"].holds(derived)
        and rope_block.longest is not None
    ):
        text = f"= {rope_block.longest} is {derived:g} times original_max_position_embeddings = {original}, and stands "
        text += f"for factor, which must be {block_schema.RULES['factor'].words}"
        return [Problem("max_position_embeddings", text, {LENGTH: original})]
    wrong = problems(values, pairs, reading.convention, hints)
    return (
        wrong
        or _in_context(rope_block, values, head, rotated or 0, reading.convention)
        or rotation.problems(values, rope_block.values or {}, pairs)
    )


def _in_context(rope_block: RopeBlock, values: Block, head: int, rotated: int, convention: Convention) -> list[Problem]:
    """What is wrong with a block only in its configuration."""
    wrong = []
    rope_type = values.get("rope_type", "default")
    original = values.get("original_max_position_embeddings")
    static = of_an_engine(values, convention)
    if rope_type in SCALED_FROM and original is None:
        text = "is missing, and so is max_position_embeddings, which would take its place"
        wrong.append(Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": 4096}))
    if rope_type == "longrope" and original == 1 and "attention_factor" not in values:
        text = "must be at least 2, found 1: the gain is divided by its logarithm"
        wrong.append(Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": 4096}))
    if rope_type == "ntk" and rope_block.longest is None:
        wrong.append(Problem("max_position_embeddings", "is missing, which is the trained length", {LENGTH: 4096}))
    elif rope_type == "yarn" and rotated == 2:  # transformers computes it: no fault of the configuration
        raise NotReadError("rope_type 'yarn' over one pair is not read here: its ramp needs at least two pairs")
    elif (static or rope_type == "dynamic") and rotated == 2:
        wrong.append(
            Problem(
                "rope_type", "spreads a factor over the pairs, and only one pair is rotated", {"rope_type": "default"}
            )
        )
    elif rope_type == "dynamic" and not static and rope_block.longest is None:
        wrong.append(Problem("max_position_embeddings", "is missing; dynamic NTK starts from it", {LENGTH: 4096}))
    elif rope_type == "dynamic" and not static and original not in (None, rope_block.longest):
        text = f"must be max_position_embeddings = {rope_block.longest}, from which rope type 'dynamic' starts, "
        text += f"found {original}"
        wrong.append(
            Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": rope_block.longest})
        )
    key = "rotary_dim" if "rotary_dim" in values else "partial_rotary_factor"
    share = values.get("partial_rotary_factor")
    if rotated < 2 or rotated % 2 or rotated > head:
        text = f"must rotate an even number of at most head_dim = {head} channels, found {rotated}"
        even = min(head, max(2, rotated - rotated % 2))
        wrong.append(Problem(key, text, {key: even if key == "rotary_dim" else even / head}))
    elif key == "rotary_dim" and share is not None and int(head * share) != rotated:
        text = f"is {rotated}, but partial_rotary_factor = {share} rotates {int(head * share)} of {head} channels"
        wrong.append(Problem(key, text, {"partial_rotary_factor": None}))
    return wrong


def _corrected(text_config: TextConfig, rope_block: RopeBlock, mended: Block) -> Config:
    """The keys of the text part that speak of the rotation, mended."""
    config = copy.deepcopy(text_config.config)
    values = rope_block.values or {}
    twice = {conflict.key for conflict in rope_block.conflicts}
    changed: set[str] = set()
    for key in {**values, **mended}:
        value = mended.get(key, REMOVED)
        same = key in values and type(values[key]) is type(value) and values[key] == value
        if key == LENGTH:
            changed.add(length_key(text_config))
            put(config, (length_key(text_config),), value)
        elif not same or key in twice:
            for path in places(rope_block, key):  # a key outside the blocks becomes null, so that merging removes it
                changed.add(path[0])
                put(config, path, None if value is REMOVED and len(path) == 1 else value)
    tops = {path[0] for paths in rope_block.sources.values() for path in paths} | set(rope_block.target[:1])
    return {name: value for name, value in config.items() if name in tops | changed}


Layers = Mapping[str, Rotation | None]
