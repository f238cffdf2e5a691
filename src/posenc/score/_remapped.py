"""Remapped distances, the helper level: queries and keys are rotated differently for each range of distances.

    s_ij = R(a_i^r) q_i · R(b_j^r) k_j · scale · gain²,   r the range of distances in which i and j lie

An encoding of this kind states its ranges, each with the positions to which it rotates queries and keys; see `Ranges`.
Terms that are added to scores, and factors on them, combine with it as with any rotation and read the true positions.
Keys are cached unrotated, and rotated in every call.
"""

from __future__ import annotations

import math
from itertools import count

import torch
from torch import Tensor

from posenc.arguments import check_number, shown
from posenc.encoding import Context, Reads, RotaryEncoding, Scope, ScoreEncoding, softcapped
from posenc.entry import Shape
from posenc.rotary.rope import RoPE
from posenc.score._inputs import products
from posenc.structure import Range, Ranges


class Remapped(ScoreEncoding):
    """Helper level. Subclasses set ``rotation`` by `inner`, and say their `ranges`."""

    causal_only = True
    reads = Reads(rotated=False, unrotated=True)
    scope = Scope(replaces=True)
    rotation: RotaryEncoding
    chunk: int | None = None  # tokens of a chunk, where ranges count these
    gain: float = 1.0  # on rotated q and k

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        """The ranges of tokens at these positions ``(*batch, queries)`` and ``(*batch, keys)``, the nearest first."""
        raise NotImplementedError

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        (ranges,) = self.fast_form(context.with_qk(context.q_content, context.k_content), future=False)
        remapped = torch.zeros_like(scores)
        for part in ranges.parts:
            q = ranges.rotate(context.q_content, part.q_pos, ranges.spans[0])
            k = ranges.rotate(context.k_content, part.k_pos, ranges.spans[1])
            held = ranges.holds(part, context.q_pos, context.k_pos)
            held = held.unsqueeze(-3) if held.ndim == 3 else held
            remapped = torch.where(held, products(context.with_qk(q, k)), remapped)
        return scores + (softcapped(remapped, context.softcap) - softcapped(products(context), context.softcap))

    def fast_form(self, context: Context, *, future: bool) -> tuple[Ranges]:
        length = context.sequence.row_lengths
        spans = length if isinstance(length, tuple) else (length, length)
        parts = self.ranges(context.q_pos, context.k_pos)
        return (Ranges(parts, self._rotated, self.chunk, context.q_content, context.k_content, spans),)

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        ranges = Ranges(self.ranges(q_pos, k_pos), self._rotated, self.chunk)
        held = ranges.holds(ranges.parts[0], q_pos, k_pos)
        for part in ranges.parts[1:]:
            held = held | ranges.holds(part, q_pos, k_pos)
        return held

    def _rotated(self, x: Tensor, positions: Tensor, span: Tensor | int | None) -> Tensor:
        """``x`` (batch, heads, tokens, head_dim) rotated to ``positions``, times the gain."""
        out = self.rotation.rotate(x, self.rotation.table(positions, span, like=x))
        return out if self.gain == 1.0 else out * self.gain

    def _hold(self, rotation: RotaryEncoding, gain: float = 1.0) -> None:
        """Take over the rotation; a ValueError for an unsuitable rotation."""
        if not isinstance(rotation, RotaryEncoding):
            raise ValueError(f"rotation must be a rotary encoding such as RoPE(64), got {shown(rotation)}")
        name = type(rotation).__name__
        if rotation.axes != 1:
            raise ValueError(
                f"rotation must have one coordinate, the position in a sequence; {name} has {rotation.axes}"
            )
        check_number("gain", gain, above=0)
        self.rotation, self.gain = rotation, float(gain)
        self.length_dependent = rotation.length_dependent
        self.head_dim = int(getattr(rotation, "head_dim", 0))


# What their entries in the catalogue share.

COST = "one rotation of queries and keys per range in every call; keys are cached unrotated"
FIRST_TOKENS = {"common_shift": "the first tokens of a text are those at the first positions"}


def plain_rotation(shape: Shape) -> dict[str, object]:
    """Plain RoPE, unless a rotation is given."""
    head_dim = shape.get("head_dim")
    return {"rotation": RoPE(head_dim)} if "rotation" not in shape and isinstance(head_dim, int) else {}


def _sizes(shape: Shape) -> tuple[int, int, int] | None:
    """Trained and longest length and the window, where distances have to be moved at all."""
    trained, longest, window = shape.get("train_length"), shape.get("max_length"), shape.get("window")
    if not (isinstance(trained, int) and isinstance(longest, int) and isinstance(window, int)):
        return None
    return (trained, longest, window) if window < trained < longest else None


def _smallest(trained: int, longest: int, window: int) -> int:
    """How much more slowly positions must grow beyond the window, if those up to the longest shall be known ones."""
    return math.ceil((longest - window) / (trained - window))


def smallest_group(shape: Shape) -> dict[str, object]:
    """Plain RoPE, and the smallest group under which all positions up to the longest length are known ones."""
    sizes = _sizes(shape)
    if sizes is None:
        return plain_rotation(shape)
    trained, longest, window = sizes
    # groups are whole: a group size that does not divide the window can fall a position short of what the formula says
    fits = (g for g in count(max(2, _smallest(*sizes) - 1)) if (longest - 1) // g + window - window // g < trained)
    return {**plain_rotation(shape), "group": next(fits)}


def smallest_factor(shape: Shape) -> dict[str, object]:
    """Plain RoPE, and the smallest factor under which all positions up to the longest length are known ones."""
    sizes = _sizes(shape)
    return plain_rotation(shape) if sizes is None else {**plain_rotation(shape), "factor": float(_smallest(*sizes))}
