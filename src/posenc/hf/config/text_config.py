"""Where a configuration describes its text model, and what it says of widths, lengths, layers and other encodings.

Each key is checked where it is read: an error names it with its path. Overrides of single layers (which ones do not
rotate, which base and which window each has) are read here too; and position encodings in the place of a rotation,
with their numbers: of model types that do not rotate, and those that `posenc.hf.attach` has put into a model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.families import FAMILIES, Family, RotationRules, family_of
from posenc.hf.families.family import FULL, SLIDING, KindKeys
from posenc.hf.families.position_schemes import (
    ALIBI,
    ALIBI_SCALED,
    SINUSOIDAL,
    SWITCHED_OFF,
    Buckets,
    PatchTable,
    PositionScheme,
    Table,
)  # fmt: skip
from posenc.hf.findings import NotReadError
from posenc.hf.limits import CHANNELS, LAYERS, TOKENS, WIDTH, is_count, is_number
from posenc.hf.sources.load import Config, dotted

_TEXT_PARTS = ("vlm_config", "text_config", "llm_config", "language_config", "thinker_config")
WIDTHS = (
    ("hidden_size", "num_attention_heads"),
    ("hidden_size", "n_head"),  # Decision Transformer's GPT-2, whose n_embd its class does not read
    ("n_embd", "n_head"),
    ("d_model", "n_heads"),
    ("hidden_size", "encoder_num_attention_heads"),
)
_OTHER_WIDTHS = (  # of models without rotation
    ("n_embed", "n_head"),  # BLOOM as released
    ("n_embed", "num_attention_heads"),
    ("d_model", "encoder_attention_heads"),
    ("d_model", "attention_heads"),
    ("d_model", "num_heads"),
    ("dim", "n_heads"),
    ("emb_dim", "n_heads"),
)
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")
OTHER_LENGTHS = (  # keys that repeat or contradict the declared length
    "model_max_length", "max_sequence_length", "max_seq_length", "max_seq_len", "seq_length", "seq_len",
)  # fmt: skip


class TextConfig(dict[str, Any]):
    """The part of a configuration that describes the text model: its keys, and what is known of its model type.

    Attributes:
        path: keys that lead to it; empty where it is the whole configuration.
        model_type: the text model's, or else the enclosing configuration's; "" where there is none.
        family: the record of its model type; without one, a rotation to assume.
        rotation: the rules of the family's rotation; Llama's where the family has none.
        known: whether there is a record, and it has a rotation.
        defaults: sizes that its config class has, by key. A composite model leaves them out when it is saved.
        length_key: the key of the longest length that it declares.
    """

    def __init__(self, config: Config, path: tuple[str, ...], model_type: str, family: Family, *, known: bool) -> None:
        super().__init__(config)
        self.path, self.model_type, self.family, self.known = path, model_type, family, known
        self.rotation = family.rotation or RotationRules()
        self.defaults: Mapping[str, Any] = {} if family.sizes is None or not path else family.sizes._asdict()
        lengths = [name for name in _LENGTHS if name in self]
        self.length_key = next((name for name in lengths if self[name] is not None), (*lengths, _LENGTHS[0])[0])

    def key_path(self, *keys: object) -> str:
        """The path to a key of this part from the top of the configuration, for errors."""
        return dotted((*self.path, *keys))


def find_text_config(config: Config) -> TextConfig:
    """The text model's part of a configuration: the innermost of the usual names, or the whole.

    Raises:
        ValueError: for a part that is no object, or a model type that is no string.
    """
    path: tuple[str, ...] = ()
    inner, types = config, list[str]()
    while True:
        model_type = inner.get("model_type")
        if model_type is not None and not isinstance(model_type, str):
            raise ValueError(f"{dotted((*path, 'model_type'))} must be a string or null, found {shown(model_type)}")
        types.insert(0, model_type or "")
        name = _text_part(inner, path)
        if name is None:
            break
        path, inner = (*path, name), inner[name]
    if path and not types[0] and types[1] in FAMILIES:
        types[0] = FAMILIES[types[1]].text_type
    names = [name for name in types if name]
    family, known = family_of(names, listed="layer_types" in inner, latent=inner.get("qk_rope_head_dim") is not None)
    if family.rotation is not None and family.rotation.by_layer:
        inner = _without_predictors(inner)
    return TextConfig(inner, path, names[0] if names else "", family, known=known)


def _without_predictors(config: Config) -> Config:
    """Lists by layer without the entries of layers at the end that predict further tokens."""
    count, more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    if not (is_count(count) and is_count(more)):
        return config
    padded = count + more
    return {k: v[:count] if isinstance(v, list) and len(v) == padded else v for k, v in config.items()}


def _text_part(config: Config, path: tuple[str, ...]) -> str | None:
    """The key of the part that describes the text model; None where this part itself does."""
    outer_family = FAMILIES.get(str(config.get("model_type")))
    is_text_model = (
        outer_family is not None and outer_family.rotation is not None and not outer_family.text_type and not path
    )
    for name in _TEXT_PARTS:
        part = config.get(name)
        if is_text_model and name != "text_config" and {"head_dim", "hidden_size"} & set(config):
            continue  # a stray part, which the class of a text model does not read
        if part is not None and not isinstance(part, dict):
            raise ValueError(f"{dotted((*path, name))} must be an object or null, found {shown(part)}")
        if part:
            return name
    return None


def with_text_config(config: Config, text_config: TextConfig, text: Config) -> Config:
    """The whole configuration with another text part."""
    if not text_config.path:
        return text
    result = copy.deepcopy(config)
    inner = result
    for name in text_config.path[:-1]:
        inner = inner[name]
    inner[text_config.path[-1]] = text
    return result


def count_at(text_config: TextConfig, key: str, most: int) -> int | None:
    """The integer of a key of the text part, or None where it has none.

    A model of images or of several towers may have a number for each stage, which is none of the text model's: of a
    model type without a record, that counts as absent.

    Raises:
        ValueError: for anything else but an integer in 1..``most`` or null.
    """
    count = text_config.get(key) if key in text_config else text_config.defaults.get(key)
    if count is None or is_count(count, most):
        return count
    if isinstance(count, list | dict) and not text_config.known:
        return None
    raise ValueError(f"{text_config.key_path(key)} must be an integer in 1..{most} or null, found {shown(count)}")


def flag_at(text_config: TextConfig, key: str) -> bool | None:
    """The true or false of a key of the text part, or None where it has none; a ValueError for anything else."""
    flag = text_config.get(key)
    if flag is not None and not isinstance(flag, bool):
        raise ValueError(f"{text_config.key_path(key)} must be true, false or null, found {shown(flag)}")
    return flag


def max_length(text_config: TextConfig) -> int | None:
    """The longest length that the configuration declares, in tokens."""
    return count_at(text_config, text_config.length_key, TOKENS)


def head_dim(text_config: TextConfig, kind: str, override: int | None) -> int:
    """Channels of a head that the rotation is given.

    Raises:
        ValueError: where neither the configuration nor the caller says it, or what it says is no even integer.
    """
    if override is None and text_config.rotation.latent and text_config.get("use_mla") is False:
        text = "is false: attention without a latent of keys and values, whose rotation is not read"
        raise NotReadError(f"{text_config.key_path('use_mla')} {text}")
    name, width = ("head_dim=", override) if override is not None else _width(text_config, kind)
    if width is None:
        names = " or ".join("head_dim" if not pair else f"{pair[0]} with {pair[1]}" for pair in ((), *WIDTHS[:3:2]))
        raise NotReadError(
            f"{text_config.key_path('head_dim')}: the configuration has neither {names}; add it, or give head_dim="
        )
    if not is_count(width, CHANNELS) or width % 2:
        raise ValueError(f"{name} must be an even integer in 2..{CHANNELS}, found {shown(width)}")
    return width


def head_words(text_config: TextConfig, kind: str, override: int | None) -> str:
    """The width of a head and where it comes from, for errors about pairs."""
    name, width = ("head_dim=", override) if override is not None else _width(text_config, kind)
    return f"{name} makes a head {width} channels wide"


def _width(text_config: TextConfig, kind: str) -> tuple[str, Any]:
    """What a configuration says of the width of a head, and where."""
    by_kind = {"per_layer_config", "global_head_dim"} & text_config.keys()
    if by_kind or text_config.rotation.full_head_dim is not None or kind in text_config.rotation.kinds:
        kind_width = _own_width(text_config, kind)
        if kind_width is not None:
            return kind_width
    family = text_config.rotation
    keys = ["head_dim", "kv_channels"] if not text_config.known else [family.head_key]
    for key in ["qk_rope_head_dim"] if family.latent else keys:
        if text_config.get(key) is not None:
            return text_config.key_path(key), text_config[key]
        if family.head_dim is not None and key not in text_config:  # null means the quotient
            return text_config.key_path(key), family.head_dim
    return _quotient(text_config)


def _own_width(text_config: TextConfig, kind: str) -> tuple[str, Any] | None:
    """The width of one kind of layers where it has its own, as full attention in Gemma 4."""
    config = text_config
    key = "qk_rope_head_dim" if text_config.rotation.latent else "head_dim"
    if (given := _of_layers(text_config, kind, key)) is not None:
        return given
    if own := _own_latent(text_config, kind):
        name = f"{own.prefix}{key}"
        if text_config.get(name) is not None:
            return text_config.key_path(name), text_config[name]
        head, unrotated = f"{own.prefix}head_dim", f"{own.prefix}qk_nope_head_dim"
        channels = count_at(text_config, head, CHANNELS) or own.head_dim
        return f"{head} - {unrotated}", channels - (count_at(text_config, unrotated, CHANNELS) or own.unrotated)
    wide = text_config.rotation.full_head_dim is not None or config.get("global_head_dim") is not None
    if kind != FULL or not wide or "per_layer_config" in config:  # then the code looks at no other key
        return None
    return text_config.key_path("global_head_dim"), config.get("global_head_dim", text_config.rotation.full_head_dim)


def _own_latent(text_config: TextConfig, kind: str) -> KindKeys | None:
    """The keys of a kind whose latent attention has widths of its own, where ``per_layer_config`` does not say them."""
    keys = text_config.rotation.kinds.get(kind)
    return keys if keys is not None and keys.prefix and text_config.get("per_layer_config") is None else None


def unrotated_width(text_config: TextConfig, kind: str) -> int:
    """Channels of a head of latent attention that are not rotated; 0 where nothing says so."""
    key = "qk_nope_head_dim"
    if (given := _of_layers(text_config, kind, key)) is not None:
        return given[1] if is_count(given[1], CHANNELS) else 0
    if own := _own_latent(text_config, kind):
        return count_at(text_config, f"{own.prefix}{key}", CHANNELS) or own.unrotated
    return text_config[key] if is_count(text_config.get(key)) else 0


def _of_layers(text_config: TextConfig, kind: str, key: str) -> tuple[str, Any] | None:
    """The value of a key in ``per_layer_config`` for the first layer of a kind that has it, and where it stands."""
    overrides, types = text_config.get("per_layer_config"), layer_types(text_config)
    if overrides is not None and not isinstance(overrides, dict):
        text = f"must be an object of layers by their number, or null, found {shown(overrides)}"
        raise ValueError(f"{text_config.key_path('per_layer_config')} {text}")
    for index, layer in (overrides or {}).items():
        place = text_config.key_path("per_layer_config", index)
        if layer is not None and not isinstance(layer, dict):
            raise ValueError(f"{place} must be an object or null, found {shown(layer)}")
        number = int(index) if str(index).isdecimal() and len(str(index)) <= len(str(LAYERS)) else LAYERS
        if number < len(types) and types[number] == kind and layer and layer.get(key) is not None:
            return f"{place}.{key}", layer[key]
    return None


def _quotient(text_config: TextConfig) -> tuple[str, int | None]:
    for width, heads in WIDTHS:
        channels, parts = count_at(text_config, width, WIDTH), count_at(text_config, heads, WIDTH)
        if channels is None or parts is None:
            continue
        if channels % parts:
            text = f"= {channels} is no multiple of {heads} = {parts}: the width of a head is not read; add head_dim"
            raise NotReadError(f"{text_config.key_path(width)} {text}")
        return f"{text_config.key_path(width)} / {heads} = {channels} / {parts}", channels // parts
    return "head_dim", None


def width_of_heads(text_config: TextConfig) -> int | None:
    """Channels of a head, where a key or the quotient of two keys says it; of a model without rotation too."""
    width = count_at(text_config, "head_dim", CHANNELS)
    if width is not None:
        return width
    for stream, heads in (*WIDTHS, *_OTHER_WIDTHS):
        channels, parts = count_at(text_config, stream, WIDTH), count_at(text_config, heads, WIDTH)
        if channels is not None and parts is not None:
            return channels // parts or None
    return None


def layer_types(text_config: TextConfig) -> list[str]:
    """The kind of each layer where the configuration lists them, or an empty list.

    Raises:
        ValueError: for anything but a list of names, one for each layer.
    """
    types = text_config.get("layer_types")
    if types is None:
        return []
    if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
        raise ValueError(
            f"{text_config.key_path('layer_types')} must be a list of strings or null, found {shown(types)}"
        )
    check_layers(text_config, "layer_types", types)
    return list(types)


def check_layers(text_config: TextConfig, key: str, layers: list[Any]) -> None:
    """Raise a ValueError unless a list has an entry for each layer."""
    count = count_at(text_config, "num_hidden_layers", LAYERS)
    if len(layers) > LAYERS or (count is not None and len(layers) != count):
        expected = f"num_hidden_layers = {count}" if count is not None else f"at most {LAYERS}"
        raise ValueError(f"{text_config.key_path(key)} must list as many layers as {expected}, found {len(layers)}")


def layers_without_rope(text_config: TextConfig) -> list[int]:
    """Numbers of the layers that ``no_rope_layers`` exempts (Llama 4, SmolLM 3: 1 rotates, 0 does not).

    In families with a list of bases those whose base is 0.

    Raises:
        ValueError: for anything but a list of 0 and 1 (or of bases), one for each layer.
    """
    if text_config.rotation.bases_key is not None:
        return [layer for layer, base in enumerate(bases(text_config)) if not base]
    flags, count = text_config.get("no_rope_layers"), count_at(text_config, "num_hidden_layers", LAYERS)
    every = text_config.rotation.unrotated_every
    if text_config.get("no_rope_layer_interval") is not None:
        every = count_at(text_config, "no_rope_layer_interval", LAYERS)
    if flags is not None and not (isinstance(flags, list) and all(flag in (0, 1) for flag in flags)):
        text = f"must be a list of 0 and 1, one for each layer, or null, found {shown(flags)}"
        raise ValueError(f"{text_config.key_path('no_rope_layers')} {text}")
    if flags:
        check_layers(text_config, "no_rope_layers", flags)
    elif every is not None and count is not None:
        flags = [int((layer + 1) % every != 0) for layer in range(count)]
    return [layer for layer, rotates in enumerate(flags or []) if not rotates]


def bases(text_config: TextConfig) -> list[float]:
    """The base of each layer, 0 for a layer that does not rotate, or an empty list where the configuration has none.

    Raises:
        ValueError: for anything but a list of numbers, 0 or above 1, one for each layer.
    """
    key = text_config.rotation.bases_key or ""
    listed = text_config.get(key)
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(is_number(base, 0) and (base == 0 or base > 1) for base in listed):
        text = f"must be a list of numbers, 0 or above 1, one for each layer, or null, found {shown(listed)}"
        raise ValueError(f"{text_config.key_path(key)} {text}")
    check_layers(text_config, key, listed)
    return list(listed)


def kinds_without_rope(text_config: TextConfig) -> tuple[str, ...]:
    """Kinds of layers that the family's code never rotates, next to sliding layers that it rotates.

    Raises:
        ValueError: for a window that is no number of tokens, and for 0 where the family's code asks for a window.
    """
    family, types = text_config.rotation, layer_types(text_config)
    window = count_at(text_config, "sliding_window", TOKENS)
    decides = family.only_sliding or (window is not None and (not types or SLIDING in types))
    return family.unrotated_kinds if decides else ()


# Position encodings in the place of a rotation

_SINUSOIDAL_IF = ("sinusoidal_pos_embds", "sinusoidal_embeddings")  # of distilbert, of xlm and flaubert


class SchemeFacts(NamedTuple):
    """A position encoding of a model, with its numbers.

    Attributes:
        text: what it is, for readers.
        builds: the call of posenc that builds it, "" where there is none.
        rows: of a learned table; None where there is none, or its size is not read.
        positions: how many of the rows are for positions.
        buckets, max_distance: of a relative bias.
        key: of the config that the rows or buckets come from, "" where no key decides them.
        added: rows that the code adds to the number under ``key``, or in front of the patches.
    """

    text: str
    builds: str = ""
    rows: int | None = None
    positions: int | None = None
    buckets: int | None = None
    max_distance: int | None = None
    key: str = ""
    added: int = 0


def is_non_rotary(family: Family) -> bool:
    """Whether a model type's code has position encodings and no rotation, whatever keys a config has."""
    return family.rotation is None and bool(family.schemes)


def position_schemes(text_config: TextConfig, root: Config | None = None) -> tuple[SchemeFacts, ...]:
    """The encodings of a model that does not rotate queries and keys; empty for a model that does, or is unknown.

    Args:
        text_config: the text model's config.
        root: the whole config, where its other parts count too.

    Raises:
        ValueError: for a key that decides and is neither true nor false.
    """
    config, family, kind = text_config, text_config.family, text_config.get("position_embedding_type")
    if flag_at(text_config, "alibi"):  # Falcon's
        return (SchemeFacts(ALIBI_SCALED.text, ALIBI_SCALED.builds),)
    if kind == "alibi" and is_non_rotary(family):  # JinaBERT, which adds the bias to the scaled scores
        return (SchemeFacts(ALIBI.text, ALIBI.builds),)
    switch = text_config.rotation.rotates_if
    rotates = text_config.known and (switch is None or config.get(switch[0]) == switch[1])
    if rotates or (family.rotation is None and kind in ("rotary", "rope")):
        return ()
    model_type = None if root is None else root.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES and is_non_rotary(FAMILIES[model_type]):
        family = FAMILIES[model_type]
    schemes = family.schemes
    if any(scheme.switched_by for scheme in schemes):
        schemes = tuple(scheme for scheme in schemes if _is_on(scheme, text_config)) or (SWITCHED_OFF,)
    elif (
        len(schemes) == 1 and schemes[0].table is not None and any(flag_at(text_config, key) for key in _SINUSOIDAL_IF)
    ):
        schemes = (SINUSOIDAL,)
    return tuple(_with_numbers(scheme, text_config, config if root is None else root) for scheme in schemes)


def _is_on(scheme: PositionScheme, text_config: TextConfig) -> bool:
    """Whether the config's keys enable an encoding."""
    flags = [flag_at(text_config, key) for key in scheme.switched_by]
    return not flags or any(scheme.on_by_default if flag is None else flag for flag in flags)


def _with_numbers(scheme: PositionScheme, text_config: TextConfig, root: Config) -> SchemeFacts:
    """A scheme with the numbers of a config in the place of their names."""
    if scheme.table is not None:
        return _with_rows(scheme, scheme.table, text_config)
    if scheme.patches is not None:
        return _with_patches(scheme, scheme.patches, text_config, root)
    if scheme.buckets is not None:
        return _with_buckets(scheme, scheme.buckets, text_config)
    return SchemeFacts(scheme.text, scheme.builds)


def _with_rows(scheme: PositionScheme, table: Table, text_config: TextConfig) -> SchemeFacts:
    number = _count(text_config, table.key, table.default)
    rows = number + table.extra
    skipped = 0
    text, builds = scheme.text, scheme.builds
    if table.padding is not None:
        padding = text_config.get("pad_token_id")
        skipped = 1 + (padding if type(padding) is int and 0 <= padding < rows - 1 else table.padding)
        skipped_rows = "first row of the table is" if skipped == 1 else f"first {skipped} rows of the table are"
        text = text if skipped == 2 else text.replace("first two rows of the table are", skipped_rows)
        builds = builds.replace("offset=2", f"offset={skipped}")
    positions = number - skipped
    if positions < 1:  # no table that a model could have
        return SchemeFacts(text)
    builds = builds.replace("max_length=max_length", f"max_length={positions}")
    numbers = f"{rows:,} rows" if rows == positions else f"{rows:,} rows for {positions:,} positions"
    return SchemeFacts(f"{text} ({numbers})", builds, rows, positions, key=table.key, added=table.extra)


def _with_patches(scheme: PositionScheme, table: PatchTable, text_config: TextConfig, root: Config) -> SchemeFacts:
    part = root.get(table.parent) if table.parent else text_config
    config: Mapping[str, Any] = part if isinstance(part, dict) else {}
    if table.count_key:
        side = round(
            _count(config, table.count_key, int(table.image_size if isinstance(table.image_size, int) else 0)) ** 0.5
        )
        height = width = side
    else:
        (top, left), (tall, broad) = (_pair(config, key, default) for key, default in
                                      (("image_size", table.image_size), ("patch_size", table.patch_size)))  # fmt: skip
        height, width = top // tall, left // broad
    if not (height and width):  # a patch larger than the image
        return SchemeFacts(scheme.text)
    prefix = table.prefix + (_count(config, table.prefix_key, table.prefix_default) if table.prefix_key else 0)
    builds = scheme.builds.replace("(rows, columns)", f"({height}, {width})").replace("=prefix", f"={prefix}")
    rows = height * width + prefix
    key = table.count_key or "image_size"
    return SchemeFacts(f"{scheme.text} ({rows:,} rows)", builds, rows, rows, key=key, added=prefix)


def _with_buckets(scheme: PositionScheme, buckets: Buckets, text_config: TextConfig) -> SchemeFacts:
    count = _count(text_config, buckets.count_key, buckets.count)
    distance = _count(text_config, buckets.distance_key, buckets.max_distance)
    builds = scheme.builds.replace("=num_buckets", f"={count}").replace("=max_distance", f"={distance}")
    text = f"{scheme.text} ({count} buckets, longest distance {distance})"
    return SchemeFacts(text, builds, buckets=count, max_distance=distance, key=buckets.count_key)


def _count(config: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number of the config, or the default where it has none that can be."""
    value = config.get(key)
    return value if is_count(value, TOKENS) else default


def _pair(config: Mapping[str, Any], key: str, default: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width under a key that holds one number for both, or two."""
    value = config.get(key)
    if isinstance(value, list) and len(value) == 2 and all(is_count(side, TOKENS) for side in value):
        return value[0], value[1]
    side = value if is_count(value, TOKENS) else default
    return side if isinstance(side, tuple) else (side, side)


# Models of posenc

MODEL_TYPE = "posenc"
DEFAULTS: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "train_length": 2048, "encodings": "rope",
}  # fmt: skip


def is_posenc_config(config: Config) -> bool:
    """Whether a configuration is one of posenc's own."""
    return config.get("model_type") == MODEL_TYPE


class AttachedNames(NamedTuple):
    """Encodings that `posenc.hf.attach` has put into layers of a saved model, in the place of its rotation.

    Attributes:
        words: their names.
        layers: by number from 0; None: every layer with attention.
    """

    words: str
    layers: frozenset[int] | None

    def acts_in(self, layer: int) -> bool:
        """Whether a layer has them."""
        return self.layers is None or layer in self.layers


def attached_names(config: Config) -> AttachedNames | None:
    """What is attached to the model of a configuration; None where that is nothing."""
    block = config.get("posenc")
    lines = block.get("encodings", block.get("built_in_python")) if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(lines, list):
        return None
    names = [str(line.get("name")) if isinstance(line, dict) else str(line) for line in lines]
    layers = block.get("layers")
    numbers = (
        frozenset(layer for layer in layers if type(layer) is int) if isinstance(layers, list) else frozenset[int]()
    )
    return AttachedNames(" + ".join(names) or "none (NoPE)", numbers or None)
