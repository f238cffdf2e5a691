"""One part of a configuration, checked and made a RoPE."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple

from posenc.hf import mrope, schema
from posenc.hf.engines import of_an_engine
from posenc.hf.mend import MalformedError, NotReadError, complaint, mend
from posenc.hf.numbers import is_count
from posenc.hf.part import SCALED_FROM, Part, Path, at
from posenc.hf.problems import problems
from posenc.hf.scalings import LENGTH, Convention, scaling_of
from posenc.hf.schema import Block, Problem
from posenc.hf.section import Section, flag_at, head_dim, head_words, length_key, max_length
from posenc.hf.source import Config, dotted
from posenc.hf.write import GONE, SHARES, places, put, rotary_dim
from posenc.rotary._rotate import Layout
from posenc.rotary.rope import RoPE

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


def rope_of(section: Section, part: Part, reading: Reading) -> mrope.Rotation | None:
    """The rotation of one kind of layers, or None where it has none.

    Raises:
        ValueError: for whatever is wrong; it names the key, what is allowed, and shows a corrected block.
    """
    if part.found is None:
        return None
    part = part.without(reading.ignore)
    head = head_dim(section, part.kind, reading.head_dim)
    check(section, part, head, reading)
    values = part.values
    turning = head if section.rotation.latent else rotary_dim(values, head)
    if reading.convention not in schema.ENGINES and section.model_type not in GAINS_OF_THEIR_OWN:
        values = {key: value for key, value in values.items() if key not in ("short_mscale", "long_mscale")}
    scaling = scaling_of(values, max_length(section), turning // 2, reading.convention)
    rope = RoPE(
        head,
        base=values["rope_theta"],
        layout=reading.layout or layout_of(section),
        rotary_dim=turning,
        scaling=scaling,
    )
    return mrope.shared_out(rope, values, section.rotation)


def layout_of(section: Section) -> Layout:
    """The pairs of channels: what the family's code has, or ``rope_interleave`` where that decides."""
    interleaved, family = flag_at(section, "rope_interleave"), section.rotation
    heeded = "rope_interleave" in section.config if family.layout_key else interleaved is not None
    if not heeded or (section.known and not family.layout_key):
        return family.layout
    return "interleaved" if interleaved else "half"


def check(section: Section, part: Part, head: int, reading: Reading) -> None:
    """Raise one ValueError for all that is wrong with a part, with a corrected configuration."""

    def again(given: Block) -> list[Problem]:
        own = {key: value for key, value in given.items() if key != LENGTH}
        mended = replace(part, found=own, longest=given.get(LENGTH, part.longest))
        return _problems(mended, head, section.rotation.latent, reading)

    given = part.found or {}
    found = [*part.conflicts, *again(given)]
    if not found:
        return
    mended = mend(given, found, again)
    rope_type = {**part.silent, **mended}.get("rope_type", "default")
    sections = mrope.KEYS if mrope.SECTION in {**part.silent, **mended} else ()
    allowed = ", ".join((*schema.COMMON, *sections, *schema.keys_of(rope_type, reading.convention)))
    texts: dict[str, str] = {}
    for problem in found:
        path = section.named(*_stands(section, part, problem))
        texts[path] = f"{texts[path]}; {problem.text}" if path in texts else problem.text
    corrected = _corrected(section, part, mended)
    inside, allowed = dotted(section.path) if section.path else "", f"for {rope_type!r}: {allowed}"
    wrong = dict(texts)
    if any(word in text for text in texts.values() for word in ("pair", "channels")):
        texts["head:"] = head_words(section, part.kind, reading.head_dim)
    told = complaint(texts, given, corrected, inside=inside, allowed=allowed)
    raise MalformedError(told, wrong, corrected, inside)


def _stands(section: Section, part: Part, problem: Problem) -> Path:
    """Where a key stands that is wrong, or where it would."""
    if LENGTH in problem.mended:
        return (length_key(section),)
    paths = places(part, problem.key)
    wrong = (part.found or {}).get(problem.key)
    of_it = [path for path in paths if at(section.config, path) == wrong]  # where it is given twice
    return (of_it or list(paths))[0]


def _problems(part: Part, head: int, latent: bool, reading: Reading) -> list[Problem]:
    values = part.values
    share_holds = all(schema.RULES[key].holds(values[key]) for key in SHARES if key in values)
    turning = head if latent else rotary_dim(values, head) if share_holds else None
    original, hints = values.get("original_max_position_embeddings"), {}
    if part.longest is not None and is_count(original) and part.longest > original:
        hints = {"factor": part.longest / original}
    pairs = turning // 2 if turning else None
    derived = part.defaults.get("factor", 1.0)
    if "factor" not in (part.found or {}) and not schema.RULES["factor"].holds(derived) and part.longest is not None:
        text = f"= {part.longest} is {derived:g} times original_max_position_embeddings = {original}, and stands for "
        text += f"factor, which must be {schema.RULES['factor'].words}"
        return [Problem("max_position_embeddings", text, {LENGTH: original})]
    found = problems(values, pairs, reading.convention, hints)
    return (
        found
        or _in_context(part, values, head, turning or 0, reading.convention)
        or mrope.problems(values, part.found or {}, pairs)
    )


def _in_context(part: Part, values: Block, head: int, turning: int, convention: Convention) -> list[Problem]:
    """What is wrong with a block only in its configuration."""
    found = []
    rope_type = values.get("rope_type", "default")
    original = values.get("original_max_position_embeddings")
    static = of_an_engine(values, convention)
    if rope_type in SCALED_FROM and original is None:
        text = "is missing, and so is max_position_embeddings, which would stand for it"
        found.append(Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": 4096}))
    if rope_type == "longrope" and original == 1 and "attention_factor" not in values:
        text = "must be at least 2, found 1: the gain is divided by its logarithm"
        found.append(Problem("original_max_position_embeddings", text, {"original_max_position_embeddings": 4096}))
    if rope_type == "ntk" and part.longest is None:
        found.append(Problem("max_position_embeddings", "is missing, which is the trained length", {LENGTH: 4096}))
    elif rope_type == "yarn" and turning == 2:  # transformers computes it: no fault of the configuration
        raise NotReadError("rope_type 'yarn' over one pair is not read here: its ramp needs at least two pairs")
    elif (static or rope_type == "dynamic") and turning == 2:
        found.append(
            Problem("rope_type", "spreads a factor over the pairs, and one alone turns", {"rope_type": "default"})
        )
    elif rope_type == "dynamic" and not static and part.longest is None:
        found.append(Problem("max_position_embeddings", "is missing; dynamic NTK starts from it", {LENGTH: 4096}))
    elif rope_type == "dynamic" and not static and original not in (None, part.longest):
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
    changed: set[str] = set()
    for key in {**given, **mended}:
        value = mended.get(key, GONE)
        same = key in given and type(given[key]) is type(value) and given[key] == value
        if key == LENGTH:
            changed.add(length_key(section))
            put(config, (length_key(section),), value)
        elif not same or key in twice:
            for path in places(part, key):  # a key beside the blocks is nulled, so that merging takes it away
                changed.add(path[0])
                put(config, path, None if value is GONE and len(path) == 1 else value)
    tops = {path[0] for paths in part.places.values() for path in paths} | set(part.home[:1])
    return {name: value for name, value in config.items() if name in tops | changed}
