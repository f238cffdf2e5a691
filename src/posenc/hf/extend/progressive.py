"""LongRoPE's recipe: search at a middle length, train there, search again at the target, and recover short texts.

    1  factors for the middle length              searched on the model as it is
    2  a short training at the middle length      with these factors
    3  factors for the target, onto those         searched on the trained model; none where the middle is the target
    4  factors for texts of the trained length    searched on the trained model, at most those of the middle

Each step leaves its result in a folder, as soon as it has one: searches an evaluation at a time, the training every
few steps. The same call goes on from there, and ends as one that was never stopped.

Source: Ding et al., LongRoPE, arXiv 2402.13753, sections 3.3 and 4.1.
Departs from the source: the gain on queries and keys is Phi-3's, for the target and in all steps, as rope type
    "longrope" has one for both sets of factors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from posenc.hf.extend.searching import Searcher
from posenc.hf.extend.tuning import Recipe, drawn, tune
from posenc.hf.losses import evenly


def middle_of(recipe: Recipe, original_length: int, length: int) -> int:
    """The length of the training.

    Raises:
        ValueError: unless it lies past the trained length, and not past the target.
    """
    half = length // 2
    middle = recipe.intermediate or (half if half > original_length else length)
    if not original_length < middle <= length:
        raise ValueError(
            f"intermediate must lie in {original_length + 1}..{length}, past the trained length and not past the "
            f"target, got {middle}"
        )
    return middle


def progressed(
    searcher: Searcher, text: Tensor, recipe: Recipe, *, pieces: int, work: Path, progress: Callable[[str], None]
) -> nn.Module:
    """Take a model through the recipe, in place; returns it, with its last rotation.

    Args:
        searcher: of the model.
        text: tokens to search and train on.
        recipe: numbers.
        pieces: of text that a candidate is judged on.
        work: a folder for what each step leaves.
        progress: is told where it stands.
    """
    original, length, rotations = searcher.original_length, searcher.length, searcher.rotations
    middle = middle_of(recipe, original, length)
    drawn(text, recipe, middle, 0)  # refuses a short text before hours of searching

    def searched(name: str, at: int, trained: int, factor: float, onto: tuple[float, ...] | None) -> tuple[float, ...]:
        return searcher.search(
            evenly(text, at, pieces), trained=trained, factor=factor, onto=onto, journal=work / f"search-{name}.jsonl",
            progress=lambda told: progress(f"{name} length, {told}"),
        )  # fmt: skip

    first = searched("middle", middle, original, middle / original, None)
    rotations.put(searcher.config(first, first))
    model = tune(rotations.model, text, recipe, middle, state=work / "tuned.pt", progress=progress)
    last = first if middle == length else searched("target", length, middle, length / middle, first)
    short = searched("short", original, original, middle / original, None)
    rotations.put(searcher.config(short, last))
    return model
