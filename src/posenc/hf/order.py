"""The kind of each layer of a model and the window of each kind, from its configuration or from the family's code."""

from __future__ import annotations

from posenc.hf.beside import BESIDE, CHUNKED, CROSS, LETTERS, PLAIN, WINDOWED, Beside
from posenc.hf.config.text_config import Section, count_at, flag_at, single_count_at
from posenc.hf.families import SAME_CODE
from posenc.hf.family import FULL, SLIDING
from posenc.hf.instead import WITHOUT_ATTENTION
from posenc.hf.limits import LAYERS, TOKENS, shown

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
_OLD = {  # names of version 4, which transformers 5.23 replaces as it reads them
    "attention": FULL, "mamba": "linear_attention", "recurrent": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention", "qwen_sparse_attention": "indexed_attention",
}  # fmt: skip


def beside_of(section: Section) -> Beside:
    """What the family's code does beside turning; of a family that is not known, nothing."""
    if section.model_type == "mistral" and "layer_types" in section.config:  # AutoConfig makes a Ministral of it
        return BESIDE["ministral"]
    name = SAME_CODE.get(section.model_type, section.model_type)
    names = (name, f"{name}_text")
    return next((BESIDE[name] for name in names if name in BESIDE), PLAIN)


def kinds_of(section: Section) -> list[str]:
    """The kind of each layer; empty where the configuration does not say how many there are, or of which kinds.

    Raises:
        ValueError: for a list that is none of names, one for each layer; it names the key.
    """
    line = beside_of(section)
    count = next((n for key in _LAYERS if (n := single_count_at(section, key, LAYERS)) is not None), None)
    if section.model_type in WITHOUT_ATTENTION:
        return ["linear_attention"] * (count or 0)
    for key in dict.fromkeys((line.types_key, "layer_types", "layers_block_type")):
        types = section.config.get(key)
        if types is None:
            continue
        if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
            raise ValueError(f"{section.named(key)} must be a list of strings or null, found {shown(types)}")
        if count is not None and len(types) != count and key == "layer_types":
            text = f"must list as many layers as num_hidden_layers = {count}, found {len(types)}"
            raise ValueError(f"{section.named(key)} {text}")
        return [str(_OLD.get(kind, kind)) for kind in types]
    attending = _attending(section, count)
    if attending is not None:
        return attending
    if count is None or line.listed:
        return []
    kinds = patterned(section, line, count)
    for number in _crossing(section, line, count):
        kinds[number] = CROSS
    return kinds


_COMPRESSED = {0: SLIDING, 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
_SPARSE = "sparse_attention_freq"
_LETTERS_OF_HYBRIDS = {"M": "linear_attention", "E": "moe", "*": FULL, "-": "mlp"}  # Nemotron-H's pattern


def _attending(section: Section, count: int | None) -> list[str] | None:
    """The kinds of the layers by the keys with which hybrids say which of them attend; None where there are none.

    Raises:
        ValueError: for such a key that cannot be understood; it names the key.
    """
    name, config = section.model_type, section.config
    if name == "nemotron_h" and "hybrid_override_pattern" in config:
        pattern = config["hybrid_override_pattern"]
        if not isinstance(pattern, str) or set(pattern) - set(_LETTERS_OF_HYBRIDS):
            letters = "".join(_LETTERS_OF_HYBRIDS)
            text = f"must be a string of the letters {letters}, found {shown(pattern)}"
            raise ValueError(f"{section.named('hybrid_override_pattern')} {text}")
        return [_LETTERS_OF_HYBRIDS[letter] for letter in pattern]
    if count is None:
        return None
    if name == "deepseek_v4" and "compress_ratios" in config:
        ratios = config["compress_ratios"]
        if not isinstance(ratios, list) or len(ratios) < count or set(map(str, ratios)) - set(map(str, _COMPRESSED)):
            text = f"must be a list of 0, 4 or 128, one for each layer, found {shown(ratios)}"
            raise ValueError(f"{section.named('compress_ratios')} {text}")
        return [_COMPRESSED[ratio] for ratio in ratios[:count]]
    if name == "jamba":
        period = count_at(section, "attn_layer_period", LAYERS) if "attn_layer_period" in config else 8
        offset = config.get("attn_layer_offset", 4)
        if period is None or type(offset) is not int or not 0 <= offset < period:
            text = f"must be an integer from 0 below attn_layer_period = {period}, found {shown(offset)}"
            raise ValueError(f"{section.named('attn_layer_offset')} {text}")
        return [FULL if layer % period == offset else "linear_attention" for layer in range(count)]
    if name == "bamba":
        return _numbered(section, "attn_layer_indices", config.get("attn_layer_indices") or [], count, first=0)
    linear = config.get("linear_attn_config")
    if name in ("kimi_linear", "kimi_k3") and isinstance(linear, dict) and "full_attn_layers" in linear:
        return _numbered(section, "linear_attn_config.full_attn_layers", linear["full_attn_layers"], count, first=1)
    sparse = config.get("sparse_attention_config")
    if name in ("minimax_m3_vl", "minimax_m3_vl_text") and isinstance(sparse, dict) and _SPARSE in sparse:
        flags = sparse[_SPARSE]
        if not isinstance(flags, list) or len(flags) != count or any(flag not in (0, 1) for flag in flags):
            text = f"must be a list of 0 and 1, one for each of {count} layers, found {shown(flags)}"
            raise ValueError(f"{section.named('sparse_attention_config', _SPARSE)} {text}")
        return ["minimax_m3_sparse" if flag else FULL for flag in flags]
    if name == "mimo_v2_flash":
        return [FULL if layer == 0 or (layer + 1) % 6 == 0 else SLIDING for layer in range(count)]
    return None


def _numbered(section: Section, key: str, layers: object, count: int, *, first: int) -> list[str]:
    """Full attention in the layers of a list of numbers, which count from ``first``; recurrent ones between."""
    last = count + first - 1
    if not isinstance(layers, list) or not all(type(one) is int and first <= one <= last for one in layers):
        text = f"must be a list of numbers of layers, {first} to {last}, found {shown(layers)}"
        raise ValueError(f"{section.named(key)} {text}")
    return [FULL if layer + first in layers else "linear_attention" for layer in range(count)]


def _crossing(section: Section, line: Beside, count: int) -> list[int]:
    """Layers that attend to an image instead."""
    found = section.config.get(line.cross_key) if line.cross_key else None
    if found is None:
        return []
    if not isinstance(found, list) or not all(type(one) is int and one >= 0 for one in found):
        text = f"must be a list of numbers of layers or null, found {shown(found)}"
        raise ValueError(f"{section.named(line.cross_key)} {text}")
    return [one for one in found if one < count]


def patterned(section: Section, line: Beside, count: int) -> list[str]:
    """The kinds as the family's code sets them where a configuration lists none."""
    pattern = line.pattern or "F"
    every = count_at(section, line.every_key, LAYERS) if line.every_key and line.every_key in section.config else None
    if every is not None:
        others = (pattern[0] if pattern[-1] == "F" else pattern[-1]) * (every - 1)
        pattern = others + "F" if pattern[-1] == "F" else "F" + others
    if line.everywhere and not line.pattern and size_of(section) is not None:
        pattern = "S"
    letters = [pattern[layer % len(pattern)] for layer in range(count)]
    if line.from_end:
        letters.reverse()
    if line.qwen and size_of(section) is not None:
        first = count_at(section, "max_window_layers", LAYERS) or 28
        letters = ["S" if layer >= first else "F" for layer in range(count)]
    if line.last_full:
        letters[-1] = "F"
    if line.first_full:
        letters[0] = "F"
    return [LETTERS[letter] for letter in letters]


def size_of(section: Section) -> int | None:
    """The number of tokens that the configuration or the family gives a window; None where there is none.

    Raises:
        ValueError: for what is no number of tokens.
    """
    line = beside_of(section)
    if line.switch and not flag_at(section, line.switch):
        return None
    if section.model_type == "mimo_v2_flash" and section.config.get("sliding_window_size") is not None:
        before = count_at(section, "sliding_window_size", TOKENS)  # those before a token, itself not among them
        return None if before is None else before + 1
    keys = (line.window_key, "sliding_window")
    key = next((key for key in keys if key in section.config), None)
    if key is None:
        found = line.window
    elif section.config[key] in (0, False):  # as Qwen 2 saves no window
        found = None
    else:
        found = count_at(section, key, TOKENS)
    return found // 2 if found is not None and line.halved and key != "sliding_window" else found


def window_of(section: Section, kind: str) -> tuple[int | None, int]:
    """Tokens that a layer's token sees at and before its place, None for all, and how many after it.

    A layer of chunked attention sees its chunk up to the token, at most that many.
    """
    line = beside_of(section)
    if kind == CHUNKED:
        chunk = count_at(section, "attention_chunk_size", TOKENS)
        return (chunk if "attention_chunk_size" in section.config else line.chunk), 0
    size = size_of(section)
    if size is not None and both_ways(section):  # half before a token and half after it
        size = size // 2 + 1
        return (size, size - 1) if line.everywhere or kind in WINDOWED else (None, 0)
    if size is None or not (line.everywhere or kind in WINDOWED or kind == SLIDING):
        return None, 0
    if not (line.both and sees_after(section)):
        return size, 0
    return ((size + 1) // 2, size // 2) if line.shared else (size + 1, size)


def lacks_window(section: Section, kind: str) -> bool:
    """Whether the code restricts layers of this kind to a window or a chunk that the configuration does not give.

    transformers 5.23 raises for null, and for 0 as soon as a cache is used; without one, 0 lets every token attend to
    all tokens, those after it too. Families without a window of their own take null, but not 0, for none.
    """
    if not section.known:
        return False
    line = beside_of(section)
    if kind == CHUNKED:
        return section.config.get("attention_chunk_size", line.chunk) in (None, 0)
    if kind in WINDOWED:
        return window_of(section, kind)[0] is None
    key = next((key for key in (line.window_key, "sliding_window") if key in section.config), "")
    return line.everywhere and section.config.get(key) == 0


def sees_after(section: Section) -> bool:
    """Whether tokens see those after them, as in encoders; ``is_decoder`` makes a decoder of one."""
    line = beside_of(section)
    return ((line.both or line.sees_all) and not flag_at(section, "is_decoder")) or both_ways(section)


def both_ways(section: Section) -> bool:
    """Whether a key makes a bidirectional model of a family of decoders, as in EmbeddingGemma.

    Source: transformers 5.23, Gemma3TextConfig and Gemma4TextConfig: the window is then ``sliding_window // 2 + 1``
    tokens to each side, the token itself among them.
    """
    turned_on = {"gemma3_text": True, "gemma4_text": "all", "gemma4_unified_text": "all"}.get(section.model_type)
    return turned_on is not None and section.config.get("use_bidirectional_attention") == turned_on
