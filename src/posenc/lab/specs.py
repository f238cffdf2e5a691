"""Encodings as the lab names them: ``rope``, ``nope``, ``rope+alibi``, and controls like ``rope+window``.

A control has no training of its own: ``SPEC+window`` is the checkpoint of SPEC, evaluated with a sliding window
of the training length, so that no byte ever sees a distance that was not trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from posenc.catalogue import build, info, list_encodings
from posenc.encoding import Encoding, place_of

WINDOW = "rope+window"  # the control of every table
_CONTROL = "window"


@dataclass(frozen=True)
class Shape:
    """What encodings may need to know of a model."""

    dim: int
    heads: int
    layers: int
    train_length: int  # bytes


def trained(spec: str) -> str:
    """The spec whose checkpoint a row is measured on."""
    return spec.removesuffix("+" + _CONTROL)


def is_control(spec: str) -> bool:
    """Whether a row needs no training of its own."""
    return trained(spec) != spec


def names(spec: str) -> list[str]:
    """The catalogue's names in a spec; none for NoPE."""
    return [name for name in trained(spec).split("+") if name != "nope"]


def check_specs(specs: Iterable[str], shape: Shape) -> list[str]:
    """Each spec once, each known and buildable at this shape; otherwise a ValueError that says which and why not."""
    checked = list(dict.fromkeys(spec.strip().lower() for spec in specs))
    for spec in checked:
        for name in trained(spec).split("+"):
            if info(name).stretches:
                raise ValueError(
                    f"{name} stretches a model that was trained without it; compare trains from the start. RoPE is "
                    f"what it would train{'' if name == spec else f' in {spec}'}"
                )
        try:
            build_encodings(spec, shape)
        except ValueError as error:
            raise ValueError(f"{spec}: {error}") from error
    return checked


@dataclass(frozen=True)
class Built:
    """The encodings of one model, and how much faster than the model each of their parameters learns."""

    embedding: list[Encoding]  # applied once, after the token embedding
    attention: list[list[Encoding]]  # a list for each layer
    lr_multipliers: dict[nn.Parameter, float]


def build_encodings(spec: str, shape: Shape) -> Built:
    """Build a spec's encodings: one instance for all layers where the entry says so, otherwise one a layer."""
    built = Built([], [[] for _ in range(shape.layers)], {})
    for name in names(spec):
        entry = info(name)
        copies = [_build(name, shape)]
        if place_of(copies[0]) == "embedding":
            built.embedding.append(copies[0])
        else:
            copies += [copies[0] if entry.shared else _build(name, shape) for _ in range(shape.layers - 1)]
            for layer, encoding in zip(built.attention, copies, strict=True):
                layer.append(encoding)
        for encoding in copies:
            built.lr_multipliers.update(dict.fromkeys(encoding.parameters(), entry.lr_multiplier))
    return built


def ends_at_table(spec: str) -> bool:
    """Whether some encoding of a spec is undefined past the rows it was trained with."""
    return any(info(name).table_bound for name in names(spec))


def standard_encodings() -> tuple[str, ...]:
    """Every encoding of the catalogue that serves text, positions with one coordinate, and is there from the start."""
    shape = Shape(dim=128, heads=4, layers=1, train_length=128)
    names_of_text = (name for name in list_encodings() if name == "nope" or _one_axis(name, shape))
    return tuple(name for name in names_of_text if not info(name).stretches)


def _one_axis(name: str, shape: Shape) -> bool:
    return all(encoding.axes == 1 for encoding in build(name, **_words(shape)))


def _build(name: str, shape: Shape) -> Encoding:
    (encoding,) = build(name, **_words(shape))
    return encoding


def _words(shape: Shape) -> dict[str, int]:
    return {
        "dim": shape.dim,
        "num_heads": shape.heads,
        "kv_heads": shape.heads,
        "head_dim": shape.dim // shape.heads,
        "max_length": shape.train_length,
        "train_length": shape.train_length,
    }
