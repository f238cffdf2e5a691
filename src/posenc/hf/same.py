"""Rotations compared by what they do, times given factors, and any fixed one as factors of its pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from posenc.frequencies.longrope import LongRoPE, check_factors, check_pairs
from posenc.frequencies.spectrum import geometric, host_float64
from posenc.hf.mrope import Rotation, like, of_text, read_alike
from posenc.rotary.rope import RoPE

_LENGTHS = (None, 1 << 10, 1 << 13, 1 << 16, 1 << 20)


def turns_alike(one: Rotation | None, other: Rotation | None, rtol: float = 1e-12) -> bool:
    """Whether two rotations do the same at every length, up to the last digits of float64; None: no rotation.

    Args:
        one, other: rotations.
        rtol: relative difference of frequencies and gains that counts as none.
    """
    if one is None or other is None:
        return one is other
    if not read_alike(one, other):
        return False
    one, other = of_text(one), of_text(other)
    if (one.head_dim, one.rotary_dim, one.layout) != (other.head_dim, other.rotary_dim, other.layout):
        return False
    for length in _LENGTHS:
        a, b = one.spectrum(length), other.spectrum(length)
        if a.theta.shape != b.theta.shape or not torch.allclose(a.theta, b.theta, rtol=rtol, atol=0.0):
            return False
        gains = a.gain, b.gain
        if not torch.allclose(*gains, rtol=rtol, atol=0.0) or (a.start is None) != (b.start is None):
            return False
    return True


def times(
    layers: Mapping[str, Rotation | None], factors: Sequence[float], length: int | None
) -> dict[str, Rotation | None]:
    """Rotations with each frequency times its factor; ``length`` is the longest, in tokens."""
    if length is None:
        raise ValueError("factors need max_position_embeddings in the configuration, the longest length")
    given = check_factors("factors", factors)
    slower = [1 / one for one in given]
    made: dict[str, Rotation | None] = {}
    for kind, rotation in layers.items():
        made[kind] = None
        if rotation is not None:
            rope, last = of_text(rotation), LongRoPE(slower, slower, original_length=length, factor=1.0)
            check_pairs("factors", len(given), rope.spectrum().theta)
            scaling = last if rope.scaling is None else nn.Sequential(rope.scaling, last)
            same = RoPE(rope.head_dim, base=rope.base, layout=rope.layout, rotary_dim=rope.rotary_dim, scaling=scaling)
            made[kind] = like(same, rotation)
    return made


def frozen(rotation: Rotation, original_length: int | None) -> Rotation:
    """The same rotation with a factor for each pair, as LongRoPE has them.

    Raises:
        ValueError: for a rotation that no fixed factors can make.
    """
    rope = of_text(rotation)
    spectrum = rope.spectrum()
    learned = rope.scaling is not None and any(True for _ in rope.scaling.parameters())
    if rope.length_dependent or learned or spectrum.theta.ndim != 1 or spectrum.start is not None:
        raise ValueError(
            "as_longrope needs one fixed spectrum for all heads and positions, and this scaling depends on the length, "
            f"is learned, or differs between heads or first tokens: {' '.join(str(rope.scaling).split())}"
        )
    if not bool((spectrum.theta > 0).all()):
        raise ValueError("as_longrope needs every pair to turn, and this spectrum has pairs that do not")
    length = original_length
    for part in [] if rope.scaling is None else rope.scaling.modules():
        length = length or getattr(part, "original_length", None)
    if length is None:
        raise ValueError("original_length must be given: this scaling has none")
    plain = host_float64(geometric(rope.rotary_dim, rope.base))
    factors = (plain / spectrum.theta).tolist()
    scaling = LongRoPE(factors, factors, original_length=length, factor=1.0, gain=float(spectrum.gain))
    factored = RoPE(rope.head_dim, base=rope.base, layout=rope.layout, rotary_dim=rope.rotary_dim, scaling=scaling)
    return like(factored, rotation)
