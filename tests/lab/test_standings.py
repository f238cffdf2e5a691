"""Ranks, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lab.made_up import BITS, SETTINGS, made_up, rows
from tests.samples import mostly_slow

from posenc.lab.report.scale import BITS as BITS_SCALE
from posenc.lab.report.standings import leading, remarks, standing, standings_of
from posenc.lab.text.table import rows_of


def test_clear_differences_rank_and_open_ones_share_ranks() -> None:
    first, last = standings_of(rows(), SETTINGS.lengths)
    assert (first.label, last.label) == ("1×", "16×")
    assert "rope+window" not in first.ranks
    assert last.ranks["fox"] == "1"
    assert set(last.ranks) == set(BITS) - {"learned"}
    assert last.ranks["t5"] == "4"
    assert [one.name for one in last.ranked[:4]] == ["fox", "alibi", "rope+window", "t5"]
    twins = {"fox": (1.64, 1.63, 1.63), "alibi": (1.64, 1.63, 1.631), "rope": (1.7, 4.0, 5.0)}
    found = standing(rows(twins), 2, "16×")
    assert found is not None
    assert found.ranks == {"fox": "1–2", "alibi": "1–2", "rope": "3"}


def test_wide_scatter_of_those_that_fail_hides_no_difference_of_those_that_do_not() -> None:
    alone = standing(rows({spec: BITS[spec] for spec in ("fox", "alibi", "t5")}), 2, "16×")
    together = standing(rows(), 2, "16×")
    assert alone is not None
    assert together is not None
    assert alone.ranks == {"fox": "1", "alibi": "2", "t5": "3"}
    assert together.ranks["fox"] == "1"


@pytest.mark.parametrize("wide", mostly_slow([0.0, 0.1], 0.1))
def test_equal_encodings_are_seldom_called_different(wide: float) -> None:
    """Eight that are equal, and four that fail and scatter by ``wide`` more: a wrong difference in 5 % of tables."""
    chance, wrong, tables = np.random.default_rng(3), 0, 120
    for _ in range(tables):
        texts, found = chance.normal(0, 0.3, 12), {}
        for number in range(12):
            mean, scatter = (1.6, 0.02) if number < 8 else (3.0 + number, 0.02 + wide)
            own = [mean + texts + chance.normal(0, scatter) + chance.normal(0, 0.05, 12) for _ in range(3)]
            found[f"e{number}"] = [
                {"bits": [list(v)], "positions": [1.0], "bin": 1, "seed": s, "training": {}} for s, v in enumerate(own)
            ]
        result = standing(rows_of(found), 0, "1×")
        assert result is not None
        equal = {f"e{number}" for number in range(8)}
        wrong += any(set(one.beaten_by) & equal for one in result.ranked if one.name in equal)
    assert wrong <= 13  # 5 % of 120 is 6; more than 13 would happen by chance once in three hundred times


def test_rows_without_the_seeds_of_most_are_left_out_and_named() -> None:
    found = {**made_up(), "nope": made_up({"nope": BITS["nope"]}, seeds=(0,))["nope"]}
    result = standing(rows_of(found), 2, "16×")
    assert result is not None
    assert result.seeds == (0, 1, 2)
    assert result.left_out == ("nope",)
    assert "nope" not in result.ranks
    assert "Without the same seeds, and so without a rank: nope." in remarks(result)


def test_where_some_rows_have_further_seeds_the_words_say_which_seeds_count() -> None:
    found = {name: runs[:1] for name, runs in made_up().items()}
    found["fox"] = made_up()["fox"]
    result = standing(rows_of(found), 2, "16×")
    assert result is not None
    assert (result.seeds, result.cut) == ((0,), True)
    assert leading(result).startswith("At 16×, with seed 0 alone, which all that are ranked have, ")
    assert "Some rows have further seeds" in remarks(result)
    whole = standing(rows(), 2, "16×")
    assert whole is not None
    assert "further seeds" not in remarks(whole)


def test_nothing_is_ranked_where_nothing_can_be() -> None:
    assert standing(rows({"rope": BITS["rope"]}), 0, "1×") is None
    assert standing(rows({"learned": BITS["learned"]}), 2, "16×") is None
    assert standings_of([], SETTINGS.lengths) == []


def test_words_follow_the_ranks() -> None:
    _, last = standings_of(rows(), SETTINGS.lengths)
    assert leading(last) == f"At 16×, fox is ahead of all others with {last.ranked[0].interval.mean:.3f} bits per byte."
    assert "21 pairs at 16×, each compared on the same 24 windows with 3 seeds" in remarks(last)
    twins = standing(rows({"fox": (1.6,), "alibi": (1.6,), "t5": (1.9 + BITS_SCALE.close,)}), 0, "1×")
    assert twins is not None
    first, second = (one.name for one in twins.ranked[:2])
    assert leading(twins).startswith(f"At 1×, {first} needs the fewest")
    assert f"; {second} is not behind it beyond chance." in leading(twins)
    same = standing(rows({"fox": (1.6,), "alibi": (1.6,)}), 0, "1×")
    assert same is not None
    assert "no difference to the best" in leading(same)
    single = standing(rows(seeds=(0,)), 0, "1×")
    assert single is not None
    assert "With one seed this ranks these models" in remarks(single)
