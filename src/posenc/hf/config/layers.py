"""What each layer of a model does with positions: rotation, window, temperature, sink, widths, scale of the softmax.

`ModelFacts.layers` has it for each layer. A configuration that does not say how many layers there are, or of which
kinds, gives the kinds alone.
Source: transformers 5.23, the attention of each family; held against live modules by tests/reference/test_families.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from posenc.arguments import shown
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.layer_kinds import has_window_a_layer, is_causal, lacks_window, window_of
from posenc.hf.config.rope_block import ALL
from posenc.hf.config.rotation import Rotation, built, text_rope
from posenc.hf.config.temperature import TemperatureSpec, temperature_of
from posenc.hf.config.text_config import (
    TextConfig,
    bases,
    count_at,
    single_count_at,
    width_of_heads,
)
from posenc.hf.families.family import Scale
from posenc.hf.families.layer_patterns import (
    BLOCK_SPARSE,
    COMPRESSED,
    FULL,
    HEAVILY_COMPRESSED,
    INDEXED,
    KINDS,
    NO_ATTENTION,
    SLIDING,
)
from posenc.hf.families.layer_patterns import CHUNKED as CHUNKED
from posenc.hf.limits import CHANNELS, TOKENS, WIDTH, is_number

if TYPE_CHECKING:
    from posenc.rotary.mrope import MRoPE
    from posenc.rotary.rope import RoPE

SOFTCAP = "attn_logit_softcapping"
HEADS = ("num_attention_heads", "n_head", "n_heads")


LEARNED, BY_TOKEN = "learned", "by token"  # sinks


class Latent(NamedTuple):
    """Widths of latent attention, in channels; None where a configuration does not say.

    Attributes:
        rotated, unrotated: channels of a head of queries and keys; all heads share the keys' rotated part.
        value: of a head of values.
        keys, queries: of the latent vectors.
    """

    rotated: int | None
    unrotated: int | None
    value: int | None
    keys: int | None
    queries: int | None


class _LayerFields(NamedTuple):
    kind: str
    attends: bool = True
    spec: Rotation | None = None
    window: int | None = None
    ahead: int = 0
    temperature: TemperatureSpec | None = None
    sink: str = ""
    scale: float | None = None
    causal: bool | None = True
    softcap: float | None = None
    heads: int | None = None
    rotates_last: bool = False
    normed_after: bool = False
    index_topk: int | None = None
    not_read: str = ""


class LayerFacts(_LayerFields):
    """What one kind of layers has.

    Attributes:
        kind: the name of the kind, as the configuration has it.
        attends: whether it has attention.
        rotation: `RoPE` or `MRoPE`, a module of torch; None where it does not rotate.
        spec: the same without torch.
        window: tokens that a token attends to at and before its position, itself included; None: all.
        ahead: tokens that it attends to after its position under a window of two sides; else 0.
        temperature: a factor on the queries that depends on the position.
        sink: "" for none, "learned" a head, or "by token".
        scale: of the softmax, YaRN's factor included, a temperature not; None where it is not known.
        causal: whether a token attends to none after it; None: not read.
        softcap: scores s become softcap · tanh(s / softcap); None: they stay.
        heads: query heads; None where the configuration does not say.
        rotates_last: the rotated channels are the last ones of a head.
        normed_after: norms of queries and keys follow the rotation, so that their weights do not rotate.
        index_topk: keys that an indexer picks for each query; None without one.
        not_read: what restricts its attention further, in words, and is not read; "" where that is nothing.
    """

    __slots__ = ()

    def __new__(
        cls, kind: str, attends: bool = True, rotation: Rotation | None = None, **fields: Any
    ) -> LayerFacts:  # the module itself is a description too
        return super().__new__(cls, kind, attends, rotation, **fields)

    @property
    def rotation(self) -> RoPE | MRoPE | None:
        """What rotates the layer, as a module of torch."""
        return None if self.spec is None else built(self.spec)


class Read(Protocol):
    """What layers need of `ModelFacts`, which asks for them."""

    @property
    def text(self) -> TextConfig: ...
    @property
    def rotations(self) -> Mapping[str, Rotation | None]: ...
    @property
    def layer_kinds(self) -> list[str]: ...
    @property
    def unrotated(self) -> frozenset[int]: ...
    def softmax_factor(self, rotation: Rotation | None) -> float: ...


def facts_of_layers(facts: Read) -> tuple[tuple[LayerFacts, ...], tuple[LayerFacts, ...]]:
    """What each layer has, and each kind of them once.

    Raises:
        ValueError: for a key of a window, a temperature or a layer that cannot be understood; it names the key.
    """
    text, names = facts.text, facts.layer_kinds
    pairs = [(kind, n in facts.unrotated, n) for n, kind in enumerate(names)]
    if not pairs:
        pairs = [(kind, rope is None, -1) for kind, rope in facts.rotations.items()]
    distinct: dict[tuple[Any, ...], LayerFacts] = {}
    for kind, unrotated, n in pairs:
        key = _key(text, kind, unrotated, n)
        if key not in distinct:
            distinct[key] = _facts(facts, text, kind, unrotated, n)
    layers = [distinct[_key(text, *pair)] for pair in pairs] if names else []
    return tuple(layers), tuple(distinct.values())


def _key(text_config: TextConfig, kind: str, unrotated: bool, n: int) -> tuple[Any, ...]:
    return kind, unrotated, _base(text_config, n), n in _forced(text_config)


def _base(text_config: TextConfig, n: int) -> float | None:
    """The base that a list gives this layer."""
    listed = bases(text_config) if text_config.rotation.bases_choose else []
    return listed[n] if 0 <= n < len(listed) else None


def _forced(text_config: TextConfig) -> list[int]:
    """Layers of Cohere 2 with experts that rotate though they are full: dense ones at the beginning."""
    types = text_config.get("mlp_layer_types")
    if text_config.model_type != "cohere2_moe" or not isinstance(types, list):
        return []
    without_window = text_config.get("prefix_dense_sliding_window_pattern", 1) == 1
    return [n for n, kind in enumerate(types) if without_window and kind == "dense"]


def _facts(facts: Read, text_config: TextConfig, kind: str, unrotated: bool, n: int) -> LayerFacts:
    attention = text_config.family.attention
    if kind in NO_ATTENTION or attention.direction == "none":
        return LayerFacts(kind, attends=False)
    rope = None if unrotated else _rotation(facts, text_config, kind, n)
    window, ahead = window_of(
        text_config, SLIDING if kind == ALL and text_config.family.layers.window.every_layer else kind
    )
    rule = attention.temperature
    has_temperature = rule is not None and rule.layers in ("all", kind, "unrotated" if rope is None else "")
    has_sink = attention.sinks == (ALL,) or kind in attention.sinks
    heads = next((count for key in HEADS if (count := single_count_at(text_config, key, WIDTH)) is not None), None)
    return LayerFacts(
        kind,
        rotation=rope,
        window=window,
        ahead=ahead,
        temperature=temperature_of(text_config, rule) if has_temperature else None,
        sink=(BY_TOKEN if attention.sink_by_token else LEARNED) if has_sink else "",
        scale=_scale(facts, text_config, kind, rope, attention.scale),
        causal=is_causal(text_config),
        softcap=_softcap(text_config, attention.softcap),
        heads=heads,
        rotates_last=text_config.rotation.trailing or latent_widths(text_config) is not None,
        normed_after=attention.normed_after,
        index_topk=_index_topk(text_config, kind),
        not_read=_not_read(text_config, kind),
    )


_PARTIAL_KINDS = {  # kinds of layers that attend to less than their mask shows
    INDEXED: "sparse attention to the {index_topk} keys that an indexer picks (DSA)",
    COMPRESSED: "compressed tokens next to the window, of which an indexer picks {index_topk}",
    HEAVILY_COMPRESSED: "compressed tokens next to the window",
    BLOCK_SPARSE: "blocks of keys that an indexer picks",
}


def _not_read(text_config: TextConfig, kind: str) -> str:
    """What restricts the attention of a kind of layers and is not read, in words; "" where that is nothing."""
    if lacks_window(text_config, kind):
        return "the window, which is not given and without which transformers fails"
    if text_config.known and kind not in KINDS and kind != ALL:
        return f"what layers of kind {shown(kind)} attend to: transformers does not know the kind"
    if kind in _PARTIAL_KINDS:
        picked = _index_topk(text_config, kind)
        return _PARTIAL_KINDS[kind].format(index_topk="index_topk" if picked is None else f"{picked:,}")
    if has_window_a_layer(text_config):
        return f"{text_config.family.layers.window.key}, which differs between layers"
    attention, condition = text_config.family.attention, text_config.family.attention.partial_if
    if condition is not None and text_config.get(condition[0], condition[2]) != condition[1]:
        return ""
    numbers = {
        key: count_at(text_config, key, TOKENS) or default for key, default in attention.partial_defaults.items()
    }
    return attention.partial.format(**numbers)


def _index_topk(text_config: TextConfig, kind: str) -> int | None:
    """The number of keys that an indexer picks for each query; None in layers without one."""
    if kind not in (INDEXED, COMPRESSED):
        return None
    return count_at(text_config, "index_topk", TOKENS) or text_config.family.attention.top_k


def _softcap(text_config: TextConfig, default: float | None) -> float | None:
    """The cap of a family whose code heeds one."""
    cap = text_config.get(SOFTCAP, default) if default is not None else None
    if cap is not None and not is_number(cap, 0, above=True):
        raise ValueError(f"{text_config.key_path(SOFTCAP)} must be a number above 0 or null, found {shown(cap)}")
    return None if cap is None else float(cap)


def _rotation(facts: Read, text_config: TextConfig, kind: str, n: int) -> Rotation | None:
    """What rotates a layer of this kind, if it is none that its number exempts."""
    layers = facts.rotations
    if n in _forced(text_config):
        return next((rope for rope in layers.values() if rope is not None), None)
    if ALL in layers:
        rope = layers[ALL]
        base = _base(text_config, n)
        if isinstance(rope, RoPESpec) and base is not None and base != rope.base:
            return rope.replace(base=base)
        return rope
    if kind in layers:
        return layers[kind]
    if "compress" in layers:  # DeepSeek V4: its two blocks are for layers with and without compression
        return layers["compress" if kind != SLIDING else "main"]
    if set(layers) == {SLIDING, FULL}:
        raise ValueError(
            f"{text_config.key_path('layer_types')}: {shown(kind)} has no rotation of its own among {set(layers)}"
        )
    return None


def _scale(facts: Read, text_config: TextConfig, kind: str, rope: Rotation | None, rule: Scale) -> float | None:
    """The factor on the scores: from the head's width or a key of the config, times YaRN's."""
    config = text_config.config
    if rule in ("attention_multiplier", "query_pre_attn_scalar"):
        value = config.get(rule)
        if value is None or not is_number(value, 0, above=True):
            return None
        return float(value) if rule == "attention_multiplier" else float(value) ** -0.5
    if rule in ("one", "unknown"):
        return 1.0 if rule == "one" else None
    latent = latent_widths(text_config)
    if latent is not None:
        if latent.rotated is None or latent.unrotated is None:
            return None
        factor = next((facts.softmax_factor(rope) for rope in facts.rotations.values() if rope is not None), 1.0)
        return float((latent.rotated + latent.unrotated) ** -0.5) * factor
    width = text_rope(rope).head_dim if rope is not None else _width(facts, text_config)
    if width is None or rule == "inverse":
        return None if width is None else 1.0 / width
    return float((width / 2 if rule == "half" else width) ** -0.5)


def _width(facts: Read, text_config: TextConfig) -> int | None:
    """Channels of a head in a layer that does not rotate."""
    widths = [text_rope(rope).head_dim for rope in facts.rotations.values() if rope is not None]
    if widths:
        return widths[0]
    return (
        count_at(text_config, text_config.rotation.head_key, CHANNELS)
        or count_at(text_config, "head_dim", CHANNELS)
        or text_config.family.attention.head_dim
        or width_of_heads(text_config)
    )


def latent_widths(text_config: TextConfig) -> Latent | None:
    """The widths of latent attention; None where attention is not latent."""
    keys = ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank")
    if text_config.get("kv_lora_rank") is None:
        return None
    widths = [None if text_config.get(key) == 0 else count_at(text_config, key, WIDTH) for key in keys]
    rotated = 0 if text_config.get("qk_rope_head_dim") == 0 else widths[0]
    return Latent(rotated, *widths[1:])
