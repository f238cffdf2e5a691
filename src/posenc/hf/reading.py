"""One part of a configuration, checked and made a RoPE."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple

from posenc.hf import mrope, schema
from posenc.hf.scalings import LENGTH, Convention, scaling_of
from posenc.hf.schema import Block, Problem
from posenc.hf.section import Config, Section, head_dim, length_key, max_length
from posenc.hf.spelling import SCALED_FROM, Part
from posenc.hf.write import GONE, SHARES, places, put, rotary_dim
from posenc.rotary._rotate import Layout
from posenc.rotary.rope import RoPE


class Reading(NamedTuple):
    """How to read a configuration.

    Attributes:
        head_dim: channels of a head, if the caller knows better.
        layout: of the pairs, if the caller knows better.
        convention: whose reading of YaRN's keys.
        ignore: keys of the block that are the model's own business.
    """

    head_dim: int | None = None
    layout: Layout | None = None
    convention: Convention = "transformers"
    ignore: tuple[str, ...] = ()


def rope_of(section: Section, part: Part, reading: Reading) -> mrope.Rotation | None:
    """The rotation of one kind of layers, or None where it has none.

    Raises:
        ValueError: for whatever is wrong; it names the key, what is allowed, and shows a corrected block.
    """
    if part.found is None:
        return None
    head = head_dim(section, part.kind, reading.head_dim)
    check(section, part, head, reading)
    values = part.values
    turning = head if section.family.latent else rotary_dim(values, head)
    interleaved = section.config.get("rope_interleave")
    layout = section.family.layout if interleaved is None else ("interleaved" if interleaved else "half")
    scaling = scaling_of(values, max_length(section))
    rope = RoPE(head, base=values["rope_theta"], layout=reading.layout or layout, rotary_dim=turning, scaling=scaling)
    return mrope.shared_out(rope, values, section.family)


def check(section: Section, part: Part, head: int, reading: Reading) -> None:
    """Raise one ValueError for all that is wrong with a part, with a corrected configuration."""

    def again(given: Block) -> list[Problem]:
        own = {key: value for key, value in given.items() if key != LENGTH}
        mended = replace(part, found=own, longest=given.get(LENGTH, part.longest))
        return _problems(mended, head, section.family.latent, reading)

    given = part.found or {}
    found = [*part.conflicts, *again(given)]
    if not found:
        return
    mended = schema.mend(given, found, again)
    rope_type = {**part.silent, **mended}.get("rope_type", "default")
    sections = mrope.KEYS if mrope.SECTION in {**part.silent, **mended} else ()
    allowed = ", ".join((*schema.COMMON, *sections, *schema.keys_of(rope_type, reading.convention)))
    where = ".".join(part.home) or "config"
    corrected = _corrected(section, part, mended)
    raise ValueError(schema.complaint(where, given, found, corrected, f"for {rope_type!r}: {allowed}"))


def _problems(part: Part, head: int, latent: bool, reading: Reading) -> list[Problem]:
    values = part.values
    share_holds = all(schema.RULES[key].holds(values[key]) for key in SHARES if key in values)
    turning = head if latent else rotary_dim(values, head) if share_holds else None
    original, hints = values.get("original_max_position_embeddings"), {}
    if part.longest is not None and schema.is_count(original) and part.longest > original:
        hints = {"factor": part.longest / original}
    pairs = turning // 2 if turning else None
    found = schema.problems(values, pairs, reading.convention, reading.ignore, hints)
    return found or _in_context(part, values, head, turning or 0) or mrope.problems(values, part.found or {}, pairs)


def _in_context(part: Part, values: Block, head: int, turning: int) -> list[Problem]:
    """What is wrong with a block only in its configuration."""
    found = []
    rope_type = values.get("rope_type", "default")
    original = values.get("original_max_position_embeddings")
    if rope_type in SCALED_FROM and original is None:
        text = "is missing, and so is max_position_embeddings, which would stand for it"
        found.append(Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": 4096}))
    if rope_type == "dynamic" and part.longest is None:
        found.append(Problem("max_position_embeddings", "is missing; dynamic NTK starts from it", {LENGTH: 4096}))
    elif rope_type == "dynamic" and original not in (None, part.longest):
        text = (
            f"must be max_position_embeddings = {part.longest}, from which rope type 'dynamic' starts, found {original}"
        )
        found.append(
            Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": part.longest})
        )
    key = "rotary_dim" if "rotary_dim" in values else "partial_rotary_factor"
    share = values.get("partial_rotary_factor")
    if turning < 2 or turning % 2 or turning > head:
        text = f"must make an even number of at most head_dim = {head} channels turn, found {turning}"
        even = min(head, max(2, turning - turning % 2))
        found.append(Problem(key, text, {key: even if key == "rotary_dim" else even / head}))
    elif key == "rotary_dim" and share is not None and int(head * share) != turning:
        text = f"is {turning}, but partial_rotary_factor = {share} makes {int(head * share)} of {head} channels turn"
        found.append(Problem(key, text, {"partial_rotary_factor": None}))
    return found


def _corrected(section: Section, part: Part, mended: Block) -> Config:
    """The keys of the text part that speak of the rotation, mended."""
    config = copy.deepcopy(section.config)
    given = part.found or {}
    twice = {conflict.key for conflict in part.conflicts}
    for key in {**given, **mended}:
        value = mended.get(key, GONE)
        same = key in given and type(given[key]) is type(value) and given[key] == value
        if key == LENGTH:
            put(config, (length_key(section),), value)
        elif not same or key in twice:
            for path in places(part, key):
                put(config, path, value)
    tops = {path[0] for paths in part.places.values() for path in paths} | {part.home[0]} if part.home else set()
    tops |= {length_key(section)} if LENGTH in mended else set()
    return {name: value for name, value in config.items() if name in tops}
