"""The protocol: the same bytes at every length, inside one document, and exact numbers for a known model."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from posenc.lab.text.corpus import Corpus
from posenc.lab.text.measure import choose_ends, measure


class Recorder:
    """A model that gives every byte the same probability, and keeps what it was fed."""

    def __init__(self) -> None:
        self.fed: dict[int, list[bytes]] = {}

    def __call__(self, tokens: Tensor) -> Tensor:
        self.fed.setdefault(tokens.shape[1], []).extend(bytes(row) for row in tokens.tolist())
        return torch.zeros(*tokens.shape, 256)


def test_every_length_ends_at_the_same_bytes_of_one_document(corpus: Corpus) -> None:
    model = Recorder()
    measure(model, corpus, train_length=8, lengths=(1, 2, 4), windows=6)
    assert sorted(model.fed) == [8, 16, 32]
    stream = bytes(corpus.validation.tolist())
    documents = [stream[start:stop] for start, stop in corpus.spans]
    for short, middle, long in zip(model.fed[8], model.fed[16], model.fed[32], strict=True):
        assert long.endswith(middle)
        assert middle.endswith(short)
        assert any(long in document for document in documents)
        assert 0 not in long
    assert len(set(model.fed[32])) == 6


def test_ends_leave_room_for_context_and_no_byte_is_scored_twice(corpus: Corpus) -> None:
    ends = choose_ends(corpus, longest=32, scored=4, windows=20)
    assert len(ends) == 20
    for end in ends:
        assert any(start <= end - 33 and end <= stop for start, stop in corpus.spans)
    assert all(b - a >= 4 for a, b in itertools.pairwise(ends))
    assert ends == choose_ends(corpus, longest=32, scored=4, windows=20)


def test_a_uniform_model_scores_eight_bits(corpus: Corpus) -> None:
    result = measure(Recorder(), corpus, train_length=8, lengths=(1, 2), windows=3)
    assert result["bits"] == [pytest.approx([8.0] * 3), pytest.approx([8.0] * 3)]
    assert result["positions"] == pytest.approx([8.0] * 8)
    assert result["bin"] == 2


def test_a_model_of_known_probabilities_gives_its_exact_bits(corpus: Corpus) -> None:
    """It guesses that a byte repeats with probability 1/2, in the second half of what it is fed with 1/4."""

    def repeats(tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        p = torch.full((length,), 0.5)
        p[length // 2 :] = 0.25
        logits = torch.log((1 - p) / 255)[None, :, None].repeat(len(tokens), 1, 256)
        return logits.scatter(2, tokens[..., None], torch.log(p)[None, :, None].expand(len(tokens), -1, -1))

    result = measure(repeats, corpus, train_length=8, lengths=(1, 4), windows=3)
    stream = corpus.validation.tolist()
    for column in (0, 1):  # the last 4 targets lie in the second half at both lengths
        expected = [
            sum(-math.log2(0.25 if stream[i] == stream[i - 1] else 0.75 / 255) for i in range(end - 4, end)) / 4
            for end in choose_ends(corpus, longest=32, scored=4, windows=3)
        ]
        assert result["bits"][column] == pytest.approx(expected, rel=1e-5)
    first_bin = [
        -math.log2(0.5 if stream[end - 32 + i] == stream[end - 33 + i] else 0.5 / 255)
        for end in choose_ends(corpus, longest=32, scored=4, windows=3)
        for i in range(2)
    ]
    assert result["positions"][0] == pytest.approx(sum(first_bin) / len(first_bin), rel=1e-5)


def test_past_a_table_there_is_no_number(corpus: Corpus) -> None:
    model = Recorder()
    result = measure(model, corpus, train_length=8, lengths=(1, 2, 4), windows=3, table=8)
    assert result["bits"][1:] == [None, None]
    assert list(model.fed) == [8]
    assert len(result["positions"]) * result["bin"] == 8


def test_windows_that_do_not_fit_are_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="of 100000 evaluation windows of 33 bytes fit"):
        choose_ends(corpus, longest=32, scored=4, windows=100_000)


def test_progress_ends_at_one(corpus: Corpus) -> None:
    shares: list[float] = []
    measure(Recorder(), corpus, train_length=8, lengths=(1, 2), windows=3, on_forward=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
