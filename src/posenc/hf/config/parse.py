"""From one checked block of a configuration to its `RoPE`, and the rotations of a whole configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from posenc.arguments import shown
from posenc.frequencies.rotation import Layout, RoPESpec
from posenc.hf.config import block_schema, rotation
from posenc.hf.config.block_schema import Block, Problem
from posenc.hf.config.rope_keys import SCALED_FROM, Path, RopeBlock, at
from posenc.hf.config.rotation import Rotation, rotary_dim
from posenc.hf.config.scalings import LENGTH, Convention, of_an_engine, scaling_of
from posenc.hf.config.text_config import (
    TextConfig,
    flag_at,
    head_dim,
    head_words,
    length_key,
)
from posenc.hf.config.write import SHARES, places
from posenc.hf.families.family import Order
from posenc.hf.findings import MalformedError, NotReadError
from posenc.hf.sources.load import dotted

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
        ValueError: for whatever is wrong; it names the key, what is allowed and what was found.
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
    if rotation.SECTION not in values:
        return rope
    family, interleaved = text_config.rotation, values.get(rotation.INTERLEAVED)
    order: Order = family.order if family.sections is not None else "interleaved" if interleaved else "chunked"
    return rotation.with_sections(rope, tuple(values[rotation.SECTION]), order)


def layout_of(text_config: TextConfig) -> Layout:
    """The pairs of channels: what the family's code has, or ``rope_interleave`` where that decides."""
    interleaved, family = flag_at(text_config, "rope_interleave"), text_config.rotation
    heeded = "rope_interleave" in text_config if family.layout_key else interleaved is not None
    if not heeded or (text_config.known and not family.layout_key):
        return family.layout
    return "interleaved" if interleaved else "half"


def check(text_config: TextConfig, rope_block: RopeBlock, head: int, reading: Reading) -> None:
    """Raise one ValueError for all that is wrong with a block."""
    values = rope_block.values or {}
    latent = text_config.rotation.latent
    wrong = [*rope_block.conflicts, *_problems(rope_block, head, latent, reading.convention)]
    if not wrong:
        return
    texts: dict[str, str] = {}
    for problem in wrong:
        path = text_config.key_path(*_stands(text_config, rope_block, problem.key))
        texts[path] = f"{texts[path]}; {problem.text}" if path in texts else problem.text
    lines = [f"{block_schema.shortened(path)} {text}" for path, text in texts.items()]
    if any(problem.key in _OF_HEADS for problem in wrong):
        lines.append(f"head: {head_words(text_config, rope_block.kind, reading.head_dim)}")
    lines.append(f"found: {{{', '.join(f'{shown(key)}: {shown(value)}' for key, value in values.items())}}}")
    raise MalformedError("\n".join(lines), texts, dotted(text_config.path) if text_config.path else "")


_OF_HEADS = ("short_factor", "long_factor", "mrope_section", "partial_rotary_factor", "rotary_dim")


def _stands(text_config: TextConfig, rope_block: RopeBlock, key: str) -> Path:
    """Where a key stands that is wrong, or where it would."""
    if key == LENGTH:
        return (length_key(text_config),)
    paths = places(rope_block, key)
    wrong = (rope_block.values or {}).get(key)
    of_it = [path for path in paths if at(text_config.config, path) == wrong]  # where it is given twice
    return (of_it or list(paths))[0]


def _problems(rope_block: RopeBlock, head: int, latent: bool, convention: Convention) -> list[Problem]:
    """What is wrong with the keys of a block, or else with what they mean for heads of this width."""
    values = rope_block.effective
    share_holds = all(block_schema.RULES[key].holds(values[key]) for key in SHARES if key in values)
    rotated = head if latent else rotary_dim(values, head) if share_holds else None
    derived, original = rope_block.effective_defaults.get("factor", 1.0), values.get(_ORIGINAL)
    rule = block_schema.RULES["factor"]
    if "factor" not in (rope_block.values or {}) and not rule.holds(derived) and rope_block.longest is not None:
        text = f"= {rope_block.longest} is {derived:g} times original_max_position_embeddings = {original}, and stands "
        return [Problem(LENGTH, f"{text}for factor, which must be {rule.words}")]
    pairs = rotated // 2 if rotated else None
    return (
        block_schema.problems(values, pairs, convention)
        or list(_in_context(rope_block, values, head, rotated or 0, convention))
        or rotation.problems(values, rope_block.values or {}, rope_block.defaults, pairs)
    )


_ORIGINAL = "original_max_position_embeddings"


def _in_context(
    rope_block: RopeBlock, values: Block, head: int, rotated: int, convention: Convention
) -> Iterator[Problem]:
    """What is wrong with a block only in its configuration."""
    rope_type, original = values.get("rope_type", "default"), values.get(_ORIGINAL)
    static = of_an_engine(values, convention)
    if rope_type in SCALED_FROM and original is None:
        yield Problem(_ORIGINAL, "is missing, and so is max_position_embeddings, which would take its place")
    if rope_type == "longrope" and original == 1 and "attention_factor" not in values:
        yield Problem(_ORIGINAL, "must be at least 2, found 1: the gain is divided by its logarithm")
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
        yield Problem(_ORIGINAL, f"{text}, found {original}")
    key = "rotary_dim" if "rotary_dim" in values else "partial_rotary_factor"
    share = values.get("partial_rotary_factor")
    if rotated < 2 or rotated % 2 or rotated > head:
        yield Problem(key, f"must rotate an even number of at most head_dim = {head} channels, found {rotated}")
    elif key == "rotary_dim" and share is not None and int(head * share) != rotated:
        text = f"is {rotated}, but partial_rotary_factor = {share} rotates {int(head * share)} of {head} channels"
        yield Problem(key, text)


Layers = Mapping[str, Rotation | None]
