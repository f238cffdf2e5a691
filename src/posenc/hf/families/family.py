"""`Family`: all that posenc knows about one model type, in one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from posenc.hf.families.layer_patterns import FULL_EVERYWHERE, LayerPattern
from posenc.hf.families.position_schemes import PositionScheme
from posenc.hf.families.rotation import RotationRules
from posenc.hf.families.temperature import TemperatureRule

Direction = Literal["", "causal", "bidirectional", "encoder-decoder", "none"]
Scale = Literal["head", "attention_multiplier", "query_pre_attn_scalar", "one", "inverse", "half", "unknown"]


class Sizes(NamedTuple):
    """Defaults of a config class of transformers, for a text part that leaves them out; None where it has none.

    Attributes:
        hidden_size: channels of the residual stream.
        num_attention_heads: query heads.
        num_hidden_layers: layers.
        max_position_embeddings: tokens.
    """

    hidden_size: int | None
    num_attention_heads: int | None
    num_hidden_layers: int | None
    max_position_embeddings: int | None


@dataclass(frozen=True)
class Attention:
    """What attention does in a family's code, the rotation aside.

    Attributes:
        direction: which tokens a token attends to: "causal", none after it; "bidirectional", all, unless the config
            says ``is_decoder``; "encoder-decoder", the first half bidirectional and the second causal; "none": no
            layer has attention; "": not read.
        bidirectional_if: value of ``use_bidirectional_attention`` that makes an encoder of a decoder, with half the
            window on each side.
        scale: of the softmax: by the width of a head or of half a head, by its inverse, one, or by a config key.
        softcap: default cap of the logits; None: the code has none, whatever the key says; 0: the config class's.
        sinks: kinds of layers with an attention sink, ("all",) for every one.
        sink_by_token: each token computes its sink by a projection; else one is learned a head.
        normed_after: norms of queries and keys, with a weight a channel, follow the rotation.
        temperature: factor on the queries that depends on their position.
        top_k: default of ``index_topk``, the keys that an indexer picks for each query; None: no indexer; 0: the config
            class's.
        partial: what else limits attention, in words, with ``{key}`` for numbers of the config.
        partial_defaults: defaults of those numbers.
        partial_if: a key, the value with which this holds, and the key's default; None: it always holds.
        head_dim: default width of a head in a family without rotation.
    """

    direction: Direction = "causal"
    bidirectional_if: str | bool | None = None
    scale: Scale = "head"
    softcap: float | None = None
    sinks: tuple[str, ...] = ()
    sink_by_token: bool = False
    normed_after: bool = False
    temperature: TemperatureRule | None = None
    top_k: int | None = None
    partial: str = ""
    partial_defaults: Mapping[str, int] = field(default_factory=dict)
    partial_if: tuple[str, str, str] | None = None
    head_dim: int | None = None


CAUSAL = Attention()


@dataclass(frozen=True)
class Family:
    """One model type: where its numbers stand, what each layer does with positions, and what is not supported.

    A model type either rotates (``rotation``), has other position encodings (``schemes``), or both, where a key of the
    config decides; or it is refused with a reason (``unsupported``).

    Attributes:
        rotation: the rotation of queries and keys; None: the code has none, whatever keys a config has.
        layers: kinds and windows of the layers.
        attention: direction, scale, sinks, temperature.
        schemes: encodings of a family without rotation, or of one whose rotation a key turns off.
        sizes: defaults of the config class, of a model that can be the text part of a larger one.
        text_type: of a composite model, the model type of a ``text_config`` that does not name its own.
        code_of: model type whose code a released file runs, where transformers has no code of this name.
        code_if_listed: model type whose code AutoConfig takes where the config has ``layer_types``.
        since: major version of transformers that first had this model type.
        layer_keys: keys of the numbers of layers of encoder and decoder.
        unsupported: why configs of this model type are not read, to follow "it"; reading one raises it.
        not_compared: why whole layers are not compared with transformers' own; "" where they are.
    """

    rotation: RotationRules | None = None
    layers: LayerPattern = FULL_EVERYWHERE
    attention: Attention = CAUSAL
    schemes: tuple[PositionScheme, ...] = ()
    sizes: Sizes | None = None
    text_type: str = ""
    code_of: str = ""
    code_if_listed: str = ""
    since: int = 4
    layer_keys: tuple[str, str] = ("encoder_layers", "decoder_layers")
    unsupported: str = ""
    not_compared: str = ""


def same(names: str, record: Family) -> dict[str, Family]:
    """One record for several model types, by their names with spaces between."""
    return dict.fromkeys(names.split(), record)
