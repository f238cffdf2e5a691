"""LongRoPE's and LongRoPE2's factors for a live model: searches on the model's own loss, and the recipes that train.

LongRoPE's search judges by the loss of the last tokens of texts, LongRoPE2's by the loss of needles in documents.
LongRoPE's progressive recipe:

    1  factors for the intermediate length      searched on the original model
    2  fine-tuning at the intermediate length   with these factors
    3  factors for the target, on top of those  searched on the tuned model; none where the intermediate is the target
    4  factors for the training length          searched on the tuned model, at most those of the intermediate length

LongRoPE2's, with mixed windows (`posenc.hf.extend.tuning`, a share of short ones above 0):

    1  critical pair and factors for the target searched on the original model, by needles
    2  fine-tuning at the target                short windows under the original rotation, long ones under the factors

Each step saves its results as they come: searches after each evaluation, the training every few steps. The same call
resumes from there, with the result of an uninterrupted run.

Source: Ding et al., LongRoPE, arXiv 2402.13753, sections 3.3 and 4.1; Shang et al., LongRoPE2, arXiv 2502.20082,
    sections 3.2 and 3.3.
Departs from the source: rope type "longrope" has one gain for both sets of factors. LongRoPE's is Phi-3's, for the
    target and in all steps. LongRoPE2's paper names none, and its short windows keep the original rotation: it is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from posenc.evaluation.likelihood import evenly_spaced_pieces, token_losses
from posenc.evaluation.needles import ScoredText
from posenc.frequencies.longrope import gain_of
from posenc.frequencies.modules import LongRoPE
from posenc.hf.extend.rotary_modules import RotaryModules
from posenc.hf.extend.tuning import Recipe, tune
from posenc.search import Candidate, CriticalPairs, Progress, Settings, critical_pairs, search_longrope2
from posenc.search import search as search_factors

SIZES = Settings(population=16, mutations=4, crossovers=4, parents=8, generations=4)
"""48 evaluations; the paper's are `Settings()`, 1344 of them."""


class FactorSearch:
    """Searches factors for one model, whose rotation is restored after each evaluation.

    Args:
        rotations: of the model.
        original_length: tokens that the model was trained at.
        length: tokens that it is extended to; the gain is for it, in all searches.
        last: scored tokens of a piece.
        settings: sizes of the search.
        seed: of the search.
        gain: on queries and keys, under both sets of factors; None: LongRoPE's for ``length``.
    """

    def __init__(
        self, rotations: RotaryModules, *, original_length: int, length: int, last: int, settings: Settings, seed: int,
        gain: float | None = None,
    ) -> None:  # fmt: skip
        ropes = rotations.long_range_ropes(original_length)
        if len(ropes) > 1:
            raise ValueError(
                f"model: the search is for one rotation, and {' and '.join(ropes)} layers differ: use yarn"
            )
        ((self.kind, self.rope),) = ropes.items()
        if self.rope.scaling is not None:
            remapped = "self_extend, which remaps distances"
            advice = remapped if self.rope.length_dependent else "auto, which keeps the rope type"
            raise ValueError(
                f"model: its frequencies are scaled already, which the search cannot start from: use {advice}"
            )
        self.rotations, self.original_length, self.length = rotations, original_length, length
        self.last, self.settings, self.seed = last, settings, seed
        self.gain = gain_of("su" if gain is None else gain, length / original_length, original_length)

    @property
    def pairs(self) -> int:
        """The number of pairs that rotate."""
        return self.rope.rotary_dim // 2

    def config(self, short: Sequence[float], long: Sequence[float]) -> dict[str, object]:
        """The configuration with these factors."""
        scaling = LongRoPE(
            short, long, original_length=self.original_length, factor=self.length / self.original_length, gain=self.gain
        )
        rope = self.rope.replace(scaling=scaling)
        return self.rotations.config_with({self.kind: rope}, self.original_length, self.length)

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
            trained: tokens that the search takes for the training length.
            factor: length over training length.
            onto: factors that the model has already, which those of the search multiply.
            journal: of `posenc.search.search`.
            progress: is called with a line of text at each step.
        """
        before = tuple(onto) if onto is not None else (1.0,) * self.pairs
        texts = [ScoredText(piece, self.last) for piece in pieces]

        def loss(candidate: Candidate) -> float:
            return self._mean_loss([a * b for a, b in zip(before, candidate.factors, strict=True)], texts)

        best = search_factors(
            loss, pairs=self.pairs, base=self.rope.base, original_length=trained, factor=factor, seed=self.seed,
            settings=self.settings, journal=journal, progress=_reported(progress),
        )  # fmt: skip
        return tuple(a * b for a, b in zip(before, best.factors, strict=True))

    def search_by_needles(
        self,
        documents: Sequence[ScoredText],
        *,
        journal: Path | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[float, ...]:
        """LongRoPE2's factors: those with the lowest mean loss of the needles.

        Args:
            documents: of `posenc.evaluation.needles.needle_documents`, of the new context length.
            journal: of `posenc.search.search_longrope2`.
            progress: is called with a line of text at each step.
        """
        best = search_longrope2(
            lambda candidate: self._mean_loss(candidate.factors, documents), pairs=self.pairs, base=self.rope.base,
            original_length=self.original_length, factor=self.length / self.original_length, seed=self.seed,
            settings=self.settings, journal=journal, progress=_reported(progress),
        )  # fmt: skip
        lowest, theoretical = self.critical_pairs()
        progress(
            f"critical pair {best.critical} of {self.pairs} (searched from {theoretical}, the theoretical one, down to "
            f"{lowest}), factors {best.factors[best.critical]:g} to {best.factors[-1]:g} from there on"
        )
        return best.factors

    def critical_pairs(self) -> CriticalPairs:
        """Between which pairs LongRoPE2 searches the critical one; a ValueError where there is none."""
        return critical_pairs(self.pairs, self.rope.base, self.original_length)

    def _mean_loss(self, factors: Sequence[float], texts: Sequence[ScoredText]) -> float:
        """The mean over texts of the mean loss of their last tokens, under these factors at any length."""
        with self.rotations.temporarily(self.config(factors, factors)):
            losses = [float(token_losses(self.rotations.model, *text).mean()) for text in texts]
        return math.fsum(losses) / len(losses)


def _reported(progress: Callable[[str], None]) -> Callable[[Progress], None]:
    return lambda at: progress(
        f"generation {at.generation} of {at.generations}: {at.fitness:.4f} nats, {at.evaluations} evaluations"
    )


def intermediate_length(recipe: Recipe, original_length: int, length: int) -> int:
    """The context length of the fine-tuning.

    Raises:
        ValueError: unless it is above the training length and at most the target; with mixed windows, the target.
    """
    if recipe.short_share:
        if recipe.intermediate not in (None, length):
            raise ValueError(
                f"intermediate must be the target, {length}, where windows are mixed (short_share): LongRoPE2 trains "
                f"there alone; got {recipe.intermediate}"
            )
        return length
    half = length // 2
    intermediate = recipe.intermediate or (half if half > original_length else length)
    if not original_length < intermediate <= length:
        raise ValueError(
            f"intermediate must lie in {original_length + 1}..{length}, above the training length and at most the "
            f"target, got {intermediate}"
        )
    return intermediate


def progressive_search(
    searcher: FactorSearch, text: Tensor, recipe: Recipe, *, pieces: int, work: Path, progress: Callable[[str], None]
) -> nn.Module:
    """Run LongRoPE's recipe on a model, in place; returns the model with its final rotation.

    Args:
        searcher: of the model.
        text: tokens to search and train on.
        recipe: numbers of the recipe.
        pieces: of text that a candidate is evaluated on.
        work: a folder for the results of each step.
        progress: is called with a line of text at each step.
    """
    original, length, rotations = searcher.original_length, searcher.length, searcher.rotations
    intermediate = intermediate_length(recipe, original, length)

    def search(name: str, at: int, trained: int, factor: float, onto: tuple[float, ...] | None) -> tuple[float, ...]:
        return searcher.search(
            evenly_spaced_pieces(text, at, pieces), trained=trained, factor=factor, onto=onto,
            journal=work / f"search-{name}.jsonl", progress=lambda line: progress(f"{name} length, {line}"),
        )  # fmt: skip

    first = search("middle", intermediate, original, intermediate / original, None)
    rotations.rebuild(searcher.config(first, first))
    model = tune(rotations.model, text, recipe, intermediate, state=work / "tuned.pt", progress=progress)
    last = first
    if intermediate != length:
        last = search("target", length, intermediate, length / intermediate, first)
    short = search("short", original, original, intermediate / original, None)
    rotations.rebuild(searcher.config(short, last))
    return model


def mixed_window_training(
    searcher: FactorSearch,
    text: Tensor,
    recipe: Recipe,
    *,
    documents: Sequence[ScoredText],
    work: Path,
    progress: Callable[[str], None],
) -> nn.Module:
    """Run LongRoPE2's recipe on a model, in place; returns the model with its final rotation.

    The short factors are 1 and the gain is 1, so that a window of at most the training length has the original
    rotation; transformers chooses the set by the length of a call, in training as at inference.

    Args:
        searcher: of the model, with gain 1.
        text: tokens to train on.
        recipe: numbers of the recipe, with a share of short windows.
        documents: of needles, that a candidate is evaluated on.
        work: a folder for the results of each step.
        progress: is called with a line of text at each step.
    """
    factors = searcher.search_by_needles(documents, journal=work / "search-target.jsonl", progress=progress)
    rotations = searcher.rotations
    rotations.rebuild(searcher.config((1.0,) * searcher.pairs, factors))
    return tune(
        rotations.model, text, recipe, searcher.length, original_length=searcher.original_length,
        state=work / "tuned.pt", progress=progress,
    )  # fmt: skip
