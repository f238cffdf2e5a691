"""Byte pairs: nothing is lost, the training text alone decides them, and bits per byte equal a plain count."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.lab.conftest import typed
from tests.lab.test_corpora import documents, words
from torch import Tensor

pytest.importorskip("tokenizers")

from tokenizers import Tokenizer

from posenc.hf.byte_level import byte_letters
from posenc.lab import commands
from posenc.lab.data.corpus import Corpus, load_corpus, make_corpus
from posenc.lab.data.documents import Document, Source
from posenc.lab.data.tokens import encode_stream, encode_texts, token_bytes, train_tokenizer
from posenc.lab.metrics import REACH, UNIGRAM
from posenc.lab.run.folder import read_run, records_of
from posenc.lab.tasks.text import Text, score_windows

TINY = Text().profile("quick").config.replaced(
    {"train_length": 8, "lengths": (1, 2, 4), "steps": 3, "batch_size": 4, "windows": 12, "dim": 16, "layers": 1,
     "heads": 2, "device": "cpu", "tokens": "bpe:300"}
)  # fmt: skip
CPU = torch.device("cpu")
TEXTS = [document.text for document in documents(30, 600)]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    source = Source("made up", documents(40, 800), True)
    return make_corpus(source, window=33, windows=12, scored=4, tokens="bpe:300")


def pieces_of(corpus: Corpus) -> list[bytes]:
    """The bytes of each token, by another way than `token_bytes`."""
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    library = Tokenizer.from_str(corpus.tokenizer.decode())
    return [bytes(byte_of[c] for c in library.id_to_token(n)) for n in range(corpus.vocabulary)]


def test_encoding_loses_nothing_and_the_first_tokens_are_the_bytes() -> None:
    tokenizer = train_tokenizer(300, TEXTS)
    library, letters = Tokenizer.from_str(tokenizer.decode()), byte_letters()
    assert [library.id_to_token(n) for n in range(256)] == letters
    texts = [*TEXTS[:3], "grüße, 字 \t\n  x".encode(), bytes(range(1, 128)), b""]
    for text, tokens in zip(texts, encode_texts(tokenizer, texts), strict=True):
        assert library.decode(tokens.tolist()).encode() == text
        assert token_bytes(tokenizer)[tokens].sum() == len(text)
    assert len(next(encode_texts(tokenizer, texts))) < 0.8 * len(texts[0])
    assert token_bytes(tokenizer)[:256].tolist() == [1] * 256
    assert token_bytes(tokenizer)[256:].min() == 2
    stream = encode_stream(tokenizer, texts[:2])
    assert np.flatnonzero(stream.tokens == 0).tolist() == [len(next(encode_texts(tokenizer, texts)))]
    assert stream.offsets[-1] == len(b"\0".join(texts[:2]))


def test_the_training_split_alone_decides_the_pairs(corpus: Corpus) -> None:
    def corpus_with(held_out: bytes) -> Corpus:
        texts = [*documents(40, 800), Document("zz", held_out, held_out=True)]
        return make_corpus(Source("made up", texts, True), window=33, windows=12, scored=4, tokens="bpe:300")

    tokenizer = corpus_with(words(800, "a")).tokenizer
    assert corpus_with(b"zqzq " * 160).tokenizer == tokenizer
    assert b"zq" not in pieces_of(corpus)


def test_bits_per_byte_and_perplexity_are_those_of_a_plain_count(corpus: Corpus) -> None:
    """A model that says that a token repeats with probability 1/4."""

    def repeats(tokens: Tensor) -> Tensor:
        rest = math.log(0.75 / (corpus.vocabulary - 1))
        logits = torch.full((*tokens.shape, corpus.vocabulary), rest)
        return logits.scatter(2, tokens[..., None], math.log(0.25))

    stream, pieces = corpus.validation.tolist(), pieces_of(corpus)
    targets = [i for end in corpus.windows.ends for i in range(end - 4, end)]
    bits = [-math.log2(0.25 if stream[i] == stream[i - 1] else 0.75 / (corpus.vocabulary - 1)) for i in targets]
    per_byte = sum(bits) / sum(len(pieces[stream[i]]) for i in targets)
    scores = list(score_windows(repeats, corpus, (8, 16, 32), TINY, CPU))
    of_bits = [values for values in scores if values.metric == "bits"]
    perplexities = [values for values in scores if values.metric == "perplexity"]
    assert [values.length for values in of_bits] == [values.length for values in perplexities] == [8, 16, 32]
    for values in of_bits:
        assert sum(values.values) / len(values.values) == pytest.approx(per_byte, rel=1e-5)
    for values in perplexities:
        assert values.values == pytest.approx([2 ** (sum(bits) / len(bits))], rel=1e-5)
    assert corpus.tokens_per_byte(4) == len(targets) / sum(len(pieces[stream[i]]) for i in targets)
    assert Text().loss_unit_of(corpus) == pytest.approx(
        math.log(2) * sum(len(pieces[t]) for t in corpus.train.tolist()) / len(corpus.train)
    )


def on_text(out: Path, *more: str, tokens: str = "bpe:300") -> list[str]:
    """A command line of seconds on text."""
    folder = out.parent / "texts"
    if not folder.exists():
        folder.mkdir()
        for number, document in enumerate(documents(60, 900)):
            (folder / f"{number}.txt").write_bytes(document.text)
    return typed(out, "--task", "text", "--data", str(folder), "--tokens", tokens, *more, encodings=["rope"])


def test_a_run_on_byte_pairs_is_measured_reported_and_continued(
    tmp_path: Path, here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert commands.run(on_text(out)) == 0
    frame, run_read = records_of(out), read_run(out)
    assert [metric.name for metric in run_read.metrics] == ["bits", "perplexity"]
    corpus = load_corpus(out / "data")
    means = frame.groupby(["metric", "view", "length"], observed=True)["value"].mean()
    per_byte = corpus.tokens_per_byte(8)
    for view, length in (("full", 16), ("full", 32), ("window", 32)):
        bits = means["bits", view, length]
        assert means["perplexity", view, length] == pytest.approx(2 ** (bits / per_byte), rel=1e-4)
    probes = frame[frame["metric"] == "probe"]["value"]
    assert probes.iloc[-1] == pytest.approx(means["bits", "full", 16], rel=1e-4)  # the same windows: there are few
    scalars = frame[frame["length"] == 0].groupby("metric", observed=True)["value"].first()
    assert scalars["train_loss"] == pytest.approx(probes.iloc[-1], rel=0.15)  # in bits per byte as well
    assert means[REACH].min() > 0
    assert scalars[UNIGRAM] < 8 * per_byte + 1
    assert "perplexity per token" in (out / "table.md").read_text()
    capsys.readouterr()
    assert commands.run(on_text(out)) == 0
    assert "are finished already" in " ".join(capsys.readouterr().out.split())
    assert commands.run(on_text(out, tokens="bpe:301")) == 2
    assert "tokens bpe:300 there, bpe:301 here" in " ".join(capsys.readouterr().err.split())
    assert commands.run(on_text(out, tokens="bytes")) == 2
    assert "tokens bpe:300 there, bytes here" in " ".join(capsys.readouterr().err.split())
