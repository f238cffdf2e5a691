"""Intervals against scipy where one factor is sampled, and by simulation where two are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from posenc.lab.statistics.intervals import Interval, MeanSquare, Table, analyse, errors, mean_interval, p_value, paired


def crossed(chance: np.random.Generator, seeds: int, windows: int, a: float, b: float) -> Table:
    """Mean 0; effects of seeds and windows with standard deviations a and b, and a rest of 1."""
    of_seeds, of_windows = a * chance.normal(size=(seeds, 1)), b * chance.normal(size=(1, windows))
    return np.asarray(of_seeds + of_windows + chance.normal(size=(seeds, windows)))


def covered(interval: Interval) -> bool:
    return interval.low <= 0 <= interval.high


@pytest.mark.parametrize("shape", [(1, 40), (6, 1)], ids=["windows", "seeds"])
def test_one_factor_is_the_paired_t_test(shape: tuple[int, int]) -> None:
    chance = np.random.default_rng(0)
    a, b = chance.normal(2.0, 0.3, shape), chance.normal(1.9, 0.3, shape)
    theirs = stats.ttest_rel(a.ravel(), b.ravel())
    low, high = theirs.confidence_interval(0.9)
    ours = paired(a, b, confidence=0.9)
    assert (ours.low, ours.high) == pytest.approx((low, high), rel=1e-9)
    assert (ours.freedom, ours.seeds, ours.windows) == (max(shape) - 1, *shape)
    assert ours.error == pytest.approx(abs(ours.mean / theirs.statistic))
    assert p_value(a - b) == pytest.approx(theirs.pvalue, rel=1e-9)


def test_mean_squares_and_freedom_by_hand() -> None:
    """Rows 1 2 6 and 3 8 10: mean 5, of rows 3 and 7, of columns 2, 5, 8."""
    squares = analyse(np.array([[1.0, 2.0, 6.0], [3.0, 8.0, 10.0]]))
    assert squares.seeds == pytest.approx((3 * (4 + 4), 1))
    assert squares.windows == pytest.approx((2 * (9 + 9) / 2, 2))
    assert squares.rest == pytest.approx(((1 + 1 + 0 + 1 + 1 + 0) / 2, 2))
    over_both = errors(squares)[-1]
    assert over_both[0] == pytest.approx(math.sqrt((24 + 18 - 2) / 6))
    assert over_both[1] == pytest.approx(40**2 / (24**2 / 1 + 18**2 / 2 + 2**2 / 2))


@pytest.mark.parametrize(
    ("seeds", "windows", "a", "b"),
    [(2, 24, 1.0, 1.0), (3, 24, 0.5, 1.0), (3, 24, 1.0, 0.0), (5, 24, 0.3, 0.5), (5, 24, 0.0, 1.0), (1, 24, 0.0, 1.0)],
)
def test_the_interval_covers_the_mean_as_often_as_it_says(seeds: int, windows: int, a: float, b: float) -> None:
    chance, times = np.random.default_rng(1), 1500
    share = sum(covered(mean_interval(crossed(chance, seeds, windows, a, b))) for _ in range(times)) / times
    chance_of_counting = math.sqrt(0.95 * 0.05 / times)
    assert 0.95 - 3 * chance_of_counting <= share <= 0.985, "neither too narrow nor needlessly wide"


def test_values_taken_as_independent_would_not_cover_it() -> None:
    chance = np.random.default_rng(2)
    tables = [crossed(chance, 3, 24, 0.5, 1.0) for _ in range(300)]
    assert sum(covered(mean_interval(table.reshape(1, -1))) for table in tables) < 0.7 * 300


def test_never_narrower_than_over_one_factor_alone() -> None:
    chance = np.random.default_rng(3)
    for _ in range(50):
        table = crossed(chance, 3, 8, *chance.uniform(0, 1, 2))
        both = mean_interval(table)
        seeds = mean_interval(table.mean(axis=1, keepdims=True))
        windows = mean_interval(table.mean(axis=0, keepdims=True))
        assert both.high - both.low >= max(seeds.high - seeds.low, windows.high - windows.low) * (1 - 1e-12)


def test_the_interval_leaves_zero_out_where_p_is_small() -> None:
    chance, small = np.random.default_rng(4), 0
    for _ in range(200):
        table = crossed(chance, 3, 6, 0.3, 0.3) + 1.0
        small += p_value(table) < 0.05
        assert covered(mean_interval(table)) == (p_value(table) >= 0.05)
    assert 20 < small < 180


def test_what_seeds_and_windows_share_cancels_in_pairs() -> None:
    chance = np.random.default_rng(5)
    shared = 10 * chance.normal(size=(3, 16))
    a, b = (shared + 0.01 * chance.normal(size=(3, 16)) + shift for shift in (0.0, 0.5))
    difference = paired(a, b)
    assert difference.mean == pytest.approx(-0.5, abs=0.02)
    assert difference.high < -0.45
    assert covered(mean_interval(a - a.mean() + 0.5)), "unpaired, half a bit is nothing here"


def test_a_seed_mean_square_known_better_counts_where_it_is_larger() -> None:
    squares = analyse(np.array([[1.0, 2.0, 6.0], [3.0, 8.0, 10.0]]))
    assert errors(squares, MeanSquare(1.0, 9.0))[0] == pytest.approx((math.sqrt(24 / 6), 9))
    assert errors(squares, MeanSquare(54.0, 9.0))[0] == pytest.approx((3, 9))


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1)])
def test_without_any_spread(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(6).normal(size=shape)
    same, apart = paired(a, a), paired(a, a + 0.25)
    assert (same.mean, same.low, same.high, same.error) == (0, 0, 0, 0)
    assert p_value(a - a) == 1
    assert apart.low == pytest.approx(-0.25)
    assert apart.high == pytest.approx(-0.25)
    assert p_value(np.full(shape, -0.1)) == 0


def test_equal_seeds_leave_the_windows() -> None:
    windows = np.random.default_rng(7).normal(size=(1, 12))
    assert mean_interval(np.repeat(windows, 3, axis=0))[:5] == pytest.approx(mean_interval(windows)[:5])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0]], "two seeds or two windows"),
        ([1.0, 2.0], r"not shape \(2,\)"),
        (np.empty((0, 3)), r"not shape \(0, 3\)"),
        ([[1.0, 2.0], [3.0]], "table of numbers"),
        ([[1.0, None]], "nan at seed 0, window 1"),
        ([[1.0, 2.0], [math.nan, 3.0]], "nan at seed 1, window 0"),
        ([[1.0, math.inf]], "inf at seed 0, window 1"),
    ],
)
def test_what_is_no_table_is_refused(values: list[list[float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mean_interval(values)


def test_wrong_pairs_and_confidences_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a has shape \(2, 3\) and b \(3, 3\)"):
        paired(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="b: nan at seed 0"):
        paired([[1.0, 2.0]], [[math.nan, 2.0]])
    with pytest.raises(ValueError, match="confidence: a number between 0 and 1 is needed, not 95"):
        mean_interval([[1.0, 2.0]], confidence=95)
