"""Intervals, contrasts and ranks against scipy and by hand; how often they err is in test_stats."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binom
from tests.samples import mostly_slow

from posenc.lab.stats import (
    Array,
    Caution,
    contrasts,
    errors,
    holm,
    mean_interval,
    paired,
    squares,
    within,
)


@pytest.mark.parametrize("shape", [(1, 40), (6, 1)], ids=["documents", "seeds"])
def test_one_factor_is_the_paired_t_test(shape: tuple[int, int]) -> None:
    chance = np.random.default_rng(0)
    a, b = chance.normal(2.0, 0.3, shape), chance.normal(1.9, 0.3, shape)
    reference = stats.ttest_rel(a.ravel(), b.ravel())
    low, high = reference.confidence_interval(0.9)
    result = paired(a, b, confidence=0.9)
    assert (result.low, result.high) == pytest.approx((low, high), rel=1e-9)
    assert (result.freedom, result.seeds, result.documents) == (max(shape) - 1, *shape)
    assert result.error == pytest.approx(abs(result.mean / reference.statistic))
    assert result.p == pytest.approx(reference.pvalue, rel=1e-9)
    alone = stats.ttest_1samp(a.ravel(), 0).confidence_interval(0.95)
    assert (mean_interval(a).low, mean_interval(a).high) == pytest.approx(tuple(alone), rel=1e-9)


def test_two_factors_by_hand() -> None:
    """Rows 1 2 6 and 3 8 10: mean 5, of rows 3 and 7, of columns 2, 5, 8."""
    table = np.array([[1.0, 2.0, 6.0], [3.0, 8.0, 10.0]])
    seeds, documents, rest = squares(table)
    assert seeds == pytest.approx((3 * (4 + 4), 1))
    assert documents == pytest.approx((2 * (9 + 9) / 2, 2))
    assert rest == pytest.approx(((1 + 1 + 0 + 1 + 1 + 0) / 2, 2))
    error, freedom = errors(table)[-1]
    assert error == pytest.approx(math.sqrt((24 + 18 - 2) / 6))
    assert freedom == pytest.approx(40**2 / (24**2 / 1 + 18**2 / 2 + 2**2 / 2))
    interval = mean_interval(table)
    assert (interval.mean, interval.freedom) == (5, 1), "over one degree of freedom, of seeds, it is the widest"
    assert interval.high - 5 == pytest.approx(stats.t(1).ppf(0.975) * math.sqrt(24 / 6))


def test_p_agrees_with_the_interval_which_is_the_widest_of_three() -> None:
    chance, small = np.random.default_rng(4), 0
    for _ in range(200):
        table = 1.0 + 0.3 * chance.normal(size=(3, 1)) + 0.3 * chance.normal(size=(1, 6)) + chance.normal(size=(3, 6))
        result = paired(table, 0 * table)
        small += result.p < 0.05
        assert (result.low <= 0 <= result.high) == (result.p >= 0.05)
        alone = [mean_interval(table.mean(axis=axis, keepdims=True)) for axis in (0, 1)]
        assert result.high - result.low >= max(factor.high - factor.low for factor in alone) * (1 - 1e-12)
    assert 20 < small < 180


def test_holm_by_hand() -> None:
    """4 · 0.005, 3 · 0.01, 2 · 0.03, and 0.04 which may not fall below its forerunner."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_contrasts_are_adjusted_together_and_cautioned_where_seeds_are_of_two_kinds() -> None:
    chance = np.random.default_rng(8)

    def rows(*of_seeds: float) -> np.ndarray:
        return np.array(of_seeds)[:, None] + 0.001 * chance.normal(size=(len(of_seeds), 8))

    learned, failing, mixed = rows(0.96, 0.97, 0.95), rows(0.1, 0.11, 0.1), rows(0.95, 0.1, 0.96)
    pairs = [(learned, failing), (learned, mixed)]
    calm = contrasts(pairs, {"a": learned.mean(axis=1), "b": failing.mean(axis=1)})
    raw = [paired(a, b).p for a, b in pairs]
    assert [contrast.adjusted for contrast in calm] == pytest.approx([2 * raw[0], raw[1]])
    assert [contrast.significant for contrast in calm] == [True, False]
    wary = contrasts(pairs, {"mix": mixed.mean(axis=1)})
    assert wary[0].adjusted == calm[0].adjusted
    assert wary[0].caution == Caution("bimodal seeds", "mix", *sorted(mixed.mean(axis=1))[:2], 3)
    assert not wary[0].significant
    many = contrasts([(np.tile(learned, (3, 1)), np.tile(failing, (3, 1)))], {"mix": mixed.mean(axis=1)})
    assert many[0].significant, "nine seeds on either side cannot be luck"
    near = contrasts([(learned, learned - 0.03)], {"mix": mixed.mean(axis=1)})
    assert near[0].significant, "a difference far smaller than the gap is no change of kind"
    assert contrasts([(learned[:1], failing[:1])], {})[0].caution == Caution("one seed")
    assert contrasts([], {}) == []


def test_what_has_no_scatter_and_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ValueError, match="one seed and one document"):
        mean_interval([[1.0]])
    with pytest.raises(ValueError, match="same seeds and documents"):
        paired(np.ones((2, 3)), np.ones((1, 3)))


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
def test_with_seeds_of_two_kinds_they_do_not(seeds: int, learning: float, coverage: float) -> None:
    chance, mean = np.random.default_rng(0), learning * LEARNED + (1 - learning) * FAILED
    result = covering(lambda: bimodal(chance, seeds, 24, learning), mean, 400)
    assert result == pytest.approx(coverage, abs=4 * math.sqrt(coverage * (1 - coverage) / 400))


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
