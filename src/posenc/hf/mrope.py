"""M-RoPE in a configuration: which of time, row and column each pair of a head reads.

    mrope_section        pairs that read time, row, column; in Ernie's order row, column, time
    mrope_interleaved    false: in chunks, one after another; true: dealt out in turn

The weights know the order, so that in a family that has one (`RotationRules.order`) its code decides, whatever the key
says. Elsewhere the key does. Keys and frequencies are RoPE's own.

Source: transformers 5.23, recomposition_frequencies of each family; vLLM, mrope.py, which reads mrope_interleaved.
"""

from __future__ import annotations

from posenc.hf.families.rotation import Order, RotationRules
from posenc.hf.mend import NotReadError
from posenc.hf.schema import Block, Problem
from posenc.rotary.mrope import MRoPE
from posenc.rotary.rope import RoPE

Rotation = RoPE | MRoPE
KEYS = SECTION, INTERLEAVED = "mrope_section", "mrope_interleaved"
AXES = ("time", "row", "column")


def of_text(rope: Rotation) -> RoPE:
    """The rotation as text sees it: the RoPE whose pairs M-RoPE shares out."""
    return rope.rope if isinstance(rope, MRoPE) else rope


def shared_out(rope: RoPE, values: Block, family: RotationRules) -> Rotation:
    """The rotation of a checked block: M-RoPE where it has sections, else RoPE as it is."""
    if SECTION not in values:
        return rope
    order: Order = "interleaved" if values.get(INTERLEAVED) else "chunked"
    if family.sections is not None:
        order = family.order
    return _of(rope, tuple(values[SECTION]), order)


def like(rope: RoPE, old: Rotation) -> Rotation:
    """The same rotation with its pairs shared out as those of ``old``."""
    return _of(rope, old.sections, order_of(old), old.axes) if isinstance(old, MRoPE) else rope


def order_of(rope: MRoPE) -> Order:
    """How the pairs are dealt out."""
    return "time last" if rope.time_last else "interleaved" if rope.interleaved else "chunked"


def read_alike(one: Rotation, other: Rotation) -> bool:
    """Whether each pair of two rotations reads the same coordinate."""
    if isinstance(one, MRoPE) and isinstance(other, MRoPE):
        return (one.axes, one.order()) == (other.axes, other.order())
    return isinstance(one, MRoPE) == isinstance(other, MRoPE)


def keys_of(rope: Rotation, family: RotationRules, before: Block) -> Block:
    """The keys that share out the pairs; none for RoPE.

    Args:
        rope: the rotation.
        family: whose code reads them.
        before: the block that they go to; its mrope_interleaved stays where the family's code decides.
    """
    if not isinstance(rope, MRoPE):
        return {}
    keys: Block = {SECTION: list(rope.sections)}
    given = INTERLEAVED in before
    if (given and family.sections is None) or (rope.interleaved and not given):
        keys[INTERLEAVED] = rope.interleaved
    return keys


def problems(values: Block, found: Block, pairs: int | None) -> list[Problem]:
    """What is wrong with sections that are right one by one."""
    sections = values.get(SECTION)
    if sections is None or pairs is None or sum(sections) == pairs:
        return []
    if SECTION not in found:
        text = f"is missing, and this family's default {sections} does not add up to the {pairs} pairs that are rotated"
        raise NotReadError(f"{SECTION} {text}: how the pairs read the axes is not read")
    text = f"must add up to the {pairs} pairs that are rotated, found {sections}, which is {sum(sections)}"
    last = pairs - sum(sections[:-1])
    third = pairs // 3
    mended = [*sections[:-1], last] if last > 0 else [pairs - 2 * third, third, third]
    return [Problem(SECTION, text, {SECTION: mended})]


def counts(rope: MRoPE) -> list[int]:
    """How many pairs read each axis."""
    return [rope.order().count(axis) for axis in range(rope.axes)]


def _of(rope: RoPE, sections: tuple[int, ...], order: Order, axes: int = 3) -> MRoPE:
    return MRoPE(
        rope.head_dim,
        sections=sections,
        interleaved=order == "interleaved",
        time_last=order == "time last",
        axes=axes,
        base=rope.base,
        layout=rope.layout,
        rotary_dim=rope.rotary_dim,
        scaling=rope.scaling,
    )
