"""Pictures of one's own: a folder with a folder of pictures for each class.

The split goes by SHA-256 of a picture's path, so that adding a picture moves no other one across it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from posenc.lab.images.pictures import FOLDER_HELD_OUT, Part, Pictures, make_pictures


def folder_pictures(root: Path, size: int) -> Pictures:
    """All pictures of a folder's folders, grey, cut to the square in the middle, ``size`` pixels each way."""
    classes = tuple(path.name for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(f"data: {root} needs a folder of pictures for each class, at least two; found {len(classes)}")
    train: list[tuple[Tensor, int]] = []
    test: list[tuple[Tensor, int]] = []
    for label, name in enumerate(classes):
        paths = [path for path in sorted((root / name).rglob("*")) if _is_candidate(path, root)]
        if len(paths) < 2:
            raise ValueError(f"data: class {name} has {len(paths)} pictures; two are needed, one of them for the tests")
        ordered = sorted(paths, key=lambda path: _share_of(path.relative_to(root).as_posix()))
        # Every class has pictures on both sides, however few there are.
        held_out = sum(_share_of(path.relative_to(root).as_posix()) < FOLDER_HELD_OUT for path in ordered)
        held_out = min(max(1, held_out), len(ordered) - 1)
        test += [(read_picture(path, size), label) for path in ordered[:held_out]]
        train += [(read_picture(path, size), label) for path in ordered[held_out:]]
    return make_pictures(f"folder {root.resolve().name}", classes, _part(train), _part(test))


def read_picture(path: Path, size: int) -> Tensor:
    """One picture as ``(size, size)`` uint8."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError  # only whoever has pictures needs it
    except ModuleNotFoundError as error:
        raise ValueError("data: pictures are read through Pillow: pip install pillow") from error
    try:
        with Image.open(path) as opened:
            grey = ImageOps.fit(opened.convert("L"), (size, size), method=Image.Resampling.BOX)
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"data: {path} cannot be read as a picture") from error
    return torch.frombuffer(bytearray(grey.tobytes()), dtype=torch.uint8).view(size, size)


def _is_candidate(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)


def _share_of(name: str) -> float:
    """Where a name falls in [0, 1): the first eight bytes of its SHA-256, as a fraction."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _part(pictures: list[tuple[Tensor, int]]) -> Part:
    return Part(torch.stack([pixels for pixels, _ in pictures]), torch.tensor([label for _, label in pictures]))
