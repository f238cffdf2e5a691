"""Contradictions within a configuration: keys that were each read without an error and cannot all be meant.

Lengths against the scaling, layer lists against the keys that would build them, windows, heads, and values at two
levels of one file. What one key alone makes unreadable is an error of `posenc.hf.config`; what a family or a version of
transformers does with a key is in its `config_findings`.

A number that the code cannot compute with is a fault. Two keys that disagree are a suspicion, since the file does not
say which one is meant: published models differ from their own ratios for good reasons (AFM-4.5B declares 16 times its
training length with factor 20, Llama 3.1 with factor 8).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.layer_kinds import lacks_window, layer_kinds, patterned, window_of
from posenc.hf.config.non_rotary import is_non_rotary
from posenc.hf.config.parse import ParsedConfig
from posenc.hf.config.posenc_config import is_posenc_config
from posenc.hf.config.rope_block import BLOCKS, RopeBlock
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.text_config import TextConfig, find_text_config, layers_without_rope, length_key, max_length
from posenc.hf.config.upstream_bugs import is_llama_3
from posenc.hf.doctor.releases import on_releases, release_like
from posenc.hf.families.layer_patterns import CHUNKED, FULL, SLIDING
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import BASE, LAYERS, TOKENS, WIDTH, is_count, is_number
from posenc.hf.sources.load import Config

_COVERED_BY = {
    "layers-unread": "layers-unread",
    "base-missing-in-block": "base-lost",
    "base-below-releases": "base-lost",
}

_UNSCALED_BY_DEFAULT = ("phi4_multimodal",)  # whose class in transformers has both lengths and no scaling


def on_contradictions(read: RopeConfig) -> Iterator[Finding]:
    """Findings on keys of a readable configuration that contradict one another.

    What the configuration's own findings say already, under another name, is left out. Configurations of posenc and of
    other programs have none: their keys are translated.
    """
    if is_posenc_config(read.config) or read.parsed.program:
        return
    names = {finding.name for finding in read.findings}
    for finding in _contradictions(read.parsed):
        if _COVERED_BY.get(finding.name) not in names:
            yield finding


def _contradictions(parsed: ParsedConfig) -> Iterator[Finding]:
    text_config = parsed.text_config
    yield from _on_levels(parsed.config, text_config)
    yield from _on_direction(parsed.config, text_config)
    if is_non_rotary(text_config.family):
        yield from _on_table_lengths(text_config)
        yield from _on_layer_lists(text_config)
    if not text_config.known:
        return
    yield from _on_digits(text_config)
    yield from _on_heads(text_config)
    yield from _on_softmax(text_config)
    for rope_block in parsed.rope_blocks:
        if rope_block.values is not None:
            yield from _on_block(text_config, rope_block)
    yield from _on_equal_bases(parsed)
    yield from _on_scaled_windows(parsed)
    yield from on_releases(parsed)
    try:
        kinds = layer_kinds(text_config)
        of_layers = [*_on_layers(text_config, kinds)]
    except ValueError as error:
        of_layers = [Finding("layer_types", f"cannot be read: {error}", "layers-unread", "suspicion")]
    yield from of_layers


def _on_layers(text_config: TextConfig, kinds: list[str]) -> Iterator[Finding]:
    if not any(lacks_window(text_config, kind) for kind in {*kinds}):
        yield from _on_layer_order(text_config, kinds)
        yield from _on_windows(text_config, kinds)
    yield from _on_nope_layers(text_config, kinds)


# Their config classes refuse a hidden_size that the heads do not divide: `validate_architecture` in transformers 5.23,
# models/llama/configuration_llama.py:94 and its copies. Other families round the width of a head down.
_REFUSE_A_REST = {"arcee", "cwm", "deepseek_v2", "eurobert", "hyperclovax", "internlm3", "jais2", "llama", "minicpm3"}


def on_width(config: Config) -> Iterator[Finding]:
    """A head width that is no integer, in a configuration whose rotation therefore is not read."""
    text_config = find_text_config(config)
    width, heads = text_config.get("hidden_size"), text_config.get("num_attention_heads")
    if text_config.model_type in _REFUSE_A_REST and is_count(width, WIDTH) and is_count(heads, WIDTH) and width % heads:
        text = f"= {width:,} is no multiple of num_attention_heads = {heads}: transformers refuses to build the model; "
        text += "copy both of the original checkpoint"
        yield Finding("hidden_size", text, "heads-do-not-divide", "fault")


_ENCODER_CLASSES = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def _on_direction(config: Config, text_config: TextConfig) -> Iterator[Finding]:
    """A direction of attention that the class of the model contradicts."""
    listed = config.get("architectures")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    attention = text_config.family.attention
    if attention.direction == "bidirectional" and text_config.get("is_decoder") is True:
        encoders = [name for name in names if name.endswith(_ENCODER_CLASSES)]
        if encoders:
            text = (
                f"is true, with which no token attends to a later one, and {encoders[0]} was trained to attend to both "
            )
            text += "sides; write false"
            yield Finding("is_decoder", text, "direction-contradicted", "suspicion", {"is_decoder": False})
    value, key = attention.bidirectional_if, "use_bidirectional_attention"
    generators = [name for name in names if name.endswith("ForCausalLM")]
    if value is not None and text_config.get(key) == value and generators:
        text = (
            f"= {shown(value)} lets tokens attend to later ones and halves the window, and {generators[0]} generates: "
        )
        text += "it must not see the tokens that it predicts; remove the key"
        yield Finding(key, text, "direction-contradicted", "suspicion", {key: None})


_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "n_ctx")


def _on_table_lengths(text_config: TextConfig) -> Iterator[Finding]:
    """A length that differs from the key that gives a table its rows."""
    keys = {scheme.table.key for scheme in text_config.family.schemes if scheme.table is not None} & {*_LENGTH_KEYS}
    for key in sorted(keys):
        rows = text_config.get(key)
        for other in _LENGTH_KEYS:
            length = text_config.get(other)
            if other not in keys and is_count(rows, TOKENS) and is_count(length, TOKENS) and length != rows:
                text = f"= {length:,} is another length than {key} = {rows:,}, which gives the table of positions its "
                text += "rows: the weights have one of the two"
                yield Finding(other, text, "table-lengths-differ", "suspicion")


def _on_layer_lists(text_config: TextConfig) -> Iterator[Finding]:
    """Lists that the code of a family compares with the number of layers, or whose numbers it refuses.

    Source: transformers 5.23, modeling_longformer.py:472 and :1305, configuration_gpt_neo.py:81.
    """
    windows, count = text_config.get("attention_window"), text_config.get("num_hidden_layers")
    key = "attention_window"
    if text_config.model_type == "longformer" and isinstance(windows, list | int):
        if isinstance(windows, list) and is_count(count, LAYERS) and len(windows) != count:
            text = f"lists {len(windows)} windows for {count} layers: transformers refuses to build the model"
            yield Finding(key, text, "windows-malformed", "fault")
        odd = next(
            (size for size in (windows if isinstance(windows, list) else [windows]) if size == 0 or size % 2), None
        )
        if odd is not None:
            text = f"holds {shown(odd)}, and half a window lies on each side of a token: transformers refuses all but "
            yield Finding(key, f"{text}even numbers above 0", "windows-malformed", "fault")
    if text_config.model_type == "gpt_neo" and is_count(layers := text_config.get("num_layers"), LAYERS):
        kinds = text_config.get("attention_types")
        pairs = kinds if isinstance(kinds, list) else []
        listed = [len(pair[0]) * pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2
                  and isinstance(pair[0], list) and is_count(pair[1], LAYERS)]  # fmt: skip
        if listed and sum(listed) != layers:
            text = f"lists {sum(listed)} layers, and num_layers is {layers}: transformers refuses to build the model"
            yield Finding("attention_types", text, "layer-lists-differ", "fault")


_LEVELS = ("max_position_embeddings", "rope_theta", *BLOCKS, "sliding_window", "partial_rotary_factor")


_TWO_ROTATIONS = ("musicflamingo",)  # the keys at its top level rotate audio by seconds


def _on_levels(config: Config, text_config: TextConfig) -> Iterator[Finding]:
    """Keys next to the text part that contradict the same keys inside it; only those inside are read."""
    if not text_config.path:
        return
    where = ".".join(text_config.path)
    for key in _LEVELS:
        outer, inner = config.get(key), text_config.get(key)
        if outer in (None, {}) or outer == inner or not _concerns_text(key, outer) or _about_equal(outer, inner):
            continue
        if config.get("model_type") in _TWO_ROTATIONS:
            continue
        if inner is None and (key != "rope_scaling" or _has_type(text_config, outer)):
            continue  # left over from an older layout, and transformers' default of the part may agree
        has = "is missing there" if inner is None else f"is {shown(inner)} there"
        text = f"= {shown(outer)} stands at the top level, where nothing reads it, and {has} ({where}.{key}), which is "
        text += f"read: move the value that is meant into {where}"
        yield Finding(key, text, "levels-differ", "suspicion")


def _has_type(text_config: TextConfig, outer: Any) -> bool:
    """Whether a block that is read has the type of an outer one, at its top or for one kind of layers."""
    blocks = [block for name in BLOCKS if isinstance(block := text_config.get(name), dict)]
    blocks += [inner for block in blocks for inner in block.values() if isinstance(inner, dict)]
    return any(
        block.get("rope_type", block.get("type")) == outer.get("rope_type", outer.get("type")) for block in blocks
    )


def _about_equal(outer: Any, inner: Any) -> bool:
    """Whether two lengths are within 10 % of each other, as 128,000 and 131,072 in Qwen2.5-VL as published."""
    return is_count(outer, TOKENS) and is_count(inner, TOKENS) and 0.9 < outer / inner < 1.1


def _concerns_text(key: str, value: Any) -> bool:
    kind = value.get("rope_type", value.get("type")) if isinstance(value, dict) else None
    return key not in BLOCKS or kind not in (None, "default", "mrope")


_ROUND = (1, 3, 5)  # published lengths are these times a power of two, or round in decimals
_SHORTEST = 1024


def _on_digits(text_config: TextConfig) -> Iterator[Finding]:
    """A length one exchanged or missing digit away from a power of two, and itself no length that models have."""
    length = max_length(text_config)
    if length is None or length < _SHORTEST or length % 32 == 0 or length % 10 == 0:
        return
    digits = str(length)
    exchanged = {digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :] for i in range(len(digits) - 1)}
    near = [number for number in _powers() if str(number) in exchanged or _lacks_a_digit(digits, str(number))]
    if near:
        text = f"is {length:,}, which differs from {near[0]:,} by one exchanged or missing digit: was that meant?"
        corrected = {length_key(text_config): near[0]}
        yield Finding(length_key(text_config), text, "length-misspelt", "suspicion", corrected)


def _powers() -> list[int]:
    return sorted(odd * 2**power for odd in _ROUND for power in range(9, 24) if odd * 2**power >= 2 * _SHORTEST)


def _lacks_a_digit(digits: str, number: str) -> bool:
    return len(number) > 4 and any(number[:i] + number[i + 1 :] == digits for i in range(len(number)))


def _on_heads(text_config: TextConfig) -> Iterator[Finding]:
    """Key/value heads that do not divide the query heads."""
    heads, shared = text_config.get("num_attention_heads"), text_config.get("num_key_value_heads")
    for key, value in (("num_attention_heads", heads), ("num_key_value_heads", shared)):
        if isinstance(value, str | float | bool) or (isinstance(value, int) and value < 1):
            text = f"must be an integer of at least 1, found {shown(value)}: transformers refuses to build the model"
            yield Finding(key, text, "heads-malformed", "fault")
    if text_config.family.rotation is None or not is_count(heads, WIDTH) or not is_count(shared, WIDTH):
        return
    if heads % shared:
        text = f"is {shared}, which does not divide num_attention_heads = {heads}: each key/value head serves a whole "
        text += "number of query heads, so the attention of transformers fails; copy both of the original checkpoint"
        yield Finding("num_key_value_heads", text, "heads-do-not-divide", "fault")


def _on_softmax(text_config: TextConfig) -> Iterator[Finding]:
    """Numbers that the code divides by, or whose root it takes."""
    attention = text_config.family.attention
    key = attention.scale
    if key in ("query_pre_attn_scalar", "attention_multiplier") and key in text_config:
        value = text_config[key]
        if not is_number(value, 0, above=True):
            text = f"is {shown(value)}, and the attention logits are multiplied by "
            text += "its inverse root" if key == "query_pre_attn_scalar" else "it"
            yield Finding(key, f"{text}: it must be a number above 0; copy the original's", "softmax-scale", "fault")
    if text_config.model_type.startswith("granite") and key == "attention_multiplier":
        value = text_config.get(key)
        if value is None or is_number(value, 1, above=True):
            value_text = "is not given, which means 1" if value is None else f"is {shown(value)}"
            text = f"{value_text}, and the attention logits are multiplied by it; published models have 1/64 to 1/128, "
            text += "the inverse of the width of a head: copy the original's"
            yield Finding(key, text, "softmax-scale", "suspicion")
    if "floor_scale" in text_config and text_config.get("attn_temperature_tuning", True):
        value = text_config["floor_scale"]
        if attention.temperature is not None and not is_number(value, 0, above=True):
            text = f"is {shown(value)}, by which attn_temperature_tuning divides each position: the queries of layers "
            text += "without rotation become NaN or the model fails; released models have 8192"
            yield Finding("floor_scale", text, "temperature-undefined", "fault")


_LEAST_GAIN, _MOST_GAIN = 0.7, 2.0  # YaRN's own gain is 1 to 1.42 for factors up to 64
_SLOWEST_BASE, _FASTEST_BASE = 500, 1e11  # published bases: 1,000 (nomic) to some 10^10


def _has_whole_wavelengths(factors: Sequence[float], base: Any) -> bool:
    """Whether factors are Resonance RoPE's (arXiv 2403.00071), which rounds the fastest pair's 2π tokens to 6."""
    if not is_number(base, 1, BASE):
        return False
    slowed = (2 * math.pi * factor * base ** (pair / len(factors)) for pair, factor in enumerate(factors))
    return all(abs(wavelength - round(wavelength)) < 1e-3 for wavelength in slowed if wavelength < 1000)


def _on_block(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    values, block, longest = rope_block.effective, rope_block.values or {}, rope_block.longest
    rope_type, factor = values.get("rope_type", "default"), values.get("factor")
    original, base = values.get("original_max_position_embeddings"), values.get("rope_theta")
    if "rope_theta" in block and is_number(base, 1, BASE) and not _SLOWEST_BASE <= float(base or 0) <= _FASTEST_BASE:
        text = f"is {base:g}, and published models have 1,000 to 5·10¹⁰: were digits lost or added? Compare with "
        text += "rope_theta of the original checkpoint"
        yield Finding("rope_theta", text, "base-implausible", "suspicion")
    if rope_type == "llama3" and factor == 1 and longest is not None and is_count(original) and longest > original:
        text = f"of 'llama3' is 1, which scales nothing, and {longest:,} tokens are declared over {original:,} of "
        text += "training; published models have 8 to 32: copy the block of the original checkpoint"
        yield Finding("factor", text, "factor-of-one", "suspicion")
    if rope_type == "proportional" and "partial_rotary_factor" not in block:
        text = "is not given with 'proportional', so that all pairs rotate, and that type is for a share of them; "
        text += "published models have 0.25: copy the block of the original checkpoint"
        yield Finding("partial_rotary_factor", text, "share-lost", "suspicion")
    if rope_type == "longrope":
        for key in ("short_factor", "long_factor"):
            small = min(values[key])
            if small < 1 - 1e-6 and not _has_whole_wavelengths(values[key], base):
                text = f"holds {small:g}: a factor below 1 makes a pair rotate faster than in training, and published "
                text += "lists begin at 1; were other numbers meant?"
                yield Finding(key, text, "factors-below-one", "suspicion")
            if values[key][0] > values[key][-1]:
                text = (
                    f"falls from {values[key][0]:g} to {values[key][-1]:g}: the first factor is of the fastest pair, "
                )
                text += "which published lists scale least; is the list in reverse order?"
                yield Finding(key, text, "factors-reversed", "suspicion")
    if rope_type == "default":
        for key in ("original_max_position_embeddings", "initial_context_length"):
            trained = text_config.get(key)
            if text_config.model_type in _UNSCALED_BY_DEFAULT:
                continue
            if is_count(trained, TOKENS) and longest is not None and longest > trained:
                text = (
                    f"= {trained:,} is the length before a scaling, {longest:,} tokens are declared, and the file has "
                )
                text += "no scaling: was its block lost? Copy it of the original checkpoint"
                yield Finding(key, text, "scaling-lost", "suspicion")
    scales = [key for key in ("mscale", "mscale_all_dim") if values.get(key)]
    if (
        rope_type == "yarn"
        and text_config.rotation.latent
        and "attention_factor" not in values
        and is_number(factor, 1)
    ):
        if len(scales) == 2 and values["mscale"] != values["mscale_all_dim"]:
            text = f"is {values['mscale']:g}, and mscale_all_dim {values['mscale_all_dim']:g}: published models with "
            text += "latent attention have one value under both keys, so that rotated vectors keep their length"
            yield Finding("mscale", text, "mscale-pair-differs", "suspicion")
        elif not values.get("mscale_all_dim") and values.get("mscale") in (None, 1) and factor != 1:
            text = "is missing: published models with latent attention and yarn have mscale and mscale_all_dim, and "
            text += "without the second the softmax scale lacks YaRN's factor; copy both of the original checkpoint"
            level: Level = "note" if release_like(text_config) is None else "suspicion"
            yield Finding("mscale_all_dim", text, "mscale-missing", level)
    gain = values.get("attention_factor")
    if rope_type in ("yarn", "longrope") and is_number(gain, 0) and not _LEAST_GAIN <= float(gain or 0) <= _MOST_GAIN:
        text = (
            f"is {shown(gain)}, and multiplies both queries and keys, so that attention logits change by its square; "
        )
        text += "published models have 1 to 1.42: remove the key for the value that follows from factor"
        yield Finding("attention_factor", text, "gain-implausible", "suspicion")
    decimal = longest is not None and longest >= 10_000 and str(longest).rstrip("0") in ("1", "2", "5")
    if decimal and base in {2**power for power in range(11, 22)}:
        text = f"is {base:g}, a power of two as lengths are, and {length_key(text_config)} {longest:,}, as bases are: "
        text += "were the two exchanged?"
        yield Finding("rope_theta", text, "base-and-length-exchanged", "suspicion")
    yield from _on_sections(text_config, values)
    yield from _on_llama_3(text_config, values)
    yield from _on_missing_base(text_config, rope_block)


def _on_sections(text_config: TextConfig, values: Mapping[str, Any]) -> Iterator[Finding]:
    """The family's sections of M-RoPE in another order."""
    sections, usual = values.get("mrope_section"), text_config.rotation.sections
    if usual is None or not isinstance(sections, list) or sections == list(usual):
        return
    if sorted(sections) == sorted(usual):
        text = (
            f"is {sections}, and this family has {list(usual)}: pairs would read the position of another axis (time, "
        )
        text += "row or column)"
        yield Finding("mrope_section", text, "sections-exchanged", "suspicion")


_LLAMA_3_RECIPE = {"original_max_position_embeddings": 8192, "low_freq_factor": 1, "high_freq_factor": 4}


def _on_llama_3(text_config: TextConfig, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Numbers of Llama 3's recipe that no published model of 3.1 to 3.3 has; a longer one may have a larger factor."""
    if values.get("rope_type") != "llama3" or not is_llama_3(text_config):
        return
    for key, number in _LLAMA_3_RECIPE.items():
        if values[key] != number:
            text = f"is {values[key]:g}, and Llama 3.1, 3.2 and 3.3 have {number:g}: the frequencies differ from "
            yield Finding(key, f"{text}training", "recipe-differs", "suspicion")
    if 1 < values["factor"] < 8:
        text = f"is {values['factor']:g}, and Llama 3.1 and 3.3 have 8, Llama 3.2 32: the frequencies differ from "
        yield Finding("factor", f"{text}training", "recipe-differs", "suspicion")


def _on_missing_base(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    """A block of version 5 with a scaling and no base: transformers never saves one, so somebody wrote it by hand."""
    values, family = rope_block.effective, text_config.rotation
    spelled = rope_block.target[:1] == ("rope_parameters",) and isinstance(text_config.get("rope_parameters"), dict)
    scaled = values.get("rope_type", "default") != "default"
    released = family.base != 10_000  # the default of such a class is its releases' base
    if not spelled or not scaled or released or family.kinds or family.nested or "rope_theta" in rope_block.sources:
        return
    text = f"is not given with the scaling, so that {values['rope_theta']:g} is used, this family's default: version 5 "
    text += "saves the base within rope_parameters, and version 4 of the file had it outside; copy rope_theta of the "
    text += "original checkpoint into the block"
    yield Finding("rope_theta", text, "base-missing-in-block", "suspicion")


def _on_equal_bases(parsed: ParsedConfig) -> Iterator[Finding]:
    """Local and global layers of Gemma under one base, or exchanged within nested blocks."""
    text_config = parsed.text_config
    if not text_config.model_type.startswith(("gemma3", "gemma4", "modernbert")):
        return
    bases = {block.kind: block.effective["rope_theta"] for block in parsed.rope_blocks if block.values is not None}
    if set(bases) != {FULL, SLIDING}:
        return
    if bases[FULL] == bases[SLIDING] and text_config.model_type.startswith("gemma"):
        text = f"is {bases[FULL]:g} for sliding and full layers alike; published models of this family have 10,000 in "
        text += "sliding layers and 1,000,000 in full ones"
        yield Finding("rope_theta", text, "bases-equal", "suspicion")
    elif bases[FULL] < bases[SLIDING] and text_config.get("rope_parameters"):
        text = (
            f"is {bases[SLIDING]:g} in the block of sliding layers, above the {bases[FULL]:g} of the full ones; were "
        )
        text += "the two blocks exchanged?"
        yield Finding("rope_theta", text, "bases-exchanged", "suspicion")


def _on_scaled_windows(parsed: ParsedConfig) -> Iterator[Finding]:
    """Gemma's sliding layers under the scaling of the full ones: no distance within a window needs it."""
    if not parsed.text_config.model_type.startswith(("gemma3", "gemma4")):
        return
    for block in parsed.rope_blocks:
        if block.kind != SLIDING or block.values is None:
            continue
        kind = block.effective.get("rope_type", "default")
        if kind != "default" and "rope_type" in block.values:
            text = f"= {kind!r} scales the sliding layers too, whose window is far shorter than the training length; "
            text += "published models of this family scale full_attention alone"
            yield Finding("rope_type", text, "windows-scaled", "suspicion")


_LETTERS = {"L": SLIDING, "G": FULL}


def _on_layer_order(text_config: TextConfig, kinds: list[str]) -> Iterator[Finding]:
    """layer_types against the keys and the family's own pattern that would build them."""
    pattern = text_config.family.layers
    listed = next((key for key in (pattern.types_key, "layer_types") if text_config.get(key)), None)
    if listed is None or not kinds:
        return
    period = text_config.get(pattern.period_key)
    letters = [_LETTERS.get(letter) for letter in period] if isinstance(period, str) else []  # EXAONE 4: "LLLG"
    if letters and None not in letters and kinds != [letters[n % len(letters)] for n in range(len(kinds))]:
        text = (
            f"= {period!r} means another order of layers than {listed}, which transformers reads: correct the wrong key"
        )
        yield Finding(pattern.period_key, text, "layer-orders-differ", "suspicion")
    if isinstance(period, str) and None in letters:
        text = f"= {period!r} must hold the letters {' and '.join(_LETTERS)} alone, a letter for each layer of a period"
        yield Finding(pattern.period_key, text, "layer-orders-differ", "suspicion")
    if period is not None and not is_count(period, LAYERS):
        return
    built = patterned(text_config, len(kinds))
    key = pattern.sliding_from_key
    explicit = key and is_count(text_config.get(key), LAYERS) and text_config[key] != pattern.sliding_from
    if explicit and built != kinds and not pattern.period_key:  # transformers saves the default with any list
        first = built.index(SLIDING) if SLIDING in built else None
        means = "no sliding layer" if first is None else f"sliding layers from number {first} on"
        text = (
            f"= {text_config[key]} means {means}, and {listed} lists {_counted(kinds)} in another order; transformers "
        )
        text += f"reads {listed}: correct the key that is wrong"
        yield Finding(key, text, "layer-orders-differ", "suspicion")
        return
    if "full_attention_interval" in text_config and not pattern.period_key and pattern.cycle[-1:] == (FULL,):
        every = text_config["full_attention_interval"]
        numbers = [n for n, kind in enumerate(kinds) if kind == FULL]
        if is_count(every, LAYERS) and numbers != [n for n in range(len(kinds)) if (n + 1) % every == 0]:
            text = f"= {every} means full attention in every {every}. layer, and {listed} lists it in "
            text += f"{_few(numbers)}; transformers reads {listed}: correct the key that is wrong"
            yield Finding("full_attention_interval", text, "layer-orders-differ", "suspicion")
            return
    if not pattern.cycle or pattern.only_listed or built == kinds or (pattern.period_key or "") in text_config:
        return
    other = {*pattern.cycle} - {FULL}
    if len(other) == 1 and {*built} == {*pattern.cycle}:
        exchange = {FULL: next(iter(other)), next(iter(other)): FULL}
        if [exchange.get(kind, kind) for kind in built] == kinds:
            text = f"has full attention where this family has {next(iter(other))}, and the reverse: were the two kinds "
            text += f"exchanged? The family's order is {_counted(built)}"
            yield Finding(listed, text, "layer-kinds-exchanged", "suspicion")
        elif {*kinds} == {FULL} and release_like(text_config) is not None:
            text = f"lists full attention for all {len(kinds)} layers, and published models of these sizes have "
            text += f"{_counted(built)}: the windows are lost"
            yield Finding(listed, text, "sliding-layers-lost", "suspicion")
        elif FULL not in kinds:
            text = f"lists {next(iter(other))} for all {len(kinds)} layers, and in this family {built.count(FULL)} of "
            text += "them have full attention: no layer attends beyond its window"
            yield Finding(listed, text, "full-layers-lost", "suspicion")


def _counted(kinds: list[str]) -> str:
    return " and ".join(f"{kinds.count(kind)} of {kind}" for kind in dict.fromkeys(kinds))


def _few(numbers: list[int]) -> str:
    if not numbers:
        return "no layer"
    return "layers " + ", ".join(map(str, numbers[:6])) + (", …" if len(numbers) > 6 else "")


_SMALL = 8192  # tokens


def _on_windows(text_config: TextConfig, kinds: list[str]) -> Iterator[Finding]:
    """A window that hides nothing, and a switch that no layer obeys."""
    pattern, longest = text_config.family.layers, max_length(text_config)
    key = pattern.window.key if pattern.window.key in text_config else "sliding_window"
    window = window_of(text_config, SLIDING)[0] if SLIDING in kinds else None
    if window is not None and longest is not None and window > longest and FULL in kinds and not pattern.window.halved:
        text = f"is {window:,}, above {length_key(text_config)} = {longest:,}: {kinds.count(SLIDING)} of {len(kinds)} "
        text += "layers are sliding ones that hide nothing within it"
        level: Level = "note" if longest < _SMALL else "suspicion"  # classes keep their default window in small models
        yield Finding(key, text, "window-beyond-length", level)
    switch, size = pattern.window.switch, text_config.get("sliding_window", 1)
    if switch and text_config.get(switch) is True and not size:
        text = f"is true, and {key} is {shown(size)}: no layer has a window; write its size, or {switch}: false"
        yield Finding(switch, text, "window-of-no-layer", "suspicion")
    if switch and text_config.get(switch) is True and text_config.get(key) and kinds and SLIDING not in kinds:
        why = f"{pattern.sliding_from_key} = {shown(text_config.get(pattern.sliding_from_key))}"
        text = f"is true and {key} {shown(text_config.get(key))}, and none of {len(kinds)} layers has a window ({why})"
        yield Finding(switch, text, "window-of-no-layer", "suspicion")


def _on_nope_layers(text_config: TextConfig, kinds: list[str]) -> Iterator[Finding]:
    """no_rope_layers, in which 1 means that a layer rotates, against the interval, the family and layer_types."""
    family, flags = text_config.rotation, text_config.get("no_rope_layers")
    if family.unrotated_every is None or not isinstance(flags, list) or not flags:
        return
    every = text_config.get("no_rope_layer_interval", family.unrotated_every)
    if not is_count(every, LAYERS):
        return
    usual = [int((layer + 1) % every != 0) for layer in range(len(flags))]
    still = layers_without_rope(text_config)
    meaning = f"(1 means that a layer rotates): {len(still)} of {len(flags)} layers do not rotate"
    if flags == [1 - flag for flag in usual]:
        text = f"{meaning}, exactly those that rotate with the usual list; the flags were inverted"
        yield Finding("no_rope_layers", text, "nope-layers-inverted", "suspicion", {"no_rope_layers": usual})
    elif len(still) == len(flags) > 1:
        text = f"{meaning}; in this family every {every}. layer does not"
        yield Finding("no_rope_layers", text, "nope-layers-inverted", "suspicion", {"no_rope_layers": usual})
    elif not still and 0 in usual:
        text = f"{meaning}; in this family every {every}. layer does not, and its weights were trained so"
        yield Finding("no_rope_layers", text, "nope-layers-lost", "suspicion", {"no_rope_layers": usual})
    elif flags != usual and every != family.unrotated_every:  # transformers saves the default with any list
        text = (
            f"= {every} means that layers {_few([n for n, flag in enumerate(usual) if not flag])[7:]} do not rotate, "
        )
        text += f"and no_rope_layers lists {_few(still)[7:]}, which transformers reads: correct the key that is wrong"
        yield Finding("no_rope_layer_interval", text, "nope-layers-differ", "suspicion")
    if CHUNKED in kinds and len(kinds) == len(flags) and text_config.get("layer_types"):
        wrong = [n for n, kind in enumerate(kinds) if (kind == CHUNKED) != bool(flags[n])]
        if wrong:
            text = f"and no_rope_layers disagree in {_few(wrong)}: in this family layers that rotate attend in chunks, "
            text += "and the others to the whole context"
            yield Finding("layer_types", text, "nope-layers-differ", "suspicion")
