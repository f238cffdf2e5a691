"""The protocol of texts: the same bytes at every length, inside one document, and exact numbers for a known model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.lab.test_corpora import documents
from torch import Tensor

from posenc.lab.config import Config
from posenc.lab.data.corpus import Corpus, make_corpus
from posenc.lab.data.documents import Source
from posenc.lab.data.ngram import ORDERS, NGrams, unigram_entropy
from posenc.lab.decoder import Decoder, LabModel, attention_mass
from posenc.lab.metrics import FULL, NGRAM, NGRAM_ORDERS, NGRAM_PROBE, REACH, UNIGRAM, WINDOW, Values
from posenc.lab.specs import Shape
from posenc.lab.tasks.text import (
    PROBED,
    SlidingWindowModel,
    Text,
    score_windows,
    truncated_contexts,
)

TINY = Text().profile("quick").config.replaced(
    {"train_length": 8, "lengths": (1, 2, 4), "steps": 3, "batch_size": 4, "windows": 12, "dim": 16, "layers": 1,
     "heads": 2, "device": "cpu"}
)  # fmt: skip
CPU, LENGTHS = torch.device("cpu"), (8, 16, 32)
SEEN = 4 + 7  # bytes that the last four predictions see through one layer under a window of eight


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(Source("made up", documents(30, 200), True), window=33, windows=12, scored=4)


class Recorder(LabModel):
    """A model that gives every byte the same probability, and keeps what it was fed."""

    def __init__(self) -> None:
        super().__init__()
        self.fed: dict[tuple[int, int | None], list[bytes]] = {}

    def forward(self, tokens: Tensor, window: int | None = None, *, start: int = 0) -> Tensor:
        self.fed.setdefault((start + tokens.shape[1], window), []).extend(bytes(row) for row in tokens.tolist())
        return torch.zeros(*tokens.shape, 256)


def evaluated(model: LabModel, corpus: Corpus, spec: str = "rope", config: Config = TINY) -> list[Values]:
    return list(Text().evaluate(model, corpus, spec, config, CPU))


def test_every_length_of_both_views_ends_at_the_same_bytes_of_one_document(corpus: Corpus) -> None:
    model = Recorder()
    scores = evaluated(model, corpus)
    assert set(model.fed) == {(2, None), (4, None), (8, None), (16, None), (32, None), (16, 8), (32, 8)}
    del model.fed[2, None], model.fed[4, None]  # truncated contexts: see below
    del model.fed[16, 8][:2]  # the first text, whole and cut: whether bytes out of sight count
    texts = bytes(corpus.validation.tolist()).split(b"\0")
    rows = zip(*(model.fed[key] for key in sorted(model.fed, key=lambda key: (key[0], key[1] or 0))), strict=True)
    for number, (short, middle, *slid, long, again) in zip(corpus.windows.documents, rows, strict=True):
        assert long in texts[number]
        assert middle == long[-16:]
        assert [*slid, again] == [long[-SEEN:]] * 2
        assert short == long[-8:]
    keys = [(values.metric, values.view, values.length) for values in scores]
    assert keys == [
        ("bits", FULL, 8), ("bits", FULL, 16), ("bits", FULL, 32), ("bits_by_position", FULL, 32),
        (REACH, FULL, 2), (REACH, FULL, 4), ("bits", WINDOW, 16),
        ("bits", WINDOW, 32),
    ]  # fmt: skip
    assert all(tuple(v.documents or ()) == corpus.windows.documents for v in scores if v.metric == "bits")


def test_a_model_of_known_probabilities_gives_its_exact_bits(corpus: Corpus) -> None:
    """It guesses that a byte repeats with probability 1/2, in the second half of what it is fed with 1/4."""

    def repeats(tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        p = torch.full((length,), 0.5)
        p[length // 2 :] = 0.25
        logits = torch.log((1 - p) / 255)[None, :, None].repeat(len(tokens), 1, 256)
        return logits.scatter(2, tokens[..., None], torch.log(p)[None, :, None].expand(len(tokens), -1, -1))

    scores = list(score_windows(repeats, corpus, LENGTHS, TINY, CPU))
    stream = corpus.validation.tolist()
    for values in scores[:3]:  # the last 4 targets lie in the second half at every length
        expected = [
            sum(-math.log2(0.25 if stream[i] == stream[i - 1] else 0.75 / 255) for i in range(end - 4, end)) / 4
            for end in corpus.windows.ends
        ]
        assert values.values == pytest.approx(expected, rel=1e-5)
    first_bin = [
        -math.log2(0.5 if stream[end - 32 + i] == stream[end - 33 + i] else 0.5 / 255)
        for end in corpus.windows.ends
        for i in range(2)
    ]
    assert list(scores[3].items or ()) == list(range(2, 33, 2))  # where a bin ends
    assert scores[3].values[0] == pytest.approx(sum(first_bin) / len(first_bin), rel=1e-5)


def test_truncated_contexts_score_the_same_bytes_with_less_before_them(corpus: Corpus) -> None:
    model = Recorder()
    truncated = [values for values in evaluated(model, corpus) if values.metric == REACH]
    assert [(values.length, len(values.values)) for values in truncated] == [(2, 12), (4, 12)]
    assert {values.documents for values in truncated} == {corpus.windows.documents}
    stream = bytes(corpus.validation.tolist())
    for context in (2, 4):
        pieces = [(end - back) for end in corpus.windows.ends for back in range(4 - context // 2, -1, -(context // 2))]
        assert model.fed[context, None] == [stream[end - context - 1 : end - 1] for end in pieces]
    assert truncated_contexts(64) == [4, 8, 16, 32, 64]
    assert truncated_contexts(128) == [8, 16, 32, 64, 128]
    assert truncated_contexts(24) == [6, 12, 24], "an even number of bytes, half of which is scored"


def test_a_sliding_window_makes_rope_flat_and_is_what_the_model_does_itself(corpus: Corpus) -> None:
    model = Decoder("rope", Text().shape(TINY), hidden=32, seed=0).eval()
    bits = {(v.view, v.length): torch.tensor(v.values) for v in evaluated(model, corpus) if v.metric == "bits"}
    torch.testing.assert_close(bits[WINDOW, 16], bits[WINDOW, 32])  # one layer of 8: nothing reaches farther
    assert (bits[FULL, 32] - bits[WINDOW, 32]).abs().max() > 1e-4
    end = corpus.windows.ends[0]
    text = corpus.validation[end - 33 : end].long()
    logits = model(text[None, :-1], window=8)[0, -4:]
    expected = -logits.log_softmax(1).gather(1, text[-4:, None]).mean() / math.log(2)
    assert bits[WINDOW, 32][0] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("spec", ["rope", "sinusoidal", "fox", "step_temperature", "rope/nope:2"])
def test_bytes_out_of_sight_are_not_read(spec: str) -> None:
    torch.manual_seed(0)
    model = Decoder(spec, Shape(16, 2, 2, 8), hidden=32, seed=0).eval()
    tokens = torch.randint(256, (3, 64))
    sliding = SlidingWindowModel(model, window=8, scored=4, layers=2)
    with torch.no_grad():
        torch.testing.assert_close(sliding(tokens), model(tokens, window=8)[:, -4:])
        assert sliding.local
        assert sliding.seen == 18
        for first in range(64 - 18, 64):  # and every byte that is read counts
            changed = tokens.clone()
            changed[:, first] += 1
            assert (sliding(changed % 256) != sliding(tokens)).any()


def test_a_probe_is_the_first_length_on_windows_of_different_documents(corpus: Corpus) -> None:
    model = Decoder("rope", Text().shape(TINY), hidden=32, seed=0)
    mean = torch.tensor(evaluated(model, corpus)[0].values).mean().item()
    assert Text().probe(model, corpus, TINY, CPU) == pytest.approx(mean, rel=1e-6)
    many = make_corpus(Source("made up", documents(700, 100), True), window=33, windows=200, scored=4)
    recorder = Recorder()
    assert Text().probe(recorder, many, TINY, CPU) == pytest.approx(8.0)
    assert len(set(recorder.fed[8, None])) == PROBED


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


SHAPE = Shape(16, 2, 2, 16)


def test_attention_that_sees_nothing_is_spread_evenly_over_the_past() -> None:
    model = Decoder("nope", SHAPE, hidden=32, seed=0).eval()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.q_proj.weight)
    edges, mass = attention_mass(model, torch.randint(256, (3, 16)))
    assert edges == [0, 1, 2, 4, 8, 16]
    assert mass.shape == (2 * 2, 6)
    expected = torch.zeros(6, dtype=torch.float64)
    for query in range(8, 16):
        for key in range(query + 1):
            bin_ = next(n for n, edge in enumerate(edges) if query - key <= edge)
            expected[bin_] += 1 / (query + 1) / 8
    torch.testing.assert_close(mass, expected.expand(4, 6), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", ["rope", "t5", "cope", "fox", "learned", "rope@4", "rope+alibi"])
def test_shares_sum_to_one_and_the_model_is_as_before(spec: str) -> None:
    model, tokens = Decoder(spec, SHAPE, hidden=32, seed=0).eval(), torch.randint(256, (2, 16))
    before = model(tokens)
    edges, mass = attention_mass(model, tokens)
    torch.testing.assert_close(mass.sum(1), torch.ones(4, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    assert torch.equal(model(tokens), before)
    if spec == "rope@4":
        assert mass[:, edges.index(8) :].sum() == 0
    assert (mass >= 0).all()


def test_stick_breaking_leaves_some_to_nobody() -> None:
    _, mass = attention_mass(Decoder("stick-breaking", SHAPE, hidden=32, seed=0).eval(), torch.randint(256, (2, 16)))
    assert (mass.sum(1) < 1).all()
