"""Position encodings in the place of a rotation, with the numbers of the config: rows of tables, buckets.

Of model types that do not rotate; of posenc's own models, whose encodings need torch
(`posenc.hf.config.encoding_spec`); and those that `posenc.hf.attach` has put into a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from posenc.hf.config.text_config import TextConfig, flag_at
from posenc.hf.families import FAMILIES, Family
from posenc.hf.families.position_schemes import (
    ALIBI,
    ALIBI_SCALED,
    SINUSOIDAL,
    SWITCHED_OFF,
    Buckets,
    PatchTable,
    PositionScheme,
    Table,
)
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.sources.load import Config

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
