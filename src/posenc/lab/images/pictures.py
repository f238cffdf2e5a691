"""Pictures to learn: small grey squares with a class each, split into those for training and those for the tests.

Scikit-learn's digits are 1,797 real scans of 8 × 8 pixels and come with the package; a folder has a folder of pictures
for each class. The same pictures are held out in every run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.lab.files import read_bytes, read_json, write_atomically
from posenc.lab.foreign import dataclass_of, shown
from posenc.lab.text.corpus import counter_seed

DIGITS_HELD_OUT, FOLDER_HELD_OUT = 500, 0.25  # pictures; a share
SPLIT_SEED = 0


@dataclass(frozen=True)
class PictureFacts:
    """What a report states about its pictures."""

    name: str
    classes: tuple[str, ...]
    image_size: int
    train_images: int
    train_sha256: str
    test_images: int
    test_sha256: str

    def identity(self) -> dict[str, str]:
        """What tells these pictures from others; labels and their meaning count."""
        return {"train_sha256": self.train_sha256, "test_sha256": self.test_sha256}

    def shown(self) -> dict[str, str]:
        """Name, sizes, hashes."""
        return {
            "pictures": self.name,
            "classes": f"{len(self.classes)}: {', '.join(self.classes)}",
            "size": f"{self.image_size} × {self.image_size} pixels, grey",
            "training": f"{self.train_images:,} pictures",
            "training SHA-256": self.train_sha256,
            "tests": f"{self.test_images:,} pictures",
            "tests SHA-256": self.test_sha256,
        }


class Part(NamedTuple):
    """Pictures on one side of the split."""

    pixels: Tensor  # (pictures, size, size) uint8
    labels: Tensor  # (pictures,) int64


@dataclass(frozen=True)
class Pictures:
    """Both sides of the split."""

    train: Part
    test: Part
    facts: PictureFacts

    def canvas(self, part: Part, margin: int) -> Tensor:
        """Pictures amid a black margin, float32, scaled to mean 0 and deviation 1 of the training pixels."""
        known = self.train.pixels.double()
        padded = torch.nn.functional.pad(part.pixels, (margin,) * 4)
        return ((padded.double() - known.mean()) / known.std().clamp(min=1.0)).float()


def make_pictures(name: str, classes: tuple[str, ...], train: Part, test: Part) -> Pictures:
    """Both sides with their facts."""
    facts = PictureFacts(
        name, classes, train.pixels.shape[-1],
        len(train.labels), _digest(classes, train), len(test.labels), _digest(classes, test),
    )  # fmt: skip
    return Pictures(train, test, facts)


def digits() -> Pictures:
    """Scikit-learn's digits: 1,297 for training, 500 for the tests."""
    try:
        from sklearn.datasets import load_digits  # as late as this because it takes a second
    except ModuleNotFoundError as error:
        raise ValueError(
            "data: the digits come with scikit-learn: pip install 'posenc[lab]', or name a folder with --data"
        ) from error
    bunch = load_digits()
    pixels = (torch.from_numpy(bunch.images) * 255 / 16).round().to(torch.uint8)
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    held_out, rest = order[:DIGITS_HELD_OUT].sort().values, order[DIGITS_HELD_OUT:].sort().values
    sides = [Part(pixels[side], labels[side]) for side in (rest, held_out)]
    return make_pictures("scikit-learn digits", tuple(str(c) for c in range(10)), *sides)


def batch_index(count: int, *, seed: int, step: int, size: int) -> Tensor:
    """Which of ``count`` pictures a step is trained on: each once an epoch, in an order of seed and epoch."""
    places = torch.arange(step * size, (step + 1) * size)
    drawn = torch.empty_like(places)
    for epoch in sorted(set((places // count).tolist())):
        generator = torch.Generator().manual_seed(counter_seed("epoch", seed, epoch))
        here = places // count == epoch
        drawn[here] = torch.randperm(count, generator=generator)[places[here] % count]
    return drawn


def store_pictures(pictures: Pictures, folder: Path) -> None:
    """Write pixels, labels and facts where workers and other machines of a shared file system read them."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = {}
    for name, part in (("train", pictures.train), ("test", pictures.test)):
        write_atomically(folder / f"{name}.bin", part.pixels.numpy().tobytes())
        labels[name] = part.labels.tolist()
    write_atomically(folder / "pictures.json", json.dumps({"facts": asdict(pictures.facts), "labels": labels}).encode())


def load_pictures(folder: Path) -> Pictures:
    """Read what `store_pictures` wrote, and check it against its hashes."""
    record = read_json(folder / "pictures.json", ("facts", "labels"))
    facts, known = dataclass_of(PictureFacts, record["facts"], folder / "pictures.json"), record["labels"]
    parts = []
    for name, expected in (("train", facts.train_sha256), ("test", facts.test_sha256)):
        path, size = folder / f"{name}.bin", facts.image_size
        of_part = known.get(name) if isinstance(known, dict) else None
        if not isinstance(of_part, list) or not all(type(c) is int and 0 <= c < len(facts.classes) for c in of_part):
            raise ValueError(f"{folder / 'pictures.json'}: labels must be numbers of classes, got {shown(of_part)}")
        labels = torch.tensor(of_part, dtype=torch.long)
        stored = read_bytes(path, len(labels) * size**2) if path.exists() else b""
        if len(stored) == len(labels) * size**2:
            part = Part(torch.frombuffer(bytearray(stored), dtype=torch.uint8).view(-1, size, size), labels)
            if _digest(facts.classes, part) == expected:
                parts.append(part)
                continue
        raise ValueError(f"{path} is truncated or not of this run: remove {folder} and start again")
    return Pictures(parts[0], parts[1], facts)


def _digest(classes: tuple[str, ...], part: Part) -> str:
    of_labels = json.dumps([classes, part.labels.tolist()]).encode()
    return hashlib.sha256(part.pixels.contiguous().numpy().tobytes() + of_labels).hexdigest()
