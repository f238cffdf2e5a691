"""LongRoPE's factors for a live model: a search on the model's own loss, alone or in LongRoPE's progressive recipe.

    1  factors for the middle length              searched on the model as it is
    2  a short training at the middle length      with these factors
    3  factors for the target, onto those         searched on the trained model; none where the middle is the target
    4  factors for texts of the training length   searched on the trained model, at most those of the middle

Each step leaves its result in a folder, as soon as it has one: searches an evaluation at a time, the training every
few steps. The same call goes on from there, and ends as one that was never stopped.

Source: Ding et al., LongRoPE, arXiv 2402.13753, sections 3.3 and 4.1.
Departs from the source: the gain on queries and keys is Phi-3's, for the target and in all steps, as rope type
    "longrope" has one for both sets of factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from posenc.frequencies.longrope import LongRoPE, gain_of
from posenc.hf.extend.methods import choices
from posenc.hf.extend.rotary_modules import RotaryModules
from posenc.hf.extend.tuning import Recipe, drawn, tune
from posenc.hf.text_loss import evenly, token_losses
from posenc.search import Candidate, Settings, search

SIZES = Settings(population=16, mutations=4, crossovers=4, parents=8, generations=4)
"""48 evaluations; the paper's are `Settings()`, 1344 of them."""


class FactorSearch:
    """Searches for one model, which it leaves as it was.

    Args:
        rotations: of the model.
        kind: of the layers whose rotation is searched.
        original_length: tokens that the model was trained at.
        length: tokens that it is extended to; the gain is for it, in all searches.
        last: scored tokens of a piece.
        settings: sizes of the search.
        seed: of the search.
    """

    def __init__(
        self, rotations: RotaryModules, *, original_length: int, length: int, last: int, settings: Settings, seed: int
    ) -> None:
        far = rotations.far(original_length)
        if len(far) > 1:
            raise ValueError(f"model: the search is for one rotation, and {' and '.join(far)} layers differ: take yarn")
        ((self.kind, self.rope),) = far.items()
        if self.rope.scaling is not None:
            advice = " or ".join(choices((self.rope,)))
            raise ValueError(
                f"model: its frequencies are scaled already, which the search does not start from: take {advice}"
            )
        self.rotations, self.original_length, self.length = rotations, original_length, length
        self.last, self.settings, self.seed = last, settings, seed
        self.gain = gain_of("su", length / original_length, original_length)

    @property
    def pairs(self) -> int:
        """That rotate."""
        return self.rope.rotary_dim // 2

    def config(self, short: Sequence[float], long: Sequence[float]) -> dict[str, object]:
        """The configuration with these factors."""
        scaling = LongRoPE(
            short, long, original_length=self.original_length, factor=self.length / self.original_length, gain=self.gain
        )
        rope = self.rope.replace(scaling=scaling)
        return self.rotations.written({self.kind: rope}, self.original_length, self.length)

    def search(
        self,
        pieces: Sequence[Tensor],
        *,
        trained: int,
        factor: float,
        onto: Sequence[float] | None = None,
        journal: Path | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[float, ...]:
        """The factors with the lowest mean loss on the last tokens of pieces of text.

        Args:
            pieces: of tokens, of the length that the factors are for.
            trained: tokens that the search takes for the model's own length.
            factor: how many times longer.
            onto: factors that the model has by now, which those of the search multiply.
            journal: of `posenc.search.search`.
            progress: is told where it stands.
        """
        before = tuple(onto) if onto is not None else (1.0,) * self.pairs

        def loss(candidate: Candidate) -> float:
            factors = [a * b for a, b in zip(before, candidate.factors, strict=True)]
            with self.rotations.turned(self.config(factors, factors)):
                losses = [float(token_losses(self.rotations.model, piece, self.last).mean()) for piece in pieces]
            return math.fsum(losses) / len(losses)

        found = search(
            loss, pairs=self.pairs, base=self.rope.base, original_length=trained, factor=factor, seed=self.seed,
            settings=self.settings, journal=journal,
            progress=lambda at: progress(
                f"generation {at.generation} of {at.generations}: {at.fitness:.4f} nats, {at.evaluations} evaluations"
            ),
        )  # fmt: skip
        return tuple(a * b for a, b in zip(before, found.factors, strict=True))


def middle_of(recipe: Recipe, original_length: int, length: int) -> int:
    """The length of the training.

    Raises:
        ValueError: unless it lies past the training length, and not past the target.
    """
    half = length // 2
    middle = recipe.intermediate or (half if half > original_length else length)
    if not original_length < middle <= length:
        raise ValueError(
            f"intermediate must lie in {original_length + 1}..{length}, past the trained length and not past the "
            f"target, got {middle}"
        )
    return middle


def progressive_search(
    searcher: FactorSearch, text: Tensor, recipe: Recipe, *, pieces: int, work: Path, progress: Callable[[str], None]
) -> nn.Module:
    """Take a model through the recipe, in place; returns it, with its last rotation.

    Args:
        searcher: of the model.
        text: tokens to search and train on.
        recipe: numbers.
        pieces: of text that a candidate is judged on.
        work: a folder for what each step leaves.
        progress: is told where it stands.
    """
    original, length, rotations = searcher.original_length, searcher.length, searcher.rotations
    middle = middle_of(recipe, original, length)
    drawn(text, recipe, middle, 0)  # refuses a short text before hours of searching

    def searched(name: str, at: int, trained: int, factor: float, onto: tuple[float, ...] | None) -> tuple[float, ...]:
        return searcher.search(
            evenly(text, at, pieces), trained=trained, factor=factor, onto=onto, journal=work / f"search-{name}.jsonl",
            progress=lambda told: progress(f"{name} length, {told}"),
        )  # fmt: skip

    first = searched("middle", middle, original, middle / original, None)
    rotations.put(searcher.config(first, first))
    model = tune(rotations.model, text, recipe, middle, state=work / "tuned.pt", progress=progress)
    last = first if middle == length else searched("target", length, middle, length / middle, first)
    short = searched("short", original, original, middle / original, None)
    rotations.put(searcher.config(short, last))
    return model
