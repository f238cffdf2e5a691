"""`Family`: all that posenc knows about one model type, in one record.

A record says what the model type's code decides and no config: the rotation (`RotationRules`), which kind of attention
each layer has and how far it reaches (`LayerPattern`, `Listing`, `Window`), direction, scale, sinks and the temperature
of the queries (`Attention`, `TemperatureRule`). Most families repeat a cycle of kinds ("five sliding layers, then a
full one"); some let the config set its period; others list the layers that attend under keys of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from posenc.frequencies.rotation import Layout
from posenc.hf.families.position_schemes import PositionScheme


@dataclass(frozen=True)
class TemperatureRule:
    """Which temperature a family's code has, and the keys and defaults of its numbers.

    Attributes:
        form: "steps": 1 + strength · ln(1 + floor((p + offset) / length)), numbers outside the block; "block steps":
            the same with numbers inside the block; "power": (1 + (p + 1) / length)^strength; "log":
            1 + strength · ln max(1, (p + 1) / length); "learned": scale · ln(p + 1) + bias, both learned a head.
        layers: layers that have it: "all", "unrotated", or a kind of layers.
        length, length_key: default and key of the length, in tokens; without both there is no temperature.
        strength, strength_key: default and key of the strength.
        offset: added to the position in "steps".
        switch: key that turns the temperature off where it is false.
    """

    form: Literal["steps", "block steps", "power", "log", "learned"]
    layers: str = "all"
    length: int | None = None
    length_key: str = ""
    strength: float = 0.1
    strength_key: str = ""
    offset: int = 0
    switch: str = ""


LLAMA_4 = TemperatureRule(
    "steps", "unrotated", 8192, "floor_scale", 0.1, "attn_scale", offset=1, switch="attn_temperature_tuning"
)
MISTRAL = TemperatureRule("block steps", length_key="original_max_position_embeddings",
                          strength_key="llama_4_scaling_beta")  # fmt: skip
BEAM = TemperatureRule("power", "unrotated", 2048, strength=0.1)
INKLING = TemperatureRule("log", "hybrid", None, "log_scaling_n_floor", 0.1, "log_scaling_alpha")
INKLING_2 = TemperatureRule("log", "hybrid", 128_000, "log_scaling_n_floor", 0.1, "log_scaling_alpha")
LEARNED = TemperatureRule("learned")


FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
INDEXED, COMPRESSED = "indexed_attention", "compressed_sparse_attention"
HEAVILY_COMPRESSED, BLOCK_SPARSE = "heavily_compressed_attention", "minimax_m3_sparse"
HYBRID, HYBRID_SLIDING, REFERENCE_SLIDING = "hybrid", "hybrid_sliding", "reference_sliding_attention"
CROSS = "cross_attention"  # from text to an image
WINDOWED = (SLIDING, HYBRID_SLIDING, REFERENCE_SLIDING)
NO_ATTENTION = (LINEAR, "mamba", "conv", "recurrent", "moe", "mlp", CROSS)  # layers without attention to text
KINDS = {  # of layers, as configs of transformers 5.23 name them
    FULL, CHUNKED, INDEXED, HYBRID, *WINDOWED, *NO_ATTENTION, "attention", "window_attention", COMPRESSED,
    HEAVILY_COMPRESSED, BLOCK_SPARSE, "sparse", "dense",
}  # fmt: skip


@dataclass(frozen=True)
class Window:
    """The tokens that a layer with a sliding window attends to.

    Attributes:
        size: default number of tokens.
        key: config key of the size; ``sliding_window`` is read as well where this key is missing.
        every_layer: every layer has the window, whatever its kind.
        halved: the key counts both sides of a token together.
        sides: for bidirectional layers. "each": ``size`` tokens before a token and as many after it; "shared": the two
            sides share ``size``, the token itself among the earlier half; "": the window ends at the token.
        excludes_itself: the key counts the tokens before a token, itself not among them.
        switch: key without which no layer has a window.
    """

    size: int | None = None
    key: str = "sliding_window"
    every_layer: bool = False
    halved: bool = False
    sides: Literal["", "each", "shared"] = ""
    excludes_itself: bool = False
    switch: str = ""


@dataclass(frozen=True)
class Listing:
    """Keys of its own with which a family says what each layer is, where ``layer_types`` is missing.

    Attributes:
        form: how the value is spelled.
            "letters": a string with a letter a layer. "codes": a list with a code a layer. "numbers": the numbers of
            the layers that are "listed" in ``names``, full without it, and the "others" recurrent. "period": the
            layers whose number modulo the key's value equals ``offset_key``'s. "spans": pairs of a list of kinds and
            how often it repeats.
        key: config key; inside ``parent`` where that is given.
        parent: object that holds the key.
        names: kinds of layers by letter or code.
        first: number of the first layer, for "numbers".
        default: value without the key; None: the listing does not apply without it.
        offset_key, offset: key and default of the offset, for "period".
        exact: whether the list must have exactly one entry a layer; else it may be longer.
    """

    form: Literal["letters", "codes", "numbers", "period", "spans"]
    key: str
    parent: str = ""
    names: Mapping[Any, str] = field(default_factory=dict)
    first: int = 0
    default: Any = None
    offset_key: str = ""
    offset: int = 0
    exact: bool = True


@dataclass(frozen=True)
class LayerPattern:
    """Which kind of attention each layer of a family has, and the window of each kind.

    Attributes:
        cycle: kinds of layers, repeated, where the config lists none.
        by_rotation: the kinds of layers that rotate and that do not, in the place of a cycle.
        period_key: config key that sets the cycle's length; its last layer (or its first) stays full.
        anchored_at_end: the cycle counts from the last layer, whose kind is the first of the cycle.
        first_full, last_full: that layer is full whatever the cycle says; the last one "always": whatever a list says.
        only_listed: without a list in the config the kinds of the layers are unknown.
        sliding_from_key, sliding_from: key and default of the first layer with a window (Qwen's
            ``max_window_layers``); of a cycle, the first layer without one.
        count_key: key of the number of layers, where it is none of the usual ones.
        per_count: blocks of attention in each layer that this key counts.
        types_key: key that lists the kinds.
        full_is: the kind that "full_attention" in that list stands for.
        cross_key: key that lists the layers which attend to an image.
        listing: keys of the family's own that say what each layer is.
        window: of layers with a sliding window.
        chunk: default tokens of a chunk, of layers with chunked attention.
    """

    cycle: tuple[str, ...] = ()
    by_rotation: tuple[str, str] | None = None
    period_key: str = ""
    anchored_at_end: bool = False
    first_full: bool = False
    last_full: bool | Literal["always"] = False
    only_listed: bool = False
    sliding_from_key: str = ""
    sliding_from: int = 0
    count_key: str = ""
    per_count: int = 1
    types_key: str = "layer_types"
    full_is: str = FULL
    cross_key: str = ""
    listing: Listing | None = None
    window: Window = Window()
    chunk: int | None = None


FULL_EVERYWHERE = LayerPattern()


Order = Literal["chunked", "interleaved", "time last"]


class KindKeys(NamedTuple):
    """How a flat config spells the rotation of one of several kinds of layers.

    Attributes:
        theta_key: key of the base, outside the block.
        base: default of that key.
        scaled: whether ``rope_scaling`` applies to this kind.
        prefix: of the keys of widths that latent attention of this kind has of its own.
        head_dim, unrotated: defaults of ``head_dim`` and ``qk_nope_head_dim`` under that prefix; the rest is rotated.
    """

    theta_key: str
    base: float
    scaled: bool
    prefix: str = ""
    head_dim: int = 0
    unrotated: int = 0


class DynamicKeys(NamedTuple):
    """How a repository's own code spells dynamic NTK outside any block.

    Attributes:
        factor_key: key of the factor; null or missing: no scaling.
        trained_key: key of the training length, from which the base grows.
        trained: default of that key, in tokens.
    """

    factor_key: str
    trained_key: str
    trained: int


@dataclass(frozen=True)
class RotationRules:
    """The rotation as a model type's code computes it where the config leaves something out.

    Attributes:
        base: default base.
        share: default share of a head's channels that are rotated.
        layout: which channels form a pair.
        theta_key, share_key: names of base and share outside the block, in version 4 of transformers.
        default_share: whether the rope type "default" applies the share too (most families ignore it there).
        trailing: the last channels of a head are rotated, not the first.
        latent: multi-head latent attention: ``qk_rope_head_dim`` channels are rotated.
        yarn_in_softmax: the softmax scale of latent attention has YaRN's factor of ``mscale_all_dim``.
        layout_key: ``rope_interleave`` decides the layout; null means half.
        rotates_if: a key, and the value without which no layer rotates.
        kinds: kinds of layers that a flat config spells side by side, or empty.
        nested: there are several kinds of layers, and only a nested block can tell them apart.
        flat_dropped: the class takes its defaults for each kind of layers in the place of flat ``rope_parameters``.
        by_layer: a flat config lists base (``rope_theta``) and share (``partial_rotary_factors``) of each layer, and
            the kinds that its scaling is for (``yarn_only_types``); lists may go on with layers that predict tokens.
        unrotated_kinds: kinds of layers that never rotate, where there is a sliding window.
        only_sliding: those kinds never rotate, with or without a window; else they rotate where there is none.
        bases_key: key of a list with the base of each layer, 0 for a layer that does not rotate.
        bases_choose: whether those numbers are bases; else they only say which layers rotate.
        unrotated_every: every so many layers one does not rotate, where the config does not say.
        block: the block of a config that has none; with a base where that is another than of blocks without one.
        block_only: the class reads no base outside a block: it takes its default block in the place of one.
        original: training length of a config that has none.
        dynamic_keys: of dynamic NTK outside a block; None: the family's code has no such keys.
        head_dim: default width of a head that rotates; None: ``hidden_size`` over the number of heads.
        head_key: key of that width.
        full_head_dim: default width of full attention's heads, where they have a width of their own.
        fixed: no config can change the base or scale the frequencies.
        null_base: a base that is null means that no layer rotates.
        sections: default sections of M-RoPE, pairs that read time, row, column; None: one position for all pairs.
        scaled: defaults of keys in a flat ``rope_scaling``.
        width_key: key of the number of rotated channels in a flat config, in the place of a share.
        order: how M-RoPE assigns pairs to axes; with "time last", sections are row, column, time.
        rope_types: the only ones that transformers' config class takes (5.23: Phi3Config.validate_rope, which also
            takes "yarn" for an old name of "longrope"); empty: all.
    """

    base: float = 10_000.0
    share: float = 1.0
    layout: Layout = "half"
    theta_key: str = "rope_theta"
    share_key: str = "partial_rotary_factor"
    default_share: bool = False
    trailing: bool = False
    latent: bool = False
    yarn_in_softmax: bool = True
    layout_key: bool = False
    rotates_if: tuple[str, str | bool] | None = None
    kinds: Mapping[str, KindKeys] = field(default_factory=dict)
    nested: bool = False
    flat_dropped: bool = False
    by_layer: bool = False
    unrotated_kinds: tuple[str, ...] = ()
    only_sliding: bool = False
    bases_key: str | None = None
    bases_choose: bool = False
    unrotated_every: int | None = None
    block: Mapping[str, Any] | None = None
    block_only: bool = False
    original: int | None = None
    dynamic_keys: DynamicKeys | None = None
    head_dim: int | None = None
    head_key: str = "head_dim"
    full_head_dim: int | None = None
    fixed: bool = False
    null_base: bool = False
    sections: tuple[int, ...] | None = None
    scaled: Mapping[str, Any] = field(default_factory=dict)
    width_key: str = ""
    order: Order = "chunked"
    rope_types: tuple[str, ...] = ()


Direction = Literal["", "causal", "bidirectional", "encoder-decoder", "none"]
Scale = Literal["head", "attention_multiplier", "query_pre_attn_scalar", "one", "inverse", "half", "unknown"]
SCALE_KEYS = ("attention_multiplier", "query_pre_attn_scalar")


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
        scale_number: of the config class where a config leaves that key out; None: the key has no default.
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
    scale_number: float | None = None
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
BIDIRECTIONAL = Attention(direction="bidirectional")
ENCODER_DECODER = Attention(direction="encoder-decoder")
NOT_READ = Attention(direction="")


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


GEMMA_3_KINDS = {
    FULL: KindKeys("rope_theta", 1e6, scaled=True),
    SLIDING: KindKeys("rope_local_base_freq", 1e4, scaled=False),
}
MODERNBERT_KINDS = {
    FULL: KindKeys("global_rope_theta", 1.6e5, scaled=True),
    SLIDING: KindKeys("local_rope_theta", 1e4, scaled=True),
}
BIG_BIRD_BLOCKS = (
    "blocks of {block_size} tokens: its own, both neighbours, the first, the last and {num_random_blocks} random ones"
)
