"""Where texts come from, the split, the windows, what is left out, the bars, and what is stored."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from posenc.lab.data.corpus import HELD_OUT, Corpus, WindowLayout, load_corpus, make_corpus, split
from posenc.lab.data.documents import Document, Source, read_source
from posenc.lab.plugins import ImportAllowlist, allow_imports


def words(size: int, seed: object) -> bytes:
    """Text of made-up words, other ones for every seed."""
    draw = random.Random(str(seed))
    vocabulary = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 8))) for _ in range(300)]
    return " ".join(draw.choices(vocabulary, k=size)).encode()[:size]


def documents(count: int = 40, size: int = 400) -> list[Document]:
    """Texts that have nothing in common."""
    return [Document(f"folder/{k}.txt", words(size, k)) for k in range(count)]


def corpus(
    texts: list[Document] | None = None, *, window: int = 101, windows: int = 12, independent: bool = True
) -> Corpus:
    """A small corpus."""
    source = Source("made up", documents() if texts is None else texts, independent)
    return make_corpus(source, window=window, windows=windows, scored=10)


def share(name: str) -> float:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32


# Where texts come from.


@pytest.mark.slow
def test_the_built_in_corpus_gives_a_thousand_windows_from_five_hundred_documents() -> None:
    corpus = make_corpus(read_source("python"), window=2049, windows=1000, scored=64)
    assert len(corpus.train) > 15e6
    assert len(corpus.windows.ends) == 1000
    assert len(set(corpus.windows.documents)) >= 500
    assert max(Counter(corpus.windows.documents).values()) == 2
    assert re.search(r"Python 3.*torch 2", corpus.facts()["text"])


def test_a_corpus_of_ones_own_is_a_function(tmp_path: Path) -> None:
    module = "from posenc.lab.data import Document\ndef poems():\n    return [Document('rose', b'A rose.')]\n"
    (tmp_path / "my_corpora.py").write_text(module + "def texts():\n    return ['a rose']\n")
    with allow_imports(ImportAllowlist(frozenset({"my_corpora:poems", "my_corpora:texts"}), tmp_path)):
        assert read_source("my_corpora:poems") == ("my_corpora:poems", [("rose", b"A rose.", None)], True)
        with pytest.raises(ValueError, match="must return a list of"):
            read_source("my_corpora:texts")
    with pytest.raises(ValueError, match="a class of somebody's own"):
        read_source("my_corpora:poems")


def test_a_folder_gives_its_texts_and_of_a_file_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    for name, content in {
        "deep/a.md": "grüße".encode(), "b.txt": bytes(range(97, 122)) * 40, "binary": b"\xff\xfe", "zeros": b"a\0b",
        "empty.txt": b"", ".git/config": b"hidden",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    texts = {d.name: d.text for d in read_source(str(tmp_path)).documents}
    assert texts == {"deep/a.md": "grüße".encode(), "b.txt": bytes(range(97, 122)) * 40}
    train, held_out = read_source(str(tmp_path / "b.txt")).documents
    assert (len(train.text), train.held_out, len(held_out.text), held_out.held_out) == (900, False, 100, True)
    assert train.text + held_out.text == texts["b.txt"]


def test_datasets_of_the_hub_tried_on_local_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def stored(folder: str, **splits: dict[str, list[object]]) -> str:
        (tmp_path / folder).mkdir()
        for name, rows in splits.items():
            datasets.Dataset.from_dict(rows).to_parquet(tmp_path / folder / f"{name}-00000-of-00001.parquet")
        return f"hf:{tmp_path / folder}"

    dataset = stored("plain", train={"id": [1, 2, 3], "text": ["first", "", "third"], "note": ["a", "b", "c"]})
    stored_documents = [(d.name, d.text, d.held_out) for d in read_source(dataset).documents]
    assert stored_documents == [("train/000000000", b"first", None), ("train/000000002", b"third", None)]
    apart = stored("apart", train={"n": [1], "body": ["words"]}, validation={"n": [2], "body": ["others"]})
    assert {d.text: d.held_out for d in read_source(apart).documents} == {b"words": False, b"others": True}
    with pytest.raises(ValueError, match="no text column; its columns are n"):
        read_source(stored("numbers", train={"n": [1, 2]}))
    with pytest.raises(ValueError, match="cannot load the dataset 'nobody/nothing'"):
        read_source("hf:nobody/nothing")


# The split and the windows.


def test_the_hash_of_a_name_decides_its_side_and_others_move_nothing() -> None:
    room = WindowLayout(101, 10)
    short = [Document(f"short/{k}", b"s" * 90) for k in range(20)]
    first = {d.name for d in split([*documents(100), *short], room, 4)[1]}
    assert first == {d.name for d in documents(100) if share(d.name) < HELD_OUT}
    more = [Document(f"new/{k}", b"z" * 200) for k in range(50)]
    again = {d.name for d in split([*more, *documents(100)[::-1], *short], room, 4)[1]}
    assert {name for name in again if not name.startswith("new/")} == first


def test_windows_lie_inside_documents_two_of_each_at_most_and_score_no_byte_twice() -> None:
    whole_documents = corpus(windows=20)
    texts = bytes(whole_documents.validation.tolist()).split(b"\0")
    assert texts == [d.text for d in sorted(documents(), key=lambda d: share(d.name))][: len(texts)]
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    for end, number in zip(*whole_documents.windows, strict=True):
        assert starts[number] <= end - 101
        assert end <= starts[number + 1] - 1
    assert max(Counter(whole_documents.windows.documents).values()) == 2
    assert len(set(whole_documents.windows.documents)) == len(texts)  # one of each before a second of any
    assert np.diff(whole_documents.windows.ends).min() >= 10
    assert whole_documents.windows == corpus(documents()[::-1], windows=20).windows


def test_no_window_is_used_that_also_stands_elsewhere() -> None:
    parts = [words(4000, name) for name in "abcd"]
    texts = [
        Document("train", parts[0] + parts[1], False),
        Document("copy", parts[1].replace(b"an", b"AN"), True),
        Document("half", parts[0][:2000] + parts[2], True),
        Document("twin", parts[2][1000:], True),
        Document("own", parts[3], True),
    ]
    mixed = make_corpus(Source("t", texts, True), window=801, windows=4, scored=20)
    stream = bytes(mixed.validation.tolist())
    fresh = parts[2] + parts[3]
    for end in mixed.windows.ends:
        window = stream[end - 801 : end]
        known = sum(window[k : k + 64] not in fresh for k in range(801 - 63)) / (801 - 63)
        assert known < 0.3
    ordered = sorted(("copy", "half", "twin", "own"), key=share)
    used = {ordered[number] for number in mixed.windows.documents}
    assert used in ({"half", "own"}, {"half", "twin", "own"})  # the first of two copies, or the rest of it
    assert "documents have no other" in mixed.facts()["left out as found elsewhere"]
    with pytest.raises(ValueError, match=r"of 8 evaluation windows are left \(.*give more text"):
        make_corpus(Source("t", texts, True), window=801, windows=8, scored=20)


# Facts, bars, files.


def test_a_stored_corpus_comes_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    saved = corpus()
    saved.save(tmp_path / "data")
    loaded = load_corpus(tmp_path / "data")
    assert torch.equal(loaded.train, saved.train)
    assert torch.equal(loaded.validation, saved.validation)
    assert (loaded.windows, loaded.facts(), loaded.identity()) == (saved.windows, saved.facts(), saved.identity())
    digest = hashlib.sha256(bytes(saved.train.tolist())).hexdigest()
    assert saved.identity()["train_sha256"] == digest
    assert corpus(windows=11).identity().items() >= {("train_sha256", digest)}
    assert corpus(windows=11).identity() != saved.identity()
    for name, change, message in (
        ("train.bin", lambda content: content[:-1], "train is truncated"),
        ("corpus.json", lambda content: content.replace(b'"windows": [[', b'"windows": [[1, '), "windows is truncated"),
        ("corpus.json", lambda content: content.replace(b'"facts": {', b'"facts": {"a": 1, '), r"corpus\.json: facts"),
        ("corpus.json", lambda content: content[:-20], r"corpus\.json"),
    ):
        file = tmp_path / "data" / name
        before = file.read_bytes()
        file.write_bytes(change(before))
        with pytest.raises(ValueError, match=message):
            load_corpus(tmp_path / "data")
        file.write_bytes(before)
