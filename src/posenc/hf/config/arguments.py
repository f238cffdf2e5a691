"""Validation of arguments that Python code gives to `posenc.hf`; values of a configuration are checked in `parse`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import get_args

from posenc.arguments import check_choice, check_several, check_whole, shown
from posenc.frequencies.rotation import Layout
from posenc.hf.config.parse import Layers, Reading
from posenc.hf.config.rope_block import ALL
from posenc.hf.config.rotation import Rotation
from posenc.hf.config.scalings import Convention, check_convention
from posenc.hf.limits import CHANNELS
from posenc.hf.sources.load import Config

VERSIONS = (4, 5)  # of transformers, whose spellings there are


def check_reading(
    head_dim: int | None, layout: Layout | None, convention: Convention, ignore: Collection[str]
) -> Reading:
    """How to read a configuration; a ValueError that names the argument where one is none."""
    if head_dim is not None:
        check_whole("head_dim", head_dim, least=2, most=CHANNELS)
    if layout is not None:
        check_choice("layout", layout, get_args(Layout))
    keys = check_several("ignore", ignore)
    strange = [key for key in keys if not isinstance(key, str)]
    if strange:
        raise ValueError(f"ignore must hold keys of the block, which are strings, got {shown(strange[0])}")
    return Reading(head_dim, layout, check_convention(convention), tuple(keys))


def check_rotations(name: str, rope: Rotation | Layers) -> Layers:
    """Rotations by kind of layers, from one for all of them or a mapping; a ValueError that names the argument."""
    if isinstance(rope, Rotation):
        return {ALL: rope}
    if not isinstance(rope, Mapping):
        raise ValueError(f"{name} must be a RoPE, an MRoPE or a mapping of them by kind of layers, got {shown(rope)}")
    for kind, rotation in rope.items():
        if not isinstance(kind, str) or not (rotation is None or isinstance(rotation, Rotation)):
            text = "must have names of kinds of layers, and for each a RoPE, an MRoPE or None"
            raise ValueError(f"{name} {text}, got {shown(kind)}: {shown(rotation)}")
    return rope


def check_rope_config(layers: Layers, config: Config, reading: Reading) -> None:
    """Raise a ValueError that names the argument unless these are what was read of a configuration."""
    if not isinstance(layers, Mapping):
        raise ValueError(f"rotations must be a mapping of rotations by kind of layers, got {shown(layers)}")
    check_rotations("rotations", layers)
    if not isinstance(config, dict):
        raise ValueError(f"config must be a dictionary, as read_rope reads it, got {shown(config)}")
    if not isinstance(reading, Reading):
        raise ValueError(f"reading must be a Reading, got {shown(reading)}")
    check_reading(*reading)


def check_version(version: object) -> None:
    """Raise a ValueError unless this is a version of transformers that has a spelling of its own."""
    if not isinstance(version, int) or version not in VERSIONS:
        raise ValueError(f"version must be 4 or 5, got {shown(version)}")
