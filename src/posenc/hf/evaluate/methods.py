"""How a checkpoint reads a long text: as it is, the end of it alone, in chunks, or under a context extension.

LongRoPE's and LongRoPE2's factors are searched on the model's own loss: LongRoPE's search judges by the loss of the
last tokens of texts, LongRoPE2's by the loss of needles in documents. A search is a function of these losses, and each
is logged as it is measured, so that a stopped search goes on where it was.

Source: Ding et al., LongRoPE, arXiv 2402.13753, sections 3.3 and 4.1; Shang et al., LongRoPE2, arXiv 2502.20082,
    section 3.2.
Departs from the source: rope type "longrope" has one gain for both sets of factors. LongRoPE's is Phi-3's, for the
    target and in all steps. LongRoPE2's paper names none, and its short windows keep the original rotation: it is 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from posenc.evaluation.likelihood import token_losses
from posenc.evaluation.log import MeasurementLog, fingerprint, lock_of
from posenc.evaluation.needles import ScoredText
from posenc.evaluation.report import AS_IS, CHUNKED, CUT
from posenc.frequencies.longrope import gain_of
from posenc.frequencies.modules import LongRoPE
from posenc.frequencies.resonance import Resonance
from posenc.frequencies.spectrum import Spectrum
from posenc.hf.attach import detach
from posenc.hf.attach.rotary_modules import RotaryModules, apply
from posenc.hf.attach.scaling_methods import AUTO, BY_NEEDLES, DISTANCES, RESONANT, SEARCHES, check_method
from posenc.search import CriticalPairs, Progress, Settings, critical_pairs, search_longrope2
from posenc.search import search as search_factors

UNCHANGED = (AS_IS, CUT, CHUNKED)
_NAME = re.compile(r"([a-z0-9_]+(?:\+resonance)?)(?:@([0-9]+(?:\.[0-9]+)?))?")


class Method(NamedTuple):
    """A method by name; ``yarn@2`` is for twice the trained length, ``yarn`` for the longest length that is read."""

    name: str
    times: float | None = None

    @classmethod
    def parse(cls, text: str) -> Method:
        """From text.

        Raises:
            ValueError: for an unknown name, a method that trains or chooses, and a factor that is not above 1.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"methods: names like as_is, cut, chunked, yarn and yarn@2 are needed, got {text!r}")
        name, times = match[1], float(match[2]) if match[2] else None
        if name not in UNCHANGED:
            name = check_method(name)
            if name in (AUTO, BY_NEEDLES):
                raise ValueError(f"methods: {name} chooses; posenc extend does that, then evaluate its folder")
        if times is not None and (times <= 1 or name in UNCHANGED):
            what = "takes no factor" if name in UNCHANGED else f"needs a factor above 1, got {match[2]}"
            raise ValueError(f"methods: {text}: {name} {what}")
        return cls(name, times)

    def target(self, trained: int, longest: int) -> int:
        """Tokens that the model is extended to."""
        return longest if self.times is None else round(self.times * trained)

    def __str__(self) -> str:
        return self.name if self.times is None else f"{self.name}@{self.times:g}"


@contextmanager
def applied(
    method: Method,
    rotations: RotaryModules | None,
    trained: int,
    longest: int,
    *,
    search: Settings,
    pieces: Sequence[Tensor],
    scored: int,
    folder: Path | None,
) -> Iterator[None]:
    """Context manager: the model under a method, restored afterwards.

    Args:
        method: of reading.
        rotations: of the model; None if its methods leave it unchanged.
        trained: tokens.
        longest: tokens that are read at most.
        search: sizes of LongRoPE's search.
        pieces: texts that it judges by, of at least the target's tokens; none of them is evaluated.
        scored: tokens of each at its end.
        folder: where the search keeps what it has found; None: nowhere.
    """
    target = method.target(trained, longest)
    if rotations is None or method.name in UNCHANGED or target <= trained:
        yield
    elif method.name in DISTANCES:
        apply(rotations, method.name, trained, target)
        try:
            yield
        finally:
            detach(rotations.model)
    elif method.name in SEARCHES:
        searcher = FactorSearch(
            rotations, original_length=trained, length=target, last=scored, settings=search, seed=0,
            resonant=method.name.endswith(RESONANT),
        )  # fmt: skip
        factors = _searched_factors(searcher, [piece[:target] for piece in pieces], trained, target, folder)
        with rotations.temporarily(searcher.config((1.0,) * searcher.pairs, factors)):
            yield
    else:
        with rotations.temporarily(rotations.planned_config(method.name, trained, target)):
            yield


def search_digest(weights: str, trained: int, settings: Settings, pieces: Sequence[Tensor], scored: int) -> str:
    """A hash of everything but the target that decides the factors of LongRoPE's search.

    Args:
        weights: the model's `posenc.evaluation.log.fingerprint`.
        trained, settings, pieces, scored: as `applied` and `FactorSearch` take them.
    """
    content = json.dumps([weights, trained, asdict(settings), [piece.tolist() for piece in pieces], scored])
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _searched_factors(
    searcher: FactorSearch, pieces: Sequence[Tensor], trained: int, target: int, folder: Path | None
) -> tuple[float, ...]:
    """LongRoPE's factors; one of several processes measures, and the others wait for what it has found."""
    if folder is None:
        return searcher.search(pieces, trained=trained, factor=target / trained)
    path = folder / "search.jsonl"
    with lock_of(path):
        return searcher.search(pieces, trained=trained, factor=target / trained, log=MeasurementLog(path))


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
        log: MeasurementLog | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[float, ...]:
        """The factors with the lowest mean loss on the last tokens of pieces of text.

        Args:
            pieces: of tokens, of the length that the factors are for.
            trained: tokens that the search takes for the training length.
            factor: length over training length.
            onto: factors that the model has already, which those of the search multiply.
            log: of the losses, from which a stopped search goes on.
            progress: is called with a line of text at each step.
        """
        before = tuple(onto) if onto is not None else (1.0,) * self.pairs
        loss = self._logged_loss([ScoredText(piece, self.last) for piece in pieces], log)
        best = search_factors(
            lambda candidate: loss([a * b for a, b in zip(before, candidate.factors, strict=True)]),
            pairs=self.pairs, base=self.rope.base, original_length=trained, factor=factor, seed=self.seed,
            settings=self.settings, progress=_reported(progress),
        )  # fmt: skip
        return tuple(a * b for a, b in zip(before, best.factors, strict=True))

    def search_by_needles(
        self,
        documents: Sequence[ScoredText],
        *,
        log: MeasurementLog | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[float, ...]:
        """LongRoPE2's factors: those with the lowest mean loss of the needles.

        Args:
            documents: of `posenc.evaluation.needles.needle_documents`, of the new context length.
            log: of the losses, from which a stopped search goes on.
            progress: is called with a line of text at each step.
        """
        loss = self._logged_loss(documents, log)
        best = search_longrope2(
            lambda candidate: loss(candidate.factors), pairs=self.pairs, base=self.rope.base,
            original_length=self.original_length, factor=self.length / self.original_length, seed=self.seed,
            settings=self.settings, progress=_reported(progress),
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

    def _logged_loss(
        self, texts: Sequence[ScoredText], log: MeasurementLog | None
    ) -> Callable[[Sequence[float]], float]:  # fmt: skip
        """The mean loss of texts under some factors, which is measured once; no number stands in the log as text."""
        log = MeasurementLog() if log is None else log
        content = [(text.tokens.tolist(), text.last) for text in texts]
        decides = (self.original_length, self.length, self.gain, self.resonant, content)
        digest = hashlib.sha256(repr(decides).encode()).hexdigest()[:16]
        weights = fingerprint(self.rotations.model)

        def loss(factors: Sequence[float]) -> float:
            key = f"{weights}, search {digest}, factors {list(factors)}"
            known = log.get(key)
            if known is None:
                known = self._mean_loss(factors, texts)
                log.put(key, known if math.isfinite(known) else str(known))
            return float(known)

        return loss

    def _mean_loss(self, factors: Sequence[float], texts: Sequence[ScoredText]) -> float:
        """The mean over texts of the mean loss of their last tokens, under these factors at any length."""
        with self.rotations.temporarily(self.config(factors, factors)):
            losses = [float(token_losses(self.rotations.model, *text).mean()) for text in texts]
        return math.fsum(losses) / len(losses)


def _reported(progress: Callable[[str], None]) -> Callable[[Progress], None]:
    return lambda at: progress(
        f"generation {at.generation} of {at.generations}: {at.fitness:.4f} nats, {at.evaluations} evaluations"
    )
