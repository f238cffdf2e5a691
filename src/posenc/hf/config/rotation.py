"""The rotations that a configuration can give, `RoPE` and `MRoPE`: read, compared, and scaled by factors.

    mrope_section        pairs that read time, row, column; in Ernie's order row, column, time
    mrope_interleaved    false: in chunks, one after another; true: dealt out in turn

The weights know the order, so that in a family that has one (`RotationRules.order`) its code decides, whatever the key
says. Elsewhere the key does. Keys and frequencies are RoPE's own.

Source: transformers 5.23, recomposition_frequencies of each family; vLLM, mrope.py, which reads mrope_interleaved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posenc.arguments import one_line
from posenc.frequencies.host import Chain, Formula, geometric, steps_of
from posenc.frequencies.longrope import LongRoPE, check_factors
from posenc.frequencies.rotation import MRoPESpec, RoPESpec
from posenc.hf.config.block_schema import Block
from posenc.hf.families.family import Order, RotationRules
from posenc.hf.limits import TOKENS

if TYPE_CHECKING:
    from posenc.rotary.mrope import MRoPE
    from posenc.rotary.rope import RoPE

Rotation = RoPESpec | MRoPESpec
KEYS = SECTION, INTERLEAVED = "mrope_section", "mrope_interleaved"
AXES = ("time", "row", "column")


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


def section_keys(family: RotationRules) -> Block:
    """The default sections of a model type, as keys of a block; empty without M-RoPE."""
    if family.sections is None:
        return {}
    return {SECTION: list(family.sections), **({INTERLEAVED: True} if family.order == "interleaved" else {})}


def rotary_dim(values: Block, width: int) -> int:
    """Channels of a head of ``width`` that rotate."""
    if values.get("rope_type") == "proportional":
        return width
    return int(values.get("rotary_dim", int(width * values.get("partial_rotary_factor", 1.0))))


def counts(rope: MRoPESpec) -> list[int]:
    """How many pairs read each axis."""
    return [rope.order().count(axis) for axis in range(rope.axes)]


def with_sections(rope: RoPESpec, sections: tuple[int, ...], order: Order, axes: int = 3) -> MRoPESpec:
    """The M-RoPE whose pairs are those of a rotation, dealt out in sections."""
    return MRoPESpec(
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


_LAST_DIGIT = 2.0**-53  # of float64, relative
_LENGTHS = (None, 1 << 10, 1 << 13, 1 << 16, 1 << 20)


def equivalent(first: Rotation | None, second: Rotation | None, rtol: float = 1e-12) -> bool:
    """Whether two rotations do the same at every length, up to the last digits of float64; None: no rotation.

    Args:
        first, second: rotations.
        rtol: relative difference of frequencies and gains that counts as none.
    """
    if first is None or second is None:
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
    return has_one_spectrum(rope) and not any(map(rotates, rope.spectrum().theta.tolist()))


def rotates(frequency: float) -> bool:
    """Whether a pair of this frequency, in radians a token, rotates within any length that a config may declare."""
    return frequency * TOKENS > _LAST_DIGIT


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
