"""What each layer of a model does with positions: rotation, window, temperature, sink, widths, scale of the softmax.

`ModelFacts.layers` has it for each layer. A configuration that does not say how many layers there are, or of which
kinds, gives the kinds alone.
Source: transformers 5.23, the attention of each family; held against live modules by tests/reference/test_families.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.config.rope_keys import ALL, BLOCKS
from posenc.hf.config.rotation import Rotation, built
from posenc.hf.config.text_config import TextConfig, count_at, flag_at, layers_without_rope
from posenc.hf.families.family import (
    BLOCK_SPARSE,
    COMPRESSED,
    CROSS,
    FULL,
    HEAVILY_COMPRESSED,
    INDEXED,
    KINDS,
    LINEAR,
    SLIDING,
    WINDOWED,
    Listing,
    TemperatureRule,
)
from posenc.hf.families.family import CHUNKED as CHUNKED
from posenc.hf.limits import LAYERS, TOKENS, is_count, is_number

if TYPE_CHECKING:
    from posenc.rotary.mrope import MRoPE
    from posenc.rotary.rope import RoPE
    from posenc.score.temperature import Temperature

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
    counts = ((key, count_at(text_config, key, LAYERS)) for key in keys)
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
        if pattern.last_full == "always" and key == "layer_types":
            kinds[-1:] = [FULL] * bool(kinds)
        return [pattern.full_is if kind == FULL else kind for kind in kinds]
    blocks = text_config.get("block_configs")  # Nemotron-NAS: each layer with the attention that a search left it
    if isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks):
        without = [block["attention"] if isinstance(block.get("attention"), dict) else {} for block in blocks]
        return ["mlp" if part.get("no_op") or part.get("replace_with_linear") else FULL for part in without]
    if pattern.listing is not None and (listed := _listed(text_config, pattern.listing, count)) is not None:
        return listed
    if count is None or pattern.only_listed:
        return []
    kinds = patterned(text_config, count)
    for number in _crossing(text_config, count) if text_config.family.layers.cross_key else ():
        kinds[number] = CROSS
    return kinds


def patterned(text_config: TextConfig, count: int) -> list[str]:
    """The kinds as the family's code sets them where a config lists none: a cycle, whose period a key may set."""
    pattern = text_config.family.layers
    period, first_sliding = None, pattern.sliding_from
    letters = text_config.get(pattern.period_key) if pattern.period_key else None
    if isinstance(letters, str) and letters and set(letters) <= set(_LETTERS):  # of other programs: "LLLG"
        return [_LETTERS[letters[layer % len(letters)]] for layer in range(count)]
    if pattern.period_key and pattern.period_key in text_config:
        period = count_at(text_config, pattern.period_key, LAYERS)
    if pattern.sliding_from_key:
        first_sliding = count_at(text_config, pattern.sliding_from_key, LAYERS) or first_sliding
    windowed = _window_size(text_config) is not None
    if pattern.by_rotation is not None:
        unrotated = layers_without_rope(text_config)
        kinds = [pattern.by_rotation[layer in unrotated] for layer in range(count)]
        return [FULL if kind == SLIDING and not windowed else kind for kind in kinds]
    cycle = pattern.cycle or (FULL,)
    if pattern.sliding_from_key and (windowed or pattern.cycle):
        last = first_sliding if windowed else 0  # of Qwen 2's experts, which have a cycle
        in_cycle = [cycle[layer % len(cycle)] if layer < last else FULL for layer in range(count)]
        return in_cycle if pattern.cycle else [SLIDING if layer >= first_sliding else FULL for layer in range(count)]
    if period is not None:
        ends_full = cycle[-1] == FULL
        rest = (cycle[0] if ends_full else cycle[-1],) * (period - 1)
        cycle = (*rest, FULL) if ends_full else (FULL, *rest)
    if windowed and pattern.window.every_layer and not pattern.cycle:
        cycle = (SLIDING,)
    kinds = [cycle[layer % len(cycle)] for layer in range(count)]
    if pattern.anchored_at_end:
        kinds.reverse()
    if kinds and pattern.last_full:
        kinds[-1] = pattern.full_is
    if kinds and pattern.first_full:
        kinds[0] = pattern.full_is
    return kinds


def half_counts(text_config: TextConfig) -> tuple[int | None, int | None]:
    """The numbers of layers of the encoder and of the decoder; None where the config does not say."""
    first, second = (_count_inside(text_config, key) for key in text_config.family.layer_keys)
    return first, (first if second is None and text_config.family.layer_keys[0] == "num_layers" else second)


def _count_inside(text_config: TextConfig, key: str) -> int | None:
    """The count under a key, which may lead into an object ("encoder_config.num_hidden_layers")."""
    outer, _, inner = key.rpartition(".")
    if not outer:
        return count_at(text_config, key, LAYERS)
    part = text_config.get(outer)
    count = part.get(inner) if isinstance(part, dict) else None
    return count if is_count(count, LAYERS) else None


def _listed(text_config: TextConfig, listing: Listing, count: int | None) -> list[str] | None:
    """The kinds of the layers by a family's own keys; None where the config has none of them.

    Raises:
        ValueError: for such a key that cannot be understood; it names the key.
    """
    outer = text_config if not listing.parent else text_config.get(listing.parent)
    value = outer.get(listing.key, listing.default) if isinstance(outer, dict) else listing.default
    name = text_config.key_path(*filter(None, (listing.parent, listing.key)))
    if value is None and (listing.default is None or listing.form == "period"):
        return None
    if listing.form == "letters":
        if not isinstance(value, str) or set(value) - set(listing.names):
            raise ValueError(f"{name} must be a string of the letters {''.join(listing.names)}, found {shown(value)}")
        return [listing.names[letter] for letter in value]
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


def _by_numbers(name: str, value: Any, listing: Listing, count: int) -> list[str]:
    """One kind in the layers of a list of numbers, full attention if no other is named, and another between them."""
    first, last = listing.first, count + listing.first - 1
    listed, unlisted = listing.names.get("listed", FULL), listing.names.get("others", LINEAR)
    if not isinstance(value, list) or not all(type(layer) is int and first <= layer <= last for layer in value):
        raise ValueError(f"{name} must be a list of numbers of layers, {first} to {last}, found {shown(value)}")
    return [listed if layer + first in value else unlisted for layer in range(count)]


def _crossing(text_config: TextConfig, count: int) -> list[int]:
    """Layers that attend to an image instead of the text."""
    key = text_config.family.layers.cross_key
    layers = text_config.get(key)
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
    made_so = text_config.family.attention.bidirectional_if is not None
    if not (pattern.window.sides or made_so) or not attends_ahead(text_config):
        return size, 0
    if made_so:  # Gemma3TextConfig and Gemma4TextConfig: that many to each side, the token itself among them
        return size // 2 + 1, size // 2
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
    """Whether tokens attend to those after them, as in encoders.

    ``is_decoder`` makes a decoder of an encoder, and ``use_bidirectional_attention`` an encoder of a decoder.
    """
    direction = text_config.family.attention.direction
    encoder = direction == "bidirectional" and not flag_at(text_config, "is_decoder")
    made_so = text_config.family.attention.bidirectional_if
    return (
        encoder or direction == "encoder-decoder"
        or (made_so is not None and text_config.get("use_bidirectional_attention") == made_so)
    )  # fmt: skip


def is_causal(text_config: TextConfig) -> bool | None:
    """Whether a token attends to none after it; of an encoder and decoder the latter; None where that is not read.

    Of a model type without a record only the name of its class tells: a model "ForCausalLM" is causal.
    """
    direction, decoder = text_config.family.attention.direction, flag_at(text_config, "is_decoder")
    if direction == "encoder-decoder":
        return True if text_config.known or decoder else None
    if direction in ("causal", "bidirectional") and (text_config.known or text_config.family.schemes):
        return not attends_ahead(text_config)
    names = text_config.get("architectures")
    named_so = isinstance(names, list) and any(str(name).endswith(_CAUSAL_CLASSES) for name in names)
    unknown = not (text_config.known or text_config.family.schemes)
    return True if decoder or (unknown and named_so) else None


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


class LayerFacts(NamedTuple):
    """The positional facts of one kind of layers.

    Attributes:
        kind: the name of the kind, as the configuration has it.
        attends: whether it has attention.
        spec: what rotates it, without torch; None where it does not rotate.
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
        rotated_by: the kind whose block says what rotates it; None where it does not rotate.
    """

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
    rotated_by: str | None = None

    @property
    def rotation(self) -> RoPE | MRoPE | None:
        """What rotates it, `RoPE` or `MRoPE`, a module of torch; None where it does not rotate."""
        return None if self.spec is None else built(self.spec)


def forced_to_rotate(text_config: TextConfig) -> list[int]:
    """Layers of Cohere 2 with experts that rotate though they are full: dense ones at the beginning."""
    types = text_config.get("mlp_layer_types")
    if not isinstance(types, list):
        return []
    without_window = text_config.get("prefix_dense_sliding_window_pattern", 1) == 1
    return [n for n, kind in enumerate(types) if without_window and kind == "dense"]


_PARTIAL_KINDS = {  # kinds of layers that attend to less than their mask shows
    INDEXED: "sparse attention to the {index_topk} keys that an indexer picks (DSA)",
    COMPRESSED: "compressed tokens next to the window, of which an indexer picks {index_topk}",
    HEAVILY_COMPRESSED: "compressed tokens next to the window",
    BLOCK_SPARSE: "blocks of keys that an indexer picks",
}


def unread_restriction(text_config: TextConfig, kind: str) -> str:
    """What restricts the attention of a kind of layers and is not read, in words; "" where that is nothing."""
    if lacks_window(text_config, kind):
        return "the window, which is not given and without which transformers fails"
    if text_config.known and kind not in KINDS and kind != ALL:
        return f"what layers of kind {shown(kind)} attend to: transformers does not know the kind"
    if kind in _PARTIAL_KINDS:
        picked = index_topk(text_config)
        return _PARTIAL_KINDS[kind].format(index_topk="index_topk" if picked is None else f"{picked:,}")
    sizes = text_config.get(text_config.family.layers.window.key)
    if isinstance(sizes, list) and any(size != sizes[0] for size in sizes):  # as Longformer's may
        return f"{text_config.family.layers.window.key}, which differs between layers"
    attention, condition = text_config.family.attention, text_config.family.attention.partial_if
    if condition is not None and text_config.get(condition[0], condition[2]) != condition[1]:
        return ""
    numbers = {
        key: count_at(text_config, key, TOKENS) or default for key, default in attention.partial_defaults.items()
    }
    return attention.partial.format(**numbers)


def index_topk(text_config: TextConfig) -> int | None:
    """The number of keys that an indexer picks for each query."""
    return count_at(text_config, "index_topk", TOKENS) or text_config.family.attention.top_k


def softcap_of(text_config: TextConfig, default: float) -> float | None:
    """The cap of a family whose code heeds one."""
    cap = text_config.get(SOFTCAP, default)
    if cap is not None and not is_number(cap, 0, above=True):
        raise ValueError(f"{text_config.key_path(SOFTCAP)} must be a number above 0 or null, found {shown(cap)}")
    return None if cap is None else float(cap)


# Temperatures


class TemperatureSpec(NamedTuple):
    """A factor on the queries that depends on the position p of each.

    Attributes:
        text: the factor in words.
        name: the class of posenc that computes it.
        options: arguments of that class.
    """

    text: str
    name: str
    options: dict[str, Any]

    @property
    def builds(self) -> str:
        """The call of posenc that builds it."""
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"

    def build(self) -> Temperature:
        """The encoding; learned numbers begin as the class begins them."""
        from posenc.score import temperature  # torch

        encoding: Temperature = getattr(temperature, self.name)(**self.options)
        return encoding


def temperature_of(text_config: TextConfig, rule: TemperatureRule | None) -> TemperatureSpec | None:
    """The temperature of the layers that have one, by the rule of the model type with the numbers of the config.

    None where the config disables it.

    Raises:
        ValueError: for a number that cannot be; it names the key.
    """
    if rule is None or (rule.switch and not text_config.get(rule.switch, True)):  # a released file has 4 for true
        return None
    if rule.form == "learned":
        heads = count_at(text_config, "num_attention_heads", TOKENS) or 64
        options: dict[str, Any] = {"num_heads": heads, "bias": True, "count": "position"}
        return TemperatureSpec("scale ln(p + 1) + bias, both learned a head", "SSMax", options)
    length, strength = _length_and_strength(text_config, rule)
    if length is None or strength is None:
        return None
    if rule.form == "power":
        text = f"(1 + (p + 1) / {length})^{strength:g}"
        return TemperatureSpec(text, "PowerTemperature", {"step": length, "power": strength})
    if rule.form == "log":
        text = f"1 + {strength:g} ln max(1, (p + 1) / {length})"
        return TemperatureSpec(text, "LogN", {"original_length": length, "strength": strength})
    text = f"1 + {strength:g} ln(1 + floor({'(p + 1)' if rule.offset else 'p'} / {length}))"
    return TemperatureSpec(text, "StepTemperature", {"step": length, "strength": strength, "offset": rule.offset})


def _length_and_strength(text_config: TextConfig, rule: TemperatureRule) -> tuple[int | None, float | None]:
    """The two numbers of a temperature: of Mistral's blocks, where both stand inside, or of keys outside a block."""
    keys: Mapping[str, Any] = text_config
    path: tuple[str, ...] = ()
    if rule.form == "block steps":
        keys = next((text_config[name] for name in BLOCKS if text_config.get(name)), text_config.rotation.block or {})
        path = ("rope_parameters",)
    strength = keys.get(rule.strength_key, None if path else rule.strength)
    if path and strength is None:
        return None, None
    length = keys.get(rule.length_key) if path else rule.length
    if not path and rule.length_key in text_config:
        length = count_at(text_config, rule.length_key, TOKENS)
    if not is_number(strength, 0):
        text = f"must be a number from 0, found {shown(strength)}"
        raise ValueError(f"{text_config.key_path(*path, rule.strength_key)} {text}")
    if path and not is_count(length, TOKENS):
        text = f"must be an integer in 1..{TOKENS} where the config has {rule.strength_key}, found {shown(length)}"
        raise ValueError(f"{text_config.key_path(*path, rule.length_key)} {text}")
    return length, float(strength)
