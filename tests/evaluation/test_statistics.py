"""Intervals and tests of evaluations, against published values and other libraries."""

from __future__ import annotations

import math
import random

import pytest

pytest.importorskip("scipy")

from scipy import stats

from posenc.evaluation.statistics import (
    Interval,
    holm,
    mean_interval,
    paired_means,
    paired_shares,
    share_interval,
    verdict,
)


def table(both: int, only_a: int, only_b: int, neither: int) -> tuple[list[bool], list[bool]]:
    counts = ((True, True, both), (True, False, only_a), (False, True, only_b), (False, False, neither))
    pairs = [(a, b) for a, b, count in counts for _ in range(count)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_newcombe_s_paired_interval() -> None:
    difference = paired_shares(*table(36, 12, 2, 0))
    # By hand: Wilson's limits of 48 and 38 of 50, φ = −24/√(48·2·38·12).
    assert (difference.low, difference.high) == pytest.approx((0.0569, 0.3404), abs=5e-5)


def test_readings_that_never_disagree_have_an_interval_with_a_width() -> None:
    difference = paired_shares([True] * 20, [True] * 20)
    assert difference.mean == 0
    assert difference.p == 1
    assert difference.low < -0.1
    assert difference.high > 0.1


def test_mcnemar_and_holm_are_statsmodels() -> None:
    contingency = pytest.importorskip("statsmodels.stats.contingency_tables")
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = random.Random(0)
    p = []
    for _ in range(20):
        cells = tuple(rng.randrange(1, 9) for _ in range(4))
        p_value = paired_shares(*table(*cells)).p  # type: ignore[arg-type]
        expected = contingency.mcnemar([[cells[0], cells[1]], [cells[2], cells[3]]], exact=True).pvalue
        assert p_value == pytest.approx(expected, abs=1e-12)
        p.append(p_value * rng.random() / 5)
    assert holm(p) == pytest.approx(list(multitest.multipletests(p, method="holm")[1]))


def test_means_are_student_s() -> None:
    rng = random.Random(1)
    a, b = [rng.gauss(1, 1) for _ in range(17)], [rng.gauss(0, 1) for _ in range(17)]
    difference, t_test = paired_means(a, b), stats.ttest_rel(a, b)
    limits = t_test.confidence_interval(0.95)
    assert (difference.p, difference.low, difference.high) == pytest.approx((t_test.pvalue, limits.low, limits.high))
    assert mean_interval(a).half_width == pytest.approx(stats.sem(a) * stats.t.ppf(0.975, 16))
    assert share_interval(5, 5).low == pytest.approx(0.025 ** (1 / 5))  # exact, in closed form


def test_equal_differences() -> None:
    assert paired_means([2.0, 2.0], [2.0, 2.0]).p == 1
    assert paired_means([3.0, 3.0], [2.0, 2.0]).p == 0


@pytest.mark.parametrize("values", [[1.0], [], [1.0, math.nan]])
def test_values_without_a_scatter_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two finite numbers"):
        mean_interval(values)


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [(-0.01, 0.015, 0.9, "equivalent"), (-0.01, 0.03, 0.2, "inconclusive"), (0.01, 0.2, 0.001, "worse"),
     (-0.2, -0.1, 0.001, "better"), (-0.2, -0.1, 0.06, "inconclusive")],
)  # fmt: skip
def test_verdicts(low: float, high: float, p: float, expected: str) -> None:
    narrow = Interval((low + high) / 2, low, high, 9)
    assert verdict(narrow, narrow, 0.02, p, lower_is_better=True) == expected
    across = Interval(narrow.mean, -1.0, 1.0, 9)  # a 95 % interval with both signs allows neither better nor worse
    assert verdict(across, narrow, 0.02, p, lower_is_better=True) in ("equivalent", "inconclusive")
