"""What a configuration says of each layer, a line a layer: `posenc explain --layers` prints it."""

from __future__ import annotations

from posenc.hf.config import RopeConfig, read_rope
from posenc.hf.model import LayerFacts, model_from_config
from posenc.hf.numbers import LAYERS
from posenc.hf.own import attached_names
from posenc.hf.section import count_at
from posenc.hf.source import Source
from posenc.input_files import printable
from posenc.rotary.mrope import MRoPE
from posenc.rotary.rope import RoPE


def layer_words(facts: LayerFacts) -> str:
    """What the configuration says of a layer, on a line."""
    if not facts.attends:
        return f"{printable(facts.kind)}, no attention"
    rope = facts.rotation
    parts = ["does not turn" if rope is None else " ".join(repr(rope).split())]
    if isinstance(rope, RoPE):
        parts = [f"base {rope.base:g}, {rope.layout}, {rope.rotary_dim} of {rope.head_dim} channels"]
        parts += [] if rope.scaling is None else [" ".join(repr(rope.scaling).split())]
        parts += [f"gain {float(rope.spectrum().gain):.4g}"] if float(rope.spectrum().gain) != 1 else []
    elif isinstance(rope, MRoPE):
        parts = ["M-RoPE"]
    parts += [f"window {facts.window}"] if facts.window is not None else []
    parts += ["a temperature"] if facts.temperature is not None else []
    parts += [f"sink {facts.sink}"] if facts.sink else []
    parts += [f"cap {facts.softcap:g}"] if facts.softcap is not None else []
    return f"{printable(facts.kind)}, " + ", ".join(parts)


def layer_lines(config: Source | RopeConfig) -> list[str]:
    """A line for each layer; for each kind of layers where the configuration does not say how many there are.

    Raises:
        ValueError: as `posenc.hf.model_from_config`.
    """
    read = config if isinstance(config, RopeConfig) else read_rope(config)
    if read.instead:
        return [f"all layers: {one.text}" for one in read.instead]
    model = model_from_config(read)
    layers = model.layers or model.found * (count_at(read.section, "num_hidden_layers", LAYERS) or 0)
    if not layers:
        return [f"layers: {layer_words(one)}" for one in model.found]
    attached = attached_names(read.config)
    return [
        f"layer {number}: {printable(one.kind)}, attached by posenc: {printable(attached.words)}"
        if attached is not None and one.attends and attached.acts_in(number)
        else f"layer {number}: {layer_words(one)}"
        for number, one in enumerate(layers)
    ]
