"""Metadata of GGUF, llama.cpp's format, as a configuration; read from a mapping, or from a file (`gguf_file`).

    {arch}.rope.freq_base            the base, 10000 where it is missing;  .freq_base_swa: of layers with a window
    {arch}.rope.dimension_count      channels that rotate;  .dimension_sections: of M-RoPE
    {arch}.rope.scaling.*            type (linear where there is a factor alone), factor, original_context_length,
                                     attn_factor, yarn_log_multiplier; yarn_beta_fast and yarn_beta_slow, which
                                     llama.cpp reads for mistral3 alone (32 and 1 elsewhere, whatever a file says)
    {arch}.attention.sliding_window  tokens;  .temperature_scale: Mistral's temperature;  .scale: of the softmax
    rope_freqs, rope_factors_short,  tensors (or lists in a mapping) that divide the frequencies: all, those of short
    rope_factors_long                texts, those of long ones

YaRN's gain: attn_factor · m(s, 1), or with L = yarn_log_multiplier attn_factor · m(s, 1) / m(s, L), where
m(s, a) = 0.1 a ln s + 1. Of latent attention L is a tenth, and m(s, 10 L)² scales the softmax.
`ARCHITECTURES` has llama.cpp's name of each model type, and the layout of the weights in its GGUF files, which the
converter permutes for Llama and its kin.
Source: llama.cpp, src/llama-model.cpp (load_hparams, get_rope_factors, llama_model_rope_type), src/llama-context.cpp
    (yarn_attn_factor), src/models/deepseek2.cpp and mistral3.cpp; ggml, rope_yarn; the package gguf, constants.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from posenc.arguments import shown
from posenc.frequencies.rotation import Layout
from posenc.hf.families import FAMILIES, RotationRules
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.findings import Finding, NotReadError
from posenc.hf.limits import SMALLEST, is_count, is_number
from posenc.hf.sources.translated import Config, Translated, number_at, renamed

_INTERLEAVED = {
    "arcee": "arcee", "chameleon": "chameleon", "cohere2": "cohere2", "command-r": "cohere", "deepseek2": "deepseek_v3",
    "ernie4_5": "ernie4_5", "ernie4_5-moe": "ernie4_5_moe", "glm4": "glm4", "granite": "granite",
    "granitehybrid": "granitemoehybrid", "granitemoe": "granitemoe", "llama": "llama", "llama4": "llama4_text",
    "mistral3": "ministral3", "olmo": "olmo", "smollm3": "smollm3",
}  # fmt: skip
_HALF = {
    "apertus": "apertus", "bitnet": "bitnet", "dbrx": "dbrx", "dots1": "dots1", "eurobert": "eurobert",
    "exaone4": "exaone4", "falcon": "falcon", "falcon-h1": "falcon_h1", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "glm4moe": "glm4_moe", "gpt-oss": "gpt_oss",
    "gptneox": "gpt_neox", "hunyuan-dense": "hunyuan_v1_dense", "hunyuan-moe": "hunyuan_v1_moe", "jais2": "jais2",
    "jina-bert-v3": "jina_embeddings_v3", "lfm2": "lfm2", "lfm2moe": "lfm2_moe", "minimax-m2": "minimax_m2",
    "nemotron": "nemotron", "nomic-bert": "nomic_bert", "olmo2": "olmo2", "olmoe": "olmoe", "phi2": "phi",
    "phi3": "phi3", "phimoe": "phimoe", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen2vl": "qwen2_vl_text",
    "qwen3": "qwen3", "qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text", "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next", "qwen3vl": "qwen3_vl_text", "qwen3vlmoe": "qwen3_vl_moe_text", "seed_oss": "seed_oss",
    "stablelm": "stablelm", "starcoder2": "starcoder2",
}  # fmt: skip
_WITHOUT = {  # that have no rotation
    "bert": "bert", "bloom": "bloom", "gpt2": "gpt2", "jamba": "jamba", "kimi-linear": "kimi_linear", "mamba": "mamba",
    "mamba2": "mamba2", "mpt": "mpt", "nemotron_h": "nemotron_h", "t5": "t5",
}  # fmt: skip

ARCHITECTURES: dict[str, tuple[str, Layout | None]] = {
    **{name: (model_type, "interleaved") for name, model_type in _INTERLEAVED.items()},
    **{name: (model_type, "half") for name, model_type in _HALF.items()},
    **{name: (model_type, None) for name, model_type in _WITHOUT.items()},
}


_FREQS, _SHORT, _LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
FACTORS = (_FREQS, _SHORT, _LONG)
SCALING = "rope.scaling."
NO_FACTORS = "tensors.without_factors"  # that a file was looked through, and has none
_ARCH = "general.architecture"
_NAMES = {
    "context_length": "max_position_embeddings", "block_count": "num_hidden_layers", "embedding_length": "hidden_size",
    "vocab_size": "vocab_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.sliding_window": "sliding_window",
    "attention.scale": "attention_multiplier", "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank", "rope.freq_base": "rope_theta",
}  # fmt: skip
_YARN = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
_IN_BLOCK = {  # keys of the block, and of widths, by the GGUF keys that they are computed from
    "head_dim": "attention.key_length", "qk_rope_head_dim": "rope.dimension_count",
    "qk_nope_head_dim": "attention.key_length", "v_head_dim": "attention.value_length",
    "rotary_dim": "rope.dimension_count", "partial_rotary_factor": "rope.dimension_count",
    "mrope_section": "rope.dimension_sections", "rope_type": "rope.scaling.type", "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "attention_factor": "rope.scaling.attn_factor", "mscale": "rope.scaling.yarn_log_multiplier",
    "mscale_all_dim": "rope.scaling.yarn_log_multiplier", "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow", "llama_4_scaling_beta": "attention.temperature_scale",
    "layer_types": "attention.sliding_window_pattern",
}  # fmt: skip
TAKE_BETAS = ("mistral3",)
TEN = 10.0  # times which the converter writes yarn_log_multiplier of latent attention
_GROWN = 131072  # tokens that Llama 3.1 and Qwen 2.5 and 3 at a base of a million reach by a scaling alone


def translate(config: Config) -> Translated:
    """The metadata in Hugging Face's keys.

    Raises:
        ValueError: for a model that is not known, and for keys of which no configuration can say the same.
    """
    arch = config[_ARCH]
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        text = "is not known here; read the config.json it was converted from. Known are"
        raise NotReadError(f"{_ARCH} {shown(arch)} {text} {known}")
    model_type, layout = ARCHITECTURES[arch]
    keys = {key.removeprefix(f"{arch}."): value for key, value in config.items() if key.startswith(f"{arch}.")}
    names = {key: f"{arch}.{gguf_key}" for key, gguf_key in _IN_BLOCK.items()}
    names |= {key: f"{arch}.{gguf_key}" for gguf_key, key in _NAMES.items()}
    freqs = _FREQS in config or "rope_freqs" in config
    names |= {"short_factor": _FREQS if freqs else _SHORT, "long_factor": _FREQS if freqs else _LONG}
    translated: Config = {"model_type": model_type, **renamed(keys, _NAMES)}
    heads_ahead = keys.get("nextn_predict_layers")  # that predict further tokens, and are counted with the blocks
    if is_count(heads_ahead) and is_count(translated.get("num_hidden_layers")):
        translated["num_hidden_layers"] -= heads_ahead
        translated["num_nextn_predict_layers"] = heads_ahead
    for key in ("num_attention_heads", "num_key_value_heads"):
        if isinstance(translated.get(key), list):  # where layers differ; those of a recurrence have none
            translated[key] = max((number for number in translated[key] if is_count(number)), default=None)
    base = translated.pop("rope_theta", 10000.0)
    if layout is None:
        return Translated(translated, "GGUF", None, (), names)
    family = FAMILIES[model_type].rotation
    assert family is not None
    if family.rotates_if is not None and keys.get("rope.scaling.finetuned") is not False:  # Granite's switch
        translated[family.rotates_if[0]] = family.rotates_if[1]
    width = _widths(keys, translated, family)
    block = {"rope_theta": base, **_scaling(arch, keys, _factors(config), family)}
    rotary_width = keys.get("rope.dimension_count")
    if rotary_width is not None and not family.latent and (rotary_width != width or family.share != 1):
        block["rotary_dim"] = rotary_width
    if sections := keys.get("rope.dimension_sections"):
        if not isinstance(sections, list | tuple):
            raise ValueError(f"{arch}.rope.dimension_sections must be a list of numbers, found {shown(sections)}")
        block["mrope_section"] = [number for number in sections if number][:3]
    if keys.get("attention.temperature_scale"):
        block |= _temperature(arch, keys, block)
        translated["model_type"] = "mistral4" if family.latent else model_type
    translated |= _kinds(keys, translated)
    translated["rope_parameters"] = block
    if family.kinds:  # layers with a window have a base of their own, and no scaling
        windowed = keys.get("rope.freq_base_swa", family.kinds[SLIDING].base)
        translated["rope_parameters"] = {FULL: block, SLIDING: {"rope_type": "default", "rope_theta": windowed}}
    return Translated(translated, "GGUF", layout, tuple(_findings(config, translated, block)), names)


def _factors(config: Config) -> dict[str, list[float]]:
    """The tensors that are there, by their names without the ending."""
    factors = {}
    for name in FACTORS:
        short = name.removesuffix(".weight")
        value = config.get(name, config.get(short))
        if value is None:
            continue
        if not isinstance(value, list | tuple) or not value or not all(is_number(factor, SMALLEST) for factor in value):
            raise ValueError(f"{name} must be numbers above 0, one for each pair, found {shown(value)}")
        factors[short] = [float(factor) for factor in value]
    return factors


def _widths(keys: Config, translated: Config, family: RotationRules) -> int | None:
    """Add the widths of a head to ``translated``; returns the width of queries and keys, None where no key gives it."""
    stream, heads, rotary_width = (
        translated.get("hidden_size"),
        translated.get("num_attention_heads"),
        keys.get("rope.dimension_count"),
    )
    width = keys.get("attention.key_length")
    if family.latent:
        head_width = keys.get("attention.key_length_mla", width)
        translated["qk_rope_head_dim"] = rotary_width
        if is_count(head_width) and is_count(rotary_width):
            translated["qk_nope_head_dim"] = head_width - rotary_width
        translated["v_head_dim"] = keys.get("attention.value_length_mla", keys.get("attention.value_length"))
        return head_width
    if width is None and is_count(stream) and is_count(heads):
        width = stream // heads
    if width is not None:
        translated[family.head_key] = width
    return width


def _scaling(arch: str, keys: Config, factors: Mapping[str, list[float]], family: RotationRules) -> Config:
    """The block but for its base and share."""
    scaling = {key.removeprefix(SCALING): value for key, value in keys.items() if key.startswith(SCALING)}
    if scaling.get("alpha") not in (None, 0, 1):
        raise ValueError(f"{arch}.rope.scaling.alpha = {shown(scaling['alpha'])} cannot be said in a configuration")
    if is_number(scaling.get("yarn_ext_factor"), 0) and scaling["yarn_ext_factor"] < 1:
        text = "is the share of plain frequencies where YaRN leaves them, and no configuration has another than 1"
        raise NotReadError(f"{arch}.rope.scaling.yarn_ext_factor = {shown(scaling['yarn_ext_factor'])} {text}")
    times = number_at(scaling, "factor", number_at(keys, "rope.scale_linear", 0.0)) or 1.0
    kind = scaling.get("type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise ValueError(f"{arch}.rope.scaling.type must be none, linear, yarn or longrope, found {shown(kind)}")
    times = 1.0 if kind == "none" else times
    gain = number_at(scaling, "attn_factor", 1.0, SMALLEST)
    longest = keys.get("context_length")
    original = scaling.get("original_context_length", longest)
    if factors and kind == "yarn":
        raise ValueError(f"{arch}.rope.scaling.type is yarn next to {', '.join(factors)}, which no rope type has")
    if factors:
        both = [factors.get("rope_freqs")] * 2
        if both[0] is None:
            both = [factors.get(name) for name in ("rope_factors_short", "rope_factors_long")]
        if None in both:
            raise ValueError("rope_factors_short and rope_factors_long must be there both, or neither")
        short, long = ([factor * times for factor in each] for each in both if each is not None)
        trained = longest if short == long else original
        grown = max(1.0, longest / trained) if is_count(longest) and is_count(trained) else 1.0
        return {
            "rope_type": "longrope", "short_factor": short, "long_factor": long, "attention_factor": gain,
            "original_max_position_embeddings": trained, "factor": grown,
        }  # fmt: skip
    if kind == "yarn":
        return {
            "rope_type": "yarn", "factor": times, "original_max_position_embeddings": original,
            **(renamed(scaling, _YARN) if arch in TAKE_BETAS else {}), **_gain(scaling, times, gain, family),
        }  # fmt: skip
    if kind == "longrope":
        text = "without rope_factors_short and rope_factors_long, which are tensors: give the file or both"
        raise ValueError(f"{arch}.rope.scaling.type is longrope {text}")
    trained = {} if "original_context_length" not in scaling else {"original_max_position_embeddings": original}
    return {"rope_type": "default", **trained} if times == 1 else {"rope_type": "linear", "factor": times}


def _gain(scaling: Config, times: float, gain: float, family: RotationRules) -> Config:
    """YaRN's gain, as its scales in latent attention and as a number elsewhere."""
    power = number_at(scaling, "yarn_log_multiplier", 0.0)
    if family.latent and gain == 1:
        return {"mscale": power * TEN, "mscale_all_dim": power * TEN} if power else {}
    sharper = 0.1 * math.log(times) + 1 if times > 1 else 1.0
    if power:
        sharper /= 0.1 * power * (TEN if family.latent else 1) * math.log(times) + 1
    elif gain == 1:
        return {}
    return {"attention_factor": gain * sharper}


def _temperature(arch: str, keys: Config, block: Config) -> Config:
    """Mistral's temperature, which stands in the block with YaRN's length."""
    trained = block.get("original_max_position_embeddings")
    step = keys.get("attention.temperature_length") or trained or keys.get("context_length")
    if trained not in (None, step):
        text = f"= {shown(step)} must be YaRN's length {shown(trained)}, as one key of transformers holds both"
        raise ValueError(f"{arch}.attention.temperature_length {text}")
    return {"llama_4_scaling_beta": keys["attention.temperature_scale"], "original_max_position_embeddings": step}


def _kinds(keys: Config, translated: Config) -> Config:
    """Which layers have the window, where a list or a period says so."""
    pattern, layers = keys.get("attention.sliding_window_pattern"), translated.get("num_hidden_layers")
    if isinstance(pattern, list) and all(windowed in (0, 1) for windowed in pattern):
        return {"layer_types": [SLIDING if windowed else FULL for windowed in pattern[:layers]]}
    if is_count(pattern) and not isinstance(pattern, bool) and is_count(layers):
        return {"layer_types": [FULL if (layer + 1) % pattern == 0 else SLIDING for layer in range(layers)]}
    return {}


def _findings(config: Config, translated: Config, block: Config) -> Iterator[Finding]:
    """What a reader of the file should know: scalings that were lost, and tensors that a reader drops."""
    scaled, looked = block["rope_type"] != "default", NO_FACTORS in config
    seen = looked or any(name in config or name.removesuffix(".weight") in config for name in FACTORS)
    longest, kind, base = translated.get("max_position_embeddings"), translated["model_type"], block["rope_theta"]
    grown = is_count(longest) and longest >= _GROWN
    llama = kind == "llama" and base == 5e5 and translated.get("vocab_size") == 128256
    qwen = kind.startswith(("qwen2", "qwen3")) and base == 1e6
    gemma = kind == "gemma3_text" and translated.get("hidden_size") in (2560, 3840, 5376)  # 4B to 27B: linear 8
    if grown and not scaled and (qwen or gemma or (llama and seen)):
        flags = "--rope-scaling yarn with --rope-scale and --yarn-orig-ctx" if qwen else "a newer file"
        flags = "--rope-scaling linear --rope-scale 8" if gemma else flags
        text = f"is {longest:,}, which this model reaches by a scaling alone, and the file has none: past the trained "
        text += "length texts get worse and then gibberish; convert the checkpoint again with its rope_scaling, or "
        yield Finding("max_position_embeddings", f"{text}give llama.cpp {flags}", "gguf-scaling-lost", "fault")
    elif not seen and not scaled:
        text = "and rope_factors_* are tensors, which may divide the frequencies, and metadata does not tell of: give "
        text += "the file, or their numbers next to the keys"
        yield Finding("rope_freqs", text, "gguf-tensors-unseen", "suspicion")
    if scaled and kind != "gpt_oss":
        tensors = [f"{name}.weight" for name in _factors(config)]
        text = f"{'are' if len(tensors) > 1 else 'is'} lost when transformers loads a GGUF file (a fault of "
        text += "transformers, not of the file): it reads the scaling of gpt-oss alone, and such tensors of no model; "
        text += "there, set the block of read_rope(file).to_config() in the configuration before the model is made"
        yield Finding(" and ".join(tensors) or "rope.scaling", text, "gguf-scaling-dropped")
    if kind == "phi3" and looked and not scaled and is_count(longest) and longest > _PHI_SHORT:
        text = f"and rope_factors_short are missing, and the file declares {longest:,} tokens, which Phi-3 and Phi-4 "
        text += "reach by these factors alone"
        yield Finding("rope_factors_long", text, "gguf-factors-lost", "fault")
    yield from _on_keys(config, kind, is_yarn=block["rope_type"] == "yarn")
    yield from _on_scaling(config)


def _on_keys(config: Config, kind: str, *, is_yarn: bool) -> Iterator[Finding]:
    """Keys that contradict what models of this architecture have, or that llama.cpp does not read."""
    arch = config[_ARCH]
    for name, default in (("yarn_beta_fast", 32), ("yarn_beta_slow", 1)):
        value = config.get(key := f"{arch}.{SCALING}{name}")
        if arch not in TAKE_BETAS and is_yarn and value not in (None, default):
            text = f"= {shown(value)} is not read by llama.cpp for {arch!r}, which takes {default}: write the file "
            text += "anew with posenc gguf, or give llama.cpp --yarn-beta-fast and --yarn-beta-slow"
            yield Finding(key, text, "gguf-beta-ignored", "fault")
    width, head, heads, stream, longest = (
        config.get(f"{arch}.{key}")
        for key in (
            "rope.dimension_count", "attention.key_length", "attention.head_count", "embedding_length",
            "context_length",
        )
    )  # fmt: skip
    head = head or (stream // heads if is_count(heads) and is_count(stream) else None)
    if arch in ("llama", "deci", "falcon") and is_count(width) and head not in (None, width):
        text = f"= {width} is another number than the {shown(head)} channels of a head: llama.cpp loads no such {arch}"
        yield Finding("rope.dimension_count", text, "gguf-width-refused", "fault")
    family = FAMILIES[kind].rotation if kind in FAMILIES else None
    if f"{arch}.rope.freq_base" not in config and family is not None:
        text = ""
        if family.base != 10_000 and not family.kinds:
            text = f"is missing: llama.cpp takes 10000, and transformers' {kind} {family.base:g} where nothing is given"
        elif is_count(longest) and longest > (_LONGEST_OF_DEFAULT - kind.startswith(("qwen2", "qwen3"))):
            text = f"is missing: llama.cpp takes 10000, whose slowest pair completes one rotation within {longest:,} "
            text += "tokens; a model of this length was likely trained with a larger base"
        if text:
            text += "; convert the checkpoint again, or give llama.cpp --rope-freq-base"
            yield Finding("rope.freq_base", text, "gguf-base-lost", "suspicion")
    if kind in _WINDOWS and f"{arch}.attention.sliding_window" not in config:
        text = f"is missing: {_WINDOWS[kind]} layers of {arch} have a window, and this file gives none"
        yield Finding("attention.sliding_window", text, "gguf-window-lost", "suspicion")


def _on_scaling(config: Config) -> Iterator[Finding]:
    """A scaling without its factor or without the length that it starts from, and a number of another key."""
    arch = config[_ARCH]
    type_of, factor, original, extra = (
        config.get(f"{arch}.{SCALING}{key}") for key in ("type", "factor", "original_context_length", "yarn_ext_factor")
    )
    longest, scales = config.get(f"{arch}.context_length"), is_number(factor, 1, above=True)
    if is_number(extra, 1, above=True):
        text = f"= {extra:g} is a share from 0 to 1, and this file has another number there, as where a converter "
        text += "wrote rope.scaling.factor (ikawrakow/ik_llama.cpp#2003): fast pairs are extrapolated beyond their "
        text += "plain frequencies; posenc gguf writes 1, as which it is read here"
        yield Finding("rope.scaling.yarn_ext_factor", text, "gguf-ext-factor", "fault")
    if type_of in ("linear", "yarn") and factor is None and config.get(f"{arch}.rope.scale_linear") is None:
        text = f"is missing next to the type {type_of!r}: llama.cpp then takes 1, and scales nothing"
        yield Finding("rope.scaling.factor", text, "gguf-factor-missing", "suspicion")
    if type_of is None and scales:
        text = f"= {factor:g} has no rope.scaling.type next to it: llama.cpp takes linear, which slows every pair; "
        yield Finding("rope.scaling.factor", f"{text}converters write the type", "gguf-type-missing", "suspicion")
    if type_of == "yarn" and scales and original is not None and original == longest:
        text = f"= {original:,} is the context_length as well: the scaling starts where the model should end"
        yield Finding("rope.scaling.original_context_length", text, "original-length-declared", "suspicion")
    elif type_of == "yarn" and is_number(factor, 1) and original is None:
        text = f"is missing: llama.cpp takes context_length = {shown(longest)} for the length before the scaling, "
        text += "which is wrong where that is the length after it"
        yield Finding("rope.scaling.original_context_length", text, "original-length-missing", "suspicion")


_LONGEST_OF_DEFAULT = 1 << 15  # tokens; models of base 10,000 reach 4,096 to 32,768 (Mistral 7B v0.1, but no Qwen)
_PHI_SHORT = 4096
_WINDOWS = {  # families every release of which has layers with a window (llama.cpp knows Gemma 2's by itself)
    "gpt_oss": "every second", "gemma3_text": "five of six", "gemma3n_text": "four of five", "cohere2": "three of four",
}  # fmt: skip
