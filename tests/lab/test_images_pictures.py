"""Pictures: the digits, folders, the split, what is stored."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from posenc.lab.images.folder import folder_pictures, read_picture
from posenc.lab.images.pictures import Part, batch_index, digits, load_pictures, make_pictures, store_pictures


def _folder(root: Path, count: int = 8) -> Path:
    """Bright and dark squares of different sizes and formats."""
    for name, shade in (("bright", 220), ("dark", 30)):
        (root / name).mkdir(parents=True)
        for i in range(count):
            kind = "png" if i % 2 else "jpg"
            Image.new("RGB", (20 + i, 12), (shade, shade, shade - i % 30)).save(root / name / f"{i}.{kind}")
    return root


def test_the_digits_are_split_the_same_way_every_time() -> None:
    first, second = digits(), digits()
    assert first.facts == second.facts
    assert (first.facts.train_images, first.facts.test_images, first.facts.image_size) == (1297, 500, 8)
    assert first.train.pixels.dtype == torch.uint8
    assert (int(first.train.pixels.min()), int(first.train.pixels.max())) == (0, 255)
    assert torch.bincount(first.test.labels).tolist() == pytest.approx([50] * 10, abs=15)
    together = torch.cat([first.train.pixels, first.test.pixels]).flatten(1)
    assert len(together) == 1797


def test_the_canvas_is_the_picture_amid_an_empty_margin() -> None:
    pictures = digits()
    canvas = pictures.canvas(pictures.test, 2)
    assert canvas.shape == (500, 12, 12)
    inner = pictures.canvas(pictures.train, 0)
    assert float(inner.mean()) == pytest.approx(0, abs=1e-5)
    assert float(inner.std()) == pytest.approx(1, abs=1e-5)
    black = (canvas[:, :2], canvas[:, -2:], canvas[:, :, :2], canvas[:, :, -2:])
    assert all(torch.equal(edge, torch.full_like(edge, float(canvas.min()))) for edge in black)


def test_an_epoch_shows_every_picture_once_and_steps_know_their_place() -> None:
    drawn = torch.cat([batch_index(10, seed=1, step=step, size=4) for step in range(5)])
    assert sorted(drawn[:10].tolist()) == sorted(drawn[10:].tolist()) == list(range(10))
    assert drawn[:10].tolist() != drawn[10:].tolist()
    assert torch.equal(batch_index(10, seed=1, step=2, size=4), drawn[8:12])
    assert not torch.equal(batch_index(10, seed=2, step=0, size=4), drawn[:4])


def test_a_folder_of_classes(tmp_path: Path) -> None:
    root = _folder(tmp_path / "shades")
    (root / ".hidden").mkdir()
    (root / "bright" / ".thumbnail").write_text("no picture")
    pictures = folder_pictures(root, 4)
    assert pictures.facts.classes == ("bright", "dark")
    assert pictures.facts.name == "folder shades"
    assert pictures.train.pixels.shape[1:] == (4, 4)
    assert pictures.facts.train_images + pictures.facts.test_images == 16
    for part in (pictures.train, pictures.test):
        assert set(part.labels.tolist()) == {0, 1}
        assert ((part.pixels.float().mean((1, 2)) > 128) == (part.labels == 0)).all()


def test_adding_a_picture_moves_no_other_one(tmp_path: Path) -> None:
    root = _folder(tmp_path / "shades", 30)
    before = folder_pictures(root, 4).facts
    Image.new("L", (9, 9), 77).save(root / "dark" / "more.png")
    after = folder_pictures(root, 4).facts
    assert sorted([after.train_images - before.train_images, after.test_images - before.test_images]) == [0, 1]
    assert (after.train_sha256 == before.train_sha256) != (after.test_sha256 == before.test_sha256)


def test_the_middle_square_is_kept(tmp_path: Path) -> None:
    wide = Image.new("L", (12, 4), 0)
    wide.paste(255, (4, 0, 8, 4))
    wide.save(tmp_path / "wide.png")
    assert (read_picture(tmp_path / "wide.png", 2) == 255).all()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "at least two; found 0"),
        ({"a/1.png": "", "a/2.png": ""}, "at least two; found 1"),
        ({"a/1.png": "", "b/1.png": ""}, "class a has 1 pictures"),
        ({"a/1.txt": "text", "a/2.txt": "text", "b/1.png": "", "b/2.png": ""}, "cannot be read as a picture"),
    ],
)
def test_what_is_no_folder_of_pictures_is_refused(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if text:
            (tmp_path / name).write_text(text)
        else:
            Image.new("L", (3, 3)).save(tmp_path / name)
    with pytest.raises(ValueError, match=words):
        folder_pictures(tmp_path, 4)


@pytest.mark.parametrize(("package", "words"), [("PIL", "Pillow"), ("sklearn.datasets", "scikit-learn")])
def test_what_is_not_installed_is_named(
    tmp_path: Path, package: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _folder(tmp_path / "shades")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"{words}.*pip install"):
        folder_pictures(root, 4) if package == "PIL" else digits()


def test_pictures_come_back_and_damage_is_found(tmp_path: Path) -> None:
    parts = [Part(torch.arange(n * 4).view(n, 2, 2).to(torch.uint8), torch.arange(n) % 2) for n in (5, 3)]
    pictures = make_pictures("small", ("a", "b"), *parts)
    store_pictures(pictures, tmp_path)
    again = load_pictures(tmp_path)
    assert again.facts == pictures.facts
    assert torch.equal(again.test.pixels, pictures.test.pixels)
    assert torch.equal(again.train.labels, pictures.train.labels)
    (tmp_path / "test.bin").write_bytes((tmp_path / "test.bin").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"test\.bin is truncated"):
        load_pictures(tmp_path)


def test_labels_are_part_of_the_identity() -> None:
    pixels = torch.zeros(4, 2, 2, dtype=torch.uint8)
    parts = [Part(pixels, torch.tensor(labels)) for labels in ([0, 1, 0, 1], [0, 1, 1, 0])]
    facts = [make_pictures("small", ("a", "b"), part, parts[0]).facts for part in parts]
    assert facts[0].identity()["train_sha256"] != facts[1].identity()["train_sha256"]
    assert facts[0].identity()["test_sha256"] == facts[1].identity()["test_sha256"]
