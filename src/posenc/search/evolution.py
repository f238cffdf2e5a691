"""Generations of candidates: the population, then mutations and crossovers of the best, none of them twice.

What a move returns, in logarithms of factors, may be out of order, out of bounds and off the grid: `Space.nearest`
mends that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from posenc.arguments import check_number, check_whole
from posenc.search.space import Candidate, Seed, Space

Logs = list[float]
Move = Callable[[float], tuple[Logs, int]]  # how much wider than usual → logarithms of factors, a choice

FINEST, WIDEST = 0.003, 1.0  # steps of a segment: less than half a step of the grid at 1.01, and a factor of e
PLATEAU = 0.3  # of the moves of a segment make it level
CENTRE = 5  # of the best candidates make the centre
REACH, SPREAD = 1.4, 0.6  # of a step away from the centre: along a difference of parents, and in each pair by itself


class Draw:
    """Random numbers that are the same under every version of Python, which guarantees this only for `random`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def below(self, end: int) -> int:
        """A whole number in 0 … end − 1."""
        return int(self.random() * end)

    def rank(self, end: int) -> int:
        """The same, but rather a low one."""
        return min(self.below(end), self.below(end))

    def normal(self) -> float:
        """A number of the standard normal distribution."""
        return math.sqrt(-2 * math.log(1 - self.random())) * math.cos(2 * math.pi * self.random())


class Parents:
    """The best of everything tried, best first; candidates without a fitness only where there is nothing else."""

    def __init__(self, space: Space, history: Mapping[Candidate, float], count: int) -> None:
        ranked = sorted(history, key=history.__getitem__)  # of equals the earlier one first
        finite = [candidate for candidate in ranked if math.isfinite(history[candidate])]
        self.candidates = (finite or ranked)[:count]
        self.logs = [space.logs(candidate) for candidate in self.candidates]
        best = self.logs[:CENTRE]
        weights = [math.log(len(best) + 0.5) - math.log(rank + 1) for rank in range(len(best))]
        total = sum(weights)
        columns = list(zip(*self.logs, strict=True))
        self.centre = [sum(w * x for w, x in zip(weights, c, strict=False)) / total for c in columns]
        self.spread = [max(FINEST, _deviation(column)) for column in columns]

    def __len__(self) -> int:
        return len(self.candidates)


def _deviation(column: tuple[float, ...]) -> float:
    mean = sum(column) / len(column)
    return math.sqrt(sum((x - mean) ** 2 for x in column) / len(column))


def between(draw: Draw, space: Space, seeds: Sequence[Logs], wider: float) -> tuple[Logs, int]:
    """A point between two of the seeds, with a segment moved."""
    first, second, share = seeds[draw.below(len(seeds))], seeds[draw.below(len(seeds))], draw.random()
    logs = [a + share * (b - a) for a, b in zip(first, second, strict=True)]
    _move(logs, _run(draw, len(logs)), 0.3 * math.exp(draw.normal()) * draw.normal() * wider)
    return logs, space.choices[draw.below(len(space.choices))]


def redraw(draw: Draw, space: Space, parents: Parents, probability: float) -> tuple[Logs, int]:
    """The paper's mutation: some pairs anew between their neighbours."""
    parent = draw.rank(len(parents))
    ends = [space.log_least, *parents.logs[parent], space.log_limit]
    for pair in range(1, len(ends) - 1):
        if draw.random() < probability:
            ends[pair] = ends[pair - 1] + draw.random() * (ends[pair + 1] - ends[pair - 1])
    return ends[1:-1], _choice(draw, space, parents.candidates[parent], probability)


def segment(draw: Draw, space: Space, parents: Parents, probability: float, wider: float) -> tuple[Logs, int]:
    """A parent with neighbouring factors multiplied by one number or made equal, or with another choice only."""
    parent = draw.rank(len(parents))
    logs, before = list(parents.logs[parent]), parents.candidates[parent]
    choice = _choice(draw, space, before, probability)
    if choice != space.choice(before) and draw.random() < 0.5:
        return logs, choice
    if draw.random() < PLATEAU:
        run = _run(draw, len(logs))
        source = max(run.start - 1, 0) if draw.random() < 0.5 else min(run.stop, len(logs) - 1)
        logs[run.start : run.stop] = [logs[source]] * len(run)
    else:
        step = FINEST * (WIDEST / FINEST) ** draw.random() * wider
        _move(logs, _run(draw, len(logs)), step if draw.random() < 0.5 else -step)
    return logs, choice


def exchange(draw: Draw, space: Space, parents: Parents, probability: float, wider: float) -> tuple[Logs, int]:
    """The paper's crossover: some pairs of one parent instead of another's; blurred after a first try."""
    first, other = draw.rank(len(parents)), draw.below(len(parents))
    blur = FINEST * (wider - 1)
    logs = [
        (b if draw.random() < probability else a) + blur * draw.normal()
        for a, b in zip(parents.logs[first], parents.logs[other], strict=True)
    ]
    return logs, space.choice(parents.candidates[other if draw.random() < probability else first])


def from_centre(draw: Draw, space: Space, parents: Parents, wider: float) -> tuple[Logs, int]:
    """A step from the centre of the best, as wide as the parents are apart."""
    first, other = (parents.logs[draw.below(len(parents))] for _ in range(2))
    reach = REACH * wider * draw.normal()
    logs = [
        centre + reach * (a - b) + SPREAD * wider * spread * draw.normal()
        for centre, a, b, spread in zip(parents.centre, first, other, parents.spread, strict=True)
    ]
    return logs, space.choice(parents.candidates[draw.rank(len(parents))])


def _run(draw: Draw, pairs: int) -> range:
    """Neighbouring pairs; short runs are as likely as long ones."""
    length = round(pairs ** draw.random())
    first = draw.below(pairs - length + 1)
    return range(first, first + length)


def _move(logs: Logs, run: range, step: float) -> None:
    for pair in run:
        logs[pair] += step


def _choice(draw: Draw, space: Space, parent: Candidate, probability: float) -> int:
    if draw.random() < probability:
        return space.choices[draw.below(len(space.choices))]
    return space.choice(parent)


WIDER, TRIES = 1.5, 20  # a move that led to a candidate already known is made wider and tried again


@dataclass(frozen=True)
class Settings:
    """Sizes of the evolution, as the paper has them.

    Args:
        population: candidates before the first generation.
        mutations: new candidates of a generation that come from one parent.
        crossovers: new candidates of a generation that come from several.
        parents: best candidates so far that new ones come from.
        generations: after the population; evaluations are population + generations · (mutations + crossovers).
        probability: that a mutation changes a pair, or the start tokens or critical pair.
        step: of the grid of factors, from 1 on.
        bound: largest factor, in multiples of the search's ``factor``; None: the paper's, 1.25 for LongRoPE and 2 for
            LongRoPE2.
    """

    population: int = 64
    mutations: int = 16
    crossovers: int = 16
    parents: int = 32
    generations: int = 40
    probability: float = 0.3
    step: float = 0.01
    bound: float | None = None

    def __post_init__(self) -> None:
        for name in ("population", "parents"):
            check_whole(name, getattr(self, name))
        for name in ("mutations", "crossovers", "generations"):
            check_whole(name, getattr(self, name), least=0)
        if self.generations and not self.mutations + self.crossovers:
            raise ValueError("mutations and crossovers must not both be 0 where generations is not")
        if self.parents > self.population:
            raise ValueError(f"parents must be at most population = {self.population}, got {self.parents}")
        check_number("probability", self.probability, above=0, most=1)
        check_number("step", self.step, least=1e-6)
        if self.bound is not None:
            check_number("bound", self.bound, least=1)


def generations(
    space: Space,
    seeds: Mapping[str, Seed],
    settings: Settings,
    seed: int,
    history: Mapping[Candidate, float],
) -> Iterator[dict[Candidate, str]]:
    """Generations of new candidates, each with its origin. Ends early when no move leads to a new one.

    Args:
        space: what may be tried.
        seeds: what to start from.
        settings: sizes.
        seed: of the random numbers; they and ``history`` alone decide what comes.
        history: fitness of everything tried, lower is better, in the order in which it was yielded; the caller adds
            a generation to it before asking for the next.
    """
    draw = Draw(seed)
    brood = Brood(space, history)
    for name, start in seeds.items():
        if len(brood) < settings.population:
            brood.add_if_new(space.nearest(*start), name)
    starts = [logs for logs, _ in seeds.values()]
    while len(brood) < settings.population:
        if not brood.breed("between seeds", lambda wider: between(draw, space, starts, wider)):
            break
    yield brood.children
    for _ in range(settings.generations):
        brood = Brood(space, history)
        parents = Parents(space, history, settings.parents)
        _breed(brood, parents, draw, space, settings)
        if not brood.children:
            return
        yield brood.children


class Brood:
    """The new candidates of a generation."""

    def __init__(self, space: Space, history: Mapping[Candidate, float]) -> None:
        self.space, self.history = space, history
        self.children: dict[Candidate, str] = {}

    def __len__(self) -> int:
        return len(self.children)

    def add_if_new(self, child: Candidate, origin: str) -> bool:
        """Add a child unless it is known."""
        if child in self.history or child in self.children:
            return False
        self.children[child] = origin
        return True

    def breed(self, origin: str, move: Move) -> bool:
        """Add one new child of a move; whether it found one."""
        return any(self.add_if_new(self.space.nearest(*move(WIDER**attempt)), origin) for attempt in range(TRIES))


def _breed(brood: Brood, parents: Parents, draw: Draw, space: Space, settings: Settings) -> None:
    """Mutations and crossovers of a generation."""
    for index in range(settings.mutations):
        if index < settings.mutations // 4:
            brood.breed("redraw", lambda _: redraw(draw, space, parents, settings.probability))
        else:
            brood.breed("segment", lambda wider: segment(draw, space, parents, settings.probability, wider))
    for index in range(settings.crossovers):
        if index < settings.crossovers // 4:
            brood.breed("exchange", lambda wider: exchange(draw, space, parents, settings.probability, wider))
        else:
            brood.breed("centre", lambda wider: from_centre(draw, space, parents, wider))
