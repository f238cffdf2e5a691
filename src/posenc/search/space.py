"""What a search may try: non-decreasing factors on a grid, and a number of start tokens or a critical pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from posenc.frequencies.host import geometric
from posenc.frequencies.longrope import below_critical
from posenc.frequencies.modules import NTKAware, PositionInterpolation, YaRN
from posenc.frequencies.spectrum import Scaling, Spectrum, host_float64


class Candidate(NamedTuple):
    """What an objective is asked about.

    Attributes:
        factors: what each pair's frequency is divided by, at least 1, not falling from one pair to the next.
        start_tokens: positions below it rotate as in plain RoPE.
    """

    factors: tuple[float, ...]
    start_tokens: int


Seed = tuple[list[float], int]
"""Logarithms of factors to start from, and one of the space's choices."""


class Space:
    """All candidates: factors 1 + k · step up to a limit, not falling, and the choices of start tokens.

    Args:
        pairs: factors of a candidate.
        limit: factors do not pass it.
        step: of the grid.
        choices: values of a candidate's second number, here its start tokens.
        least: the smallest factor that a search may choose.

    Attributes:
        log_least, log_limit: logarithms of the smallest and the largest factor of the grid.
    """

    def __init__(self, pairs: int, limit: float, step: float, choices: tuple[int, ...], least: float = 1.0) -> None:
        self.pairs, self.step, self.choices = pairs, step, choices
        self.bottom, self.top = math.ceil((least - 1) / step - 1e-9), math.floor((limit - 1) / step + 1e-9)
        if self.bottom > self.top:
            raise ValueError(
                f"step: no factor 1 + k · {step:g} lies between {least:g} and {limit:g}: use a smaller one"
            )
        self.log_least, self.log_limit = math.log(self._factor(self.bottom)), math.log(self._factor(self.top))

    def first(self, choice: int) -> int:
        """The first pair whose factor is free."""
        del choice
        return 0

    def choice(self, candidate: Candidate) -> int:
        """A candidate's second number, one of the choices."""
        return candidate.start_tokens

    def logs(self, candidate: Candidate) -> list[float]:
        """The logarithms of a candidate's free factors; the smallest one for the pairs before them."""
        first = self.first(self.choice(candidate))
        return [self.log_least] * first + [math.log(factor) for factor in candidate.factors[first:]]

    def nearest(self, logs: Sequence[float], choice: int) -> Candidate:
        """The candidate at these logarithms of factors, brought into bounds, into order, and onto the grid.

        Clipping and sorting never lead away from a target that lies in bounds and in order.
        """
        inside = sorted(min(max(x, self.log_least), self.log_limit) for x in logs[self.first(choice) :])
        levels = [round(math.expm1(x) / self.step) for x in inside]
        return self._candidate([min(max(level, self.bottom), self.top) for level in levels], choice)

    def _candidate(self, levels: Sequence[int], choice: int) -> Candidate:
        """The candidate with these free factors."""
        return Candidate(tuple(map(self._factor, levels)), choice)

    def _factor(self, level: int) -> float:
        return round(1 + level * self.step, 10)  # 1.07, not 1.0699999999999998


class CriticalSpace(Space):
    """The candidates of LongRoPE2: factors from a critical pair r on, which is a choice; below it the NTK rule.

        lambda_i = lambda_r^(i / r),  i < r:    RoPE with the base that slows pair r by lambda_r

    The space remembers the critical pair of each candidate that it made; where two lead to the same factors, the first.

    Source: Shang et al., LongRoPE2, arXiv 2502.20082, section 3.2, algorithm 2, lines 4 to 8.
    """

    def __init__(self, pairs: int, limit: float, step: float, choices: tuple[int, ...], least: float) -> None:
        super().__init__(pairs, limit, step, choices, least)
        self._critical: dict[Candidate, int] = {}

    def first(self, choice: int) -> int:
        """The critical pair itself."""
        return choice

    def choice(self, candidate: Candidate) -> int:
        """The critical pair."""
        return self._critical[candidate]

    def _candidate(self, levels: Sequence[int], choice: int) -> Candidate:
        free = tuple(map(self._factor, levels))
        # Rounded, so that losses logged on another machine, whose power may differ in the last bit, are found again.
        below = tuple(round(factor, 10) for factor in below_critical(free[0], choice))
        candidate = Candidate((*below, *free), 0)
        self._critical.setdefault(candidate, choice)
        return candidate


def seeds(pairs: int, base: float, original_length: int, factor: float) -> dict[str, list[float]]:
    """Logarithms of the factors of the methods that a search starts from; a single pair has position interpolation."""
    scalings: dict[str, Scaling] = {"PI": PositionInterpolation(factor)}
    if pairs > 1:
        scalings |= {"NTK": NTKAware(factor), "YaRN": YaRN(factor, original_length=original_length)}
    unscaled = Spectrum(host_float64(geometric(2 * pairs, base)))
    return {name: (unscaled.theta / scaling(unscaled).theta).log().tolist() for name, scaling in scalings.items()}
