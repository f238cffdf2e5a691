"""What a configuration of posenc's own models holds, as `posenc export` and ``save_pretrained`` write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from posenc.catalogue import encoding_info
from posenc.hf.config.encoding_spec import (
    DEFAULTS,
    MODEL_TYPE,
    EncodingSpec,
    check_size,
    create,
    encoding_specs,
    sizes_of,
)
from posenc.hf.config.rope_block import ALL
from posenc.hf.config.rotation import Rotation
from posenc.hf.sources.load import Config
from posenc.rotary.rope import RoPE


def is_posenc_config(config: Config) -> bool:
    """Whether a configuration is one of posenc's own."""
    return config.get("model_type") == MODEL_TYPE


class AttachedNames(NamedTuple):
    """Encodings that `posenc.hf.attach` has put into layers of a saved model, in the place of its rotation.

    Attributes:
        words: their names.
        layers: by number from 0; None: every layer with attention.
    """

    words: str
    layers: frozenset[int] | None

    def acts_in(self, layer: int) -> bool:
        """Whether a layer has them."""
        return self.layers is None or layer in self.layers


def attached_names(config: Config) -> AttachedNames | None:
    """What is attached to the model of a configuration; None where that is nothing."""
    block = config.get("posenc")
    lines = block.get("encodings", block.get("built_in_python")) if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(lines, list):
        return None
    names = [str(line.get("name")) if isinstance(line, dict) else str(line) for line in lines]
    layers = block.get("layers")
    numbers = (
        frozenset(layer for layer in layers if type(layer) is int) if isinstance(layers, list) else frozenset[int]()
    )
    return AttachedNames(" + ".join(names) or "none (NoPE)", numbers or None)


def posenc_specs(config: Config) -> list[EncodingSpec]:
    """The encodings of one, each with everything that decides it.

    Raises:
        ValueError: for a size or an encoding that cannot be; it names the key.
    """
    for key, value in config.items():
        check_size(key, value)
    return encoding_specs(config.get("encodings", DEFAULTS["encodings"]), sizes_of(config))


def posenc_layers(config: Config) -> Mapping[str, Rotation | None]:
    """The rotation of one, where it is a single RoPE; None for any other encoding."""
    rotary = [line for line in posenc_specs(config) if encoding_info(line["name"]).encoding is RoPE]
    rope = create(rotary[0], sizes_of(config)) if len(rotary) == 1 else None
    return {ALL: rope if isinstance(rope, RoPE) else None}


def describe_spec(line: EncodingSpec) -> tuple[str, str]:
    """One encoding in words, and the call that builds it."""
    entry = encoding_info(line["name"])
    options = ", ".join(f"{key}={value!r}" for key, value in line["options"].items())
    cls = "" if entry.encoding is None else entry.encoding.__name__
    inner = f"scaling={entry.scaling.__name__}({options})" if entry.scaling is not None else options
    whose = "one for all layers" if line["shared"] else "one for each layer"
    return f"{entry.name}: {entry.title} ({entry.hook_point}), {whose}", f"{cls}({inner})"
