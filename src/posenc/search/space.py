"""What a search may try: non-decreasing factors on a grid, and a number of start tokens."""

from __future__ import annotations

import bisect
import math
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from posenc.frequencies.host import geometric
from posenc.frequencies.modules import NTKAware, PositionInterpolation, YaRN
from posenc.frequencies.spectrum import Scaling, Spectrum, host_float64


class Candidate(NamedTuple):
    """What an objective is asked about.

    Attributes:
        factors: what each pair's frequency is divided by, at least 1, not falling from one pair to the next.
        start_tokens: positions below it turn as in plain RoPE.
    """

    factors: tuple[float, ...]
    start_tokens: int


class Space:
    """All candidates: factors 1 + k · step, k = 0 … top, and the choices of start tokens.

    Args:
        pairs: factors of a candidate.
        limit: factors do not pass it.
        step: of the grid.
        start_tokens: the choices.
    """

    def __init__(self, pairs: int, limit: float, step: float, start_tokens: tuple[int, ...]) -> None:
        self.pairs, self.step, self.start_tokens = pairs, step, start_tokens
        self.top = math.floor((limit - 1) / step + 1e-9)
        self.log_limit = math.log(self._factor(self.top))
        self.size = math.comb(self.top + pairs, pairs) * len(start_tokens)

    def nearest(self, logs: Iterable[float], start_tokens: int) -> Candidate:
        """The candidate at these logarithms of factors, brought into bounds, into order, and onto the grid.

        Clipping and sorting never lead away from a target that lies in bounds and in order.
        """
        inside = sorted(min(max(x, 0.0), self.log_limit) for x in logs)
        return self._candidate([round(math.expm1(x) / self.step) for x in inside], start_tokens)

    def next_free(self, candidate: Candidate, taken: Container[Candidate]) -> Candidate | None:
        """The first candidate not taken, from this one on in lexicographic order and around; None if all are."""
        levels = [round((factor - 1) / self.step) for factor in candidate.factors]
        start = self.start_tokens.index(candidate.start_tokens)
        for _ in range(self.size):
            full = bisect.bisect_left(levels, self.top)  # from here on all are at the top; the one before can rise
            if full > 0:
                levels[full - 1 :] = [levels[full - 1] + 1] * (self.pairs - full + 1)
            else:
                levels, start = [0] * self.pairs, (start + 1) % len(self.start_tokens)
            candidate_ = self._candidate(levels, self.start_tokens[start])
            if candidate_ not in taken:
                return candidate_
        return None

    def _candidate(self, levels: Sequence[int], start_tokens: int) -> Candidate:
        return Candidate(tuple(self._factor(min(max(k, 0), self.top)) for k in levels), start_tokens)

    def _factor(self, level: int) -> float:
        return round(1 + level * self.step, 10)  # 1.07, not 1.0699999999999998


def seeds(pairs: int, base: float, original_length: int, factor: float) -> dict[str, list[float]]:
    """Logarithms of the factors of the methods that a search starts from; a single pair has position interpolation."""
    scalings: dict[str, Scaling] = {"PI": PositionInterpolation(factor)}
    if pairs > 1:
        scalings |= {"NTK": NTKAware(factor), "YaRN": YaRN(factor, original_length=original_length)}
    unscaled = Spectrum(host_float64(geometric(2 * pairs, base)))
    return {name: (unscaled.theta / scaling(unscaled).theta).log().tolist() for name, scaling in scalings.items()}
