"""Which documents an evaluation reads from files and folders."""

from __future__ import annotations

from pathlib import Path

from posenc.evaluation import read_documents


def test_files_of_one_name_are_documents_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "README.md").write_text(f"Text of {folder}.")
    for paths in ([tmp_path / "a", tmp_path / "b"], [tmp_path / "a/README.md", tmp_path / "b/README.md"]):
        documents = read_documents(paths)
        assert {document.text for document in documents} == {"Text of a.", "Text of b."}
        assert len({document.name for document in documents}) == 2


def test_a_copy_is_no_second_document(tmp_path: Path) -> None:
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("The same text.")
    (tmp_path / "other.txt").write_text("Another text.")
    assert sorted(document.name for document in read_documents([tmp_path, tmp_path])) == ["one.txt", "other.txt"]
