"""LongRoPE's factors for one trained model: a search on pieces of its training text.

A candidate is judged by the bits that the second half of a few pieces costs, of the length that the factor is for.
The windows that rows are scored on are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from posenc.lab.extension.methods import longrope
from posenc.lab.extension.model import Extended
from posenc.lab.extension.settings import ExtensionSettings
from posenc.lab.text.corpus import Corpus, counter_seed
from posenc.lab.text.measure import batches_within, window_losses
from posenc.rotary.rope import RoPE
from posenc.search import Candidate, search

_SEED = 0  # of the search: its pieces and candidates are the same for all training seeds


def searched(
    model: Extended,
    corpus: Corpus,
    factor: int,
    settings: ExtensionSettings,
    device: torch.device,
    on_evaluation: Callable[[float], None] = lambda share: None,
) -> Candidate:
    """The best factors that the search finds.

    Args:
        model: trained, in evaluation mode.
        corpus: its training text is what the search looks at.
        factor: how many times longer than trained.
        settings: sizes of the search.
        device: of the model.
        on_evaluation: told after each candidate which share of the work is done.
    """
    if factor in model.found:
        return model.found[factor]
    length, done = factor * settings.train_length, 0
    ends = pieces(corpus, length, settings)

    def bits(candidate: Candidate) -> float:
        nonlocal done
        rope = RoPE(model.head_dim, scaling=longrope(candidate, factor, settings))
        parts = [
            window_losses(lambda tokens: model(tokens, rope=rope), corpus.train, batch, length, device)
            for batch in batches_within(ends, length, settings.heads)
        ]
        done += 1
        on_evaluation(done / settings.evaluations)
        return float(torch.cat(parts)[:, length // 2 :].mean())

    result = search(
        bits, pairs=model.head_dim // 2, base=model.rope.base, original_length=settings.train_length,
        factor=float(factor), start_tokens=settings.start_tokens, seed=_SEED, settings=settings.sizes,
    )  # fmt: skip
    model.found[factor] = Candidate(result.factors, result.start_tokens)
    return model.found[factor]


def pieces(corpus: Corpus, length: int, settings: ExtensionSettings) -> list[int]:
    """Where the pieces end in the training text; it goes on over borders of documents, as in training."""
    generator = torch.Generator().manual_seed(counter_seed("search", _SEED, length))
    ends = torch.randint(length + 1, len(corpus.train) + 1, (settings.search_pieces,), generator=generator)
    return sorted(ends.tolist())
