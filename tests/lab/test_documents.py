"""Where text comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from posenc.lab.text.documents import read_documents, stdlib_documents


def test_the_default_corpus_leaves_out_tests_tables_and_small_files(tmp_path: Path) -> None:
    long = "x = 1\n" * 100
    for name, text in {
        "json/decoder.py": long,
        "test/test_json.py": long,
        "idlelib/idle_test/mock.py": long,
        "site-packages/torch/nn.py": long,
        "encodings/cp037.py": long,
        "pydoc_data/topics.py": long,
        "lib2to3/pgen2/driver.py": long,
        "lib2to3/main.py": long,
        "small.py": "x = 1\n",
        "data.txt": long,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [document.name for document in stdlib_documents(tmp_path)] == ["json/decoder.py", "lib2to3/main.py"]


@pytest.mark.slow
def test_the_running_interpreter_has_a_default_corpus_of_megabytes() -> None:
    name, documents = read_documents("stdlib")
    assert name == "Python standard library"
    assert 5e6 < sum(len(document.text) for document in documents) < 3e7
    assert not any("test" in document.name.split("/") for document in documents)


def test_a_folder_gives_its_texts_and_passes_over_the_rest(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep" / "a.md").write_text("grüße")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "zeros").write_bytes(b"a\0b")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / ".git" / "config").write_text("hidden")
    _, documents = read_documents(str(tmp_path))
    assert {(document.name, document.text) for document in documents} == {
        ("deep/a.md", "grüße".encode()),
        ("b.txt", b"b"),
    }


def test_of_a_file_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(bytes(range(97, 122)) * 40)  # 1000 bytes
    _, (train, held_out) = read_documents(str(path))
    assert (len(train.text), train.held_out) == (900, False)
    assert (len(held_out.text), held_out.held_out) == (100, True)
    assert train.text + held_out.text == path.read_bytes()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "nowhere", "no file or folder"),
        (lambda path: path, "holds no text"),
        (lambda path: _write(path / "empty.txt", b""), "is empty"),
        (lambda path: _write(path / "image.png", b"\x89PNG\0\xff"), "not UTF-8 text"),
    ],
)
def test_a_source_that_is_no_text_is_refused(tmp_path: Path, make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_documents(str(make(tmp_path)))


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
