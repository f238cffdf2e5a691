"""The facts of a model's layers in words: the layer pattern of `posenc explain`, or one line per layer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from posenc.arguments import one_line
from posenc.frequencies.rotation import MRoPESpec, RoPESpec
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layer_kinds import half_counts
from posenc.hf.config.layers import LayerFacts
from posenc.hf.config.posenc_config import AttachedNames, attached_names, is_posenc_config
from posenc.hf.config.rope_config import RopeConfig, model_from_config, read_rope
from posenc.hf.config.rotation import rotates_nothing, text_rope
from posenc.hf.config.text_config import count_at
from posenc.hf.families.layer_patterns import CHUNKED, CROSS
from posenc.hf.limits import LAYERS
from posenc.hf.sources.load import Source
from posenc.input_files import printable

Description = dict[str, Any]
HALVES = ENCODER, DECODER = ("encoder", "decoder")


def schedule_facts(config: RopeConfig) -> Description:
    """Each kind of layers with its numbers and what it has, and the widths of latent attention."""
    if is_posenc_config(config.config):
        return {"kinds": [], "latent": None, "problem": None}
    try:
        model = model_from_config(config)
    except ValueError as error:  # in a key that no rotation needs
        return {"kinds": [], "latent": None, "problem": str(error)}
    attached = attached_names(config.config)
    kinds = [part for layer, numbers in model.kinds() for part in _parts(_description_of(layer, numbers), attached)]
    if config.text_config.family.attention.direction == "encoder-decoder":
        kinds = _halves(config, kinds[:1])
    return {"kinds": kinds, "latent": _latent(model), "problem": None}


def _halves(config: RopeConfig, kinds: list[Description]) -> list[Description]:
    """The encoder's layers and the decoder's, each numbered from 0; ``kinds`` are the kinds of the encoder.

    Sparse attention and windows (LED, LongT5, BigBird-Pegasus) are the encoder's alone.
    """
    everything = {"causal": True, "window": None, "ahead": 0, "not_read": None}
    return [
        {
            **kind,
            "kind": half,
            "layers": list(range(count or 0)),
            **({"causal": False} if half == ENCODER else everything),
        }
        for half, count in zip(HALVES, half_counts(config.text_config), strict=True)
        for kind in kinds
    ]


def _parts(kind: Description, attached: AttachedNames | None) -> list[Description]:
    """A kind of layers, in two where encodings are attached to some of them alone; these have no rotation there."""
    if attached is None or not kind["attends"]:
        return [kind]
    attached_layers = [layer for layer in kind["layers"] if attached.acts_in(layer)]
    rest = [layer for layer in kind["layers"] if not attached.acts_in(layer)]
    if not attached_layers and (rest or attached.layers is not None):
        return [kind]
    changed = {**kind, "layers": attached_layers, "rotates": False, "base": None, "attached": attached.words}
    return [changed, {**kind, "layers": rest}] if rest else [changed]


def _latent(model: ModelFacts) -> Description | None:
    return None if model.latent is None else model.latent._asdict()


def _description_of(layer: LayerFacts, numbers: list[int]) -> Description:
    temperature = layer.temperature
    return {
        "kind": layer.kind,
        "layers": numbers,
        "attends": layer.attends,
        "rotates": layer.spec is not None and not rotates_nothing(layer.spec),
        "base": getattr(layer.spec, "base", None),
        "window": layer.window,
        "ahead": layer.ahead,
        "temperature": None
        if temperature is None
        else {"text": temperature.text, "posenc": temperature.builds or None},
        "sink": layer.sink or None,
        "softmax_scale": layer.scale,
        "causal": layer.causal,
        "not_read": layer.not_read or None,
        "softcap": layer.softcap,
        "normed_after": layer.normed_after,
        "index_topk": layer.index_topk,
        "attached": None,
    }


def schedule_lines(schedule: Description) -> list[str]:
    """The same as text, a line a kind of layers."""
    if schedule["problem"] is not None:
        return ["", f"schedule     not read: {schedule['problem']}"]
    if not schedule["kinds"]:
        return []
    lines = ["", "schedule"]
    bases = {kind["base"] for kind in schedule["kinds"]} - {None}
    for kind in schedule["kinds"]:
        lines.append(f"  {_which(kind)}: {', '.join(has(kind, several=len(bases) > 1))}")
    latent = schedule["latent"]
    if latent is not None:
        rotates = any(kind["rotates"] for kind in schedule["kinds"])
        words = {
            "rotated": "rotated" if rotates else "(rotated in other models)", "unrotated": "unrotated",
            "value": "value channels a head", "keys": "channels in the latent of keys and values",
            "queries": "in the latent of queries",
        }  # fmt: skip
        parts = [f"{latent[key]} {text}" for key, text in words.items() if latent[key] is not None]
        lines.append(f"  latent attention: {', '.join(parts)}")
    return lines


def _which(kind: Description) -> str:
    if not kind["layers"]:
        return str(kind["kind"])
    count = len(kind["layers"])
    return f"{kind['kind']}, {count} layer{'s' if count > 1 else ''} ({ranges(kind['layers'])})"


def has(kind: Description, *, several: bool) -> list[str]:
    """What a kind of layers does, in a few words each; with its base where there are ``several``."""
    if kind["kind"] == CROSS:
        return ["attends to the image, not to the text"]
    if not kind["attends"]:
        return ["no attention"]
    rotation = "rotation" if kind["rotates"] else "no rotation"
    if kind["attached"] is not None:
        rotation = f"attached by posenc: {kind['attached']}"
    words = [f"{rotation} of base {kind['base']:g}" if several and kind["base"] else rotation]
    words.append(_reach(kind))
    if kind["temperature"] is not None:
        build = kind["temperature"]["posenc"]
        words.append(f"temperature {kind['temperature']['text']}" + (f", in posenc {build}" if build else ""))
    if kind["sink"] is not None:
        words.append("a learned sink a head" if kind["sink"] == "learned" else "a sink that each token makes")
    if kind["softmax_scale"] is not None:
        words.append(f"softmax scale {kind['softmax_scale']:.6g}")
    if kind["softcap"] is not None:
        words.append(f"scores capped at {kind['softcap']:g}")
    if kind["normed_after"] and kind["rotates"]:
        words.append("norms of queries and keys follow the rotation")
    return words


def _reach(kind: Description) -> str:
    if kind["not_read"]:
        window = "" if kind["window"] is None else f"{_window_words(kind)}, "
        return f"{window}not read: {kind['not_read']}"
    if kind["window"] is None:
        reach = {True: "attends to all tokens before it", False: "attends to all tokens, those after it too"}
        return reach.get(kind["causal"], "which tokens it attends to is not read")
    if kind["kind"] == CHUNKED:
        return f"attends within its chunk of {kind['window']:,} tokens"
    return _window_words(kind)


def _window_words(kind: Description) -> str:
    ahead = f" and {kind['ahead']:,} after it" if kind["ahead"] else ""
    return f"window {kind['window']:,} tokens{ahead}"


def ranges(numbers: list[int]) -> str:
    """Numbers in short: runs, and steps of the same width.

    >>> ranges([0, 1, 2, 5, 7])
    '0-2, 5, 7'
    >>> ranges([3, 7, 11, 15])
    '3, 7, … 15'
    """
    steps = {b - a for a, b in pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}, {numbers[1]}, … {numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:4], "…", texts[-1]])


def layer_words(facts: LayerFacts) -> str:
    """What the configuration says of a layer, on a line."""
    if not facts.attends:
        return f"{printable(facts.kind)}, no attention"
    rope = facts.spec
    parts = ["does not rotate" if rope is None else one_line(rope)]
    if rope is not None and rotates_nothing(rope):
        slowed = text_rope(rope)
        gain = float(slowed.spectrum().gain)
        parts = [f"does not rotate: base {slowed.base:g} is slowed to nothing"]
        parts += [f"gain {gain:.4g}"] if gain != 1 else []
    elif isinstance(rope, RoPESpec):
        parts = [f"base {rope.base:g}, {rope.layout}, {rope.rotary_dim} of {rope.head_dim} channels"]
        parts += [] if rope.scaling is None else [one_line(rope.scaling)]
        parts += [f"gain {float(rope.spectrum().gain):.4g}"] if float(rope.spectrum().gain) != 1 else []
    elif isinstance(rope, MRoPESpec):
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
    if read.position_schemes:
        return [f"all layers: {layer.text}" for layer in read.position_schemes]
    model = model_from_config(read)
    layers = model.layers or model.distinct_layers * (count_at(read.text_config, "num_hidden_layers", LAYERS) or 0)
    if not layers:
        return [f"layers: {layer_words(layer)}" for layer in model.distinct_layers]
    attached = attached_names(read.config)
    return [
        f"layer {number}: {printable(layer.kind)}, attached by posenc: {printable(attached.words)}"
        if attached is not None and layer.attends and attached.acts_in(number)
        else f"layer {number}: {layer_words(layer)}"
        for number, layer in enumerate(layers)
    ]
