"""The length that a configuration declares, after its rotation was changed.

Under YaRN, LongRoPE and Llama 3's recipe the trained length stands in the block, as original_max_position_embeddings,
and ``max_position_embeddings`` is the extended one: transformers compares their ratio with the factor, generation and
serving stop there. Linear scaling and dynamic NTK have no key for the trained length, so that there
``max_position_embeddings`` stays (dynamic NTK starts from it).
"""

from __future__ import annotations

from collections.abc import Mapping

from posenc.frequencies.by_parts import NTKByParts
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import DynamicNTK
from posenc.frequencies.yarn import YaRN
from posenc.hf.mrope import Rotation, of_text

_STRETCHED = (LongRoPE, YaRN)  # whose factor says by how much
Layers = Mapping[str, Rotation | None]


def reach(layers: Layers, *, recipes: bool = True) -> int | None:
    """Tokens that these rotations are stretched to: trained length times factor; None where nothing says so.

    Args:
        layers: by kind.
        recipes: whether Llama 3's counts, whose factor says less than the length that such models declare.
    """
    kinds = (*_STRETCHED, Llama3, NTKByParts) if recipes else _STRETCHED
    parts = [part for part in _scalings(layers) if isinstance(part, kinds) and part.factor > 1]
    return max((round(part.original_length * part.factor) for part in parts), default=None)


def declared_after(declared: int | None, before: Layers, after: Layers) -> int | None:
    """What ``max_position_embeddings`` becomes; None: it stays.

    It grows to what the new rotations reach, and follows them where it was what the old ones reached. A configuration
    that declared the trained length beside a scaling keeps that habit.

    Args:
        declared: its value so far.
        before, after: the rotations, by kind of layers.
    """
    wanted = reach(after)
    if declared is None or wanted is None or any(isinstance(part, DynamicNTK) for part in _scalings(after)):
        return None
    old = reach(before)
    if old not in (None, declared) and all(declared in _trained(layers) for layers in (before, after)):
        return None
    return wanted if wanted > declared or old == declared else None


def _trained(layers: Layers) -> set[object]:
    return {getattr(part, "original_length", None) for part in _scalings(layers)}


def _scalings(layers: Layers) -> list[object]:
    ropes = [of_text(rope) for rope in layers.values() if rope is not None]
    return [part for rope in ropes if rope.scaling is not None for part in rope.scaling.modules()]
