"""Generations of candidates: the population, then mutations and crossovers of the best, none of them twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from posenc.search.moves import Draw, Move, Parents, between, exchange, from_centre, redraw, segment
from posenc.search.space import Candidate, Seed, Space

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
        for name in ("population", "mutations", "crossovers", "parents", "generations"):
            least, value = 0 if name in ("mutations", "crossovers", "generations") else 1, getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        if self.generations and not self.mutations + self.crossovers:
            raise ValueError("mutations and crossovers must not both be 0 where generations is not")
        if self.parents > self.population:
            raise ValueError(f"parents must be at most population = {self.population}, got {self.parents}")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {self.probability!r}")
        if not (math.isfinite(self.step) and self.step >= 1e-6):
            raise ValueError(f"step must be a finite number of at least 1e-6, got {self.step!r}")
        if self.bound is not None and not (math.isfinite(self.bound) and self.bound >= 1):
            raise ValueError(f"bound must be a finite number of at least 1, got {self.bound!r}")


def generations(
    space: Space,
    seeds: Mapping[str, Seed],
    settings: Settings,
    seed: int,
    history: Mapping[Candidate, float],
) -> Iterator[dict[Candidate, str]]:
    """Generations of new candidates, each with its origin. Ends early when no candidate is left.

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
        """Add one child of a move; the next free candidate if the move finds none; none if there is none."""
        for attempt in range(TRIES):
            child = self.space.nearest(*move(WIDER**attempt))
            if self.add_if_new(child, origin):
                return True
        free = self.space.next_free(child, self.history.keys() | self.children.keys())
        return free is not None and self.add_if_new(free, "next free")


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
