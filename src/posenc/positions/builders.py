"""Which builder makes the positions of a family, a design or a model: a name given to another one is told so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from posenc.arguments import check_choice


def check_known(argument: str, value: object, choices: Sequence[str]) -> None:
    """Raise a ValueError unless ``value`` is one of ``choices``, with the builder that takes it if another does.

    >>> check_known("family", "v2pe", ("qwen2-vl",))
    Traceback (most recent call last):
    ValueError: family must be one of ('qwen2-vl',), got 'v2pe'; multimodal(parts, design='v2pe') makes its positions
    """
    if isinstance(value, str) and value not in choices:
        for builder, other, names in _builders():
            if value in names:
                call = f"{builder}(parts, {other}={value!r})"
                raise ValueError(f"{argument} must be one of {choices}, got {value!r}; {call} makes its positions")
    check_choice(argument, value, tuple(choices))


def _builders() -> list[tuple[str, str, Sequence[str]]]:
    """Each builder of streams with its argument and the names that it takes."""
    from posenc.positions import designs, diffusion, streams  # which import this module

    return [
        ("stream", "family", get_args(streams.Family)),
        ("multimodal", "design", get_args(designs.Design)),
        ("latents", "model", tuple(diffusion.AXES)),
    ]
