"""What a row is worth: bits in the same windows at every length, with the frequencies that the row says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from posenc.lab.extension.methods import BASE, SEARCHED, Reading, parse, scaling
from posenc.lab.extension.model import Extended
from posenc.lab.extension.searched import searched
from posenc.lab.extension.settings import ExtensionSettings
from posenc.lab.tasks.task import Measured
from posenc.lab.text.corpus import Corpus
from posenc.lab.text.measure import measure
from posenc.rotary.rope import RoPE
from posenc.search import Candidate


def measure_row(
    model: Extended,
    corpus: Corpus,
    row: str,
    settings: ExtensionSettings,
    device: torch.device,
    on_forward: Callable[[float], None] = lambda share: None,
) -> Measured:
    """Bits in the windows by length, and for LongRoPE what its searches found; see `posenc.lab.text.measure`."""
    s, reading = settings, parse(row)
    found: dict[int, Candidate] = {}
    logits: Callable[[Tensor], Tensor] = partial(model, window=s.train_length if reading.window else None)
    share = 0.0
    if not reading.training and reading.method != BASE:
        factors = {k: k if reading.factor is None else reading.factor for k in s.lengths}
        if reading.method == SEARCHED:
            share = _share_of_search(set(factors.values()), s)
            found = _search(model, corpus, set(factors.values()), s, device, lambda done: on_forward(share * done))
        logits = _scaled(model, reading, factors, s, found)
    measured: dict[str, Any] = dict(
        measure(
            logits,
            corpus,
            train_length=s.train_length,
            lengths=s.lengths,
            windows=s.windows,
            heads=s.heads,
            device=device,
            on_forward=lambda done: on_forward(share + (1 - share) * done),
        )
    )
    measured["lengths"], measured["judged"] = list(s.lengths), s.fine_tune_length
    if found:
        measured["searched"] = {str(factor): candidate._asdict() for factor, candidate in found.items()}
    return measured


def _scaled(
    model: Extended,
    reading: Reading,
    factors: dict[int, int],
    settings: ExtensionSettings,
    found: dict[int, Candidate],
) -> Callable[[Tensor], Tensor]:
    """The model with the frequencies that a row has at the length of the text; ``factors`` by times of training."""
    ropes = {
        k * settings.train_length: RoPE(model.head_dim, scaling=scaling(reading, factor, settings, found.get(factor)))
        for k, factor in factors.items()
    }

    def logits(tokens: Tensor) -> Tensor:
        out: Tensor = model(tokens, rope=ropes[tokens.shape[1]])
        return out

    return logits


def _search(
    model: Extended,
    corpus: Corpus,
    factors: set[int],
    settings: ExtensionSettings,
    device: torch.device,
    on_share: Callable[[float], None],
) -> dict[int, Candidate]:
    """What the search finds for each factor above 1; the time of one grows about as the factor."""
    found, before, total = {}, 0, sum(factors)
    for factor in sorted(factors - {1}):
        tell = partial(_tell, on_share, before / total, factor / total)
        found[factor] = searched(model, corpus, factor, settings, device, tell)
        before += factor
    return found


def _tell(on_share: Callable[[float], None], start: float, width: float, share: float) -> None:
    on_share(start + width * share)


def _share_of_search(factors: set[int], settings: ExtensionSettings) -> float:
    """Of the time of a row that is searched for."""
    looked_at = settings.evaluations * settings.search_pieces * sum(factors - {1})
    return looked_at / (looked_at + settings.windows * sum(settings.lengths))
