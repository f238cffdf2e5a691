"""Compares what two checkpoints or configurations do with positions, before and after a step that should not change it.

    comparison = compare("my-model", "my-model-merged")    # folders, config.json files, GGUF files, dictionaries
    print(comparison)                                      # each difference with its layers; or "no drift in positions"

The meaning is compared, not the text: each side gives a dictionary of facts for the model and one for each kind of
layers, and what differs between them is drift; of rotations, frequencies and gain at several lengths. A block of
version 4, the same of version 5 and the metadata of a GGUF file are then equal. Limits of tokenizer and generation are
compared where both sides have the file.

Checked against: a LoRA fine-tune that is merged, saved and written as GGUF (`tests/hf/doctor/test_compare.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from posenc.arguments import one_line, shown
from posenc.frequencies.host import steps_of
from posenc.frequencies.rotation import MRoPESpec, RoPESpec
from posenc.hf.config.layers import LayerFacts
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import Rotation, order_of, text_rope
from posenc.hf.config.text_config import attached_names, is_posenc_config
from posenc.hf.doctor.side_files import limits_in
from posenc.hf.doctor.weights import ADAPTER
from posenc.hf.explanation.report import facts, ranges
from posenc.hf.findings import CONFIG
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.load import Source, load
from posenc.input_files import naming, printable
from posenc_cli.exit_codes import FAULT, OK, SUSPICION

Kind = Literal["drift", "limit"]
_EXACT, _OTHER_PROGRAM = 1e-6, 1e-4  # of a frequency; GGUF has factors in float32
_SHORT = 1024  # tokens at which frequencies that depend on the length are compared, next to the lengths of both sides
_PARTS = ("vision_config", "audio_config")
_OF_PARTS = ("image_size", "patch_size", "temporal_patch_size", "spatial_merge_size", "num_position_embeddings",
             "max_position_embeddings", "max_source_positions", "rope_theta", "rope_parameters", "window_size",
             "fullatt_block_indexes")  # fmt: skip
Facts = dict[str, Any]  # by aspect what there is of it: words, a number, or None for nothing


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
        limits: of tokens in the files next to it, by file and key.
    """

    name: str
    read: RopeConfig
    limits: Mapping[str, Mapping[str, int | None]] = {}

    @property
    def layers(self) -> list[tuple[LayerFacts, list[int]]]:
        """What each kind of layers has, and the numbers of its layers; of a model of posenc the rotations alone."""
        if not is_posenc_config(self.read.config):
            return self.read.facts.kinds
        return [(LayerFacts(kind, spec=rope, causal=None), []) for kind, rope in self.read.rotations.items()]


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
    differences = [*_on_layers(first, second)]
    of_models = _differing(_of_model(first.read), _of_model(second.read))
    differences += [Difference("drift", aspect, text) for aspect, text in of_models]
    files, one_sided = first.limits.keys() & second.limits.keys(), first.limits.keys() ^ second.limits.keys()
    for file in sorted(files):
        of_limits = _differing(first.limits[file], second.limits[file])
        differences += [Difference("limit", f"{file} {key}", text) for key, text in of_limits]
    compared = ["frequencies, gain, windows, temperature, sink, softmax scale and direction of each layer",
                "tables of positions", "the declared length"]  # fmt: skip
    not_compared = ["weight values", "names and shapes of tensors"]
    not_compared += [f"{file} (in one of the two)" for file in sorted(one_sided)]
    if has_remote_code(first.read.config) or has_remote_code(second.read.config):
        not_compared.append("code of a folder's own (auto_map)")
    return Comparison(first.name, second.name, tuple(differences), (*compared, *sorted(files)), tuple(not_compared))


def _side(source: Source, letter: str) -> _Side:
    if not isinstance(source, str | Path):
        return _Side(f"configuration {letter}", read_rope(source))
    path = folder = Path(source)
    with naming(path):
        if (path / ADAPTER).is_file() and not (path / CONFIG).is_file():
            base = load(path / ADAPTER).get("base_model_name_or_path")
            if not isinstance(base, str) or not Path(base).is_dir():
                raise ValueError(
                    f"{path} holds a PEFT adapter and no {CONFIG}, and its base {base!r} is no local folder: compare "
                    "the base, or the merged model"
                )
            folder = Path(base)
        return _Side(str(path), read_rope(folder), limits_in(folder)[0] if folder.is_dir() else {})


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The aspects that both have and that differ, each with what is in A and in B."""
    for aspect in (name for name in a if name in b):
        left, right = a[aspect], b[aspect]
        both = isinstance(left, float) and isinstance(right, float)
        if left != right and not (both and math.isclose(left, right, rel_tol=_EXACT)):
            words = (
                "none" if value is None else f"{value:.6g}" if isinstance(value, float)
                else f"{value:,}" if isinstance(value, int) else str(value)
                for value in (left, right)
            )  # fmt: skip
            yield aspect, "{} in A, {} in B".format(*words)


def _of_model(read: RopeConfig) -> Facts:
    """The declared length, tables and buckets, attached encodings, and the towers of images and sound."""
    own = is_posenc_config(read.config)
    schemes = (
        [str(item["text"]) for item in facts(read)["encodings"]] if own else [s.text for s in read.position_schemes]
    )
    attached = attached_names(read.config)
    result: Facts = {
        "declared length": read.facts.declared,
        "position encoding": "; ".join(schemes) or None,
        "attached encodings": attached and attached.words,
    }
    for name in _PARTS:
        part = read.config.get(name)
        if isinstance(part, dict):
            result |= {f"{name}.{key}": None if part.get(key) is None else shown(part[key]) for key in _OF_PARTS}
    return result


def _of_layer(layer: LayerFacts) -> Facts:
    """What a layer computes with, next to its rotation; what is not read is left out."""
    window = None if layer.window is None else f"{layer.window:,} tokens"
    ahead = f" and {layer.ahead:,} after" if layer.ahead else ""
    result = {
        "window": window and window + ahead,
        "temperature": layer.temperature and layer.temperature.text,
        "sink": layer.sink or None,
        "softcap": layer.softcap,
        "keys of the indexer": layer.index_topk,
        "order of norm and rotation": "norm last" if layer.normed_after else "rotation last",
    }
    result |= {} if layer.causal is None else {"direction": "causal" if layer.causal else "bidirectional"}
    return result | ({} if layer.scale is None else {"softmax scale": layer.scale})


def _on_layers(a: _Side, b: _Side) -> Iterator[Difference]:
    """What the layers compute with, one difference for all layers that share it."""
    counts = [sum(len(numbers) for _, numbers in side.layers) for side in (a, b)]
    numbered = counts[0] == counts[1] > 0
    if not numbered and all(counts):
        yield Difference("drift", "layers", f"{counts[0]} in A, {counts[1]} in B")
    layers_of: dict[tuple[str, str], set[int]] = {}  # numbers of the layers by what differs in them
    for in_a, of_a in a.layers:
        same_kind = [(in_b, of_b) for in_b, of_b in b.layers if in_b.kind == in_a.kind]
        for in_b, of_b in b.layers if numbered else same_kind or b.layers:
            numbers = {*of_a} & {*of_b}
            if numbers if numbered else in_a.attends == in_b.attends:
                for difference in _on_layer(a, b, in_a, in_b):
                    layers_of.setdefault(difference, set()).update(numbers)
    for (aspect, text), of_all in layers_of.items():
        yield Difference("drift", aspect, text, tuple(sorted(of_all)) if numbered else ())


def _on_layer(a: _Side, b: _Side, in_a: LayerFacts, in_b: LayerFacts) -> Iterator[tuple[str, str]]:
    if not (in_a.attends and in_b.attends):
        yield from _differing(*({"attention": "attention" if c.attends else "no attention"} for c in (in_a, in_b)))
        return
    if in_a.spec is None or in_b.spec is None:
        yield from _differing(*({"rotation": _words(layer.spec)} for layer in (in_a, in_b)))
    else:
        text = _on_frequencies(a, b, text_rope(in_a.spec), text_rope(in_b.spec))
        if text:
            yield "rotation", text
        axes = [
            f"{list(spec.sections)} {order_of(spec)}" if isinstance(spec, MRoPESpec) else "one position"
            for spec in (in_a.spec, in_b.spec)
        ]
        yield from _differing({"axes of M-RoPE": axes[0]}, {"axes of M-RoPE": axes[1]})
        if a.read.facts.program == b.read.facts.program:  # llama.cpp's converter reorders the weights
            yield from _differing(*({"layout": text_rope(spec).layout} for spec in (in_a.spec, in_b.spec)))
    yield from _differing(_of_layer(in_a), _of_layer(in_b))


def _on_frequencies(a: _Side, b: _Side, in_a: RoPESpec, in_b: RoPESpec) -> str:
    """How the frequencies and gains of two rotations differ, at the lengths of either side; "" if they agree."""
    channels = [f"{rope.rotary_dim} of {rope.head_dim} channels" for rope in (in_a, in_b)]
    if channels[0] != channels[1]:
        return f"{channels[0]} in A, {channels[1]} in B"
    of_programs = {a.read.facts.program, b.read.facts.program}
    tolerance, lengths = _OTHER_PROGRAM if any(of_programs) else _EXACT, {_SHORT}
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
        if len(of_programs) > 1 and not all(getattr(step, "truncate", True) for step in steps):
            text += "; GGUF has no key for truncate: llama.cpp rounds the bounds of YaRN's ramp"
        return text
    return ""


def _ratio(theta: float, in_b: float) -> float:
    """How many times the larger of two frequencies is the smaller; infinite where one pair does not rotate."""
    smaller, larger = sorted((theta, in_b))
    return 1.0 if smaller == larger else larger / smaller if smaller > 0 else math.inf


def _words(rope: Rotation | None) -> str:
    if rope is None:
        return "no rotation"
    text = text_rope(rope)
    return f"base {text.base:g}, {'no scaling' if text.scaling is None else one_line(text.scaling)}"
