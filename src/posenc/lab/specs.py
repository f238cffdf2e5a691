"""Encodings as the lab names them: ``rope``, ``nope``, ``rope+alibi``; ``my_module:MyClass`` is a plugin.

``rope@64/nope:4`` is a schedule over layers: RoPE under a window, and nothing in every fourth (`posenc.schedule`).

How to train an encoding is a property of its class: how much faster than the model its parameters learn,
whether layers share one instance, which options scale with the trained length (`Encoding`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import nn

from posenc.catalogue import SHAPE, Entry, encoding_info, list_encodings
from posenc.encoding import Encoding
from posenc.lab.plugins import code_hash, encoding_class, is_plugin
from posenc.schedule import Schedule

_EVERY = re.compile(r"^[^:]*:[0-9]+$")  # a name with the number of a rule, which is no class


@dataclass(frozen=True)
class Shape:
    """Sizes of a model that encodings are built from; ``options`` holds extra arguments of single encodings."""

    dim: int
    heads: int
    layers: int
    train_length: int  # tokens
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def words(self, entry: Entry) -> dict[str, object]:
        """What an entry of the catalogue is built from."""
        words = {
            "dim": self.dim, "num_heads": self.heads, "num_kv_heads": self.heads, "head_dim": self.dim // self.heads,
            "max_length": self.train_length, "train_length": self.train_length,
        }  # fmt: skip
        return {**words, **self.options.get(entry.name, {})}


@dataclass(frozen=True)
class BuiltEncodings:
    """The encodings of one model, and the learning-rate multiplier of each of their parameters."""

    embedding: list[Encoding]  # applied once, after the token embedding
    attention: list[list[Encoding]]  # a list for each layer
    windows: list[int | None]  # of each layer
    lr_multipliers: dict[nn.Parameter, float]


def encoding_names(spec: str) -> list[str]:
    """The encodings named in a spec, from the catalogue or plugins, each once; none for NoPE."""
    return list(Schedule.parse(spec).names)


def is_schedule(spec: str) -> bool:
    """Whether a spec has a window, or layers that differ."""
    schedule = Schedule.parse(spec)
    return not schedule.uniform or schedule.pattern[0].window is not None


def normalize_spec(spec: str) -> str:
    """A spec as it stands in tables: without spaces, in lower case but for own classes."""
    try:
        Schedule.parse(spec)
    except ValueError as error:
        message = f"{spec}: an own class is named as it is imported, like my_module:MyClass; {error}"
        raise ValueError(message if is_plugin(spec) else str(error)) from None
    return "/".join(map(_normal, spec.split("/")))


def _normal(rule: str) -> str:
    """A kind of layers, and in every how many it comes."""
    parts = "".join(rule.split()).split("+")
    return "+".join(part if is_plugin(part) and not _EVERY.search(part) else part.lower() for part in parts)


def check_specs(typed: Iterable[str], shape: Shape, *, axes: int = 1, ids: bool = False) -> list[str]:
    """Each spec once, each known and buildable at this shape; otherwise a ValueError that says which and why not.

    Args:
        typed: as they were typed.
        shape: of the model.
        axes: coordinates of the task's positions.
        ids: whether the task has positions of another kind, for the encodings that need them.
    """
    checked = list(dict.fromkeys(normalize_spec(spec) for spec in typed))
    for spec in checked:
        for name in encoding_names(spec):
            _check_trainable(name, spec, ids)
        built = build_for_inspection(spec, shape)
        for encoding in dict.fromkeys((*built.embedding, *(e for layer in built.attention for e in layer))):
            _check_axes(encoding, spec, axes)
    return checked


def build_for_inspection(spec: str, shape: Shape) -> BuiltEncodings:
    """Build encodings for inspection only; a ValueError that names the spec if they cannot be built.

    Encodings of the catalogue are built on the meta device, so that no size is too large.
    """
    device = nullcontext() if plugin_names([spec]) else torch.device("meta")
    try:
        with device:
            return build_encodings(spec, shape)
    except ValueError as error:
        raise ValueError(f"{spec}: {error}") from error


def build_encodings(spec: str, shape: Shape) -> BuiltEncodings:
    """Build a spec's encodings: one instance for all layers where its class says so, otherwise one a layer."""
    schedule, entries = Schedule.parse(spec), {name: entry_of(name) for name in encoding_names(spec)}
    embedding = [name for name, entry in entries.items() if entry.hook_point == "embedding"]
    for name in embedding:
        if any(name not in kind.names for kind in schedule.pattern):
            raise ValueError(f"{name} acts on embeddings, once for all layers: give it to each kind of them")
    shared = {name: _build(entries[name], shape) for name in embedding}
    rates: dict[nn.Parameter, float] = {}

    def make(name: str) -> Encoding:
        encoding = shared[name] if name in shared else _build(entries[name], shape)
        rates.update(dict.fromkeys(encoding.parameters(), entries[name].lr_multiplier))
        return encoding

    layers = schedule.instances(shape.layers, make, lambda name: name in shared or entries[name].shared)
    acting = [[e for e in encodings if e not in shared.values()] for encodings, _ in layers]
    return BuiltEncodings(list(shared.values()), acting, [window for _, window in layers], rates)


def ends_at_table(spec: str) -> bool:
    """Whether some encoding of a spec is undefined past the rows it was trained with."""
    return any(entry_of(name).table_bound for name in encoding_names(spec))


@cache
def standard_encodings(axes: int = 1) -> tuple[str, ...]:
    """Every encoding of the catalogue for positions of so many coordinates, that is there from the start."""
    shape = Shape(dim=128, heads=4, layers=1, train_length=128)
    entries = (encoding_info(name) for name in list_encodings())
    candidates = [entry for entry in entries if not entry.extends_context and not entry.own_positions]
    return tuple(e.name for e in candidates if e.encoding is None or _build(e, shape).axes in (0, axes))


def entry_of(name: str) -> Entry:
    """What is known of a name: the catalogue's entry, or one made for the class that ``module:Class`` names."""
    if not is_plugin(name):
        return encoding_info(name)
    cls = encoding_class(name)
    title = (cls.__doc__ or "").strip().partition("\n")[0] or cls.__name__
    return Entry(name=name, encoding=cls, title=title, formula="", source="", parameters="", cost="", past_training="")


def plugin_hashes(typed: Iterable[str]) -> dict[str, str]:
    """Code hashes of the plugins among names: see `posenc.lab.plugins.code_hash`."""
    return {name: code_hash(name) for name in plugin_names(typed)}


def plugin_names(specs: Iterable[str]) -> list[str]:
    """The plugins named in specs, each once."""
    typed = filter(is_plugin, specs)
    return list(
        dict.fromkeys(name for spec in typed for name in encoding_names(normalize_spec(spec)) if is_plugin(name))
    )


def _check_trainable(name: str, spec: str, ids: bool) -> None:
    entry, within = entry_of(name), "" if name == spec else f" in {spec}"
    if entry.extends_context:
        raise ValueError(
            f"{name}{within} extends the context of a trained model; compare trains from the start, and RoPE is "
            "what it would train. posenc extend applies such a method to a model, posenc evaluate measures it"
        )
    if entry.own_positions and not ids:
        raise ValueError(
            f"{name}{within}: its positions are not places in the text, and this task has no others; counted ones "
            "would make another encoding of it"
        )


def _check_axes(encoding: Encoding, spec: str, axes: int) -> None:
    has, name = encoding.axes, type(encoding).__name__
    if has == axes or (has == 0 and axes == 1):
        return
    if has == 0:
        raise ValueError(f"{spec}: {name} reads the order of a text, not coordinates; --task text compares it")
    hint = {1: "; --task text compares it", 2: "; --task images compares it"}.get(has, "")
    raise ValueError(f"{spec}: positions of {name} have {has} coordinates, positions of this task {axes}{hint}")


def _build(entry: Entry, shape: Shape) -> Encoding:
    try:
        return entry.create(**shape.words(entry))
    except Exception as error:
        if not is_plugin(entry.name):
            raise
        raise ValueError(
            f"{entry.name} cannot be built from what compare passes ({', '.join(SHAPE)}): {type(error).__name__}: "
            f"{error}"
        ) from error
