"""The two pictures of a report: accuracy by the constant added to positions, and by the grid of tokens."""

from __future__ import annotations

from functools import partial

from posenc.lab.images import words
from posenc.lab.images.measure import FINER, LARGE, SHIFT, TRAINED
from posenc.lab.images.pictures import PictureFacts
from posenc.lab.images.table import ImageRow
from posenc.lab.report.curves import Curves

GRIDS = [TRAINED, SHIFT, *FINER, *LARGE]
_curves = partial(Curves, label=words.label, right="recognised")


def by_constant(rows: list[ImageRow], facts: PictureFacts) -> Curves:
    """Accuracy by the constant added to all positions."""
    tests = [TRAINED, *(rows[0].constants if rows else [])]
    title, axis = "A constant added to all positions", "tokens added to all positions"
    return _curves(rows, tests, title=title, axis=axis, guess=1 / len(facts.classes))


def by_grid(rows: list[ImageRow], facts: PictureFacts) -> Curves:
    """Accuracy by what happens to picture and tokens."""
    title, axis = "The picture moved, finer tokens, enlarged", "what the model is shown"
    return _curves(rows, GRIDS, title=title, axis=axis, guess=1 / len(facts.classes), joined=False)
