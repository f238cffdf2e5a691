"""The kind of each layer of a model and the window of each kind, from the config or from the model type's record."""

from __future__ import annotations

from typing import Any

from posenc.arguments import shown
from posenc.hf.config.text_config import TextConfig, count_at, flag_at, single_count_at
from posenc.hf.families.layer_patterns import (
    CHUNKED,
    CROSS,
    FULL,
    INDEXED,
    LINEAR,
    SLIDING,
    WINDOWED,
    Listing,
)
from posenc.hf.limits import LAYERS, TOKENS, is_count

_COUNTS = ("num_hidden_layers", "n_layer", "n_layers")
_LETTERS = {"L": SLIDING, "G": FULL}
_CAUSAL_CLASSES = ("ForCausalLM", "LMHeadModel")
_OLD_NAMES = {  # of version 4, which transformers 5.23 replaces as it reads them
    "attention": FULL, "mamba": LINEAR, "recurrent": LINEAR, "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}  # fmt: skip


def layer_kinds(text_config: TextConfig) -> list[str]:
    """The kind of each layer; empty where the config does not say how many there are, or of which kinds.

    Raises:
        ValueError: for a list that does not name a kind for each layer; it names the key.
    """
    pattern = text_config.family.layers
    keys = (pattern.count_key, *_COUNTS) if pattern.count_key else _COUNTS
    counts = ((key, single_count_at(text_config, key, LAYERS)) for key in keys)
    counted, count = next(((key, n) for key, n in counts if n is not None), ("", None))
    if count is not None and counted == pattern.count_key:
        count *= pattern.per_count
    if text_config.family.attention.direction == "none":
        return [LINEAR] * (count or 0)
    for key in dict.fromkeys((pattern.types_key, "layer_types", "layers_block_type")):
        types = text_config.get(key)
        if types is None:
            continue
        if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
            raise ValueError(f"{text_config.key_path(key)} must be a list of strings or null, found {shown(types)}")
        if count is not None and len(types) != count and key == "layer_types":
            text = f"must list as many layers as num_hidden_layers = {count}, found {len(types)}"
            raise ValueError(f"{text_config.key_path(key)} {text}")
        kinds = [str(_OLD_NAMES.get(kind, kind)) for kind in types]
        return [pattern.full_is if kind == FULL else kind for kind in kinds]
    blocks = text_config.get("block_configs")  # Nemotron-NAS: each layer with the attention that a search left it
    if isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks):
        return ["mlp" if _is_no_op(block.get("attention")) else FULL for block in blocks]
    if pattern.listing is not None and (listed := _listed(text_config, pattern.listing, count)) is not None:
        return listed
    if count is None or pattern.only_listed:
        return []
    kinds = patterned(text_config, count)
    for number in _crossing(text_config, count):
        kinds[number] = CROSS
    return kinds


def patterned(text_config: TextConfig, count: int) -> list[str]:
    """The kinds as the family's code sets them where a config lists none."""
    pattern = text_config.family.layers
    period = sliding_from = None
    letters = text_config.get(pattern.period_key) if pattern.period_key else None
    if isinstance(letters, str) and letters and set(letters) <= set(_LETTERS):  # of other programs: "LLLG"
        return [_LETTERS[letters[layer % len(letters)]] for layer in range(count)]
    if pattern.period_key and pattern.period_key in text_config:
        period = count_at(text_config, pattern.period_key, LAYERS)
    if pattern.sliding_from_key:
        sliding_from = count_at(text_config, pattern.sliding_from_key, LAYERS)
    windowed = _window_size(text_config) is not None
    return pattern.kinds(count, period=period, sliding_from=sliding_from, windowed=windowed)


def half_counts(text_config: TextConfig) -> tuple[int | None, int | None]:
    """The numbers of layers of the encoder and of the decoder; None where the config does not say."""
    first, second = (_count_inside(text_config, key) for key in text_config.family.layer_keys)
    return first, (first if second is None and text_config.family.layer_keys[0] == "num_layers" else second)


def _count_inside(text_config: TextConfig, key: str) -> int | None:
    """The count under a key, which may lead into an object ("encoder_config.num_hidden_layers")."""
    outer, _, inner = key.rpartition(".")
    if not outer:
        return single_count_at(text_config, key, LAYERS)
    part = text_config.get(outer)
    count = part.get(inner) if isinstance(part, dict) else None
    return count if is_count(count, LAYERS) else None


def _listed(text_config: TextConfig, listing: Listing, count: int | None) -> list[str] | None:
    """The kinds of the layers by a family's own keys; None where the config has none of them.

    Raises:
        ValueError: for such a key that cannot be understood; it names the key.
    """
    outer = text_config.config if not listing.parent else text_config.get(listing.parent)
    value = outer.get(listing.key, listing.default) if isinstance(outer, dict) else listing.default
    name = text_config.key_path(*filter(None, (listing.parent, listing.key)))
    if value is None and (listing.default is None or listing.form == "period"):
        return None
    if listing.form == "letters":
        return _by_letters(name, value, listing)
    if listing.form == "spans":
        return _by_spans(name, value, listing)
    if count is None:
        return None
    if listing.form == "codes":
        return _by_codes(name, value, listing, count)
    if listing.form == "numbers":
        return _by_numbers(name, [] if value is None else value, listing, count)
    period = count_at(text_config, listing.key, LAYERS) if listing.key in text_config else listing.default
    offset = text_config.get(listing.offset_key, listing.offset)
    if period is None or type(offset) is not int or not 0 <= offset < period:
        text = f"must be an integer from 0 below {listing.key} = {period}, found {shown(offset)}"
        raise ValueError(f"{text_config.key_path(listing.offset_key)} {text}")
    return [FULL if layer % period == offset else LINEAR for layer in range(count)]


def _by_letters(name: str, value: Any, listing: Listing) -> list[str]:
    if not isinstance(value, str) or set(value) - set(listing.names):
        raise ValueError(f"{name} must be a string of the letters {''.join(listing.names)}, found {shown(value)}")
    return [listing.names[letter] for letter in value]


def _by_spans(name: str, value: Any, listing: Listing) -> list[str]:
    """GPT-Neo's: pairs of a list of kinds and the number of times that it repeats."""
    kinds: list[str] = []
    spans: list[Any] = value if isinstance(value, list) else [None]
    for span in spans:
        pair = isinstance(span, list) and len(span) == 2 and isinstance(span[0], list) and is_count(span[1], LAYERS)
        if not pair or not all(isinstance(kind, str) and kind in listing.names for kind in span[0]):
            text = f"must be a list of pairs, kinds ({', '.join(listing.names)}) and how often they repeat"
            raise ValueError(f"{name} {text}, found {shown(value)}")
        kinds += [listing.names[kind] for kind in span[0]] * span[1]
    return kinds


def _by_codes(name: str, value: Any, listing: Listing, count: int) -> list[str]:
    known = isinstance(value, list) and all(type(code) is int and code in listing.names for code in value)
    if not known or (len(value) != count if listing.exact else len(value) < count):
        codes = ", ".join(map(str, listing.names))
        raise ValueError(f"{name} must be a list of {codes}, one for each of {count} layers, found {shown(value)}")
    return [listing.names[code] for code in value[:count]]


def _is_no_op(attention: Any) -> bool:
    return isinstance(attention, dict) and bool(attention.get("no_op") or attention.get("replace_with_linear"))


def _by_numbers(name: str, value: Any, listing: Listing, count: int) -> list[str]:
    """One kind in the layers of a list of numbers, full attention if no other is named, and another between them."""
    first, last = listing.first, count + listing.first - 1
    listed, others = listing.names.get("listed", FULL), listing.names.get("others", LINEAR)
    if not isinstance(value, list) or not all(type(layer) is int and first <= layer <= last for layer in value):
        raise ValueError(f"{name} must be a list of numbers of layers, {first} to {last}, found {shown(value)}")
    return [listed if layer + first in value else others for layer in range(count)]


def _crossing(text_config: TextConfig, count: int) -> list[int]:
    """Layers that attend to an image instead of the text."""
    key = text_config.family.layers.cross_key
    layers = text_config.get(key) if key else None
    if layers is None:
        return []
    if not isinstance(layers, list) or not all(type(layer) is int and layer >= 0 for layer in layers):
        raise ValueError(
            f"{text_config.key_path(key)} must be a list of numbers of layers or null, found {shown(layers)}"
        )
    return [layer for layer in layers if layer < count]


def window_key(text_config: TextConfig) -> str | None:
    """The key of the window that the config has."""
    window = text_config.family.layers.window
    keys = (window.key, "sliding_window")  # of which ModernBERT's classes take the second where a file has both
    return next((key for key in (keys[::-1] if window.halved else keys) if key in text_config), None)


def _window_size(text_config: TextConfig) -> int | None:
    """The number of tokens that the config or the family gives a window; None where there is none.

    Raises:
        ValueError: for what is no number of tokens.
    """
    window = text_config.family.layers.window
    if window.switch and not flag_at(text_config, window.switch):
        return None
    key = window_key(text_config)
    if key is not None and text_config[key] is None and window.excludes_itself and key == window.key:
        key = "sliding_window" if "sliding_window" in text_config else None
    value = None if key is None else text_config[key]
    if isinstance(value, list) and window.halved:  # Longformer's, a window a layer
        value = value[0] if value and all(size == value[0] for size in value) else None
        size = value if is_count(value, TOKENS) else None
    elif key is None:
        size = window.size
    elif value in (0, False):  # as Qwen 2 saves no window
        size = None
    else:
        size = count_at(text_config, key, TOKENS)
    if size is None:
        return None
    if window.excludes_itself and key == window.key:
        return size + 1
    return size // 2 if window.halved and key != "sliding_window" else size


def has_window_a_layer(text_config: TextConfig) -> bool:
    """Whether the config lists windows that differ between layers, as Longformer's may; they are not read."""
    sizes = text_config.get(text_config.family.layers.window.key)
    return isinstance(sizes, list) and any(size != sizes[0] for size in sizes)


def window_of(text_config: TextConfig, kind: str) -> tuple[int | None, int]:
    """Tokens that a layer attends to at and before each position, None for all, and how many after it.

    A layer of chunked attention attends to its chunk up to the token, at most that many.
    """
    pattern = text_config.family.layers
    if kind == CHUNKED:
        chunk = count_at(text_config, "attention_chunk_size", TOKENS)
        return (chunk if "attention_chunk_size" in text_config else pattern.chunk), 0
    size = _window_size(text_config)
    if size is None or not (pattern.window.every_layer or kind in WINDOWED):
        return None, 0
    if _made_bidirectional(text_config):  # half before a token and half after it
        size = size // 2 + 1
        return size, size - 1
    if not (pattern.window.sides and attends_ahead(text_config)):
        return size, 0
    return ((size + 1) // 2, size // 2) if pattern.window.sides == "shared" else (size + 1, size)


def lacks_window(text_config: TextConfig, kind: str) -> bool:
    """Whether the code restricts layers of this kind to a window or a chunk that the config does not give.

    transformers 5.23 raises for null, and for 0 as soon as a cache is used; without one, 0 lets every token attend to
    all tokens, those after it too. Families without a default window take null, but not 0, for none.
    """
    if not text_config.known:
        return False
    pattern = text_config.family.layers
    if kind == CHUNKED:
        return text_config.get("attention_chunk_size", pattern.chunk) in (None, 0)
    if kind in WINDOWED:
        return window_of(text_config, kind)[0] is None
    return pattern.window.every_layer and text_config.get(window_key(text_config) or "") == 0


def attends_ahead(text_config: TextConfig) -> bool:
    """Whether tokens attend to those after them, as in encoders; ``is_decoder`` makes a decoder of an encoder."""
    direction = text_config.family.attention.direction
    encoder = direction == "bidirectional" and not flag_at(text_config, "is_decoder")
    return encoder or direction == "encoder-decoder" or _made_bidirectional(text_config)


def is_causal(text_config: TextConfig) -> bool | None:
    """Whether a token attends to none after it; of an encoder and decoder the latter; None where that is not read.

    Of a model type without a record only the name of its class tells: a model "ForCausalLM" is causal.
    """
    direction, decoder = text_config.family.attention.direction, flag_at(text_config, "is_decoder")
    if direction == "encoder-decoder":
        return True if text_config.known or decoder else None
    if direction in ("causal", "bidirectional") and (text_config.known or text_config.family.schemes):
        return not attends_ahead(text_config)
    named_so = any(str(name).endswith(_CAUSAL_CLASSES) for name in _architectures(text_config))
    unknown = not (text_config.known or text_config.family.schemes)
    return True if decoder or (unknown and named_so) else None


def _architectures(text_config: TextConfig) -> list[Any]:
    names = text_config.get("architectures")
    return names if isinstance(names, list) else []


def _made_bidirectional(text_config: TextConfig) -> bool:
    """Whether a key makes a bidirectional model of a family of decoders, as in EmbeddingGemma.

    Source: transformers 5.23, Gemma3TextConfig and Gemma4TextConfig: the window is then ``sliding_window // 2 + 1``
    tokens to each side, the token itself among them.
    """
    value = text_config.family.attention.bidirectional_if
    return value is not None and text_config.get("use_bidirectional_attention") == value
