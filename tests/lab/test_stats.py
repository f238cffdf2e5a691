"""Intervals, contrasts and ranks against scipy and by hand; how often they err is in test_stats_simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from posenc.lab.stats import (
    Caution,
    by_document,
    contrasts,
    holm,
    mean_interval,
    paired,
    share,
)
from posenc.lab.stats.intervals import errors, squares


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


def test_items_count_within_their_documents() -> None:
    """Two windows of a document are one draw; documents count alike, however many windows they have."""
    values = np.array([[1.0, 3.0, 10.0, 5.0], [2.0, 2.0, 12.0, 7.0]])
    labels = [7, 7, 3, 9]
    assert by_document(values, labels) == pytest.approx(np.array([[10, 2, 5], [12, 2, 7]]))
    result = mean_interval(values, labels)
    assert (result.mean, result.documents) == (pytest.approx(38 / 6), 3)
    twice = np.repeat(np.random.default_rng(1).normal(size=(1, 20)), 2, axis=1)
    assert mean_interval(twice, np.arange(40) // 2) == mean_interval(twice[:, ::2])
    assert mean_interval(twice).error < 0.8 * mean_interval(twice, np.arange(40) // 2).error


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


def test_shares_are_those_of_clopper_and_pearson() -> None:
    result = share(5, 5)
    assert (result.low, result.high) == (pytest.approx(0.025 ** (1 / 5)), 1)
    exact = stats.binomtest(3, 10).proportion_ci(0.95, method="exact")
    assert (share(3, 10).low, share(3, 10).high) == pytest.approx((exact.low, exact.high))
    with pytest.raises(ValueError, match="not 6 of 5"):
        share(6, 5)


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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0]], "one seed and one document"),
        ([1.0, 2.0], r"not shape \(2,\)"),
        (np.empty((0, 3)), r"not shape \(0, 3\)"),
        ([[1.0, 2.0], [3.0]], "table of numbers"),
        ([[1.0, 2.0], [math.nan, 3.0]], "nan at seed 1, item 0"),
        ([[1.0, math.inf]], "inf at seed 0, item 1"),
    ],
)
def test_what_is_no_table_is_refused(values: list[list[float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mean_interval(values)
