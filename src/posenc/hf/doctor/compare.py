"""Compares what two checkpoints or configurations do with positions, before and after a step that should not change it.

    comparison = compare("my-model", "my-model-merged")    # folders, config.json files, GGUF files, dictionaries
    print(comparison)                                      # each difference with its layers; or "no drift in positions"

The meaning is compared, not the text: rotation frequencies and gain of each layer at several lengths, windows, layers
without rotation, temperature, sink, softmax scale, direction, tables of positions and the declared length. A block of
version 4, the same of version 5 and the metadata of a GGUF file are then equal. Limits of tokenizer and generation are
compared where both sides have the file.

Checked against: a LoRA fine-tune that is merged, saved and written as GGUF (`tests/hf/doctor/test_compare.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from posenc.arguments import one_line, shown
from posenc.frequencies.host import steps_of
from posenc.frequencies.rotation import MRoPESpec, RoPESpec
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import LayerFacts
from posenc.hf.config.non_rotary import attached_names, is_posenc_config
from posenc.hf.config.rope_config import RopeConfig, model_from_config, read_rope
from posenc.hf.config.rotation import Rotation, order_of, text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.side_files import limits_in
from posenc.hf.explanation.report import facts, ranges
from posenc.hf.findings import CONFIG
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.load import Source, load
from posenc.input_files import naming, printable
from posenc_cli.exit_codes import FAULT, OK, SUSPICION

ADAPTER = "adapter_config.json"
Kind = Literal["drift", "limit"]
_EXACT, _OTHER_PROGRAM = 1e-6, 1e-4  # of a frequency; GGUF has factors in float32
_SHORT = 1024  # tokens at which frequencies that depend on the length are compared, next to the lengths of both sides


class Difference(NamedTuple):
    """One difference between two sources.

    Attributes:
        kind: "drift": a number that the model computes with, or the length that it declares; "limit": of a file next
            to the configuration.
        aspect: what differs: "rotation", "window", "softmax scale", …
        text: both values, and what follows.
        layers: numbers of the layers that it concerns, from 0; empty where it is the whole model.
    """

    kind: Kind
    aspect: str
    text: str
    layers: tuple[int, ...] = ()

    def __str__(self) -> str:
        layers = f" (layers {ranges(list(self.layers))})" if self.layers else ""
        return f"{self.kind:<10}{self.aspect}{layers}: {printable(self.text)}"


class Comparison(NamedTuple):
    """What differs between two sources in their positions. Print it.

    Attributes:
        a, b: names of the sources.
        differences: all of them, drift first.
        compared: what was compared.
        not_compared: what was not compared and could differ.
    """

    a: str
    b: str
    differences: tuple[Difference, ...]
    compared: tuple[str, ...]
    not_compared: tuple[str, ...]

    @property
    def drifted(self) -> bool:
        """Whether the two differ in what a model computes from positions, or in the length that they declare."""
        return any(difference.kind == "drift" for difference in self.differences)

    def exit_code(self, *, strict: bool = False) -> int:
        """0 without drift, 1 with drift, 3 where only limits of other files differ (``strict``: 1)."""
        if self.drifted:
            return FAULT
        limits = any(difference.kind == "limit" for difference in self.differences)
        return OK if not limits else FAULT if strict else SUSPICION

    def as_json(self) -> str:
        """All of it as JSON."""
        known = {"a": self.a, "b": self.b, "drifted": self.drifted}
        known |= {"compared": list(self.compared), "not_compared": list(self.not_compared)}
        return json.dumps({**known, "differences": [item._asdict() for item in self.differences]}, indent=2)

    def __str__(self) -> str:
        lines = [f"A  {printable(self.a)}", f"B  {printable(self.b)}", f"compared      {', '.join(self.compared)}"]
        lines += [f"not compared  {', '.join(self.not_compared)}"] if self.not_compared else []
        lines += ["", *map(str, self.differences)] if self.differences else []
        return "\n".join([*lines, "", self._verdict()])

    def _verdict(self) -> str:
        kinds = [difference.kind for difference in self.differences]
        if self.drifted:
            return f"drift in positions: {kinds.count('drift')} difference{'s' if kinds.count('drift') > 1 else ''}"
        return "no drift in positions" + ("; limits of other files differ" if "limit" in kinds else "")


class _Side(NamedTuple):
    """One of the two sources.

    Attributes:
        name: for readers.
        read: its configuration, parsed.
        folder: where other files lie; None where there is no folder.
        limits: of tokens in those files, by file and key.
    """

    name: str
    read: RopeConfig
    folder: Path | None
    limits: Mapping[str, Mapping[str, Any]] = {}


def compare(a: Source, b: Source) -> Comparison:
    """Compare what two checkpoints or configurations do with positions.

    Args:
        a, b: each a folder, a config.json, a GGUF file, a mapping or a configuration of transformers; a folder of PEFT
            with an adapter alone stands for its base, if that is a local folder.

    Returns:
        A `Comparison`, drift first.

    Raises:
        ValueError: for a source whose positions cannot be read; it names the file.
        OSError: for files that cannot be read.
    """
    first, second = _side(a, "A"), _side(b, "B")
    differences = [
        *_on_layers(first, second),
        *_on_model(first, second),
        *_on_parts(first, second),
        *_on_limits(first, second),
    ]
    compared = ["frequencies, gain, windows, temperature, sink, softmax scale and direction of each layer",
                "tables of positions", "the declared length"]  # fmt: skip
    files, one_sided = first.limits.keys() & second.limits.keys(), first.limits.keys() ^ second.limits.keys()
    not_compared = ["weight values", "names and shapes of tensors"]
    not_compared += [f"{file} (in one of the two)" for file in sorted(one_sided)]
    if has_remote_code(first.read.config) or has_remote_code(second.read.config):
        not_compared.append("code of a folder's own (auto_map)")
    ordered = sorted(differences, key=lambda difference: difference.kind != "drift")
    return Comparison(first.name, second.name, tuple(ordered), (*compared, *sorted(files)), tuple(not_compared))


def _side(source: Source, letter: str) -> _Side:
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None:
        return _Side(f"configuration {letter}", read_rope(source), None)
    with naming(path):
        folder = path if path.is_dir() else None
        if folder is not None and (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file():
            folder = _base_of(folder)
        return _Side(str(path), read_rope(folder or path), folder, {} if folder is None else limits_in(folder))


def _base_of(folder: Path) -> Path:
    """The local folder of the model that an adapter belongs to."""
    base = load(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not Path(base).is_dir():
        raise ValueError(
            f"{folder} holds a PEFT adapter and no {CONFIG}, and its base {base!r} is no local folder: compare the "
            "base, or the merged model"
        )
    return Path(base)


def _on_layers(a: _Side, b: _Side) -> Iterator[Difference]:
    """What the layers compute with, one difference for all layers that share it."""
    if is_posenc_config(a.read.config) or is_posenc_config(b.read.config):
        yield from _on_rotations_alone(a, b)
        return
    first, second = model_from_config(a.read), model_from_config(b.read)
    numbered = bool(first.layers) and len(first.layers) == len(second.layers)
    if first.layers and second.layers and not numbered:
        yield Difference("drift", "layers", f"{len(first.layers)} in A, {len(second.layers)} in B")
    layers_of: dict[tuple[str, str], list[int]] = {}  # numbers of the layers by what differs in them
    cached: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for number, (in_a, in_b) in enumerate(_pairs(first, second)):
        key = (id(in_a), id(in_b))
        if key not in cached:
            cached[key] = list(_on_layer(a, b, in_a, in_b))
        for difference in cached[key]:
            layers_of.setdefault(difference, []).append(number)
    for (aspect, text), numbers in layers_of.items():
        yield Difference("drift", aspect, text, tuple(numbers) if numbered else ())


def _pairs(a: ModelFacts, b: ModelFacts) -> Iterator[tuple[LayerFacts, LayerFacts]]:
    """The layers of both by number; where one does not number them or has more, the kinds of layers of both."""
    if a.layers and len(a.layers) == len(b.layers):
        yield from zip(a.layers, b.layers, strict=True)
        return
    for in_a in a.distinct_layers:
        same = [in_b for in_b in b.distinct_layers if in_b.kind == in_a.kind]
        for in_b in same or b.distinct_layers:
            if in_a.attends == in_b.attends:
                yield in_a, in_b


_NOT_READ = "not read"
_ASPECTS: dict[str, Callable[[LayerFacts], Any]] = {  # of a layer next to its rotation, None for none
    "window": lambda layer: (
        layer.window and f"{layer.window:,} tokens" + (f" and {layer.ahead:,} after" if layer.ahead else "")
    ),
    "temperature": lambda layer: layer.temperature and layer.temperature.text,
    "sink": lambda layer: layer.sink or None,
    "direction": lambda layer: {True: "causal", False: "bidirectional", None: _NOT_READ}[layer.causal],
    "softcap": lambda layer: layer.softcap,
    "keys of the indexer": lambda layer: layer.index_topk,
    "order of norm and rotation": lambda layer: layer.normed_after,
}


def _on_layer(a: _Side, b: _Side, in_a: LayerFacts, in_b: LayerFacts) -> Iterator[tuple[str, str]]:
    if in_a.attends != in_b.attends:
        yes, no = "attention", "no attention"
        yield "attention", f"{yes if in_a.attends else no} in A, {yes if in_b.attends else no} in B"
        return
    yield from _on_rotation(a, b, in_a.spec, in_b.spec)
    for aspect, words in _ASPECTS.items():
        left, right = words(in_a), words(in_b)
        if left != right and _NOT_READ not in (left, right):
            yield aspect, f"{'none' if left is None else left} in A, {'none' if right is None else right} in B"
    if in_a.scale is not None and in_b.scale is not None and not math.isclose(in_a.scale, in_b.scale, rel_tol=_EXACT):
        yield "softmax scale", f"{in_a.scale:.6g} in A, {in_b.scale:.6g} in B"


def _on_rotations_alone(a: _Side, b: _Side) -> Iterator[Difference]:
    """The rotations and encodings of models of posenc, whose layers have a schedule."""
    for kind in dict.fromkeys([*a.read.rotations, *b.read.rotations]):
        for aspect, text in _on_rotation(a, b, a.read.rotations.get(kind), b.read.rotations.get(kind)):
            yield Difference("drift", aspect, text)
    texts = [[str(item["text"]) for item in facts(side.read)["encodings"]] for side in (a, b)]
    for left, right in zip_longest(*texts, fillvalue="none"):
        if left != right:
            yield Difference("drift", "encoding", f"{left} in A, {right} in B")


def _on_rotation(a: _Side, b: _Side, in_a: Rotation | None, in_b: Rotation | None) -> Iterator[tuple[str, str]]:
    if in_a is None or in_b is None:
        if in_a is not in_b:
            yield "rotation", f"{_words(in_a)} in A, {_words(in_b)} in B"
        return
    first, second = text_rope(in_a), text_rope(in_b)
    if (first.head_dim, first.rotary_dim) != (second.head_dim, second.rotary_dim):
        left, right = (f"{rope.rotary_dim} of {rope.head_dim} channels" for rope in (first, second))
        yield "rotation", f"{left} in A, {right} in B"
        return
    text = _on_frequencies(a, b, first, second)
    if text:
        yield "rotation", text
    if (
        a.read.facts.program == b.read.facts.program and first.layout != second.layout
    ):  # llama.cpp's converter reorders the weights
        yield "layout", f"{first.layout} in A, {second.layout} in B"
    if _axes(in_a) != _axes(in_b):
        yield "axes of M-RoPE", f"{_axes(in_a) or 'one position'} in A, {_axes(in_b) or 'one position'} in B"


def _on_frequencies(a: _Side, b: _Side, in_a: RoPESpec, in_b: RoPESpec) -> str:
    """How the frequencies and gains of two rotations differ, at the lengths of either side; "" if they agree."""
    tolerance = _OTHER_PROGRAM if a.read.facts.program or b.read.facts.program else _EXACT
    lengths = {_SHORT}
    if in_a.length_dependent or in_b.length_dependent:
        for side, rope in ((a, in_a), (b, in_b)):
            lengths |= {n for n in (side.read.facts.trained(rope), side.read.facts.reachable(rope)) if n is not None}
    for length in sorted(lengths):
        first, second = in_a.spectrum(length), in_b.spectrum(length)
        ratios = list(map(_ratio, first.theta.tolist(), second.theta.tolist()))
        differing = sum(ratio > 1 + tolerance for ratio in ratios)
        gain_of_each = float(first.gain), float(second.gain)
        gains_differ = not math.isclose(*gain_of_each, rel_tol=tolerance)
        if not differing and not gains_differ:
            continue
        gains = [f" (gain {each:.6g})" if gains_differ else "" for each in gain_of_each]
        text = f"{_words(in_a)}{gains[0]} in A, {_words(in_b)}{gains[1]} in B"
        text += f": {differing} of {len(ratios)} frequencies differ, by up to {max(ratios):.3g}×" if differing else ""
        text += f" at {length:,} tokens" if len(lengths) > 1 else ""
        if in_a.scaling is not None and in_b.scaling is None:  # A is before a step, B after it
            text += "; the scaling is missing in B"
        steps = [*steps_of(in_a.scaling), *steps_of(in_b.scaling)]
        if a.read.facts.program != b.read.facts.program and not all(getattr(step, "truncate", True) for step in steps):
            text += "; GGUF has no key for truncate: llama.cpp rounds the bounds of YaRN's ramp"
        return text
    return ""


def _ratio(theta: float, in_b: float) -> float:
    """How many times the larger of two frequencies is the smaller; infinite where one pair does not rotate."""
    if theta == in_b:
        return 1.0
    smaller, larger = sorted((theta, in_b))
    return larger / smaller if smaller > 0 else math.inf


def _words(rope: Rotation | None) -> str:
    if rope is None:
        return "no rotation"
    text = text_rope(rope)
    return f"base {text.base:g}, {'no scaling' if text.scaling is None else one_line(text.scaling)}"


def _axes(rope: Rotation) -> str:
    return f"{list(rope.sections)} {order_of(rope)}" if isinstance(rope, MRoPESpec) else ""


def _on_model(a: _Side, b: _Side) -> Iterator[Difference]:
    """The declared length, tables and buckets, and attached encodings."""
    lengths = [max_length(side.read.text_config) for side in (a, b)]
    if lengths[0] != lengths[1]:
        left, right = (f"{length:,} tokens" if length is not None else "none" for length in lengths)
        yield Difference("drift", "declared length", f"{left} in A, {right} in B")
    schemes = [[scheme.text for scheme in side.read.position_schemes] for side in (a, b)]
    for in_a, in_b in zip_longest(*schemes, fillvalue="none"):
        if in_a != in_b:
            yield Difference("drift", "position encoding", f"{in_a} in A, {in_b} in B")
    attached = [attached_names(side.read.config) for side in (a, b)]
    if attached[0] != attached[1]:
        left, right = ("none" if names is None else names.words for names in attached)
        yield Difference("drift", "attached encodings", f"{left} in A, {right} in B")


_PARTS = ("vision_config", "audio_config")
_OF_PARTS = ("image_size", "patch_size", "temporal_patch_size", "spatial_merge_size", "num_position_embeddings",
             "max_position_embeddings", "max_source_positions", "rope_theta", "rope_parameters", "window_size",
             "fullatt_block_indexes")  # fmt: skip


def _on_parts(a: _Side, b: _Side) -> Iterator[Difference]:
    """Keys of the positions in the towers of images and sound, whose values are compared as they stand."""
    for name in _PARTS:
        first, second = a.read.config.get(name), b.read.config.get(name)
        if not isinstance(first, dict) or not isinstance(second, dict):
            continue
        for key in _OF_PARTS:
            if first.get(key) != second.get(key):
                text = f"{shown(first.get(key))} in A, {shown(second.get(key))} in B"
                yield Difference("drift", f"{name}.{key}", text)


def _on_limits(a: _Side, b: _Side) -> Iterator[Difference]:
    for file in a.limits.keys() & b.limits.keys():
        for key in dict.fromkeys([*a.limits[file], *b.limits[file]]):
            left, right = a.limits[file].get(key), b.limits[file].get(key)
            if left != right:
                words = ["none" if value is None else f"{value:,}" for value in (left, right)]
                yield Difference("limit", f"{file} {key}", f"{words[0]} in A, {words[1]} in B")
