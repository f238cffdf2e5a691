"""LongRoPE's and LongRoPE2's factors for a live model: searches on the model's own loss.

LongRoPE's search judges by the loss of the last tokens of texts, LongRoPE2's by the loss of needles in documents. Each
evaluation is saved as it is made, so that a stopped search goes on where it was.

Source: Ding et al., LongRoPE, arXiv 2402.13753, sections 3.3 and 4.1; Shang et al., LongRoPE2, arXiv 2502.20082,
    section 3.2.
Departs from the source: rope type "longrope" has one gain for both sets of factors. LongRoPE's is Phi-3's, for the
    target and in all steps. LongRoPE2's paper names none, and its short windows keep the original rotation: it is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from posenc.evaluation.likelihood import token_losses
from posenc.evaluation.needles import ScoredText
from posenc.frequencies.longrope import gain_of
from posenc.frequencies.modules import LongRoPE
from posenc.frequencies.resonance import Resonance
from posenc.frequencies.spectrum import Spectrum
from posenc.hf.attach.rotary_modules import RotaryModules
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
        resonant: whether wavelengths are rounded to whole tokens under all factors, those of the search too.
    """

    def __init__(
        self, rotations: RotaryModules, *, original_length: int, length: int, last: int, settings: Settings, seed: int,
        gain: float | None = None, resonant: bool = False,
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
        self.last, self.settings, self.seed, self.resonant = last, settings, seed, resonant
        self.gain = gain_of("su" if gain is None else gain, length / original_length, original_length)

    @property
    def pairs(self) -> int:
        """The number of pairs that rotate."""
        return self.rope.rotary_dim // 2

    def config(self, short: Sequence[float], long: Sequence[float]) -> dict[str, object]:
        """The configuration with these factors."""
        if self.resonant:
            short, long = (self._rounded(factors) for factors in (short, long))
        scaling = LongRoPE(
            short, long, original_length=self.original_length, factor=self.length / self.original_length, gain=self.gain
        )
        rope = self.rope.replace(scaling=scaling)
        return self.rotations.config_with({self.kind: rope}, self.original_length, self.length)

    def _rounded(self, factors: Sequence[float]) -> list[float]:
        """The factors under which wavelengths are whole numbers of tokens, the nearest ones."""
        theta = self.rope.spectrum().theta
        resonant = Resonance()(Spectrum(theta / theta.new_tensor(factors))).theta
        return [float(factor) for factor in theta / resonant]

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
