"""The report on a configuration in numbers and words, which `posenc explain` prints.

For each kind of layers: layout, pairs (of M-RoPE: which axis they read), base, wavelengths (2π / theta, in tokens;
before and after the scaling), how many pairs never complete a rotation within the training length or window, the gain
on rotated q and k and what it does to the logits, the lengths that the model was trained at and is meant for, and
whether the frequencies depend on the length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from posenc.arguments import one_line, shown
from posenc.frequencies.host import geometric, steps_of
from posenc.frequencies.rotation import Layout, MRoPESpec, RoPESpec
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import LayerFacts, half_counts, window_of
from posenc.hf.config.rope_config import RopeConfig, model_from_config, read_rope
from posenc.hf.config.rope_keys import ALL
from posenc.hf.config.rotation import AXES, SLOWEST, Convention, Rotation, order_of, rotates_nothing, text_rope
from posenc.hf.config.text_config import (
    AttachedNames,
    SchemeFacts,
    TextConfig,
    attached_names,
    count_at,
    unrotated_width,
)
from posenc.hf.families.family import CHUNKED, CROSS, SLIDING
from posenc.hf.limits import LAYERS
from posenc.hf.sources.load import Source
from posenc.input_files import printable

Facts = dict[str, Any]
HALVES = ENCODER, DECODER = ("encoder", "decoder")


def schedule_facts(facts: ModelFacts) -> Facts:
    """Each kind of layers with its numbers and what it has, and the widths of latent attention."""
    nothing: Facts = {"kinds": [], "latent": None, "problem": None}
    if facts.is_own:
        return nothing
    try:
        layers = facts.kinds
    except ValueError as error:  # in a key that no rotation needs
        return {**nothing, "problem": str(error)}
    attached = attached_names(facts.config)
    kinds: list[Facts] = [
        {
            "kind": layer.kind,
            "layers": numbers,
            "attends": layer.attends,
            "rotates": layer.spec is not None and not rotates_nothing(layer.spec),
            "base": getattr(layer.spec, "base", None),
            "window": layer.window,
            "ahead": layer.ahead,
            "temperature": layer.temperature and {"text": layer.temperature.text, "posenc": layer.temperature.builds},
            "sink": layer.sink or None,
            "softmax_scale": layer.scale,
            "causal": layer.causal,
            "not_read": layer.not_read or None,
            "softcap": layer.softcap,
            "normed_after": layer.normed_after,
            "index_topk": layer.index_topk,
            "attached": None,
        }
        for layer, numbers in layers
    ]
    if attached is not None:
        kinds = [part for kind in kinds for part in _parts(kind, attached)]
    if facts.text.family.attention.direction == "encoder-decoder":
        kinds = _halves(facts.text, kinds[:1])
    return {**nothing, "kinds": kinds, "latent": None if facts.latent is None else facts.latent._asdict()}


def _halves(text: TextConfig, kinds: list[Facts]) -> list[Facts]:
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
        for half, count in zip(HALVES, half_counts(text), strict=True)
        for kind in kinds
    ]


def _parts(kind: Facts, attached: AttachedNames) -> list[Facts]:
    """A kind of layers, in two where encodings are attached to some of them alone; these have no rotation there."""
    if not kind["attends"]:
        return [kind]
    attached_layers = [layer for layer in kind["layers"] if attached.acts_in(layer)]
    rest = [layer for layer in kind["layers"] if not attached.acts_in(layer)]
    if not attached_layers and (rest or attached.layers is not None):
        return [kind]
    changed = {**kind, "layers": attached_layers, "rotates": False, "base": None, "attached": attached.words}
    return [changed, {**kind, "layers": rest}] if rest else [changed]


def schedule_lines(schedule: Facts) -> list[str]:
    """The same as text, a line a kind of layers."""
    if schedule["problem"] is not None:
        return ["", f"schedule     not read: {schedule['problem']}"]
    if not schedule["kinds"]:
        return []
    lines = ["", "schedule"]
    bases = {kind["base"] for kind in schedule["kinds"]} - {None}
    for kind in schedule["kinds"]:
        numbers = kind["layers"]
        which = f", {len(numbers)} layer{'s' if len(numbers) > 1 else ''} ({ranges(numbers)})" if numbers else ""
        lines.append(f"  {kind['kind']}{which}: {', '.join(has(kind, several=len(bases) > 1))}")
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


def has(kind: Facts, *, several: bool) -> list[str]:
    """What a kind of layers does, in a few words each; with its base where there are ``several``."""
    if kind["kind"] == CROSS:
        return ["attends to the image, not to the text"]
    if not kind["attends"]:
        return ["no attention"]
    rotation = "rotation" if kind["rotates"] else "no rotation"
    if kind["attached"] is not None:
        rotation = f"attached by posenc: {kind['attached']}"
    words = [f"{rotation} of base {kind['base']:g}" if several and kind["base"] else rotation]
    window = "" if kind["window"] is None else f"window {kind['window']:,} tokens"
    window += f" and {kind['ahead']:,} after it" if kind["ahead"] else ""
    if kind["not_read"]:
        words += [*([window] if window else []), f"not read: {kind['not_read']}"]
    elif not window:
        reach = {True: "attends to all tokens before it", False: "attends to all tokens, those after it too"}
        words.append(reach.get(kind["causal"], "which tokens it attends to is not read"))
    elif kind["kind"] == CHUNKED:
        words.append(f"attends within its chunk of {kind['window']:,} tokens")
    else:
        words.append(window)
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
    if read.facts.schemes:
        return [f"all layers: {layer.text}" for layer in read.facts.schemes]
    model = model_from_config(read)
    layers = model.layers or model.distinct_layers * (count_at(read.facts.text, "num_hidden_layers", LAYERS) or 0)
    if not layers:
        return [f"layers: {layer_words(layer)}" for layer in model.distinct_layers]
    attached = attached_names(read.config)
    return [
        f"layer {number}: {printable(layer.kind)}, attached by posenc: {printable(attached.words)}"
        if attached is not None and layer.attends and attached.acts_in(number)
        else f"layer {number}: {layer_words(layer)}"
        for number, layer in enumerate(layers)
    ]


ORDERS = {
    "chunked": "each pair reads time, row or column, in chunks",
    "interleaved": "each pair reads time, row or column, alternating",
    "time last": "each pair reads row or column, alternating, or time at the end",
}


def facts(config: RopeConfig) -> Facts:
    """All facts as plain values, ready for JSON."""
    return Explanation(config).facts


def _encodings(facts: ModelFacts) -> list[Facts]:
    """The encodings of a model without rotation, or of a model of posenc; each with the call that builds it."""
    schemes = facts.schemes
    if facts.is_own:
        from posenc.hf.config.encoding_spec import describe_spec, posenc_specs  # the catalogue, and so torch

        schemes = tuple(SchemeFacts(*describe_spec(spec)) for spec in posenc_specs(facts.config))
    attached = attached_names(facts.config)
    if attached is not None and "own" not in attached.words.split(" + "):  # learned tables are switched off then
        schemes = tuple(each._replace(text=f"{each.text}; not used with the attached encodings") for each in schemes)
    if attached is not None:
        where = "" if attached.layers is None else f" in layers {ranges(sorted(attached.layers))}"
        text = f"attached by posenc{where}: {attached.words}, in the place of its own rotation or learned positions"
        schemes = (SchemeFacts(text), *schemes)
    values = [scheme._asdict() for scheme in schemes]
    return [{"text": value.pop("text"), "posenc": value.pop("builds") or None, **value} for value in values]


def _facts_of(facts: ModelFacts, kind: str, rotation: Rotation) -> Facts:
    """What one kind of layers rotates by, in numbers."""
    rope = text_rope(rotation)
    trained, longest, seen = facts.trained(rope), facts.reachable(rope), _window(facts, kind)
    bounds = [length for length in (trained, seen) if length is not None]
    farthest = min(bounds, default=None)
    spectrum = rope.spectrum(longest)
    theta, unscaled = spectrum.theta.tolist(), geometric(rope.rotary_dim, rope.base)
    rotating = [pair for pair, frequency in enumerate(theta) if frequency > SLOWEST]
    waves, scaled = ([2 * math.pi / of[pair] for pair in rotating] for of in (unscaled, theta))
    gain = float(spectrum.gain)
    unrotated = unrotated_width(facts.text, kind) if facts.text.rotation.latent else 0
    return {
        "layout": rope.layout,
        "head_dim": rope.head_dim,
        "head_width": rope.head_dim + unrotated,
        "rotary_dim": rope.rotary_dim,
        "pairs": rope.rotary_dim // 2,
        "rotating_pairs": len(waves),
        "sections": _sections(rotation, theta) if isinstance(rotation, MRoPESpec) else None,
        "base": rope.base,
        "wavelengths": _range(waves),
        "scaling": None if rope.scaling is None else one_line(rope.scaling),
        "scaled_wavelengths": _range(scaled),
        "trained_length": trained,
        "trained_length_given": any(hasattr(step, "original_length") for step in steps_of(rope.scaling)),
        "window": seen,
        "pairs_without_full_rotation": None if farthest is None else sum(wave > farthest for wave in waves),
        "longest_length": longest,
        "gain": gain,
        "logit_factor": gain * gain,
        "softmax_factor": facts.softmax_factor(rotation),
        "length_dependent": rope.length_dependent,
    }


def _window(facts: ModelFacts, kind: str) -> int | None:
    """The window of all layers of a kind that rotate; None where some of them, or all, have none."""
    main = facts.text.model_type == "deepseek_v4" and kind == "main"  # its block for the layers with a window alone
    if kind == SLIDING or main:
        return window_of(facts.text, SLIDING)[0]
    try:
        layers = facts.kinds if facts.text.known and kind == ALL else []
    except ValueError:  # in a key that no rotation needs
        return None
    reaches = [layer.window for layer, _ in layers if layer.spec is not None]
    return None if None in reaches else max(reaches, default=None)  # type: ignore[type-var]


def _sections(rope: MRoPESpec, theta: list[float]) -> Facts:
    """The order of the pairs, and what of them reads each axis."""
    axes = {
        name: {
            "pairs": rope.order().count(axis),
            "scaled_wavelengths": _range(
                [2 * math.pi / t for t, reads in zip(theta, rope.order(), strict=True) if reads == axis and t > 0]
            ),
        }
        for axis, name in enumerate(AXES)
    }
    return {"order": order_of(rope), "axes": axes}


def _range(waves: list[float]) -> dict[str, float] | None:
    return {"shortest": min(waves), "longest": max(waves)} if waves else None


@dataclass(frozen=True)
class Explanation:
    """What a configuration means: ``str()`` gives the report that `posenc explain` prints.

    Attributes:
        config: the configuration that is explained.
    """

    config: RopeConfig

    @cached_property
    def facts(self) -> Facts:
        """The report as plain values, ready for JSON."""
        config = self.config
        if not isinstance(config, RopeConfig):
            raise ValueError(f"config must be a RopeConfig, as read_rope gives it, got {shown(config)}")
        facts, is_own = config.facts, config.facts.is_own
        rotations = facts.rotations.items()
        return {
            "model_type": facts.text.model_type or None,
            "layers": {kind: None if rope is None else _facts_of(facts, kind, rope) for kind, rope in rotations},
            "encodings": _encodings(facts),
            "keys": {} if is_own else dict(facts.keys),
            "parts_not_read": {} if is_own else dict(facts.parts_not_read),
            "schedule": schedule_facts(facts),
            "findings": [finding.summary() for finding in config.findings],
        }

    @property
    def layers(self) -> list[str]:
        """One line for each layer.

        Raises:
            ValueError: as `posenc.hf.model_from_config`.
        """
        return layer_lines(self.config)

    def json(self) -> str:
        """The facts as JSON text."""
        return json.dumps(self.facts, indent=2)

    def __str__(self) -> str:
        known = self.facts
        lines = [f"model type   {printable(known['model_type'] or 'not given')}"]
        unread = any(finding["name"] == "unknown-family" for finding in known["findings"])
        alarms = [finding for finding in known["findings"] if finding["level"] != "note"]
        for finding in alarms:  # before the numbers, which may be those of another key
            lines += ["", f"{finding['level']:<13}{printable(finding['key'])} {printable(finding['text'])}"]
        lines += [""] if alarms else []
        for kind, layer in known["layers"].items():
            lines += ["", f"layers       {printable(kind)}"] if kind != ALL else []
            lines += ["rotation     none"] if layer is None else _lines(layer, known=not unread)
        if self.config.facts.is_own and not known["encodings"]:
            lines += ["", "encoding     none (NoPE)"]
        for encoding in known["encodings"]:
            lines += ["", f"encoding     {encoding['text']}"]
            lines += [f"in posenc    {encoding['posenc']}"] if encoding["posenc"] else []
        lines += schedule_lines(known["schedule"])
        parts = [f"{key} ({kind})" if kind else key for key, kind in known["parts_not_read"].items()]
        lines += ["", f"not read     {printable(', '.join(parts))}"] if parts else []
        notes = [finding for finding in known["findings"] if finding["level"] == "note"]
        lines += ["", "findings"] if notes else []
        lines += [f"  {printable(finding['key'])} {printable(finding['text'])}" for finding in notes]
        return "\n".join(lines)


def explain(
    config: Source | RopeConfig,
    *,
    head_dim: int | None = None,
    layout: Layout | None = None,
    convention: Convention = "transformers",
    ignore: Collection[str] = (),
) -> Explanation:
    """Explain what the layers of a checkpoint do with positions, from its configuration alone.

    Args:
        config: a folder, a file, a mapping or an object with ``to_dict()``, as for `read_rope`; or what that has read.
        head_dim, layout, convention, ignore: as for `read_rope`; without effect on what that has read already.

    Raises:
        ValueError, OSError: as `read_rope`.

    >>> explanation = explain({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    >>> explanation.facts["layers"]["all"]["base"]
    500000.0
    >>> print(str(explanation).partition("wavelengths")[0])
    model type   llama
    layout       half: channels (j, j + pairs) are a pair
    head         64 channels, all in pairs: 32 pairs
    base         500,000
    <BLANKLINE>
    """
    if not isinstance(config, RopeConfig):
        config = read_rope(config, head_dim=head_dim, layout=layout, convention=convention, ignore=ignore)
    return Explanation(config)


def as_text(config: RopeConfig) -> str:
    """All facts as text, one paragraph for each kind of layers."""
    return str(Explanation(config))


def _lines(layer: Facts, *, known: bool) -> list[str]:
    pairs, rotating = layer["pairs"], layer["rotating_pairs"]
    share = "all" if layer["rotary_dim"] == layer["head_width"] else layer["rotary_dim"]
    which = "" if rotating == pairs else f", of which {rotating} rotate"
    channels = "(j, j + pairs)" if layer["layout"] == "half" else "(2j, 2j + 1)"
    lines = [
        f"layout       {layer['layout']}: channels {channels} are a pair",
        f"head         {layer['head_width']} channels, {share} in pairs: {pairs} pairs{which}",
        *([] if layer["sections"] is None else _axes(layer["sections"])),
        f"base         {_number(layer['base'])}",
        f"wavelengths  {_between(layer['wavelengths'])}",
        f"{'original    ' if layer['trained_length_given'] else 'declares    '} {_trained(layer)}",
        f"scaling      {layer['scaling'] or ('none' if known else 'none in the keys that posenc reads')}",
    ]
    if layer["scaling"] is not None:
        lines.append(f"scaled       {_between(layer['scaled_wavelengths'])}")
    gain, logits = layer["gain"], layer["logit_factor"]
    part = "the logits" if layer["rotary_dim"] == layer["head_width"] else "the rotated channels' part of the logits"
    lines.append(f"gain         {gain:.6g} on rotated q and k, so {logits:.6g} on {part}")
    if layer["softmax_factor"] != 1:
        lines.append(f"softmax      scale times {layer['softmax_factor']:.6g}, from mscale_all_dim")
    lines.append(f"meant for    {_tokens(layer['longest_length'])}")
    if layer["length_dependent"]:
        lines.append("note         frequencies depend on the length: declare one, or cache keys un-rotated;")
        lines.append("             undeclared, a full forward is not causal")
    return lines


def _axes(sections: Facts) -> list[str]:
    """M-RoPE in words."""
    lines = [f"sections     {ORDERS[sections['order']]} (M-RoPE; in text all three are the same)"]
    for axis, axis_facts in sections["axes"].items():
        waves = _between(axis_facts["scaled_wavelengths"]).replace("tokens", "steps")
        lines.append(f"  {axis:<10} {axis_facts['pairs']} pairs, wavelengths {waves}")
    return lines


def _trained(layer: Facts) -> str:
    """The trained length, and how many pairs never complete a rotation within it or the window."""
    length, window, unfinished = layer["trained_length"], layer["window"], layer["pairs_without_full_rotation"]
    words, rotating = _tokens(length), layer["rotating_pairs"]
    if unfinished is None or not rotating:
        return words
    if window is not None and window <= (length or window):
        words += f" under a window of {_number(window)}"
    return f"{words}: {unfinished} of {rotating} pairs ({unfinished / rotating:.0%}) never complete a rotation"


def _between(waves: dict[str, float] | None) -> str:
    return "no pair rotates" if waves is None else f"{_number(waves['shortest'])} to {_number(waves['longest'])} tokens"


def _tokens(length: int | None) -> str:
    return "a length that is not given" if length is None else f"{_number(length)} tokens"


def _number(value: float) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"
