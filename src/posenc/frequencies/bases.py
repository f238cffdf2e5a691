"""The rotary base that a context length needs, by two published rules.

    similar     the least base with Σ_j cos(m · base^(−2j/d)) ≥ 0 at every distance m < length,  j = 0 … d/2 − 1
    critical    (length / 2π)^(d / c),  c = 2 · ⌈d/2 · log_base (trained / 2π)⌉

Under the first, keys that resemble a query get more weight than random ones at all distances: a bound on what a model
can tell apart, whatever it was trained with. Under the second, for models that are trained on: pairs up to channel c
turned around at least once within the training length; with the new base the last of these does not come round within
the length that is wanted.
Source: Men et al., Base of RoPE Bounds Context Length, arXiv 2405.14591, section 4. Liu et
    al., Scaling Laws of RoPE-based Extrapolation, arXiv 2310.05209, its critical dimension and its law for
    larger bases, as LongLLaDA restates them.
Checked against: two digits of the tables of the first and of Su (2024, kexue.fm 10122), which searched anew; factors of
    LongLLaDA, which goes by the second.
Departs from the source: bases of two significant digits, as in the tables. The first rule holds at no base between some
    at which it does, so that the least one of all is a matter of how finely one looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch

from posenc.arguments import check_choice, check_whole
from posenc.frequencies.host import check_base, first_incomplete_pair

Rule = Literal["similar", "critical"]
_LONGEST, _BLOCK = 2**24, 4096  # tokens; distances looked at together
_POWERS = 15  # of ten, times the two digits


def base_for(
    length: int,
    *,
    head_dim: int = 128,
    rule: Rule = "similar",
    trained: int | None = None,
    base: float = 10_000.0,
) -> float:
    """The base with which a rotation suits texts of a length.

    Args:
        length: tokens, up to 2²⁴.
        head_dim: rotated channels, even.
        rule: ``"similar"``, a lower bound for any model (a second of computing at a million tokens); or ``"critical"``,
            the base to go on training with.
        trained: for ``"critical"``, tokens that the model was trained at.
        base: for ``"critical"``, its base until now, which is never lowered.

    Raises:
        ValueError: for numbers out of range, an odd width, an unknown rule, or ``"critical"`` without ``trained``.

    >>> base_for(8000), round(base_for(32768, rule="critical", trained=4096, base=500_000))
    (84000.0, 27198198)
    """
    check_choice("rule", rule, ("similar", "critical"))
    check_whole("length", length, most=_LONGEST)
    check_whole("head_dim", head_dim, least=2)
    if head_dim % 2:
        raise ValueError(f"head_dim must be even, as channels are rotated in pairs, got {head_dim}")
    if rule == "similar":
        for candidate in _of_two_digits(length):
            if _tells_apart(candidate, length, head_dim):
                return candidate
        raise ValueError(f"head_dim of {head_dim} is too small for a length of {length}: no base up to 1e16 suits it")
    if trained is None:
        raise ValueError("trained must be given for rule='critical': the tokens that the model was trained at")
    check_whole("trained", trained, least=7, most=_LONGEST)
    check_base(base)
    fully_rotated = 2 * first_incomplete_pair(head_dim // 2, base, trained)
    critical = min(max(fully_rotated, 2), head_dim)
    return max(float(base), (length / (2 * math.pi)) ** (head_dim / critical)) if length > trained else float(base)


def _of_two_digits(length: int) -> Iterator[float]:
    """Bases of two significant digits above the length; below it even the slowest pairs make a full rotation."""
    for power in range(_POWERS):
        for digits in range(10, 100):
            if digits * 10.0**power > length:
                yield digits * 10.0**power


def _tells_apart(base: float, length: int, head_dim: int) -> bool:
    """Whether the sum is at least 0 at every distance, the far ones first."""
    pairs = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu")
    theta = base ** (-2 * pairs / head_dim)
    for stop in range(length, 0, -_BLOCK):
        distances = torch.arange(max(0, stop - _BLOCK), stop, dtype=torch.float64, device="cpu")
        if bool(((distances[:, None] * theta).cos().sum(-1) < 0).any()):
            return False
    return True
