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

from posenc.lab.data import installed, read_source
from posenc.lab.data.corpus import HELD_OUT, Corpus, load_corpus, make_corpus, split
from posenc.lab.data.documents import Document, Source, hub_documents
from posenc.lab.data.windows import Overlap, WindowLayout
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.tasks.text import draw_batch, draw_pieces


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
    monkeypatch.setattr(installed, "folder_of", lambda package: tmp_path)
    standard, package = (list(dict(installed.sources([name]))) for name in (installed.STANDARD, "json"))
    assert standard == ["json/decoder.py", "lib2to3/main.py"]
    assert package == ["json/json/decoder.py", "json/lib2to3/main.py"]


def test_whole_documents_are_long_files_as_they_stand() -> None:
    text = words(2**13, "d")
    files = [
        ("long.py", text), ("short.md", text[:-1]), ("latin.txt", text + b"\xff"), ("umlaut.rst", "ü".encode() * 2**12),
        ("table.py", text + b"1234567890" * 2**10),
    ]  # fmt: skip
    assert installed.whole_documents_of(files) == [Document(*files[0]), Document(*files[3])]


@pytest.mark.parametrize("length", [5, 120, 399])
def test_pieces_of_whole_documents_lie_inside_one_and_all_are_drawn(length: int) -> None:
    texts = [*documents(12, 400), Document("short", words(60, "short")), Document("held out", words(400, "v"), True)]
    corpus = make_corpus(Source("made up", texts, True, within_documents=True), window=101, windows=2, scored=10)
    stream = bytes(corpus.train.tolist())
    parts = stream.split(b"\0")
    expected = [part[i : i + length] for part in parts for i in range(len(part) - length + 1)]
    starts = corpus.piece_starts(torch.arange(corpus.piece_count(length)), length).tolist()
    assert [stream[start : start + length] for start in starts] == expected
    assert corpus.piece_count(401) == 0
    pieces = draw_pieces(corpus, 0, 0, batch_size=500, length=length - 1)
    assert {bytes(piece) for piece in pieces.tolist()} <= set(expected)
    crossing = draw_batch(corpus.train, 0, 0, batch_size=500, length=length - 1)
    assert {bytes(piece) for piece in crossing.tolist()} - set(expected), "pieces of other corpora cross borders"


def test_that_pieces_lie_inside_documents_is_stored_and_part_of_what_data_are(tmp_path: Path) -> None:
    crossing, inside = (
        make_corpus(Source("made up", documents(), True, within), window=101, windows=12, scored=10)
        for within in (False, True)
    )
    inside.save(tmp_path)
    assert load_corpus(tmp_path).within_documents
    assert load_corpus(tmp_path).identity() == inside.identity()
    assert dict(inside.identity().items() - crossing.identity().items()) == {"pieces": "inside one document"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "megabytes"), [("python", 15), ("documents", 50)])
def test_a_built_in_corpus_gives_a_thousand_windows_from_five_hundred_documents(name: str, megabytes: int) -> None:
    corpus = make_corpus(read_source(name), window=2049, windows=1000, scored=64)
    assert len(corpus.train) > megabytes * 1e6
    assert len(corpus.windows.ends) == 1000
    assert len(set(corpus.windows.documents)) >= 500
    assert max(Counter(corpus.windows.documents).values()) == 2
    assert re.search(r"Python 3.*torch 2", corpus.facts()["text"])


def test_a_corpus_of_ones_own_is_a_function(tmp_path: Path) -> None:
    module = "from posenc.lab.data import Document\ndef poems():\n    return [Document('rose', b'A rose.')]\n"
    (tmp_path / "my_corpora.py").write_text(module + "def texts():\n    return ['a rose']\n")
    with allow_imports(ImportAllowlist(frozenset({"my_corpora:poems", "my_corpora:texts"}), tmp_path)):
        assert read_source("my_corpora:poems") == ("my_corpora:poems", [("rose", b"A rose.", None)], True, False)
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nowhere", None, r"no file or folder .*python, documents are built in"),
        ("", None, "holds no text"),
        ("empty.txt", b"", "is empty"),
        ("image.png", b"\x89PNG\0\xff", "not UTF-8 text"),
    ],
)
def test_a_source_that_is_no_text_is_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_source(str(tmp_path / name))


@pytest.mark.parametrize(
    ("version", "options"), [("3.6.0", {"trust_remote_code": False}), ("4.0.0", {}), ("5.2.0", {})]
)
def test_scripts_of_a_dataset_do_not_run(
    monkeypatch: pytest.MonkeyPatch, version: str, options: dict[str, bool]
) -> None:
    """datasets 3 asks on the terminal where nobody has said; later versions have no scripts and refuse the option."""
    datasets, seen = pytest.importorskip("datasets"), []

    def load(*names: object, **options: object) -> None:
        seen.append(options)
        raise ValueError("nothing is loaded here")

    monkeypatch.setattr(datasets, "__version__", version)
    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(ValueError, match="nothing is loaded"):
        hub_documents("a/b")
    assert seen == [options]


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


def test_a_small_folder_gives_further_documents_in_the_order_of_their_hashes() -> None:
    train, held_out = split(
        documents(8), WindowLayout(101, 10), 8
    )  # and a quarter more of them, as some may be left out
    ordered = sorted((d.name for d in documents(8)), key=share)
    assert ([d.name for d in held_out], [d.name for d in train]) == (ordered[:5], ordered[5:])


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


def test_pieces_stand_for_documents_where_those_are_few_and_long() -> None:
    book = [Document("book", words(9000, "a"), False), Document("end", words(2020, "b"), True)]
    with pytest.raises(ValueError, match=r"too short: 2 of 12 .* at most two into a document"):
        corpus(book)
    single_book = corpus(book, independent=False)  # 2020 bytes are ten pieces of 202
    assert all(end - 101 >= 202 * k for end, k in zip(*single_book.windows, strict=True))
    assert "of 101 bytes from 10 pieces of documents" in single_book.facts()["windows"]


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


def test_shares_that_stand_elsewhere_are_those_of_all_runs_of_64_bytes() -> None:
    train, rest = words(20_000, "t"), words(20_000, "r")
    held_out = rest[:3000] + train[5000:7000] + rest[3000:6000] + b"\0" + rest[1000:2500] + words(3000, "o")
    overlap = Overlap(np.frombuffer(train, np.uint8), np.frombuffer(held_out, np.uint8), [0, 8001])
    starts = np.array([0, 2000, 3000, 7000, 8001, 8600, 10_000])
    shares = overlap.shares(starts, starts + 1000)
    before = [train] * 4 + [train + b"\0" + held_out[:8000]] * 3
    for start, share_of, text in zip(starts, shares, before, strict=True):
        runs = [held_out[k : k + 64] in text for k in range(start, start + 1000 - 63)]
        assert share_of == pytest.approx(np.mean(runs), abs=0.08)
    assert shares[2] == 1.0
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
        (
            "corpus.json",
            lambda content: content.replace(b'"train": ', b'"train": "a", "n": '),
            r"corpus\.json: sizes\.train",
        ),
        ("corpus.json", lambda content: content[:-20], r"corpus\.json"),
    ):
        file = tmp_path / "data" / name
        before = file.read_bytes()
        file.write_bytes(change(before))
        with pytest.raises(ValueError, match=message):
            load_corpus(tmp_path / "data")
        file.write_bytes(before)
