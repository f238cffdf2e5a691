"""Released models as `posenc.hf` reads their configs: the tables and counts of the chapter docs/models.md.

``models.jsonl`` has a line for each row: where the code of the model is, its paper, and whether queries and keys are
normalized, which configs do not say. The configs are those of tests/golden/published_configs.jsonl, or are in the line,
with ``copy``, the public repository in which the published file was found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from guide.methods import escaped, linked
from guide.records import ROOT
from posenc.catalogue import CATALOGUE, Entry
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import NTKAware
from posenc.frequencies.rotation import RoPESpec
from posenc.frequencies.yarn import YaRN
from posenc.hf import LayerFacts, ModelFacts, RopeConfig, facts, model_from_config, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import count_at, max_length
from posenc.hf.limits import WIDTH

ROWS = Path(__file__).parent / "models.jsonl"
PUBLISHED = ROOT / "tests" / "golden" / "published_configs.jsonl"
LONG = 131_072  # tokens that count as a long context in the text
RAISED, SHORT = 500_000, 160_000  # a base that counts as raised, and the largest that counts as short
_QK_NORM = {"yes": "yes", "no": "no", "latent": "on latent vectors"}
_SCALINGS = {YaRN: "YaRN", Llama3: "Llama 3", LongRoPE: "LongRoPE", NTKAware: "NTK-aware"}
_WAYS = ("raised", "scaled", "both", "nope", "neither")
_PATTERNS = ("grouped", "latent", "local", "linear", "sparse")
_WITHOUT_MIXING = {"moe": "MoE only", "mlp": "MLP only"}
_HEADS = (
    "model", "base", "rotated channels", "scaling", "context length", "layers", "NoPE layers", "keys and values",
    "logits and softmax", "QK-norm", "source",
)  # fmt: skip


@dataclass(frozen=True)
class ReleasedModel:
    """One row: a model's config and what posenc reads in it.

    Attributes:
        model: its name, ``organization/model``.
        config: its config.json, without what does not concern attention.
        code: the file of transformers' models that its attention is in.
        paper: the arXiv id of its paper; "" where the table names none.
        qk_norm: "yes", "no" or "latent".
        line: where ``code`` makes that norm; 0 without one.
    """

    model: str
    config: dict[str, Any]
    code: str
    paper: str
    qk_norm: str
    line: int

    @property
    def name(self) -> str:
        """The name without the organization."""
        return self.model.partition("/")[2]

    @cached_property
    def read(self) -> RopeConfig:
        """Its config as the readers have it."""
        return read_rope(self.config)

    @cached_property
    def facts(self) -> ModelFacts:
        """What each of its layers has."""
        return model_from_config(self.read)

    @cached_property
    def attending(self) -> list[tuple[LayerFacts, int]]:
        """Each kind of layers that attends, with how many there are."""
        return [(kind, len(layers)) for kind, layers in self.facts.kinds if kind.attends]

    @cached_property
    def schemes(self) -> list[str]:
        """What gives it positions instead of a rotation, in words."""
        return [item["text"] for item in facts(self.read)["encodings"]]

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return len(self.facts.layers)

    @property
    def declared(self) -> int | None:
        """The context length that the config declares, tokens."""
        return max_length(self.read.text_config)

    @cached_property
    def ropes(self) -> list[tuple[LayerFacts, RoPESpec]]:
        """The rotation of each kind of layers that rotates."""
        return [(kind, text_rope(kind.spec)) for kind, _ in self.attending if kind.spec is not None]

    @property
    def scaled(self) -> list[tuple[LayerFacts, RoPESpec]]:
        """Rotations with a context extension."""
        return [pair for pair in self.ropes if type(pair[1].scaling) in _SCALINGS]

    @property
    def original(self) -> int | None:
        """The context length before the extension, tokens; None where there is none, or the config does not say."""
        lengths = {getattr(rope.scaling, "original_length", None) for _, rope in self.scaled}
        return lengths.pop() if len(lengths) == 1 else None

    @property
    def base(self) -> float | None:
        """The largest base among its rotations, which the layers that attend farthest have."""
        return max((rope.base for _, rope in self.ropes), default=None)

    def windowed(self, kind: LayerFacts) -> bool:
        """Whether a layer attends to less than the declared context."""
        return kind.window is not None and not (self.declared and kind.window >= self.declared)

    @property
    def unrotated(self) -> int:
        """How many layers attend without any positions; 0 where another encoding than RoPE gives them."""
        if any(not text.startswith("none") for text in self.schemes):
            return 0
        return sum(count for kind, count in self.attending if kind.spec is None)

    @property
    def linear(self) -> int:
        """How many layers mix tokens by linear attention or a state-space model."""
        return sum(kind.kind == "linear_attention" for kind in self.facts.layers)

    @property
    def sparse(self) -> bool:
        """Whether some layers attend to keys that an indexer picks, or to compressed ones."""
        return any(kind.index_topk or "compressed" in kind.kind for kind, _ in self.attending)

    @property
    def local(self) -> bool:
        """Whether some layers have a sliding window or chunks, and others attend farther."""
        return any(self.windowed(kind) for kind, _ in self.attending)

    @property
    def causal(self) -> bool:
        """Whether it is a decoder."""
        return all(kind.causal for kind, _ in self.attending)


@cache
def released_models() -> tuple[ReleasedModel, ...]:
    """All rows, by name."""
    lines = [json.loads(line) for line in PUBLISHED.read_text(encoding="utf-8").splitlines()]
    published = {line["model"]: line["config"] for line in lines}
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    return tuple(
        ReleasedModel(
            row["model"], row.get("config") or published[row["model"]], row["code"], row.get("paper", ""),
            row["qk_norm"], row.get("line", 0),
        )
        for row in rows
    )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def _by_kind(row: ReleasedModel, text: Callable[[RoPESpec], str]) -> str:
    """A fact of the rotation: once, or by kind of layers where they differ."""
    texts = {_kind(row, kind): text(rope) for kind, rope in row.ropes}
    if len(set(texts.values())) < 2:
        return next(iter(texts.values()), "")
    return "; ".join(f"{value} ({kind})" for kind, value in texts.items())


def _kind(row: ReleasedModel, kind: LayerFacts) -> str:
    """The name of a kind of layers: by what it attends to."""
    if kind.kind == "full_attention" or (kind.kind == "sliding_attention" and not row.windowed(kind)):
        return "full"
    return _WITHOUT_MIXING.get(kind.kind) or kind.kind.removesuffix("_attention").replace("_", " ")


def _base(row: ReleasedModel) -> str:
    if row.ropes:
        return _by_kind(row, lambda rope: _number(rope.base))
    return ", ".join(text.split(":")[0].split(",")[0] for text in row.schemes)


def _rotated(row: ReleasedModel) -> str:
    """Channels of a head that rotate, of all that a dot product has."""

    def share(rope: RoPESpec) -> str:
        latent = row.facts.latent
        width = rope.head_dim + (latent.unrotated or 0 if latent else 0)
        channels = 2 * sum(frequency > 0 for frequency in rope.spectrum(row.declared).theta.tolist())
        return f"all {width}" if channels == width else f"{channels} of {width}"

    return _by_kind(row, share)


def _scaling(row: ReleasedModel) -> str:
    if not row.ropes:
        return ""

    def text(rope: RoPESpec) -> str:
        scaling = rope.scaling
        if not isinstance(scaling, YaRN | Llama3 | LongRoPE | NTKAware):
            return "none"
        return f"{_SCALINGS[type(scaling)]} ×{_number(float(scaling.factor))}"

    return _by_kind(row, text)


def _length(row: ReleasedModel) -> str:
    declared = "" if row.declared is None else _number(row.declared)
    return declared if row.original is None else f"{_number(row.original)} → {declared}"


def _layers(row: ReleasedModel) -> str:
    """How many layers attend to what."""
    counts: dict[str, int] = {}
    for layer in row.facts.layers:
        name = _kind(row, layer)
        if layer.attends and row.windowed(layer) and layer.window is not None:
            each = f"{layer.ahead:,} each side" if layer.ahead else f"{layer.window:,}"
            name = f"{name} ({each})"
        if layer.index_topk:
            name += f", {layer.index_topk:,} keys picked"
        counts[name] = counts.get(name, 0) + 1
    return "; ".join(f"{count} {name}" for name, count in counts.items())


def _keys(row: ReleasedModel) -> str:
    latent = row.facts.latent
    if latent is not None:
        return f"latent, {latent.keys} + {latent.rotated} channels"
    heads = next((kind.heads for kind, _ in row.attending if kind.heads), None)
    shared = count_at(row.read.text_config, "num_key_value_heads", WIDTH) or heads
    if heads is None or shared is None:
        return ""
    return f"{heads} heads" if shared == heads else f"{shared} for {heads} query heads"


def _softmax(row: ReleasedModel) -> str:
    """What changes the logits apart from positions: gain, scale, temperature, soft cap, sinks."""
    parts = []
    for kind, _ in row.attending:
        rope = None if kind.spec is None else text_rope(kind.spec)
        gain = 1.0 if rope is None else float(rope.spectrum(row.declared).gain)
        if gain != 1:
            parts.append(f"rotated queries and keys × {gain:.4g}")
        parts += _scale(row, kind, rope)
        if kind.temperature is not None and kind.temperature.options.get("strength"):
            parts.append(f"temperature {kind.temperature.text} ({_kind(row, kind)})")
        if kind.softcap is not None:
            parts.append(f"soft cap {_number(kind.softcap)}")
        if kind.sink:
            everywhere = all(other.sink for other, _ in row.attending)
            parts.append(f"{kind.sink} sink a head" + ("" if everywhere else f" ({_kind(row, kind)})"))
    return "; ".join(dict.fromkeys(parts))


def _scale(row: ReleasedModel, kind: LayerFacts, rope: RoPESpec | None) -> list[str]:
    """The scale of the softmax, where it is not one over the root of the width."""
    text_config, latent = row.read.text_config, row.facts.latent
    width = count_at(text_config, "hidden_size", WIDTH) if rope is None and kind.heads else None
    width = width // (kind.heads or 1) if width else None
    if rope is not None:
        width = rope.head_dim + (latent.unrotated or 0 if latent else 0)
    if kind.scale is None or width is None or abs(kind.scale * width**0.5 - 1) < 1e-6:
        return []
    inverse = round(1 / kind.scale)
    if abs(inverse * kind.scale - 1) < 1e-6:
        return [f"scale {'1' if inverse == 1 else f'1/{inverse}'} in place of 1/√{width}"]
    return [f"scale {kind.scale * width**0.5:.3g}/√{width}"]


def _source(row: ReleasedModel) -> str:
    paper = f"[arXiv {row.paper}](https://arxiv.org/abs/{row.paper}), " if row.paper else ""
    line = f":{row.line}" if row.line else ""
    return f"[config](https://huggingface.co/{row.model}/blob/main/config.json), {paper}`{row.code}{line}`"


def _cells(row: ReleasedModel) -> list[str]:
    unrotated = f"{row.unrotated} of {row.layers}" if row.unrotated else "none"
    texts = [_base(row), _rotated(row), _scaling(row), _length(row), _layers(row), unrotated, _keys(row), _softmax(row)]
    return [row.name, *map(escaped, texts), _QK_NORM[row.qk_norm], _source(row)]


def table(rows: Iterable[ReleasedModel]) -> str:
    """Rows as a Markdown table."""
    lines = [f"| {' | '.join(_HEADS)} |", f"|{' --- |' * len(_HEADS)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)])


def way_to_long_context(row: ReleasedModel) -> str:
    """How the rotation reaches the declared context: "nope", "raised", "scaled", "both" or "neither".

    "nope": every layer that attends to all of the context does so without rotation, so no base or scaling limits it.
    """
    far = [kind for kind, _ in row.attending if not row.windowed(kind)] or [kind for kind, _ in row.attending]
    if all(kind.spec is None for kind in far):
        return "nope" if row.unrotated else "neither"
    raised = row.base is not None and row.base >= RAISED
    if row.scaled:
        return "both" if raised else "scaled"
    return "raised" if raised else "neither"


def memory_pattern(row: ReleasedModel) -> str:
    """What bounds the key/value cache: "linear", "sparse", "local", "latent" or "grouped", the first that applies.

    "sparse" with an indexer bounds what is read rather than what is kept.
    """
    patterns = {"linear": row.linear > 0, "sparse": row.sparse, "local": row.local, "latent": row.facts.latent}
    return next((name for name, applies in patterns.items() if applies), "grouped")


@cache
def _groups() -> dict[str, list[ReleasedModel]]:
    """The rows that statements of the chapter are about, by name."""
    rows = list(released_models())
    decoders = [row for row in rows if row.causal]
    long = [row for row in decoders if (row.declared or 0) >= LONG]
    rotating = [row for row in decoders if row.ropes]
    return {
        "all": rows,
        "decoders": decoders,
        "encoders": [row for row in rows if not row.causal],
        "long": long,
        **{way: [row for row in long if way_to_long_context(row) == way] for way in _WAYS},
        **{pattern: [row for row in long if memory_pattern(row) == pattern] for pattern in _PATTERNS},
        "rotating": rotating,
        "partly rotated": [row for row in rotating if " of " in _rotated(row)],
        "some NoPE layers": [row for row in rotating if row.unrotated],
        "no rotation": [row for row in decoders if row.unrotated and not row.ropes],
        "two bases": [row for row in rows if len({rope.base for _, rope in row.ropes}) > 1],
        "qk-norm": [row for row in decoders if row.qk_norm == "yes"],
        "sink": [row for row in decoders if any(kind.sink for kind, _ in row.attending)],
        "temperature": [row for row in decoders if "temperature" in _softmax(row)],
    }


def models_in(group: str) -> int:
    """How many models a statement is about."""
    return len(_groups()[group])


def models_named(group: str) -> str:
    """How many models a statement is about, and which."""
    rows = _groups()[group]
    return f"{len(rows)} ({', '.join(row.name for row in rows)})" if rows else "none"


def models_table(group: str) -> str:
    """The table of decoders or encoders."""
    return table(_groups()[group])


def models_using(name: str) -> str:
    """Released models with an encoding of the catalogue, with their sources."""
    return linked(escaped(CATALOGUE[name].used_in))


def rotating_with(entry: Entry) -> list[str]:
    """Names of the released models of the table whose rotation is RoPE's, or has the scaling of an entry."""
    if entry.name == "rope":
        return [row.name for row in released_models() if row.ropes]
    kinds = {row.name: {type(rope.scaling) for _, rope in row.ropes} for row in released_models()}
    return [name for name, scalings in kinds.items() if entry.scaling in scalings]


def nope_layers_attend_farthest() -> bool:
    """Whether in every model with both, NoPE layers have full attention, and layers that rotate a window or chunks."""
    return all(
        row.windowed(kind) == (kind.spec is not None)
        for row in _groups()["some NoPE layers"] for kind, _ in row.attending
    )  # fmt: skip


def larger_bases_reach_farther() -> bool:
    """Whether in every model with two bases, the layers with a sliding window have the smaller one."""
    return all(
        (rope.base == row.base) != (kind.kind == "sliding_attention")
        for row in _groups()["two bases"] for kind, rope in row.ropes
    )  # fmt: skip


MODELS = (models_in, models_named, models_table, models_using, nope_layers_attend_farthest, larger_bases_reach_farther)
