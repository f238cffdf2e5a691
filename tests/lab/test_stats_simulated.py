"""The error rates that `posenc.lab.stats` states, tested by simulation.

Encodings are means over seeds and documents. Normal seeds scatter around one value; bimodal seeds reach
either 0.97 or 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom
from tests.samples import mostly_slow

from posenc.lab.stats import Array, contrasts, mean_interval, paired, share, within

LEARNED, FAILED = 0.97, 0.05
Chance = np.random.Generator


def crossed(chance: Chance, seeds: int, documents: int, a: float, b: float, rest: float = 1.0) -> Array:
    """Mean 0; standard deviations of seeds, documents and the rest."""
    of_seeds, of_documents = a * chance.normal(size=(seeds, 1)), b * chance.normal(size=(1, documents))
    return np.asarray(of_seeds + of_documents + rest * chance.normal(size=(seeds, documents)))


def bimodal(chance: Chance, seeds: int, documents: int, learning: float) -> Array:
    """Seeds that learn with this chance; within a group, scatter of seeds and documents is small."""
    kind = np.where(chance.random((seeds, 1)) < learning, LEARNED, FAILED)
    return np.asarray(kind + crossed(chance, seeds, documents, 0.01, 0.02, 0.05))


def at_most(level: float, times: int) -> float:
    """What a share of ``times`` draws stays below, but once in a thousand."""
    return float(binom.ppf(0.999, times, level)) / times


def covering(draw: Callable[[], Array], mean: float, times: int) -> float:
    """How often the interval holds the true mean."""
    intervals = [mean_interval(draw()) for _ in range(times)]
    return sum(each.low <= mean <= each.high for each in intervals) / times


def false_claims(draw: Callable[[], Array], encodings: int, tables: int) -> tuple[float, float]:
    """Shares of tables with a false difference: by adjusted p-values alone, and of those that may be claimed."""
    significant = claimed = 0
    for _ in range(tables):
        shown = {f"e{n}": draw() for n in range(encodings)}
        pairs = [(shown[name], shown[base]) for base in ("e0", "e1") for name in shown if name != base]
        result = contrasts(pairs, {name: values.mean(axis=1) for name, values in shown.items()})
        significant += any(each.adjusted is not None and each.adjusted <= 0.05 for each in result)
        claimed += any(each.significant for each in result)
    return significant / tables, claimed / tables


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(
    ("a", "b", "times"), mostly_slow([(0.3, 0.5, 400), (0, 1, 3000), (1, 1, 3000)], (0.3, 0.5, 400))
)
def test_intervals_hold_the_mean_as_often_as_they_say(seeds: int, a: float, b: float, times: int) -> None:
    chance = np.random.default_rng(seeds)
    result = covering(lambda: crossed(chance, seeds, 24, a, b), 0, times)
    assert 1 - at_most(0.05, times) <= result <= 0.99


@pytest.mark.parametrize(
    ("seeds", "learning", "coverage"),
    mostly_slow(
        [(3, 0.9, 0.27), (5, 0.5, 0.94), (10, 0.9, 0.65), (3, 0.5, 0.75), (5, 0.9, 0.41), (10, 0.5, 0.94)],
        (3, 0.9, 0.27), (5, 0.5, 0.94), (10, 0.9, 0.65),
    ),
)  # fmt: skip
def test_with_seeds_of_two_kinds_they_do_not_and_the_share_that_learns_does(
    seeds: int, learning: float, coverage: float
) -> None:
    chance, mean = np.random.default_rng(0), learning * LEARNED + (1 - learning) * FAILED
    result = covering(lambda: bimodal(chance, seeds, 24, learning), mean, 400)
    assert result == pytest.approx(coverage, abs=4 * math.sqrt(coverage * (1 - coverage) / 400))
    counts = range(seeds + 1)
    covered = [share(k, seeds).low <= learning <= share(k, seeds).high for k in counts]
    assert sum(binom.pmf(k, seeds, learning) for k in counts if covered[k]) >= 0.95


@pytest.mark.parametrize(
    ("seeds", "learning", "encodings", "tables"),
    mostly_slow(
        [(3, 1, 6, 200), (3, 0.5, 6, 200), (10, 0.5, 6, 200)]
        + [(seeds, share, 12, 500) for seeds in (3, 5, 10) for share in (1, 0.9, 0.7, 0.5, 0.2)],
        (3, 1, 6, 200), (3, 0.5, 6, 200), (10, 0.5, 6, 200),
    ),
)  # fmt: skip
def test_a_table_of_equal_encodings_seldom_has_a_difference(
    seeds: int, learning: float, encodings: int, tables: int
) -> None:
    chance = np.random.default_rng(1)

    def draw() -> Array:
        return crossed(chance, seeds, 6, 1, 0.3, 0.3) if learning == 1 else bimodal(chance, seeds, 6, learning)

    significant, claimed = false_claims(draw, encodings, tables)
    assert claimed <= at_most(0.05, tables)
    if (seeds, learning) == (3, 0.5):
        assert significant > 0.1, "what cautions are for"


@pytest.mark.parametrize("edge", [-0.02, 0.02])
@pytest.mark.parametrize(
    ("seeds", "times"), mostly_slow([(3, 300), (5, 300), (3, 3000), (5, 3000), (10, 3000)], (3, 300), (5, 300))
)
def test_neither_equivalence_nor_difference_is_claimed_at_the_margin(seeds: int, times: int, edge: float) -> None:
    """The true change is the margin, where each of both claims is wrong in 5 % of cases at most."""
    chance = np.random.default_rng(2)
    answers = [
        within(
            paired(edge + crossed(chance, seeds, 24, 0.002, 0.01, 0.01), np.zeros((seeds, 24)), confidence=0.9), 0.02
        )
        for _ in range(times)
    ]
    for claim in ("equivalent", "different"):
        assert answers.count(claim) / times <= at_most(0.05, times)
