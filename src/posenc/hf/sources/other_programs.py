"""Configurations of other programs in Hugging Face's keys: params.json of Meta and Mistral, litgpt's model_config.yaml.

    Meta       rope_theta, use_scaled_rope (llama3's recipe: factor 8, high_freq_factor 4, of Llama 4: 16 and 1), and of
               Llama 4 nope_layer_interval, attention_chunk_size, attn_temperature_tuning, floor_scale, attn_scale
    Mistral    rope_theta, sliding_window (a number, or one or null for each layer of a period), yarn (factor,
               original_max_position_embeddings, beta for beta_fast, alpha for beta_slow, apply_scale), llama_4_scaling
               (beta, original_max_position_embeddings), and the widths of latent attention
    litgpt     rope_base, rotary_percentage (the share of a head that rotates), rope_condense_ratio (positions are
               divided by it), rope_adjustments (null, or factor alone: linear; with low_freq_factor and
               high_freq_factor: llama3; with beta_fast and beta_slow: yarn, whose gain is 1 without mscale)

Pairs of the weights of Meta and Mistral are channels 2j and 2j + 1; in what transformers makes of them they are half a
head apart.
Source: meta-llama/llama-models, models/llama3/args.py and model.py, models/llama4/args.py and model.py; vLLM,
    transformers_utils/configs/mistral.py, which reads Mistral's; litgpt 0.5.13, config.py and model.py
    (build_rope_cache).
"""

from __future__ import annotations

from typing import Any

from posenc.arguments import shown
from posenc.frequencies.rotation import Layout
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.findings import Finding, NotReadError
from posenc.hf.limits import LAYERS, is_count
from posenc.hf.sources.translated import Config, Translated, number_at, renamed

_WIDTHS = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads", "head_dim": "head_dim", "vocab_size": "vocab_size", "rope_theta": "rope_theta",
    "max_seq_len": "max_position_embeddings",
}  # fmt: skip
_MISTRAL = {
    **_WIDTHS, "hidden_dim": "intermediate_size", "max_position_embeddings": "max_position_embeddings",
    **{key: key for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank")},
}  # fmt: skip
_LLAMA_4 = {
    "nope_layer_interval": "no_rope_layer_interval", "attention_chunk_size": "attention_chunk_size",
    "floor_scale": "floor_scale", "attn_scale": "attn_scale",
}  # fmt: skip
_YARN = {
    "factor": "factor", "original_max_position_embeddings": "original_max_position_embeddings", "beta": "beta_fast",
    "alpha": "beta_slow",
}  # fmt: skip
_LITGPT = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_query_groups": "num_key_value_heads",
    "n_layer": "num_hidden_layers", "head_size": "head_dim", "block_size": "max_position_embeddings",
    "vocab_size": "vocab_size", "rope_base": "rope_theta", "rotary_percentage": "partial_rotary_factor",
}  # fmt: skip
_TYPES = {"mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"}  # by the begin of a name; else as in a Llama
_LLAMA_3, _BETAS = {"low_freq_factor", "high_freq_factor"}, {"beta_fast", "beta_slow"}
_OPTIONAL = {"mscale", "mscale_all_dim", "truncate"}


def of_params(config: Config) -> Translated:
    """A params.json in Hugging Face's keys; Mistral's has hidden_dim, Meta's a multiple of which that is."""
    mistral = not {"hidden_dim", "yarn", "llama_4_scaling", "kv_lora_rank"}.isdisjoint(config)
    translated, findings = _mistral(config) if mistral else _meta(config)
    names = {key: param for param, key in (_MISTRAL if mistral else {**_WIDTHS, **_LLAMA_4}).items()}
    text = "pairs are channels 2j and 2j + 1 in the weights next to a params.json; weights that transformers converts "
    text += "have layout='half'"
    layout_finding = Finding("layout", text, "layout-of-params")
    program = "Mistral's params.json" if mistral else "Meta's params.json"
    return Translated(translated, program, "interleaved", (layout_finding, *findings), names)


def _meta(config: Config) -> tuple[Config, list[Finding]]:
    llama_4 = any(key in config for key in ("nope_layer_interval", "attention_chunk_size", "moe_args", "use_qk_norm"))
    translated: Config = {"model_type": "llama4_text" if llama_4 else "llama", **renamed(config, _WIDTHS)}
    findings = []
    if "rope_theta" not in translated:
        translated["rope_theta"] = 10000.0
        text = "is not given: Llama 1 and 2, which have no such key, have base 10000; llama-models would take 500000"
        findings.append(Finding("rope_theta", text, "base-of-params", "suspicion"))
    if llama_4:
        translated |= renamed(config, _LLAMA_4)
        translated["attn_temperature_tuning"] = config.get("attn_temperature_tuning") is True
        layers = config.get("n_layers")
        if config.get("nope_layer_interval") is None and is_count(layers, LAYERS):
            translated["no_rope_layers"] = [1] * layers
    scaled = config.get("use_scaled_rope")
    if scaled not in (None, True, False):
        raise ValueError(f"use_scaled_rope must be true, false or null, found {shown(scaled)}")
    if scaled:
        factor = number_at(config, "rope_scaling_factor", 16.0 if llama_4 else 8.0, 1)
        high = number_at(config, "rope_high_freq_factor", 1.0 if llama_4 else 4.0)
        translated["rope_scaling"] = {
            "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high,
            "original_max_position_embeddings": 8192,
        }  # fmt: skip
        if not llama_4 and config.get("dim") in (2048, 3072) and "rope_scaling_factor" not in config:
            text = "has no factor next to it: Meta's code takes 8, and Llama 3.2 as transformers converts it has 32"
            findings.append(Finding("use_scaled_rope", text, "factor-of-params", "suspicion"))
    return translated, findings


def _mistral(config: Config) -> tuple[Config, list[Finding]]:
    latent = bool(config.get("qk_nope_head_dim"))
    block, has_temperature = _mistral_block(config, latent)
    translated: Config = {**renamed(config, _MISTRAL), "sliding_window": None}
    windows = config.get("sliding_window")
    kind = "mistral4" if latent else "ministral3" if has_temperature else "mixtral" if config.get("moe") else "mistral"
    if isinstance(windows, list):
        translated |= _windows(windows, config.get("n_layers"))
        if has_temperature or latent:
            raise ValueError(
                "sliding_window is a list next to llama_4_scaling or latent attention, of which no model is known"
            )
        kind = "ministral"
    elif windows is not None:
        translated["sliding_window"] = windows
    if config.get("model_type") not in (None, "transformer"):
        kind = config["model_type"]
    base = translated.pop("rope_theta", None)
    block = {**({} if base is None else {"rope_theta": base}), **block}
    return {
        "model_type": kind,
        **translated,
        "rope_parameters": block,
        **({"rope_interleave": True} if latent else {}),
    }, []


def _mistral_block(config: Config, latent: bool) -> tuple[Config, bool]:
    """The block, and whether queries have a temperature."""
    block: Config = {"rope_type": "default"}
    yarn, temperature = (_object(config, key) for key in ("yarn", "llama_4_scaling"))
    if yarn:
        strange = set(yarn) - {*_YARN, "apply_scale"}
        if strange:
            text = f"has {', '.join(sorted(map(str, strange)))}, which is not known"
            raise ValueError(f"yarn {text}; known are {', '.join((*_YARN, 'apply_scale'))}")
        block = {"rope_type": "yarn", **renamed(yarn, _YARN)}
        if yarn.get("apply_scale", True) is False:
            block["attention_factor"] = 1.0
        elif latent:
            block |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    if temperature:
        trained = temperature.get("original_max_position_embeddings")
        if block.setdefault("original_max_position_embeddings", trained) != trained or trained is None:
            lengths = f"{shown(trained)}, and in yarn {shown(block['original_max_position_embeddings'])}"
            text = f"must be the length of yarn, as one key of transformers holds both, found {lengths}"
            raise ValueError(f"llama_4_scaling.original_max_position_embeddings {text}")
        block["llama_4_scaling_beta"] = temperature.get("beta")
    return block, bool(temperature)


def _object(config: Config, key: str) -> Config:
    value = config.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be an object or null, found {shown(value)}")
    return value


def _windows(windows: list[Any], layers: object) -> Config:
    """A window or null for each layer of a period, as kinds of layers and one window."""
    sizes = {size for size in windows if is_count(size)}
    strange = any(size is not None and not is_count(size) for size in windows)
    if strange or not is_count(layers, LAYERS) or not windows or layers % len(windows) or len(sizes) > 1:
        text = "must hold null and one number of tokens, as often as divides n_layers"
        raise ValueError(f"sliding_window {text} = {shown(layers)}, found {shown(windows)}")
    kinds = [FULL if size is None else SLIDING for size in windows] * (layers // len(windows))
    return {"layer_types": kinds, "sliding_window": sizes.pop() if sizes else None}


def of_litgpt(config: Config) -> Translated:
    """A model_config.yaml in Hugging Face's keys.

    Raises:
        ValueError: for a scaling that is none of litgpt's; it names the key.
    """
    if config.get("rope_local_base_freq") is not None or config.get("rope_indices") is not None:
        raise NotReadError("rope_indices gives layers rotations of their own, which are not read of a file of litgpt")
    name = str(config.get("name", "")).lower()
    kind = next((kind for begin, kind in _TYPES.items() if name.startswith(begin)), "llama")
    translated: Config = {"model_type": kind, **renamed(config, _LITGPT)}
    translated["sliding_window"] = config.get("sliding_window_size")
    condensed = number_at(config, "rope_condense_ratio", 1.0)
    adjustments = config.get("rope_adjustments")
    if adjustments is not None:
        translated["rope_scaling"] = _litgpt_scaling(adjustments)
    if condensed != 1 and adjustments is not None:
        raise NotReadError(f"rope_condense_ratio = {condensed:g} next to rope_adjustments is not read")
    if condensed != 1:
        translated["rope_scaling"] = {"rope_type": "linear", "factor": condensed}
    text = (
        "of litgpt was read for its rotation, widths and lengths; windows, softcaps and scales of its layers were not"
    )
    note = Finding("name", text, "rotation-of-litgpt")
    layout: Layout = "interleaved" if config.get("rope_interleave") is True else "half"
    return Translated(translated, "litgpt", layout, (note,), {ours: theirs for theirs, ours in _LITGPT.items()})


def _litgpt_scaling(adjustments: Any) -> Config:
    """The block of rope_adjustments."""
    if not isinstance(adjustments, dict) or "factor" not in adjustments:
        raise ValueError(f"rope_adjustments must be null or an object with factor, found {shown(adjustments)}")
    keys = {key: value for key, value in adjustments.items() if key not in ("factor", "original_max_seq_len")}
    factor, original = adjustments["factor"], adjustments.get("original_max_seq_len")
    block = {"factor": factor, **keys, "original_max_position_embeddings": original}
    if not keys and original is None:
        return {"rope_type": "linear", "factor": factor}
    if set(keys) == _LLAMA_3 and original is not None:
        return {"rope_type": "llama3", **block}
    if _BETAS <= set(keys) <= _BETAS | _OPTIONAL and original is not None:
        return {"rope_type": "yarn", **block, **({} if "mscale" in keys else {"attention_factor": 1.0})}
    raise ValueError(f"rope_adjustments = {shown(adjustments)} is no scaling of litgpt")
