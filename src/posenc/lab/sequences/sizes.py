"""Profiles of all generated tasks: minutes on a few cores (quick), every encoding (standard), for a GPU (full)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.specs import standard_encodings
from posenc.lab.tasks.numbers import unknown_profile
from posenc.lab.tasks.task import Profile

QUICK = ("nope", "sinusoidal", "rope", "alibi", "t5", "fire", "fox", "stick-breaking")
S = TypeVar("S", bound=SequenceSettings)


def profile_of(name: str, quick: S, harder: Callable[[S], S] = lambda settings: settings) -> Profile[S]:
    """A profile by name.

    Args:
        name: quick, standard or full.
        quick: the numbers of a few minutes, which standard shares and full grows from.
        harder: what makes the task harder in the profile full.
    """
    if name == "quick":
        return Profile(name, QUICK, 2, quick)
    if name == "standard":
        return Profile(name, (*standard_encodings(), "rope+alibi", "rope+fox"), 3, quick)
    if name == "full":
        length = 4 * quick.train_length
        settings = replace(
            quick, windows=256, train_length=length, steps=15 * quick.steps, dim=256, layers=4, heads=8, lr=1e-3,
            warmup=500, checkpoint_every=250,
        )  # fmt: skip
        return Profile(name, (*standard_encodings(), "rope+alibi", "rope+fox"), 3, harder(settings))
    raise unknown_profile(name)
