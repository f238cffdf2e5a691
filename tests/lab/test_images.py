"""Images: pictures and their split, what each view shows at which places, and exact numbers for a known model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from posenc.lab.config import Config
from posenc.lab.data.pictures import Part, Pictures, batch_index, digits, folder_pictures, load_pictures, read_picture
from posenc.lab.metrics import FULL
from posenc.lab.tasks.images import FINER, LARGE, SHIFT, Images, patches, views

TASK, CPU = Images(), torch.device("cpu")
VIEWS = views(4, 2, (1, 20))


def noise(train: int = 12, test: int = 9) -> Pictures:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randint(256, (n, 4, 4), generator=generator).to(torch.uint8) for n in (train, test)]
    return Pictures("noise", ("a", "b", "c"), *(Part(pixels, torch.arange(len(pixels)) % 3) for pixels in sides))


def small(**more: object) -> Config:
    numbers = {"image_size": 4, "constants": (1, 20), "dim": 16, "layers": 2, "heads": 2, "epochs": 3, "batch_size": 8}
    config = TASK.profile("quick").config.replaced({**numbers, **more})
    config.check()
    TASK.check(config)
    return TASK.settled(config, noise())


def test_numbers_follow_from_pictures_and_contradictions_are_named() -> None:
    t, e = small().training, small().evaluation
    assert (t.steps, t.train_length, e.lengths, e.windows) == (3 * 12 // 8, 16, (1,), 9)
    cases = {
        "--patch 3: an even": {"patch": 3}, "--image-size 9: .*multiple of --patch 2": {"image_size": 9},
        "--lengths": {"lengths": (1, 2)}, "--constants 3,1": {"constants": (3, 1)}, "--epochs 0": {"epochs": 0},
        "--steps: .* has 4, which follows from --epochs": {"steps": 7}, "--train-length: .*16": {"train_length": 99},
    }  # fmt: skip
    for words, numbers in cases.items():
        with pytest.raises(ValueError, match=words):
            small(**numbers)


def test_patches_lie_where_their_places_say() -> None:
    canvas = torch.zeros(1, 8, 8)
    canvas[0, 2:4, 4:6] = 1.0  # token (1, 2)
    places = {n: [v.places[v.tokens(canvas).sum(-1)[0] == 4].tolist() for v in shown] for n, shown in VIEWS.items()}
    assert (places[FULL], places[FINER[0]], places[FINER[1]]) == ([[[1, 2]]], [[[1, 2]]], [[[2, 4]]])
    around = {(1 + down, 2 + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} - {(1, 2)}
    assert sorted(tuple(place) for (place,) in places[SHIFT]) == sorted(around)
    (view,) = VIEWS[LARGE[0]]
    weight = view.tokens(canvas).sum(-1)[0]
    torch.testing.assert_close((weight[:, None] * view.places).sum(0) / weight.sum(), torch.tensor([1.0, 2.0]))


class Oracle(nn.Module):
    """Answers with the class that it is told."""

    def __init__(self, answers: Tensor) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        return nn.functional.one_hot(self.answers, 3).float()


def test_a_known_model_has_its_exact_values_and_tables_end() -> None:
    pictures, config = noise(), small()
    answers = pictures.test.labels.clone()
    answers[:3] = (answers[:3] + 1) % 3
    axial, table = (
        list(TASK.evaluate(Oracle(answers), pictures, spec, config, CPU))  # type: ignore[arg-type]
        for spec in ("axial", "learned_grid")
    )
    assert all(list(accuracy.values) == [0, 0, 0, 1, 1, 1, 1, 1, 1] for accuracy in (*axial, *table))
    assert [(accuracy.view, accuracy.length) for accuracy in axial] == [
        (FULL, 16), (SHIFT, 16), ("+1", 16), ("+20", 16), (FINER[0], 49), (FINER[1], 49), (LARGE[0], 64), (LARGE[1], 64)
    ]  # fmt: skip
    assert [accuracy.view for accuracy in table] == [FULL, SHIFT, FINER[0], LARGE[0]]
    assert TASK.probe(Oracle(answers), pictures, config, CPU) == pytest.approx(6 / 9)  # type: ignore[arg-type]


def test_the_digits_and_their_canvas() -> None:
    first, size = digits(), patches(torch.zeros(2, 12, 12), 2).shape
    assert (first.identity(), size) == (digits().identity(), (2, 36, 4))
    assert (len(first.train.labels), len(first.test.labels), int(first.train.pixels.max())) == (1297, 500, 255)
    canvas, inner = first.canvas(first.test, 2), first.canvas(first.train, 0)
    assert (float(inner.mean()), float(inner.std())) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-5))
    assert (canvas[:, :2] == canvas.min()).all()
    indices = torch.cat([batch_index(10, seed=1, step=step, size=4) for step in range(5)])
    assert sorted(indices[:10].tolist()) == sorted(indices[10:].tolist()) == list(range(10)) != indices[:10].tolist()


def test_a_folder_of_classes_is_split_by_paths_and_read_back(tmp_path: Path) -> None:
    root = tmp_path / "shades"
    for name, shade in (("bright", 220), ("dark", 30)):
        (root / name).mkdir(parents=True)
        for i in range(20):
            Image.new("RGB", (20 + i, 12), (shade, shade, shade - i)).save(root / name / f"{i}.png")
    before = folder_pictures(root, 4)
    for part in (before.train, before.test):
        assert ((part.pixels.float().mean((1, 2)) > 128) == (part.labels == 0)).all()
    before.save(tmp_path / "data")
    again = load_pictures(tmp_path / "data")
    assert (again.identity(), again.facts()) == (before.identity(), before.facts())
    Image.new("L", (9, 9), 77).save(root / "dark" / "more.png")
    now = folder_pictures(root, 4)
    assert sum(now.identity()[side] != before.identity()[side] for side in before.identity()) == 1
    file = tmp_path / "data" / "pictures.npz"
    file.write_bytes(file.read_bytes().replace(before.test.pixels[0].numpy().tobytes(), b"\0" * 16, 1))
    with pytest.raises(ValueError, match=r"pictures\.npz is truncated"):
        load_pictures(tmp_path / "data")
    wide = Image.new("L", (12, 4), 0)
    wide.paste(255, (4, 0, 8, 4))
    wide.save(tmp_path / "wide.png")
    assert (read_picture(tmp_path / "wide.png", 2) == 255).all()
    (root / "dark" / "0.png").write_text("text")
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        folder_pictures(root, 4)
    with pytest.raises(ValueError, match="at least two; found 0"):
        folder_pictures(root / "dark", 4)
