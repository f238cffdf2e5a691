"""What a config says of the heads of one part of a model: widths and counts, each with the key that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posenc.hf.doctor.model_parts import Part
from posenc.hf.families.saved_tensors import EQUAL_HEADS, STREAM_KEYS, VALUE_WIDTHS
from posenc.hf.limits import CHANNELS, LAYERS, WIDTH, is_count

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "attention_heads")
_KV_HEADS = ("attn_config.kv_n_heads", "num_key_value_heads", "n_kv_heads")
_HEAD_DIM = ("head_dim", "d_kv", "kv_channels", "attention_head_dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
_VARIANTS = {  # keys of heads that some layers have in the place of the others' keys
    "global_head_dim": "head_dim", "num_global_key_value_heads": "kv_heads", "swa_num_attention_heads": "heads",
    "swa_num_key_value_heads": "kv_heads", "swa_head_dim": "head_dim", "swa_v_head_dim": "value_dim",
}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A number of a config: its key, its value, and whether the config has it (or else its class)."""

    key: str
    value: int
    explicit: bool = True


@dataclass(frozen=True)
class HeadSizes:
    """Widths and counts of one part; None where the config does not say."""

    hidden: Number | None
    heads: Number | None
    kv_heads: Number | None
    head_dim: Number | None
    value_dim: Number | None
    layers: Number | None

    @property
    def queries(self) -> int | None:
        """Channels of the queries of all heads."""
        return None if self.heads is None or self.head_dim is None else self.heads.value * self.head_dim.value

    @property
    def keys(self) -> int | None:
        """Channels of the keys of all heads."""
        return None if self.kv_heads is None or self.head_dim is None else self.kv_heads.value * self.head_dim.value

    @property
    def values(self) -> int | None:
        """Channels of the values of all heads."""
        return None if self.kv_heads is None or self.value_dim is None else self.kv_heads.value * self.value_dim.value

    @property
    def outputs(self) -> int | None:
        """Channels that the output projection reads."""
        return None if self.heads is None or self.value_dim is None else self.heads.value * self.value_dim.value

    @property
    def fused(self) -> int | None:
        """Channels of queries, keys and values together."""
        widths = (self.queries, self.keys, self.values)
        return None if None in widths else sum(width for width in widths if width is not None)


def head_sizes(part: Part) -> list[HeadSizes]:
    """The sizes that a layer of a part may have: one, or more where some layers have keys of their own."""
    config: Mapping[str, Any] = part.config.config
    base = _sizes(part, config)
    changed = dict(config)
    for key, field in _VARIANTS.items():
        if is_count(config.get(key), WIDTH):
            names = {"heads": _HEADS, "kv_heads": _KV_HEADS, "head_dim": _HEAD_DIM, "value_dim": ("v_head_dim",)}[field]
            changed[next((name for name in names if name in config), names[0])] = config[key]
    full = part.config.rotation.full_head_dim if part.config.known else None
    overrides = config.get("per_layer_config")
    if full is not None and not {"global_head_dim", "per_layer_config"} & set(config):
        changed["head_dim"] = full
    sizes = [base] if changed == dict(config) else [base, _sizes(part, changed)]
    for layer in overrides.values() if isinstance(overrides, Mapping) else ():
        variant = _sizes(part, {**config, **layer}) if isinstance(layer, Mapping) else base
        if variant not in sizes:
            sizes.append(variant)
    return sizes


def _sizes(part: Part, config: Mapping[str, Any]) -> HeadSizes:
    side = () if part.role not in ("encoder", "decoder") else tuple(
        f"{part.role}_{key}" for key in ("attention_heads", "num_attention_heads")
    )  # fmt: skip
    stream = STREAM_KEYS.get(part.config.model_type)
    hidden = _first(part, config, _HIDDEN if stream is None else (stream,), WIDTH)
    heads = _first(part, config, (*side, *_HEADS), WIDTH)
    head_dim = _head_dim(part, config, hidden, heads)
    kv_heads = _kv_heads(part, config, heads)
    own_values = part.config.rotation.latent or part.config.model_type in VALUE_WIDTHS
    value_dim = (_first(part, config, ("v_head_dim",), CHANNELS) if own_values else None) or head_dim
    return HeadSizes(hidden, heads, kv_heads, head_dim, value_dim, _layers(part, config))


def _first(part: Part, config: Mapping[str, Any], keys: tuple[str, ...], most: int) -> Number | None:
    """The first of several keys that holds a count, or the default of the config's class."""
    for key in keys:
        value = at(config, key)
        if is_count(value, most):
            return Number(key, value)
    if any(at(config, key) is not None for key in keys):
        return None
    for key in keys:
        value = part.config.defaults.get(key)
        if is_count(value, most):
            return Number(key, value, explicit=False)
    return None


def at(config: Mapping[str, Any], key: str) -> Any:
    """The value under a key, which may lead into objects ("attn_config.kv_n_heads")."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _head_dim(part: Part, config: Mapping[str, Any], hidden: Number | None, heads: Number | None) -> Number | None:
    rotation = part.config.rotation
    keys = _HEAD_DIM if not part.config.known or rotation.latent else (rotation.head_key,)
    number = _first(part, config, keys, CHANNELS)
    if number is not None or any(at(config, key) is not None for key in keys):
        return number
    if part.config.known and rotation.head_dim is not None and not rotation.latent and keys[0] not in config:
        return Number(keys[0], rotation.head_dim, explicit=False)
    if hidden is None or heads is None or hidden.value % heads.value:
        return None
    return Number(f"{hidden.key} / {heads.key}", hidden.value // heads.value, explicit=False)


def _kv_heads(part: Part, config: Mapping[str, Any], heads: Number | None) -> Number | None:
    model_type = part.config.model_type
    if model_type in ("falcon", "RefinedWeb", "RefinedWebModel"):
        if config.get("new_decoder_architecture"):
            return _first(part, config, ("num_kv_heads",), WIDTH) or heads
        return _multi_query(config, heads)
    if model_type == "gpt_bigcode":
        return _multi_query(config, heads)
    if model_type == "chatglm":
        grouped = _first(part, config, ("multi_query_group_num",), WIDTH)
        return grouped if config.get("multi_query_attention") else heads
    if model_type in EQUAL_HEADS:  # which read no key for it, whatever a config has
        return None if heads is None else Number(heads.key, heads.value, explicit=False)
    side = (f"{part.role}_num_key_value_heads",) if part.role in ("encoder", "decoder") else ()
    keys = (*side, *_KV_HEADS)
    number = _first(part, config, keys, WIDTH)
    if number is not None or heads is None:
        return number
    is_null = any(key in config and config[key] is None for key in keys)
    equal = is_null or part.config.family.rotation is None
    return Number(heads.key, heads.value, explicit=False) if equal else None


def _multi_query(config: Mapping[str, Any], heads: Number | None) -> Number | None:
    """The key/value heads by a flag: one, or as many as query heads."""
    if config.get("multi_query", True):
        return Number("multi_query", 1)
    return None if heads is None else Number("multi_query", heads.value)


def _layers(part: Part, config: Mapping[str, Any]) -> Number | None:
    if part.role in ("encoder", "decoder"):
        first, second = part.config.family.layer_keys
        key = first if part.role == "encoder" else second
        value = at(config, key)
        if value is None and part.role == "decoder" and first == "num_layers":
            key, value = first, at(config, first)  # T5's default
        if part.path:  # a config of its own, as in "encoder-decoder"
            return _first(part, config, _LAYERS, LAYERS)
        return Number(key, value) if is_count(value, LAYERS) else None
    count_key = part.config.family.layers.count_key
    return _first(part, config, (count_key, *_LAYERS) if count_key else _LAYERS, LAYERS)
