"""A method put into a live model: its rotation built again, or its distances moved."""

from __future__ import annotations

from typing import Any

from torch import nn

from posenc.hf.attach import attach
from posenc.hf.extend.methods import moved, stretched
from posenc.hf.extend.rotations import Rotations


def scaled(rotations: Rotations, method: str, original_length: int, length: int) -> dict[str, Any]:
    """The configuration of a model whose frequencies a method scales, for `Rotations.put`.

    Args:
        rotations: of the model, which stays as it is.
        method: one of `posenc.hf.extend.methods.SCALED`, or with ``+resonance``.
        original_length: tokens that the model was trained at.
        length: tokens that it is extended to.
    """
    far, factor = rotations.far(original_length), length / original_length
    ropes = {kind: stretched(rope, method, factor, original_length) for kind, rope in far.items()}
    return rotations.written(ropes, original_length, length)


def move(rotations: Rotations, method: str, original_length: int, length: int) -> nn.Module:
    """The model with its distances moved in layers that see far, by one of `posenc.hf.extend.methods.DISTANCES`."""
    layers = rotations.far_layers(original_length)
    found: nn.Module = attach(rotations.model, [moved(method, original_length, length)], layers=layers)
    return found
