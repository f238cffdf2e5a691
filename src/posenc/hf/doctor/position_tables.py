"""Compares tables of positions with the config: rows of learned tables, buckets, relative tables, patches.

learned          (rows, H), with the rows that the code adds (OPT, BART: 2), by `posenc.hf.config.non_rotary`
patches          (1, prefix + patches, H) or (rows, H), patches = (image_size // patch_size)²
T5's buckets     (num_buckets, heads)
Shaw's, of keys  (2 · max_position_embeddings - 1, D) in BERT's family; (left + right + 1, D) in Wav2Vec2-BERT
DeBERTa          (2 · buckets, H)
BEiT, Swin       ((2h - 1)(2w - 1) + 3 for the class token in BEiT, heads)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from posenc.hf.config.non_rotary import SchemeFacts, position_schemes
from posenc.hf.config.text_config import find_text_config
from posenc.hf.doctor.attention_shapes import Mismatch
from posenc.hf.doctor.head_sizes import head_sizes
from posenc.hf.doctor.model_parts import Part, Shape
from posenc.hf.families import NON_ROTARY
from posenc.hf.families.saved_tensors import WITHOUT_TABLE_RULES
from posenc.hf.limits import TOKENS, is_count

TABLE = re.compile(r"(?:^|\.)(wpe|positions_embed|position_embeddings?|embed_positions|pos_embed)(\.weight)?$")
_BUCKETS = re.compile(r"(?:^|\.)(relative_attention_bias|rel_attn_embed)\.weight$")
_SHAW = re.compile(r"(?:^|\.)distance_embedding\.weight$")
_DEBERTA = re.compile(r"(?:^|\.)rel_embeddings\.weight$")
_WINDOW = re.compile(r"(?:^|\.)relative_position_bias_table$")
_PATCH = re.compile(r"(?:^|\.)(patch_embeddings\.projection|patch_embedding|patch_embed\.proj)\.weight$")
_SIDES = {  # words in front of a scheme, and the roles and words of tensors that they stand for
    "encoder": ("encoder",), "audio": ("encoder",), "decoder": ("decoder",), "text": ("decoder", "text", ""),
    "image": ("image", "vision", "patch"),
}  # fmt: skip


_ALWAYS_BUCKETS = ("t5", "mt5", "umt5", "switch_transformers", "mpnet")


def on_tables(part: Part, covered: set[str]) -> Iterator[Mismatch]:
    """Tables whose size contradicts the config; adds the tensors looked at to ``covered``."""
    if part.config.model_type in WITHOUT_TABLE_RULES:
        return
    schemes = position_schemes(part.config, part.config.config)
    if part.is_tower and not schemes and part.root.get("model_type") in NON_ROTARY:  # whose record has both parts
        both = position_schemes(find_text_config(part.root), part.root)
        schemes = tuple(scheme for scheme in both if scheme.text.startswith("image:"))
    yield from _on_learned(part, schemes, covered)
    yield from _on_buckets(part, schemes, covered)
    yield from _on_relative(part, covered)
    yield from _on_patches(part, covered)


def everywhere(part: Part, pattern: re.Pattern[str]) -> dict[str, tuple[Shape, int | None]]:
    """The tensors of a part whose names match: shape and number of the layer, by the whole name."""
    tensors: dict[str, tuple[Shape, int | None]] = {
        name: (shape, None) for name, shape in part.outside.items() if pattern.search(name)
    }
    for number, layer in part.layers.items():
        tensors |= {
            part.name_of(number, rest): (shape, number) for rest, shape in layer.items() if pattern.search(rest)
        }
    return tensors


def _fits(scheme: SchemeFacts, part: Part, name: str) -> bool:
    """Whether a scheme of one side of a model ("encoder: ...") is the scheme of this tensor."""
    side, colon, _ = scheme.text.partition(":")
    if not colon or side not in _SIDES:
        return True
    words = set(re.split(r"[._]", name))
    return part.role in _SIDES[side] if part.role else bool(words & set(_SIDES[side])) or "" in _SIDES[side]


def _on_learned(part: Part, schemes: tuple[SchemeFacts, ...], covered: set[str]) -> Iterator[Mismatch]:
    sized = [scheme for scheme in schemes if scheme.rows is not None]
    tables = {name: shape for name, (shape, layer) in everywhere(part, TABLE).items() if layer is None}
    tables = {name: shape for name, shape in tables.items() if len(shape) in (2, 3, 4)}
    for name, shape in tables.items():
        rows = shape[-2] if len(shape) < 4 else shape[1] * shape[2]
        fitting = [scheme for scheme in sized if _fits(scheme, part, name)] or _by_key(part, name)
        if not fitting:
            continue
        covered.add(name)
        if any(rows == scheme.rows for scheme in fitting):
            continue
        yield _table_mismatch(part, fitting[0], name, rows)
    if sized and not tables and part.layers and all("Learned(" in scheme.builds for scheme in sized):
        text = f"are missing: this model type has a learned table of {sized[0].rows:,} rows, which now starts at random"
        yield Mismatch("position-table-missing", "position embeddings", text, part)


def _by_key(part: Part, name: str) -> list[SchemeFacts]:
    """The table of a tower whose config gives the rows themselves (Qwen3-VL's, Whisper's)."""
    keys = {"pos_embed.weight": "num_position_embeddings", "embed_positions.weight": "max_source_positions"}
    key = next((key for ending, key in keys.items() if name.endswith(ending)), "")
    rows = part.config.get(key)
    return [SchemeFacts("", rows=rows, key=key)] if part.is_tower and is_count(rows, TOKENS) else []


def _table_mismatch(part: Part, scheme: SchemeFacts, name: str, rows: int) -> Mismatch:
    """A table with other rows than the config says, and the number that would agree."""
    assert scheme.rows is not None
    value, config = rows - scheme.added, part.config.config
    added = f", and the code adds {scheme.added}" if scheme.added else ""
    if scheme.key == "image_size":
        patch = config.get("patch_size")
        side = math.isqrt(max(0, value))
        size: Any = side * patch if is_count(patch, TOKENS) and side * side == value > 0 else None
        image_size = config.get("image_size")
        text = (
            f"is {image_size} with patch_size {patch}, which makes {scheme.rows:,} rows{added}, but {name} has {rows:,}"
        )
        text += "" if size is None else f" = {side} × {side} patches{f' and {scheme.added}' if scheme.added else ''}"
        text += ": the file does not load"
        candidates = () if size is None or isinstance(image_size, list) else (({"image_size": size}, True),)
        return Mismatch("position-table-differs", "image_size", text, part, candidates=candidates)
    number = config.get(scheme.key)
    value_text = f"is {number:,}" if is_count(number) else f"is not given, which means {scheme.rows - scheme.added:,}"
    text = f"{value_text} ({scheme.rows:,} rows{added}), but {name} has {rows:,}"
    if value < 1:
        return Mismatch("position-table-differs", scheme.key, f"{text}: the file does not load", part)
    if scheme.added and rows == number:
        text += f": the {scheme.added} rows in front of the first position are lost, and each token would read the "
        text += "row of another position"
        return Mismatch("position-table-differs", scheme.key, text, part)
    text += ": the file does not load"
    return Mismatch("position-table-differs", scheme.key, text, part, candidates=(({scheme.key: value}, True),))


def _on_buckets(part: Part, schemes: tuple[SchemeFacts, ...], covered: set[str]) -> Iterator[Mismatch]:
    scheme = next((scheme for scheme in schemes if scheme.buckets is not None and _fits(scheme, part, part.role)), None)
    sizes = head_sizes(part)[0]
    groups: dict[tuple[str, Shape], list[int]] = {}
    if part.config.model_type in _ALWAYS_BUCKETS and part.layers and not everywhere(part, _BUCKETS):
        text = "is missing: attention of this model type has a learned bias for each bucket of distances, which now "
        text += "starts at random, and nothing else tells it where a token is"
        yield Mismatch("position-table-missing", "relative_attention_bias", text, part)
    for name, (shape, layer) in everywhere(part, _BUCKETS).items():
        if scheme is None or len(shape) != 2:
            continue
        covered.add(name)
        short = name if layer is None else name.removeprefix(part.name_of(layer, ""))
        groups.setdefault((short, shape), []).extend([] if layer is None else [layer])
    for (name, shape), numbers in groups.items():
        assert scheme is not None
        if shape[0] != scheme.buckets:
            key = scheme.key or "relative_attention_num_buckets"
            text = f"is {scheme.buckets}, but {name} has {shape[0]:,} rows: the file does not load, or distances fall "
            text += "into other buckets than in training"
            candidates = (({key: shape[0]}, True),) if scheme.key else ()
            yield Mismatch("buckets-differ", key, text, part, tuple(sorted(numbers)), candidates)
        elif sizes.heads is not None and shape[1] != sizes.heads.value:
            text = f"is {sizes.heads.value}, but {name} has {shape[1]:,} columns, one for each head: the file does "
            text += "not load"
            yield Mismatch("buckets-differ", sizes.heads.key, text, part, tuple(sorted(numbers)))


def _on_relative(part: Part, covered: set[str]) -> Iterator[Mismatch]:
    """Tables of relative distances: rows by the keys that bound the distance."""
    config = part.config.config
    rows_by_name: dict[str, tuple[list[int], str]] = {}
    for name in everywhere(part, _SHAW):
        left, right = config.get("left_max_position_embeddings"), config.get("right_max_position_embeddings")
        longest = config.get("max_position_embeddings")
        if is_count(left) and is_count(right):
            rows_by_name[name] = [left + right + 1], "left_max_position_embeddings"
        elif str(config.get("position_embedding_type", "")).startswith("relative") and is_count(longest):
            rows_by_name[name] = [2 * longest - 1], "max_position_embeddings"
    for name in everywhere(part, _DEBERTA):
        buckets, longest = config.get("position_buckets"), config.get("max_relative_positions")
        if not is_count(longest):
            longest = config.get("max_position_embeddings")
        count = buckets if is_count(buckets) else longest
        if config.get("relative_attention") and is_count(count):
            rows_by_name[name] = [2 * count], "position_buckets" if is_count(buckets) else "max_relative_positions"
    for name in everywhere(part, _WINDOW):
        expected, key = _window_rows(part)
        if expected is not None:
            rows_by_name[name] = [expected], key
    shapes = {name: shape for pattern in (_SHAW, _DEBERTA, _WINDOW) for name, (shape, _) in
              everywhere(part, pattern).items()}  # fmt: skip
    for name, (allowed, key) in rows_by_name.items():
        covered.add(name)
        if not shapes[name]:
            continue
        rows = shapes[name][0]
        if rows not in allowed:
            text = f"is {config.get(key)}, which makes {allowed[0]:,} rows, but {name} has {rows:,}: "
            text += "the file does not load"
            yield Mismatch("relative-table-differs", key, text, part)
            return  # each layer has the same table


def _window_rows(part: Part) -> tuple[int | None, str]:
    """The rows of a table of offsets within a window, and the key that decides them."""
    config, model_type = part.config.config, part.config.model_type
    if model_type in ("beit", "data2vec-vision"):
        image, patch = config.get("image_size"), config.get("patch_size")
        if is_count(image) and is_count(patch):
            return (2 * (image // patch) - 1) ** 2 + 3, "image_size"
    elif model_type in ("swin", "donut-swin", "maskformer-swin") and is_count(config.get("window_size")):
        return (2 * config["window_size"] - 1) ** 2, "window_size"
    return None, ""


def _on_patches(part: Part, covered: set[str]) -> Iterator[Mismatch]:
    """The kernel of the convolution that makes patches has the size of a patch."""
    size = part.config.get("patch_size")
    for name, (shape, layer) in everywhere(part, _PATCH).items():
        if layer is not None or len(shape) != 4 or not is_count(size):
            continue
        covered.add(name)
        if shape[2:] != (size, size):
            text = f"is {size}, but {name} has a kernel of {shape[2]} × {shape[3]}: the file does not load"
            fits = shape[2] == shape[3]
            yield Mismatch("patch-size-differs", "patch_size", text, part,
                           candidates=(({"patch_size": shape[2]}, True),) if fits else ())  # fmt: skip
