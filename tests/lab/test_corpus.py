"""The split, the batches, the facts, and what is stored of a corpus."""

from __future__ import annotations

import hashlib
import lzma
import zlib
from pathlib import Path

import pytest
import torch

from posenc.lab.text.corpus import Corpus, draw_batch, load_corpus, make_corpus, split, store_corpus
from posenc.lab.text.documents import Document


def _documents(count: int, size: int = 100) -> list[Document]:
    return [Document(f"folder/{i}.py", bytes([97 + i % 20]) * size) for i in range(count)]


def test_a_tenth_of_the_names_is_held_out_by_their_hash() -> None:
    documents = _documents(300)
    _, held_out = split(documents, window=50, windows=5, stride=10)
    expected = [d.name for d in documents if hashlib.sha256(d.name.encode()).digest()[0] < 256 * 0.1]
    names = [d.name for d in held_out]
    assert set(expected) - set(names) <= {
        d.name for d in documents if hashlib.sha256(d.name.encode()).digest()[0] == 25
    }
    assert 15 < len(names) < 50


def test_adding_documents_moves_no_other_one() -> None:
    before = {d.name for d in split(_documents(200), window=50, windows=5, stride=10)[1]}
    more = [Document(f"new/{i}.py", b"z" * 100) for i in range(50)]
    after = {d.name for d in split(more + _documents(200)[::-1], window=50, windows=5, stride=10)[1]}
    assert {name for name in after if not name.startswith("new/")} == before


def test_a_small_folder_gives_further_documents_in_the_order_of_their_hashes() -> None:
    documents = _documents(6, size=60)
    train, held_out = split(documents, window=41, windows=4, stride=10)  # two windows fit into each
    shares = {d.name: hashlib.sha256(d.name.encode()).hexdigest() for d in documents}
    assert sorted(shares, key=shares.__getitem__)[:2] == sorted((d.name for d in held_out), key=shares.__getitem__)
    assert len(train) == 4


def test_byte_zero_separates_documents() -> None:
    documents = [Document("a", b"aa" * 30, False), Document("b", b"bb" * 30, False), Document("c", b"c" * 60, True)]
    made = make_corpus("t", documents, window=30, windows=2, stride=10)
    assert bytes(made.train.tolist()) == b"aa" * 30 + b"\0" + b"bb" * 30
    assert made.spans == ((0, 60),)


def test_facts_are_those_of_the_streams(corpus: Corpus) -> None:
    validation, facts = bytes(corpus.validation.tolist()), corpus.facts
    assert facts.validation_sha256 == hashlib.sha256(validation).hexdigest()
    assert facts.train_sha256 == hashlib.sha256(bytes(corpus.train.tolist())).hexdigest()
    assert facts.zlib_bits == pytest.approx(8 * len(zlib.compress(validation, 9)) / len(validation))
    assert facts.lzma_bits == pytest.approx(8 * len(lzma.compress(validation)) / len(validation))
    counts = torch.bincount(corpus.validation.long()).double() / len(validation)
    assert facts.entropy_bits == pytest.approx(-(counts * counts.log2().nan_to_num(neginf=0)).sum().item())


def test_entropy_of_four_equal_letters_is_two_bits() -> None:
    documents = [Document("a", b"abcd" * 50, False), Document("b", b"abcd" * 50, True)]
    assert make_corpus("t", documents, window=30, windows=2, stride=10).facts.entropy_bits == pytest.approx(2.0)


def test_spans_are_the_validation_documents(corpus: Corpus, texts: Path) -> None:
    stream = bytes(corpus.validation.tolist())
    held_out = {stream[start:stop] for start, stop in corpus.spans}
    assert held_out <= {path.read_bytes() for path in texts.iterdir()}
    assert len(held_out) == corpus.facts.validation_documents


def test_too_short_a_text_says_how_long_it_is_and_what_is_needed() -> None:
    with pytest.raises(ValueError, match=r"too short: 0 of 4 .* 65 bytes.*\(60 bytes, longest document 30\)"):
        make_corpus("t", _documents(2, size=30), window=65, windows=4, stride=4)
    with pytest.raises(ValueError, match="t is empty"):
        make_corpus("t", [Document("a", b"")], window=65, windows=4, stride=4)
    short = [Document("a", b"a" * 20, False), Document("b", b"b" * 200, True)]
    with pytest.raises(ValueError, match="leaves 20 bytes for training"):
        make_corpus("t", short, window=65, windows=4, stride=4)


def test_a_batch_is_a_function_of_seed_and_step_alone(corpus: Corpus) -> None:
    def draw(seed: int, step: int) -> torch.Tensor:
        return draw_batch(corpus.train, seed=seed, step=step, batch_size=4, length=8)

    first = draw(0, 3)
    torch.manual_seed(99)
    draw(0, 4)
    assert torch.equal(first, draw(0, 3))
    assert not torch.equal(first, draw(0, 4))
    assert not torch.equal(first, draw(1, 3))
    assert not torch.equal(draw(1, 0), draw(0, 1))
    stream = bytes(corpus.train.tolist())
    assert first.shape == (4, 9)
    assert all(bytes(row) in stream for row in first.tolist())


def test_the_last_byte_of_the_stream_can_be_drawn() -> None:
    stream = torch.arange(10, dtype=torch.uint8)
    drawn = torch.cat([draw_batch(stream, seed=0, step=s, batch_size=8, length=8) for s in range(8)])
    assert drawn[:, 0].unique().tolist() == [0, 1]
    assert drawn[:, -1].max() == 9


def test_a_stored_corpus_comes_back_and_a_damaged_one_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    store_corpus(corpus, tmp_path / "corpus")
    loaded = load_corpus(tmp_path / "corpus")
    assert torch.equal(loaded.train, corpus.train)
    assert torch.equal(loaded.validation, corpus.validation)
    assert (loaded.spans, loaded.facts) == (corpus.spans, corpus.facts)
    stream = tmp_path / "corpus" / "train.bin"
    stream.write_bytes(stream.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"train.bin is truncated"):
        load_corpus(tmp_path / "corpus")
