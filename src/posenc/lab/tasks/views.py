"""How the held-out pictures of --task images are shown: on the trained grid of tokens, and on others.

full              as in training
token_shift       moved by one token, to each of the eight neighbours; a picture's value is the mean of the eight
+1, +3, …         where they were, this many tokens added to both coordinates of every position
finer_scaled      patches at half the stride, at coordinates of the trained grid: 0, ½, 1, …
finer_counted     the same patches, at counted coordinates: 0, 1, 2, …
large_scaled      everything twice as large, at coordinates of the trained grid
large_counted     the same patches, at counted coordinates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from posenc.lab.metrics import FULL
from posenc.positions import aligned, grid

SHIFT, FINER, LARGE = "token_shift", ("finer_scaled", "finer_counted"), ("large_scaled", "large_counted")
NEIGHBOURS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]


class View(NamedTuple):
    """One way to show the pictures."""

    tokens: Callable[[Tensor], Tensor]  # canvases (batch, height, width) to patches (batch, tokens, patch²)
    places: Tensor  # (tokens, 2), in tokens of the trained grid


def patches(pictures: Tensor, patch: int, stride: int | None = None) -> Tensor:
    """Square patches of pictures ``(batch, height, width)``, row by row: ``(batch, tokens, patch²)``."""
    return F.unfold(pictures.unsqueeze(1), patch, stride=patch if stride is None else stride).transpose(1, 2)


def views(n: int, patch: int, constants: Sequence[int]) -> dict[str, list[View]]:
    """How pictures are shown, by view: where there are several ways, their mean counts.

    Args:
        n: tokens each way in training.
        patch: pixels of a token, each way.
        constants: tokens by which positions are moved.
    """
    trained, double, dense = grid(n, n), grid(2 * n, 2 * n), grid(2 * n - 1, 2 * n - 1)

    def plain(pictures: Tensor) -> Tensor:
        return patches(pictures, patch)

    def finer(pictures: Tensor) -> Tensor:
        return patches(pictures, patch, patch // 2)

    def enlarged(pictures: Tensor) -> Tensor:
        larger = F.interpolate(pictures.unsqueeze(1), scale_factor=2, mode="bilinear", align_corners=False)
        return patches(larger.squeeze(1), patch)

    def moved(down: int, right: int) -> Callable[[Tensor], Tensor]:
        # The margin is empty, so what leaves on one side and comes back on the other is nothing.
        return lambda pictures: plain(pictures.roll((down * patch, right * patch), (1, 2)))

    return {
        FULL: [View(plain, trained)],
        SHIFT: [View(moved(down, right), trained) for down, right in NEIGHBOURS],
        **{f"+{k}": [View(plain, trained + k)] for k in constants},
        FINER[0]: [View(finer, dense / 2)],
        FINER[1]: [View(finer, dense)],
        LARGE[0]: [View(enlarged, aligned(double, 2 * n, onto=n))],
        LARGE[1]: [View(enlarged, double)],
    }


def inside(places: Tensor, side: int) -> bool:
    """Whether all places lie on the trained grid, or within half a token of it: there a table has numbers."""
    return bool((places >= -0.5).all()) and bool((places <= side - 0.5).all())
