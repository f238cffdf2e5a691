"""Pictures to learn: small grey squares with a class each, split into those for training and those held out.

Scikit-learn's digits are 1,797 real scans of 8 × 8 pixels and come with the package; a folder has a folder of pictures
for each class, split by SHA-256 of a picture's path, so that adding a picture moves no other one across the split. The
same pictures are held out in every run.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from posenc.lab.data.batching import counter_seed, share_of
from posenc.lab.files import MOST_RESULTS, read_bytes, write_atomically

FILE = "pictures.npz"
DIGITS_HELD_OUT, FOLDER_HELD_OUT = 500, 0.25  # pictures; a share
DIGITS_SIZE = 8  # pixels
SIDES = ("train", "test")


class Part(NamedTuple):
    """Pictures on one side of the split."""

    pixels: Tensor  # (pictures, size, size) uint8
    labels: Tensor  # (pictures,) int64


@dataclass(frozen=True)
class Pictures:
    """Both sides of the split, and what they show."""

    name: str
    classes: tuple[str, ...]
    train: Part
    test: Part

    def identity(self) -> dict[str, str]:
        """What tells these pictures from others; labels and their meaning count."""
        return {"train_sha256": self._digest(self.train), "test_sha256": self._digest(self.test)}

    def facts(self) -> dict[str, str]:
        """Name, classes, sizes, and what a guess reaches: always the class that is most frequent in training."""
        size, most = self.train.pixels.shape[-1], int(torch.bincount(self.train.labels).argmax())
        return {
            "pictures": self.name,
            "classes": f"{len(self.classes)}: {', '.join(self.classes)}",
            "size": f"{size} × {size} pixels, grey",
            "training": f"{len(self.train.labels):,} pictures",
            "held out": f"{len(self.test.labels):,} pictures",
            "a guess": f"{100 * (self.test.labels == most).double().mean().item():.1f} %",
        }

    def save(self, folder: Path) -> None:
        """Write FOLDER/pictures.npz, whose parts carry checksums."""
        buffer, parts = io.BytesIO(), {"train": self.train, "test": self.test}
        arrays = {
            f"{side}_{kind}": getattr(part, kind).numpy() for side, part in parts.items() for kind in part._fields
        }
        np.savez(buffer, names=np.array([self.name, *self.classes]), **arrays)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, buffer.getvalue())

    def canvas(self, part: Part, margin: int) -> Tensor:
        """Pictures amid a black margin, float32, scaled to mean 0 and deviation 1 of the training pixels."""
        known = self.train.pixels.double()
        padded = torch.nn.functional.pad(part.pixels, (margin,) * 4)
        return ((padded.double() - known.mean()) / known.std().clamp(min=1.0)).float()

    def _digest(self, part: Part) -> str:
        of_labels = json.dumps([self.classes, part.labels.tolist()]).encode()
        return hashlib.sha256(part.pixels.contiguous().numpy().tobytes() + of_labels).hexdigest()


def load_pictures(folder: Path) -> Pictures:
    """Read what `Pictures.save` wrote; a ValueError that names the file where it is damaged.

    That they are the pictures of a run, their `Pictures.identity` says.
    """
    path = folder / FILE
    try:
        with np.load(io.BytesIO(read_bytes(path, MOST_RESULTS)), allow_pickle=False) as stored:
            name, *classes = (str(label) for label in stored["names"])
            sides = [Part(*(torch.from_numpy(stored[f"{side}_{kind}"]) for kind in Part._fields)) for side in SIDES]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is truncated or not of this run: remove {folder} and start again") from error
    return Pictures(name, tuple(classes), *sides)


def digits() -> Pictures:
    """Scikit-learn's digits: 1,297 for training, 500 held out."""
    from sklearn.datasets import load_digits  # as late as this because it takes a second

    bunch = load_digits()
    pixels = (torch.from_numpy(bunch.images) * 255 / 16).round().to(torch.uint8)
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    sides = (order[DIGITS_HELD_OUT:].sort().values, order[:DIGITS_HELD_OUT].sort().values)
    return Pictures("scikit-learn digits", tuple("0123456789"), *(Part(pixels[side], labels[side]) for side in sides))


def folder_pictures(root: Path, size: int) -> Pictures:
    """All pictures of a folder's folders, grey, cut to the square in the middle, ``size`` pixels each way."""
    classes = tuple(path.name for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(f"--data {root}: a folder of pictures for each class, at least two; found {len(classes)}")
    train: list[tuple[Tensor, int]] = []
    test: list[tuple[Tensor, int]] = []
    for label, name in enumerate(classes):
        paths = [path for path in sorted((root / name).rglob("*")) if _is_candidate(path, root)]
        if len(paths) < 2:
            raise ValueError(f"--data: class {name} has {len(paths)} pictures; two are needed, one of them held out")
        ordered = sorted(paths, key=lambda path: share_of(path.relative_to(root).as_posix()))
        # Every class has pictures on both sides, however few there are.
        held_out = sum(share_of(path.relative_to(root).as_posix()) < FOLDER_HELD_OUT for path in ordered)
        held_out = min(max(1, held_out), len(ordered) - 1)
        test += [(read_picture(path, size), label) for path in ordered[:held_out]]
        train += [(read_picture(path, size), label) for path in ordered[held_out:]]
    sides = (Part(torch.stack([p for p, _ in side]), torch.tensor([c for _, c in side])) for side in (train, test))
    return Pictures(f"folder {root.resolve().name}", classes, *sides)


def read_picture(path: Path, size: int) -> Tensor:
    """One picture as ``(size, size)`` uint8."""
    try:
        with Image.open(path) as opened:
            grey = ImageOps.fit(opened.convert("L"), (size, size), method=Image.Resampling.BOX)
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"--data: {path} cannot be read as a picture") from error
    return torch.frombuffer(bytearray(grey.tobytes()), dtype=torch.uint8).view(size, size)


def batch_index(count: int, *, seed: int, step: int, size: int) -> Tensor:
    """Which of ``count`` pictures a step is trained on: each once an epoch, in an order of seed and epoch."""
    places = torch.arange(step * size, (step + 1) * size)
    indices = torch.empty_like(places)
    for epoch in sorted(set((places // count).tolist())):
        generator = torch.Generator().manual_seed(counter_seed("epoch", seed, epoch))
        here = places // count == epoch
        indices[here] = torch.randperm(count, generator=generator)[places[here] % count]
    return indices


def _is_candidate(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
