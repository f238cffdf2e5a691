"""Ranks with their ranges: what is found where there is something, and what is not where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest
from tests.samples import mostly_slow

from posenc.lab.statistics.intervals import Table, analyse, p_value
from posenc.lab.statistics.ranking import Ranked, holm, leaders, p_values, ranking


def encodings(
    chance: np.random.Generator, means: Mapping[str, float], seeds: int = 3, scatter: float = 0.02, wild: str = ""
) -> dict[str, Table]:
    """Texts are easy or hard for all. Each encoding has effects of its own, those in ``wild`` seven times as large.

    One seed is one model: what its seed did belongs to it, and its true mean holds it already.
    """
    windows, of_seeds, found = 16, float(seeds > 1), {}
    texts = chance.normal(size=(1, windows))
    for name, mean in means.items():
        own = of_seeds * chance.normal(size=(seeds, 1)) + chance.normal(size=(1, windows))
        own = own + chance.normal(size=(seeds, windows))
        found[name] = mean + texts + scatter * (7 if name in wild else 1) * own
    return found


def ranges(ranked: list[Ranked]) -> dict[str, tuple[int, int]]:
    return {one.name: (one.best, one.worst) for one in ranked}


def test_holm_by_hand() -> None:
    """4 · 0.005, 3 · 0.01, 2 · 0.03, and 0.04 which may not fall below its forerunner."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1, 1])
    assert holm([]).shape == (0,)


def test_far_apart_is_told_apart() -> None:
    found = ranking(encodings(np.random.default_rng(0), {"nope": 2.0, "rope": 1.0, "alibi": 1.5}))
    assert ranges(found) == {"rope": (1, 1), "alibi": (2, 2), "nope": (3, 3)}
    assert [one.beaten_by for one in found] == [(), ("rope",), ("rope", "alibi")]
    assert [one.beats for one in found] == [("alibi", "nope"), ("nope",), ()]
    assert leaders(found) == ["rope"]
    assert found[0].interval.high > found[1].interval.low, "the texts' own scatter is far larger, and cancels"


def test_near_ones_share_a_range() -> None:
    found = ranking(encodings(np.random.default_rng(1), {"a": 1.0, "b": 1.001, "c": 2.0, "d": 2.001, "e": 3.0}))
    assert ranges(found) == {"a": (1, 2), "b": (1, 2), "c": (3, 4), "d": (3, 4), "e": (5, 5)}
    assert sorted(leaders(found)) == ["a", "b"]


def test_larger_may_be_better() -> None:
    shares = encodings(np.random.default_rng(2), {"low": 0.1, "high": 0.9, "mid": 0.5}, scatter=0.01)
    assert ranges(ranking(shares, smaller_is_better=False)) == {"high": (1, 1), "mid": (2, 2), "low": (3, 3)}
    assert p_values(shares, smaller_is_better=False).names == ("high", "mid", "low")


def test_two_encodings_are_one_paired_test() -> None:
    pair = encodings(np.random.default_rng(3), {"a": 1.0, "b": 1.03})
    assert p_values(pair).matrix[0, 1] == pytest.approx(p_value(pair["a"] - pair["b"]))


def test_the_matrix_follows_the_means() -> None:
    values = encodings(np.random.default_rng(4), {"c": 1.2, "a": 1.0, "b": 1.1})
    names, matrix = p_values(values)
    assert names == ("a", "b", "c")
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(np.diag(matrix), [1, 1, 1])
    level = float(matrix[0, 1])
    assert ranking(values, level=level)[0].beats[:1] == ("b",)
    assert "b" not in ranking(values, level=level * 0.999)[0].beats


def test_the_scatter_of_seeds_is_the_average_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    values, given = encodings(np.random.default_rng(5), dict.fromkeys("abcd", 1.0)), list[float]()
    monkeypatch.setattr(
        "posenc.lab.statistics.ranking.p_value", lambda _, at_least: given.append(at_least.value) or 0.5
    )
    p_values(values)
    own = [analyse(values[x] - values[y]).seeds for x, y in combinations("abcd", 2)]
    assert given == pytest.approx([np.mean([square.value for square in own if square])] * 6)


@pytest.mark.parametrize(
    ("seeds", "wild"), mostly_slow([(1, ""), (2, ""), (3, ""), (3, "de"), (5, ""), (5, "de")], (3, "de"))
)
def test_nothing_is_found_where_nothing_is(seeds: int, wild: str) -> None:
    """A false difference among five equal encodings: in 5 % of tables at most."""
    chance, times = np.random.default_rng(6), 400
    tables = [encodings(chance, dict.fromkeys("abcde", 1.0), seeds, wild=wild) for _ in range(times)]
    found = sum(any(one.beats for one in ranking(table)) for table in tables)
    assert found / times <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / times)


def test_a_real_difference_is_found_with_three_seeds() -> None:
    chance = np.random.default_rng(7)
    means = {**dict.fromkeys("abcdef", 1.0), "worse": 1.15}
    found = [leaders(ranking(encodings(chance, means))) for _ in range(40)]
    assert sum("worse" not in names for names in found) >= 36
    assert sum(len(names) == 6 for names in found) >= 30


def test_identical_encodings_are_not_different() -> None:
    values = encodings(np.random.default_rng(8), {"a": 1.0})
    found = ranking({**values, "again": values["a"], "shifted": values["a"] + 0.5})
    assert ranges(found) == {"a": (1, 2), "again": (1, 2), "shifted": (3, 3)}


def test_one_encoding_has_one_rank() -> None:
    assert ranges(ranking({"rope": [[1.0, 2.0]]})) == {"rope": (1, 1)}


def test_what_cannot_be_ranked_is_refused() -> None:
    table = np.ones((2, 3))
    with pytest.raises(ValueError, match="at least one encoding"):
        ranking({})
    with pytest.raises(ValueError, match=r"rope has shape \(2, 3\) and alibi \(1, 3\)"):
        ranking({"rope": table, "alibi": table[:1]})
    with pytest.raises(ValueError, match="learned: nan at seed 0, window 0"):
        p_values({"rope": table, "learned": table * math.nan})
    with pytest.raises(ValueError, match="level: a number between 0 and 1 is needed, not 5"):
        ranking({"rope": table}, level=5)
    with pytest.raises(ValueError, match="two seeds or two windows"):
        ranking({"rope": [[1.0]], "alibi": [[2.0]]})
