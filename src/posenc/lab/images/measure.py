"""The tests: the same held-out pictures, moved, with all positions moved, with finer tokens, and enlarged.

trained           as in training
token_shift       the picture moved by one token, to each of the eight neighbours; mean of the eight
+1, +3, …         the picture where it was, this many tokens added to both coordinates of every position
finer_scaled      patches at half the stride, at coordinates of the trained grid: 0, ½, 1, …
finer_counted     the same patches, at counted coordinates: 0, 1, 2, …
large_scaled      everything twice as large, at coordinates of the trained grid
large_counted     the same patches, at counted coordinates
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.lab.images.coordinates import inside
from posenc.lab.images.model import patches
from posenc.lab.images.pictures import Pictures
from posenc.lab.images.settings import ImageSettings
from posenc.positions import aligned, grid

TOKENS_A_FORWARD = 32_768
NEIGHBOURS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]
TRAINED, SHIFT = "trained", "token_shift"
FINER, LARGE = ("finer_scaled", "finer_counted"), ("large_scaled", "large_counted")


class View(NamedTuple):
    """One way to show the pictures."""

    tokens: Callable[[Tensor], Tensor]  # canvases (batch, height, width) to patches (batch, tokens, patch²)
    places: Tensor  # (tokens, 2), in tokens of the trained grid


def names_of(settings: ImageSettings) -> list[str]:
    """The tests, in the order of the table."""
    return [TRAINED, SHIFT, *(f"+{k}" for k in settings.constants), *FINER, *LARGE]


def views(settings: ImageSettings) -> dict[str, list[View]]:
    """The tests: where there are several views, their mean counts."""
    n, patch = settings.grid, settings.patch
    trained, double = grid(n, n), grid(2 * n, 2 * n)
    dense = grid(2 * n - 1, 2 * n - 1)

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
        TRAINED: [View(plain, trained)],
        SHIFT: [View(moved(down, right), trained) for down, right in NEIGHBOURS],
        **{f"+{k}": [View(plain, trained + k)] for k in settings.constants},
        FINER[0]: [View(finer, dense / 2)],
        FINER[1]: [View(finer, dense)],
        LARGE[0]: [View(enlarged, aligned(double, 2 * n, onto=n))],
        LARGE[1]: [View(enlarged, double)],
    }


@torch.no_grad()
def measure(
    model: nn.Module,
    pictures: Pictures,
    settings: ImageSettings,
    *,
    table: bool = False,
    device: torch.device | str = "cpu",
    on_forward: Callable[[float], None] = lambda share: None,
) -> dict[str, float | None]:
    """The share of pictures that are recognised in each test.

    Args:
        model: takes patches and places; in evaluation mode and float32.
        pictures: whose held-out part is shown.
        settings: of the model.
        table: whether the model is undefined outside the trained grid; such tests have None.
        device: of the model.
        on_forward: told after each forward which share of the work is done.
    """
    canvases = pictures.canvas(pictures.test, settings.patch)
    labels, found = pictures.test.labels, dict[str, float | None]()
    asked = {
        name: None if table and not all(inside(view.places, settings.grid) for view in shown) else shown
        for name, shown in views(settings).items()
    }
    work, done = sum(len(view.places) ** 2 for shown in asked.values() for view in shown or ()), 0.0
    for name, shown in asked.items():
        right = []
        for view in shown or ():
            size = max(1, TOKENS_A_FORWARD // len(view.places))
            for first in range(0, len(labels), size):
                some = slice(first, first + size)
                logits = model(view.tokens(canvases[some]).to(device), view.places.to(device))
                right.append((logits.argmax(-1).cpu() == labels[some]).double())
                done += len(view.places) ** 2 / work * len(labels[some]) / len(labels)
                on_forward(min(1.0, done))
        found[name] = torch.cat(right).mean().item() if shown is not None else None
    return found
