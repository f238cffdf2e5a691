"""Scalings by their names in the catalogue, with options derived from a model's training length and a factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from posenc.frequencies.modules import (
    DynamicNTK,
    DynamicPositionInterpolation,
    DynamicYaRN,
    Llama3,
    NTKAware,
    NTKByParts,
    PartNTK,
    PositionInterpolation,
    YaRN,
)


class Trained(NamedTuple):
    """What the scalings of a model go by."""

    length: int  # tokens of its training texts
    pairs: int  # of dimensions of a head

    @property
    def start_tokens(self) -> tuple[int, ...]:
        """LongRoPE's choices of tokens at the beginning that stay as they are."""
        return tuple(sorted({0, self.length // 32, self.length // 8}))

    @property
    def beta_fast(self) -> float:
        """The number of full rotations within the training length above which YaRN and NTK-by-parts leave a pair alone.

        The published 32 belongs to models of 2048 tokens and more, whose fastest pair makes 326 rotations. Over 128
        tokens it turns 20 times, and 32 would interpolate every pair.
        """
        return min(32.0, max(2.0, self.length / 16))


# With a factor of their own. The length is the training length; beta_fast goes with it.
FACTORED: dict[str, Callable[[float, Trained], nn.Module]] = {
    "pi": lambda factor, t: PositionInterpolation(factor),
    "ntk": lambda factor, t: NTKAware(factor),
    "part_ntk": lambda factor, t: PartNTK(factor, original_length=t.length),
    "ntk_by_parts": lambda factor, t: NTKByParts(factor, original_length=t.length, beta=t.beta_fast),
    "yarn": lambda factor, t: YaRN(factor, original_length=t.length, beta_fast=t.beta_fast),
    "yarn_by_turns": lambda factor, t: YaRN(factor, original_length=t.length, beta_fast=t.beta_fast, ramp="rotations"),
    "llama3": lambda factor, t: Llama3(factor, original_length=t.length),
}
# By the length of the sequence at hand.
DYNAMIC: dict[str, Callable[[float, Trained], nn.Module]] = {
    "dynamic_pi": lambda factor, t: DynamicPositionInterpolation(original_length=t.length),
    "dynamic_ntk": lambda factor, t: DynamicNTK(original_length=t.length),
    "dynamic_yarn": lambda factor, t: DynamicYaRN(original_length=t.length, beta_fast=t.beta_fast),
}
