"""Where texts come from, the split, the windows, what is left out, the bars, and what is stored."""

from __future__ import annotations

import hashlib
import lzma
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from posenc.lab.corpora import docstrings, packages, read_source
from posenc.lab.corpora.bars import bars, primed_lzma, primed_zlib
from posenc.lab.corpora.corpus import HELD_OUT, Corpus, load_corpus, make_corpus, split
from posenc.lab.corpora.documents import Document, Source
from posenc.lab.corpora.overlap import Overlap
from posenc.lab.corpora.windows import Room
from posenc.lab.own import Permission, permitted


def words(size: int, seed: object) -> bytes:
    """Text of made-up words, other ones for every seed."""
    draw = random.Random(str(seed))
    made = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 8))) for _ in range(300)]
    return " ".join(draw.choices(made, k=size)).encode()[:size]


def documents(count: int = 40, size: int = 400) -> list[Document]:
    """Texts that have nothing in common."""
    return [Document(f"folder/{k}.txt", words(size, k)) for k in range(count)]


def corpus(made: list[Document] | None = None, *, window: int = 101, windows: int = 12, whole: bool = True) -> Corpus:
    """A small corpus."""
    source = Source("made up", documents() if made is None else made, whole)
    return make_corpus(source, window=window, windows=windows, scored=10)


def share(name: str) -> float:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32


# Where texts come from.


def test_of_packages_tests_tables_and_files_of_odd_sizes_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (
        "json/decoder.py", "test/test_json.py", "idlelib/idle_test/mock.py", "site-packages/torch/nn.py",
        "encodings/a.py", "pydoc_data/topics.py", "lib2to3/pgen2/driver.py", "lib2to3/main.py", "data.txt",
    )  # fmt: skip
    for name, text in {**dict.fromkeys(names, "x = 1\n" * 100), "small.py": "x", "huge.py": "1, " * 10**5}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(packages, "folder_of", lambda package: tmp_path)
    assert [name for name, _ in packages.sources([packages.STANDARD])] == ["json/decoder.py", "lib2to3/main.py"]
    assert [name for name, _ in packages.sources(["json"])] == ["json/json/decoder.py", "json/lib2to3/main.py"]


SOURCE = '''"""A module.

This is the first of the sentences that stand in the text of a module, and it goes
on in a second line.
"""
text = """This looks like a sentence of the documentation, but it is a value that is used by the code."""

def f(x):
    r"""Return the value that is nearest to all of the other ones in this list.

    Notes
    -----
    It is the same as what you have when all the others are taken away from it.

    x : int
        This is the first of the sentences that stand in the text of a module, and it goes on in a second line.

    >>> f(3)  # This is not a sentence of the text but a line of an example of it.
    4
    """
'''


def test_prose_is_whole_sentences_of_docstrings_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        docstrings, "_topics", lambda: iter([("topic", b"The words in a text are not all that there is.")])
    )
    monkeypatch.setattr(docstrings, "sources", lambda packages, most: [("a.py", SOURCE.encode())])
    found = {document.name: document.text.decode().split("\n\n") for document in docstrings.prose()}
    assert found == {
        "topic": ["The words in a text are not all that there is."],
        "a.py": [
            "This is the first of the sentences that stand in the text of a module, and it goes on in a second line.",
            "Return the value that is nearest to all of the other ones in this list.",
            "It is the same as what you have when all the others are taken away from it.",
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "megabytes"), [("python", 15), ("prose", 4)])
def test_a_built_in_corpus_gives_a_thousand_windows_from_five_hundred_documents(name: str, megabytes: int) -> None:
    made = make_corpus(read_source(name), window=2049, windows=1000, scored=64)
    assert len(made.train) > megabytes * 1e6
    assert len(made.windows.ends) == 1000
    assert len(set(made.windows.documents)) >= 500
    assert max(Counter(made.windows.documents).values()) == 2
    assert re.search(r"Python 3.*torch 2", made.facts()["text"])


def test_a_corpus_of_ones_own_is_a_function(tmp_path: Path) -> None:
    made = "from posenc.lab.corpora import Document\ndef poems():\n    return [Document('rose', b'A rose.')]\n"
    (tmp_path / "my_corpora.py").write_text(made + "def texts():\n    return ['a rose']\n")
    with permitted(Permission(frozenset({"my_corpora:poems", "my_corpora:texts"}), tmp_path)):
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
    found = {d.name: d.text for d in read_source(str(tmp_path)).documents}
    assert found == {"deep/a.md": "grüße".encode(), "b.txt": bytes(range(97, 122)) * 40}
    train, held_out = read_source(str(tmp_path / "b.txt")).documents
    assert (len(train.text), train.held_out, len(held_out.text), held_out.held_out) == (900, False, 100, True)
    assert train.text + held_out.text == found["b.txt"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("nowhere", None, r"no file or folder .*python, prose, headers are built in"),
        ("", None, "holds no text"),
        ("empty.txt", b"", "is empty"),
        ("image.png", b"\x89PNG\0\xff", "not UTF-8 text"),
    ],
)
def test_a_source_that_is_no_text_is_refused(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=told):
        read_source(str(tmp_path / name))


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

    plain = stored("plain", train={"id": [1, 2, 3], "text": ["first", "", "third"], "note": ["a", "b", "c"]})
    found = [(d.name, d.text, d.held_out) for d in read_source(plain).documents]
    assert found == [("train/000000000", b"first", None), ("train/000000002", b"third", None)]
    apart = stored("apart", train={"n": [1], "body": ["words"]}, validation={"n": [2], "body": ["others"]})
    assert {d.text: d.held_out for d in read_source(apart).documents} == {b"words": False, b"others": True}
    with pytest.raises(ValueError, match="no text column; its columns are n"):
        read_source(stored("numbers", train={"n": [1, 2]}))
    with pytest.raises(ValueError, match="cannot load the dataset 'nobody/nothing'"):
        read_source("hf:nobody/nothing")


# The split and the windows.


def test_the_hash_of_a_name_decides_its_side_and_others_move_nothing() -> None:
    room = Room(101, 10)
    short = [Document(f"short/{k}", b"s" * 90) for k in range(20)]
    first = {d.name for d in split([*documents(100), *short], room, 4)[1]}
    assert first == {d.name for d in documents(100) if share(d.name) < HELD_OUT}
    more = [Document(f"new/{k}", b"z" * 200) for k in range(50)]
    again = {d.name for d in split([*more, *documents(100)[::-1], *short], room, 4)[1]}
    assert {name for name in again if not name.startswith("new/")} == first


def test_a_small_folder_gives_further_documents_in_the_order_of_their_hashes() -> None:
    train, held_out = split(documents(8), Room(101, 10), 8)  # and a quarter more of them, as some may be left out
    ordered = sorted((d.name for d in documents(8)), key=share)
    assert ([d.name for d in held_out], [d.name for d in train]) == (ordered[:5], ordered[5:])


def test_windows_lie_inside_documents_two_of_each_at_most_and_score_no_byte_twice() -> None:
    made = corpus(windows=20)
    texts = bytes(made.validation.tolist()).split(b"\0")
    assert texts == [d.text for d in sorted(documents(), key=lambda d: share(d.name))][: len(texts)]
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    for end, number in zip(*made.windows, strict=True):
        assert starts[number] <= end - 101
        assert end <= starts[number + 1] - 1
    assert max(Counter(made.windows.documents).values()) == 2
    assert len(set(made.windows.documents)) == len(texts)  # one of each before a second of any
    assert np.diff(made.windows.ends).min() >= 10
    assert made.windows == corpus(documents()[::-1], windows=20).windows


def test_pieces_stand_for_documents_where_those_are_few_and_long() -> None:
    book = [Document("book", words(9000, "a"), False), Document("end", words(2020, "b"), True)]
    with pytest.raises(ValueError, match=r"too short: 2 of 12 .* at most two into a document"):
        corpus(book)
    made = corpus(book, whole=False)  # 2020 bytes are ten pieces of 202
    assert all(end - 101 >= 202 * k for end, k in zip(*made.windows, strict=True))
    assert "of 101 bytes from 10 pieces of documents" in made.facts()["windows"]


def test_no_window_is_used_that_also_stands_elsewhere() -> None:
    parts = [words(4000, name) for name in "abcd"]
    made = [
        Document("train", parts[0] + parts[1], False),
        Document("copy", parts[1].replace(b"an", b"AN"), True),
        Document("half", parts[0][:2000] + parts[2], True),
        Document("twin", parts[2][1000:], True),
        Document("own", parts[3], True),
    ]
    found = make_corpus(Source("t", made, True), window=801, windows=4, scored=20)
    stream = bytes(found.validation.tolist())
    fresh = parts[2] + parts[3]
    for end in found.windows.ends:
        window = stream[end - 801 : end]
        known = sum(window[k : k + 64] not in fresh for k in range(801 - 63)) / (801 - 63)
        assert known < 0.3
    ordered = sorted(("copy", "half", "twin", "own"), key=share)
    used = {ordered[number] for number in found.windows.documents}
    assert used in ({"half", "own"}, {"half", "twin", "own"})  # of twins the one that comes first, or its rest
    assert "documents have no other" in found.facts()["left out as found elsewhere"]
    with pytest.raises(ValueError, match=r"of 8 evaluation windows are left \(.*give more text"):
        make_corpus(Source("t", made, True), window=801, windows=8, scored=20)


def test_shares_that_stand_elsewhere_are_those_of_all_runs_of_64_bytes() -> None:
    train, rest = words(20_000, "t"), words(20_000, "r")
    held_out = rest[:3000] + train[5000:7000] + rest[3000:6000] + b"\0" + rest[1000:2500] + words(3000, "o")
    overlap = Overlap(np.frombuffer(train, np.uint8), np.frombuffer(held_out, np.uint8), [0, 8001])
    starts = np.array([0, 2000, 3000, 7000, 8001, 8600, 10_000])
    found = overlap.shares(starts, starts + 1000)
    before = [train] * 4 + [train + b"\0" + held_out[:8000]] * 3
    for start, share_of, text in zip(starts, found, before, strict=True):
        runs = [held_out[k : k + 64] in text for k in range(start, start + 1000 - 63)]
        assert share_of == pytest.approx(np.mean(runs), abs=0.08)
    assert found[2] == 1.0
    nothing = Overlap(np.frombuffer(b"", np.uint8), np.frombuffer(b"short", np.uint8), [0])
    assert nothing.shares(np.array([0]), np.array([5])) == [0.0]


# Facts, bars, files.


def test_too_short_a_text_says_how_long_it_is_and_what_is_needed() -> None:
    with pytest.raises(ValueError, match=r"too short: 0 of 12 .* 101 bytes fit.* \(2 documents, the longest of 30"):
        corpus(documents(2, size=30))
    with pytest.raises(ValueError, match="made up is empty"):
        corpus([Document("a", b"")])
    with pytest.raises(ValueError, match="leaves 20 bytes for training"):
        corpus([Document("a", b"a" * 20, False), Document("b", words(300, "b"), True)], windows=2)


def test_bars_are_those_of_the_texts() -> None:
    train, held_out = words(50_000, "t"), b"abcd" * 500
    windows = [words(100, "w") + train[k : k + 300] + words(40, k) for k in range(0, 9000, 300)]
    entropy, packed, lzma_alone, zlib_after, lzma_after = bars(train, held_out, windows, 40).values()
    assert entropy == pytest.approx(2.0)
    assert packed == pytest.approx(8 * len(zlib.compress(held_out, 9)) / 2000)
    assert lzma_alone == pytest.approx(8 * len(lzma.compress(held_out)) / 2000)
    assert zlib_after == primed_zlib(train, windows, 40)
    assert lzma_after == primed_lzma(train, windows, 40)


@pytest.mark.parametrize("primed", [primed_lzma, primed_zlib])
def test_what_the_training_text_holds_costs_a_primed_compressor_next_to_nothing(
    primed: Callable[[bytes, list[bytes], int], float],
) -> None:
    train, draw = words(30_000, "t"), random.Random(0)
    known = [train[k : k + 400] for k in range(0, 20_000, 500)]
    assert primed(train, known, 200) < 0.15
    noise = [train[k : k + 200] + draw.randbytes(200) for k in range(0, 20_000, 500)]
    assert 7.9 < primed(train, noise, 200) < 9.0
    half = [train[k : k + 300] + draw.randbytes(100) for k in range(0, 20_000, 500)]
    assert primed(train, half, 200) == pytest.approx(4.1, abs=0.4)


def test_a_primed_lzma_is_what_the_scored_bytes_add_to_its_file() -> None:
    train, window = words(40_000, "t"), words(500, "t")[:300] + words(30_000, "v")
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**26}]
    sizes = [len(lzma.compress(train + text, lzma.FORMAT_RAW, filters=filters)) for text in (window[:300], window)]
    scored = len(window) - 300
    assert primed_lzma(train, [window], scored) == pytest.approx(8 * (sizes[1] - sizes[0]) / scored, rel=0.01)


def test_a_stored_corpus_comes_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    made = corpus()
    made.save(tmp_path / "data")
    loaded = load_corpus(tmp_path / "data")
    assert torch.equal(loaded.train, made.train)
    assert torch.equal(loaded.validation, made.validation)
    assert (loaded.windows, loaded.facts(), loaded.identity()) == (made.windows, made.facts(), made.identity())
    digest = hashlib.sha256(bytes(made.train.tolist())).hexdigest()
    assert made.identity()["train_sha256"] == digest
    assert corpus(windows=11).identity().items() >= {("train_sha256", digest)}
    assert corpus(windows=11).identity() != made.identity()
    for name, change, told in (
        ("train.bin", lambda content: content[:-1], "train is truncated"),
        ("corpus.json", lambda content: content.replace(b'"windows": [[', b'"windows": [[1, '), "windows is truncated"),
        ("corpus.json", lambda content: content.replace(b'"train": ', b'"train": "a", "n": '), "whole numbers"),
        ("corpus.json", lambda content: content[:-20], "truncated or not JSON"),
    ):
        file = tmp_path / "data" / name
        before = file.read_bytes()
        file.write_bytes(change(before))
        with pytest.raises(ValueError, match=told):
            load_corpus(tmp_path / "data")
        file.write_bytes(before)
