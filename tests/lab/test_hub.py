"""Datasets of the hub, tried on local folders, which `datasets` loads with the same code."""

from __future__ import annotations

from pathlib import Path

import pytest

from posenc.lab.text.documents import read_documents

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_rows_of_a_parquet_folder_become_documents(tmp_path: Path) -> None:
    rows = {"id": [1, 2, 3], "text": ["first", "", "third"], "note": ["a", "b", "c"]}
    (tmp_path / "set").mkdir()
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "set" / "data.parquet")
    name, documents = read_documents(f"hf:{tmp_path / 'set'}")
    assert name.startswith("hf:")
    assert [(d.name, d.text, d.held_out) for d in documents] == [
        ("train/000000000", b"first", None),
        ("train/000000002", b"third", None),
    ]


def test_without_a_column_called_text_the_first_column_of_strings_serves(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    datasets.Dataset.from_dict({"n": [1], "body": ["words"]}).to_parquet(tmp_path / "set" / "data.parquet")
    assert [d.text for d in read_documents(f"hf:{tmp_path / 'set'}")[1]] == [b"words"]


def test_a_split_of_its_own_for_validation_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for split in ("train", "validation"):
        rows = datasets.Dataset.from_dict({"text": [f"of {split}"]})
        rows.to_parquet(tmp_path / "set" / f"{split}-00000-of-00001.parquet")
    documents = read_documents(f"hf:{tmp_path / 'set'}")[1]
    assert {d.text: d.held_out for d in documents} == {b"of train": False, b"of validation": True}


def test_a_dataset_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    datasets.Dataset.from_dict({"n": [1, 2]}).to_parquet(tmp_path / "set" / "data.parquet")
    with pytest.raises(ValueError, match="no text column; its columns are n"):
        read_documents(f"hf:{tmp_path / 'set'}")


def test_a_dataset_that_cannot_be_loaded_is_one_line() -> None:
    with pytest.raises(ValueError, match="cannot load the dataset 'nobody/nothing'") as caught:
        read_documents("hf:nobody/nothing")
    assert "\n" not in str(caught.value)
