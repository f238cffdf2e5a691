"""LongRoPE2's search: the real critical dimension, the NTK rule below it, and one factor a pair from it on.

    r_tcd = ceil(P · log_b(L / 2π)),   r_10 = ceil(P · log_b(L / 20π))        P pairs, base b, training length L
    best  = argmin objective(r, lambda),    r_10 ≤ r ≤ r_tcd
    s ≤ lambda_j ≤ lambda_(j+1) ≤ 2 s for j ≥ r,    lambda_j = lambda_r^(j / r) for j < r

In theory, pairs from r_tcd on complete no period within L, and a factor s, the ratio of the lengths, is enough for each
of them. LongRoPE2's hypothesis is that slow pairs are trained too little: the pair from which on a factor of s or more
is needed, the real critical dimension r, lies below r_tcd, and the factors above s. Both are searched, down to the pair
that completes ten periods. The paper's objective is the perplexity of needle tokens (`posenc.evaluation.needles`).

The authors found r = 25 for Phi-3-mini (2k to 128k, r_tcd 31) and 30 for Llama-3-8B (8k to 128k, r_tcd 35).

Source: Shang et al., LongRoPE2, arXiv 2502.20082: equation 7 (r_tcd), section 3.2 with algorithms 1 and 2 (r_10, first
    population, bounds, rule below r), appendix B (population 64, 40 iterations, mutation probability 0.3).
Checked against: the numbers that the paper states, and the long factors of microsoft/Phi-4-mini-instruct, which are a
    candidate with critical pair 31 of 48. microsoft/LongRoPE@c9e56aa has no code of LongRoPE2.
Departs from the source: moves and numbers of children are as in `posenc.search.longrope`: the paper names neither
    crossovers nor how many of the best survive; a move may change r too, which algorithm 2 keeps for each candidate;
    factors lie on a grid of 0.01. The first candidate is the theory's: r_tcd with all factors s.
    Line 6 of algorithm 1 writes the NTK rule with r_10; here it has the candidate's own r, as in algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from posenc.frequencies.host import first_incomplete_pair
from posenc.search.evolution import Draw, Settings
from posenc.search.longrope import Objective, Progress, Result, check_problem, run
from posenc.search.space import Candidate, CriticalSpace, Seed

BOUND = 2.0  # largest factor of algorithm 2, in multiples of the extension's
PERIODS = 10  # of the first pair that is a candidate, within the training length (algorithm 1, line 2)


class CriticalPairs(NamedTuple):
    """The candidates for the critical dimension, as pairs counted from 0.

    Attributes:
        first: the first pair with fewer than ten periods within the training length.
        theoretical: the first pair without a full one.
    """

    first: int
    theoretical: int


def critical_pairs(pairs: int, base: float, original_length: int) -> CriticalPairs:
    """Between which pairs LongRoPE2 searches the critical dimension.

    Raises:
        ValueError: where every pair completes ten periods, so that no pair is a candidate.

    >>> critical_pairs(48, 10_000.0, 2048), critical_pairs(64, 500_000.0, 8192)  # Phi-3-mini, Llama-3-8B
    (CriticalPairs(first=19, theoretical=31), CriticalPairs(first=24, theoretical=35))
    """
    first = max(0, first_incomplete_pair(pairs, base, original_length, PERIODS))
    theoretical = first_incomplete_pair(pairs, base, original_length)
    if first >= pairs:
        raise ValueError(
            f"original_length: each of the {pairs} pairs of base {base:g} completes {PERIODS} periods within "
            f"{original_length:,} tokens, so that LongRoPE2 has no critical dimension to search: use search (longrope)"
        )
    return CriticalPairs(first, max(first, min(theoretical, pairs - 1)))


def search_longrope2(
    objective: Objective,
    *,
    pairs: int,
    base: float = 10_000.0,
    original_length: int,
    factor: float,
    seed: int = 0,
    settings: Settings | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Search for LongRoPE2's critical dimension and factors with the lowest value of an objective.

    Args:
        objective: gives a number for a `Candidate`, as in `search`; lower is better.
        pairs, base, original_length, factor: of RoPE and of the extension, as in `search`.
        seed, progress: as in `search`.
        settings: sizes of the evolution; the paper's by default. ``bound`` is 2 unless given.

    Returns:
        The result; ``critical`` is the critical pair. LongRoPE2's short factors are 1, and it has no gain:
        ``LongRoPE([1.0] * pairs, result.factors, original_length=…, factor=…, gain=1.0)``.

    Raises:
        ValueError: as `search` and `critical_pairs`.

    >>> found = search_longrope2(lambda c: abs(c.factors[-1] - 5.0), pairs=8, original_length=512, factor=4.0)
    >>> found.fitness, found.factors[0], 4.0 <= found.factors[found.critical] <= found.factors[-1]
    (0.0, 1.0, True)
    """
    settings = settings or Settings()
    bound = BOUND if settings.bound is None else settings.bound
    check_problem(pairs, base, original_length, factor, seed)
    candidates = critical_pairs(pairs, base, original_length)
    space = CriticalSpace(
        pairs, bound * factor, settings.step, tuple(range(candidates.theoretical, candidates.first - 1, -1)), factor
    )
    start = _population(space, factor, seed)
    result = run(objective, space, start, seed=seed, settings=settings, progress=progress)
    return replace(result, critical=space.choice(Candidate(result.factors, 0)))


def _population(space: CriticalSpace, factor: float, seed: int) -> dict[str, Seed]:
    """The theory's candidate, then one for each critical pair, downwards, with one factor for all free pairs."""
    draw = Draw(seed)
    highest, width = math.exp(space.log_limit), math.exp(space.log_limit) - factor
    start: dict[str, Seed] = {"theory": ([math.log(factor)] * space.pairs, space.choices[0])}
    for pair in space.choices:
        start[f"critical pair {pair}"] = ([math.log(highest - draw.random() * width)] * space.pairs, pair)
    return start
