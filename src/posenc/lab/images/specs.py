"""Encodings of a grid of tokens as the lab names them: ``axial``, ``nope``, ``learned_grid+axial``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from posenc.catalogue import Entry
from posenc.encoding import Encoding
from posenc.lab.images.coordinates import AXES, convention_of
from posenc.lab.specs import Built, entry_of, extension_hint, is_control, names, normal, tried

# Blocks that a head of 16 channels and two axes has room for, where the sources' own heads have 64; and waves that fit
# the few tokens of a grid, as those of axial do by themselves.
OPTIONS: dict[str, dict[str, object]] = {
    "sinusoidal_grid": {"base": 100.0},
    "liere": {"block": 8},
    "comrope_ap": {"block": 8},
    "comrope_ld": {"block": 8},
    "log_cpb": {"axes": AXES},
}


@dataclass(frozen=True)
class GridShape:
    """What encodings may need to know of a model of images."""

    dim: int
    heads: int
    layers: int
    grid: int  # tokens each way in training

    def words(self, entry: Entry) -> dict[str, object]:
        """What an entry of the catalogue is built from."""
        model: dict[str, object] = {
            "dim": self.dim,
            "num_heads": self.heads,
            "kv_heads": self.heads,
            "head_dim": self.dim // self.heads,
            "max_length": self.grid**AXES,
            "train_length": self.grid**AXES,
        }
        return {**model, **OPTIONS.get(entry.name, {})}


def check_specs(specs: Iterable[str], shape: GridShape) -> list[str]:
    """Each spec once, each known and buildable at this shape; otherwise a ValueError that says which and why not."""
    checked = list(dict.fromkeys(normal(spec) for spec in specs))
    for spec in checked:
        if is_control(spec):
            raise ValueError(f"{spec}: a sliding window is a control of --task text, images have none")
        for name in names(spec):
            _check_trainable(name, spec)
        built = tried(spec, shape)
        for encoding in (*built.embedding, *built.attention[0]):
            _check_axes(encoding, spec)
        _check_one_convention(built, spec)
    return checked


def tables_end(spec: str) -> bool:
    """Whether some encoding of a spec is undefined outside the grid that it was trained on."""
    return any(entry_of(name).table_bound for name in names(spec))


def _check_trainable(name: str, spec: str) -> None:
    entry, within = entry_of(name), "" if name == spec else f" in {spec}"
    if entry.stretches:
        raise ValueError(
            f"{name}{within} stretches a model that was trained without it, on longer texts{extension_hint(name)}"
        )
    if entry.own_positions:
        raise ValueError(f"{name}{within}: its positions are not rows and columns of an image")


def _check_axes(encoding: Encoding, spec: str) -> None:
    name, hint = type(encoding).__name__, "; --task text compares it"
    if encoding.axes == 0:
        raise ValueError(f"{spec}: {name} reads the order of a text, not rows and columns of an image{hint}")
    if encoding.axes != AXES:
        count, hint = ("one coordinate", hint) if encoding.axes == 1 else (f"{encoding.axes} coordinates", "")
        raise ValueError(f"{spec}: positions of {name} have {count}, those of an image two{hint}")


def _check_one_convention(built: Built, spec: str) -> None:
    """Attention hands all its encodings one tensor of positions."""
    found = {convention_of(encoding) for encoding in built.attention[0]}
    if len(found) > 1:
        raise ValueError(
            f"{spec}: its encodings read different coordinates ({', '.join(sorted(found))}), so they do not mix"
        )
