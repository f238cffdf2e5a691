"""Baselines of texts: n-grams against a plain definition, on the bytes that a training reads, and kept as records."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.lab.test_corpora import documents
from tests.lab.test_text import TINY

from posenc.lab.data.corpus import Corpus, make_corpus
from posenc.lab.data.documents import Source
from posenc.lab.data.ngram import ORDERS, NGrams, unigram_entropy
from posenc.lab.metrics import NGRAM, NGRAM_ORDERS, NGRAM_PROBE, UNIGRAM
from posenc.lab.tasks.text import PROBED, Text


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(Source("made up", documents(30, 200), True), window=33, windows=12, scored=4)


def plain_witten_bell(pieces: np.ndarray, window: Sequence[int], place: int, order: int, vocabulary: int) -> float:
    """The probability of ``window[place]`` by the recursive definition, with dictionaries."""
    counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for piece in pieces.tolist():
        for n in range(order):
            for end in range(n, len(piece)):
                counts[tuple(piece[end - n : end])][piece[end]] += 1
    probability, token = 1 / vocabulary, window[place]
    for n in range(min(order, place + 1)):
        followers = counts[tuple(window[place - n : place])]
        if followers:
            distinct = len(followers)
            probability = (followers[token] + distinct * probability) / (followers.total() + distinct)
    return probability


@pytest.mark.parametrize("vocabulary", [4, 5000])
def test_every_order_agrees_with_the_plain_definition(vocabulary: int) -> None:
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, 4, (12, 9)) * (vocabulary // 4)  # far apart, so that keys need many bits
    windows = draw.integers(0, 5, (6, 8)) * (vocabulary // 4) % vocabulary
    windows[0] = vocabulary - 1  # never seen in training
    by_order = NGrams(tokens, vocabulary).bits(windows, 4)
    assert len(by_order) == ORDERS
    for order, bits in enumerate(by_order, 1):
        expected = [
            [-math.log2(plain_witten_bell(tokens, window, place, order, vocabulary)) for place in range(4, 8)]
            for window in windows.tolist()
        ]
        np.testing.assert_allclose(bits, expected, rtol=1e-12)


def test_the_baseline_reads_what_seed_0_trains_on_and_is_scored_on_the_same_bytes(corpus: Corpus) -> None:
    task, length = Text(), TINY.training.train_length
    measured = {values.metric: values for values in task.baselines(corpus, TINY)}
    pieces = torch.cat([task.batch(corpus, TINY, 0, step)[0] for step in range(TINY.training.steps)]).numpy()
    ends = corpus.windows.ends
    means, per_order = [], []
    for order in range(1, ORDERS + 1):
        bits = [
            [
                -math.log2(plain_witten_bell(pieces, corpus.validation[end - length - 1 : end].tolist(), p, order, 256))
                for p in range(length + 1 - length // 2, length + 1)
            ]
            for end in ends[:4]
        ]
        per_order.append(np.mean(bits, axis=1))
        means.append(measured[NGRAM_ORDERS].values[order - 1])
    best = int(np.argmin(means))
    np.testing.assert_allclose(measured[NGRAM].values[:4], per_order[best], rtol=1e-9)
    assert measured[NGRAM].length == length
    assert measured[NGRAM].documents == corpus.windows.documents
    assert np.mean(measured[NGRAM].values) == pytest.approx(means[best])
    assert measured[NGRAM_PROBE].values == [pytest.approx(np.mean(measured[NGRAM].values[:PROBED]))]
    targets = np.concatenate([corpus.validation[end - length // 2 : end].numpy() for end in ends])
    assert measured[UNIGRAM].values == [unigram_entropy(targets)]
