"""Encodings as the lab names them: ``rope``, ``nope``, ``rope+alibi``, and controls like ``rope+window``.

``my_module:MyClass`` is a class of your own (`posenc.lab.own`).
A control has no training of its own: ``SPEC+window`` is the checkpoint of SPEC, evaluated with a sliding window
of the training length, so that no byte ever sees a distance that was not trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from posenc.catalogue import SHAPE, Entry, info, list_encodings
from posenc.encoding import PLACES, Encoding, place_of
from posenc.lab.own import Permission, digest_of, is_own, own_class

WINDOW = "rope+window"  # the control of every table
_CONTROL = "window"


class AnyShape(Protocol):
    """What encodings may need to know of a model, whatever it learns."""

    @property
    def layers(self) -> int: ...

    def words(self, entry: Entry) -> Mapping[str, object]:
        """What an entry of the catalogue is built from."""


@dataclass(frozen=True)
class Shape:
    """What encodings may need to know of a model of text."""

    dim: int
    heads: int
    layers: int
    train_length: int  # bytes

    def words(self, entry: Entry) -> dict[str, object]:
        """The same words for all entries."""
        return {
            "dim": self.dim,
            "num_heads": self.heads,
            "kv_heads": self.heads,
            "head_dim": self.dim // self.heads,
            "max_length": self.train_length,
            "train_length": self.train_length,
        }


def trained(spec: str) -> str:
    """The spec whose checkpoint a row is measured on."""
    return spec.removesuffix("+" + _CONTROL)


def is_control(spec: str) -> bool:
    """Whether a row needs no training of its own."""
    return trained(spec) != spec


def names(spec: str) -> list[str]:
    """The names in a spec, of the catalogue or of own classes; none for NoPE."""
    return [name for name in trained(spec).split("+") if name != "nope"]


def normal(spec: str) -> str:
    """A spec as it stands in tables: without spaces, in lower case but for own classes."""
    parts = (part.strip() for part in spec.split("+"))
    return "+".join(part if is_own(part) else part.lower() for part in parts)


def check_specs(specs: Iterable[str], shape: Shape, *, ids: bool = False) -> list[str]:
    """Each spec once, each known and buildable at this shape; otherwise a ValueError that says which and why not.

    ``ids``: whether the task has ids of digits for the encodings whose positions they are.
    """
    checked = list(dict.fromkeys(normal(spec) for spec in specs))
    for spec in checked:
        for name in trained(spec).split("+"):
            _check_trainable(name, spec, ids)
        built = tried(spec, shape)
        for encoding in (*built.embedding, *built.attention[0]):
            if encoding.axes > 1:
                count, hint = encoding.axes, "; --task images compares it" if encoding.axes == 2 else ""
                name = type(encoding).__name__
                raise ValueError(f"{spec}: positions of {name} have {count} coordinates, those of text one{hint}")
    return checked


def tried(spec: str, shape: AnyShape) -> Built:
    """Encodings to look at; a ValueError that names the spec where they cannot be built.

    Those of the catalogue without their numbers, so that no size is too large to be looked at.
    """
    device = nullcontext() if own_names([spec]) else torch.device("meta")
    try:
        with device:
            return build_encodings(spec, shape)
    except ValueError as error:
        raise ValueError(f"{spec}: {error}") from error


def extension_hint(name: str) -> str:
    """How a scaling is compared, if there is a way."""
    methods = import_module("posenc.lab.extension.methods")  # which needs this module
    row = f"{name}+tuned" if name == methods.LEARNED else name
    return f"; posenc compare --task extension {row} compares it" if name in methods.METHODS else ""


def _check_trainable(name: str, spec: str, ids: bool) -> None:
    entry, within = entry_of(name), "" if name == spec else f" in {spec}"
    if entry.stretches:
        raise ValueError(
            f"{name} stretches a model that was trained without it; compare trains from the start. RoPE is "
            f"what it would train{within}{extension_hint(name)}"
        )
    if entry.own_positions and not ids:
        raise ValueError(
            f"{name}{within}: its positions are not places in the text, and compare has no others; counted ones would "
            "make another encoding of it"
        )


@dataclass(frozen=True)
class Built:
    """The encodings of one model, and how much faster than the model each of their parameters learns."""

    embedding: list[Encoding]  # applied once, after the token embedding
    attention: list[list[Encoding]]  # a list for each layer
    lr_multipliers: dict[nn.Parameter, float]


def build_encodings(spec: str, shape: AnyShape) -> Built:
    """Build a spec's encodings: one instance for all layers where the entry says so, otherwise one a layer."""
    built = Built([], [[] for _ in range(shape.layers)], {})
    for name in names(spec):
        entry = entry_of(name)
        copies = [_build(entry, shape)]
        if place_of(copies[0]) == "embedding":
            built.embedding.append(copies[0])
        else:
            copies += [copies[0] if entry.shared else _build(entry, shape) for _ in range(shape.layers - 1)]
            for layer, encoding in zip(built.attention, copies, strict=True):
                layer.append(encoding)
        for encoding in copies:
            built.lr_multipliers.update(dict.fromkeys(encoding.parameters(), entry.lr_multiplier))
    return built


def ends_at_table(spec: str) -> bool:
    """Whether some encoding of a spec is undefined past the rows it was trained with."""
    return any(entry_of(name).table_bound for name in names(spec))


def catalogue_order(spec: str) -> list[int]:
    """What sorts specs as the catalogue does; own classes come last."""
    order = list_encodings()
    return [order.index(name) if name in order else len(order) for name in names(spec)]


def standard_encodings() -> tuple[str, ...]:
    """Every encoding of the catalogue for places in a text, of one coordinate or none, that is there from the start."""
    shape = Shape(dim=128, heads=4, layers=1, train_length=128)
    entries = (info(name) for name in list_encodings())
    candidates = [entry for entry in entries if not entry.stretches and not entry.own_positions]
    return tuple(e.name for e in candidates if e.encoding is None or _build(e, shape).axes <= 1)


def entry_of(name: str) -> Entry:
    """What is known of a name: the catalogue's entry, or one made for the class that ``module:Class`` names."""
    if not is_own(name):
        return info(name)
    cls = own_class(name)
    place = next(place for place, base in PLACES.items() if issubclass(cls, base))
    title = (cls.__doc__ or "").strip().partition("\n")[0] or cls.__name__
    # One instance a layer: only its author could know whether layers may share one.
    entry = Entry(
        name, place, cls, title, formula="", source="", parameters="", cost="", past_training="", shared=False
    )
    return replace(entry, table_bound="max_length" in entry.takes)


def code_of(specs: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the files in which the own classes of specs are defined; not of what those files import."""
    return {name: digest_of(name) for name in own_names(specs)}


def permission_for(typed: Iterable[str], folder: Path) -> Permission:
    """What a command that trains may import: the own classes in the specs that were typed, from a folder."""
    return Permission(frozenset(own_names(map(normal, typed))), folder)


def own_names(specs: Iterable[str]) -> list[str]:
    """The own classes in specs, each once."""
    return list(dict.fromkeys(name for spec in specs for name in names(spec) if is_own(name)))


def _build(entry: Entry, shape: AnyShape) -> Encoding:
    try:
        return entry.create(**shape.words(entry))
    except Exception as error:
        if not is_own(entry.name):
            raise
        raise ValueError(
            f"{entry.name} cannot be made of what compare gives ({', '.join(SHAPE)}): {type(error).__name__}: {error}"
        ) from error
