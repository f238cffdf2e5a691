"""Ranks of a table's rows at one test length, and what may be said of them; `posenc.lab.statistics.ranking` tests.

There, a pair is judged with the scatter of seeds that all encodings have together. In these tables the scatter grows
with the loss: encodings that fail scatter ten times as much as those that do not, and among the latter nothing could be
told from anything. So here a pair of encodings close to the best (`Scale.close`) is judged with the scatter of all
those. Any other pair is judged twice, with the scatter of all that are no worse than the worse of the two and with that
of all encodings, and the smaller p-value counts double. Then all pairs together are adjusted by Holm, as there.

Only rows with the same seeds can be compared in pairs. Where a run was interrupted, or folders were put together, the
seeds that most rows have decide, and rows without all of them are left out and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from posenc.lab.report.scale import BITS, Scale
from posenc.lab.specs import is_control
from posenc.lab.statistics.intervals import mean_interval, p_value
from posenc.lab.statistics.ranking import PValues, Ranked, holm, leaders, scatter_of_seeds
from posenc.lab.words import join, verb

LEVEL = 0.05  # the chance, at most, that any difference of a table is called real and is not
ONE_SEED = "With one seed this ranks these models, and says nothing about another training of them."


class RankedRow(Protocol):
    """A row with numbers of each seed and window."""

    @property
    def spec(self) -> str: ...
    @property
    def seed_numbers(self) -> list[int]: ...
    def windows(self, length: int, seeds: Sequence[int]) -> NDArray[np.float64] | None: ...


class Standing(NamedTuple):
    """Who is where at one test length."""

    label: str  # of the length, ``16×``
    ranked: list[Ranked]  # the best first
    tests: PValues
    values: dict[str, NDArray[np.float64]]  # (seeds, windows)
    seeds: tuple[int, ...]
    left_out: tuple[str, ...]  # rows without all of these seeds
    cut: bool = False  # whether some row has further seeds, which its mean in the table counts and its rank does not
    scale: Scale = BITS

    @property
    def where(self) -> str:
        """What a sentence about these ranks begins with."""
        if not self.cut:
            return f"At {self.label}"
        named = ("seed " if len(self.seeds) == 1 else "seeds ") + join([str(seed) for seed in self.seeds])
        return f"At {self.label}, with {named} alone, which all that are ranked have"

    @property
    def ranks(self) -> dict[str, str]:
        """``2–4`` for each spec; one number where nothing is left open."""
        return {one.name: reach(one) for one in self.ranked}


def reach(one: Ranked) -> str:
    """The ranks that an encoding may have, ``2–4``."""
    return str(one.best) if one.best == one.worst else f"{one.best}–{one.worst}"


def standing(rows: Sequence[RankedRow], length: int, label: str, scale: Scale = BITS) -> Standing | None:
    """Ranks at the test length with this number, from 0; None where fewer than two rows can be compared.

    Args:
        rows: of the table; where an encoding is undefined it is not ranked.
        length: which of the test lengths.
        label: how that length is called.
        scale: what the numbers of the rows are.
    """
    defined = [row for row in rows if row.windows(length, row.seed_numbers) is not None]
    if not defined:
        return None
    sets = Counter(tuple(row.seed_numbers) for row in defined)
    seeds = max(sets, key=lambda found: (sets[found], len(found)))
    taking_part = [row for row in defined if set(seeds) <= set(row.seed_numbers)]
    values = {row.spec: found for row in taking_part if (found := row.windows(length, seeds)) is not None}
    if len(values) < 2 or next(iter(values.values())).size < 2:
        return None
    left_out = tuple(row.spec for row in defined if row.spec not in values)
    tests = _tests(values, scale.close)
    cut = any(len(row.seed_numbers) > len(seeds) for row in taking_part)
    return Standing(label, _ranked(tests, values), tests, values, seeds, left_out, cut, scale)


def _tests(values: Mapping[str, NDArray[np.float64]], near: float) -> PValues:
    """Adjusted p-values of all pairs; the names are sorted by their means, the best first."""
    names = tuple(sorted(values, key=lambda name: float(values[name].mean())))
    cube = np.stack([values[name] for name in names])
    close = max(2, int((cube.mean(axis=(1, 2)) <= cube[0].mean() + near).sum()))
    scatter = {last: scatter_of_seeds(cube[:last]) for last in range(close, len(names) + 1)}
    pairs, found = list(combinations(range(len(names)), 2)), []
    for i, j in pairs:
        pools = {max(close, j + 1)} | ({len(names)} if j >= close else set())
        tests = [p_value(cube[i] - cube[j], at_least=scatter[pool]) for pool in pools]
        found.append(min(1.0, len(tests) * min(tests)))
    matrix = np.ones((len(names), len(names)))
    for (i, j), p in zip(pairs, holm(found), strict=True):
        matrix[i, j] = matrix[j, i] = p
    return PValues(names, matrix)


def _ranked(tests: PValues, values: Mapping[str, NDArray[np.float64]]) -> list[Ranked]:
    """The best mean first; the p-values decide which ranks are open."""
    names, found = tests.names, []
    for place, name in enumerate(names):
        others = np.flatnonzero(tests.matrix[place] <= LEVEL)
        better = tuple(names[other] for other in others if other < place)
        worse = tuple(names[other] for other in others if other > place)
        interval = mean_interval(values[name])
        found.append(Ranked(name, interval, 1 + len(better), len(names) - len(worse), better, worse))
    return found


def standings_of(rows: Sequence[RankedRow], lengths: Sequence[int], scale: Scale = BITS) -> list[Standing]:
    """Ranks at the training length and at the longest one, where controls are ranked too; ``lengths`` in the first."""
    last = len(lengths) - 1
    own = [row for row in rows if not is_control(row.spec)]
    found = [standing(own, 0, f"{lengths[0]}×", scale), standing(rows, last, f"{lengths[last]}×", scale)]
    return [one for one in found[: last + 1] if one is not None]


def leading(found: Standing) -> str:
    """A sentence about who may be the best."""
    first = leaders(found.ranked)
    best = found.ranked[0]
    value = found.scale.value(best.interval.mean)
    if len(first) == 1:
        return f"{found.where}, {best.name} is ahead of all others with {value}."
    rest = [name for name in first if name != best.name]
    if len(first) == len(found.ranked):
        return f"{found.where}, no difference to the best, {best.name} with {value}, is beyond chance."
    shown = join(rest) if len(rest) <= 6 else f"{len(rest)} others"
    level = f"{shown} {verb(rest, 'is', 'are')} not behind it beyond chance"
    return f"{found.where}, {best.name} {found.scale.most}, {value}; {level}."


def remarks(found: Standing) -> str:
    """How the ranks came about, and who has none."""
    seeds = f"{len(found.seeds)} seeds" if len(found.seeds) > 1 else "one seed"
    windows = next(iter(found.values.values())).shape[1]
    pairs = len(found.ranked) * (len(found.ranked) - 1) // 2
    text = (
        f"{pairs:,} pairs at {found.label}, each compared on the same {windows} {found.scale.samples} with {seeds}, "
        "and all of them tested together (Holm, 5 %): the chance that even one difference is called real and is not is "
        "at most one in twenty. A rank of 2–4 means: one is better beyond chance, and all but four are worse."
    )
    if len(found.seeds) == 1:
        text += f" {ONE_SEED}"
    if found.cut:
        text += " Some rows have further seeds: their means in the table count them, the ranks do not."
    if found.left_out:
        text += f" Without the same seeds, and so without a rank: {join(list(found.left_out))}."
    return text
