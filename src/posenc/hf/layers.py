"""The rotations of a whole configuration by kind of layers, and whether what was written means what it should."""

from __future__ import annotations

from collections.abc import Mapping

from posenc.hf.mrope import Rotation
from posenc.hf.own import is_own, own_layers
from posenc.hf.reading import Reading, rope_of
from posenc.hf.same import turns_alike
from posenc.hf.section import section_of
from posenc.hf.source import Config
from posenc.hf.spelling import parts_of

Layers = Mapping[str, Rotation | None]


def layers_of(whole: Config, reading: Reading) -> Layers:
    """By kind of layers, what turns them; None for those that do not turn.

    Raises:
        ValueError: as `read_rope`.
    """
    if is_own(whole):
        return own_layers(whole)
    section = section_of(whole)
    return {part.kind: rope_of(section, part, reading) for part in parts_of(section)}


def check_meaning(whole: Config, layers: Layers, reading: Reading) -> None:
    """Read what was written; raise a ValueError unless it turns as it should."""
    written = layers_of(whole, reading)
    for kind in {**layers, **written}:
        wanted, found = layers.get(kind), written.get(kind)
        if kind not in layers or kind not in written or not turns_alike(wanted, found):
            back, given = (" ".join(str(rope).split()) for rope in (found, wanted))
            raise ValueError(f"layers: {kind} would be read back as {back}, not as {given}")
