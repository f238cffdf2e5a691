"""litgpt's model_config.yaml in Hugging Face's keys: widths, lengths and the rotation.

    n_embd, n_head, n_layer, block_size, padded_vocab_size, head_size   widths and lengths
    rope_base, rotary_percentage                base, and the share of a head that rotates
    rope_condense_ratio                         positions are divided by it
    rope_adjustments                            null, or factor alone (linear), with low_freq_factor and
                                                high_freq_factor (llama3), with beta_fast and beta_slow (yarn; without
                                                mscale its gain is 1)

Source: litgpt 0.5.13, config.py and model.py (build_rope_cache).
"""

from __future__ import annotations

from typing import Any

from posenc.arguments import shown
from posenc.frequencies.rotation import Layout
from posenc.hf.findings import Finding, NotReadError
from posenc.hf.sources.translated import Config, Translated, number_at, renamed

FILE = "model_config.yaml"
_NAMES = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_query_groups": "num_key_value_heads",
    "n_layer": "num_hidden_layers", "head_size": "head_dim", "block_size": "max_position_embeddings",
    "vocab_size": "vocab_size", "rope_base": "rope_theta", "rotary_percentage": "partial_rotary_factor",
}  # fmt: skip
_TYPES = {"mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"}  # by the begin of a name; else as in a Llama
_LLAMA_3, _YARN = {"low_freq_factor", "high_freq_factor"}, {"beta_fast", "beta_slow"}
_OPTIONAL = {"mscale", "mscale_all_dim", "truncate"}


def translate(config: Config) -> Translated:
    """A model_config.yaml in Hugging Face's keys.

    Raises:
        ValueError: for a scaling that is none of litgpt's; it names the key.
    """
    if config.get("rope_local_base_freq") is not None or config.get("rope_indices") is not None:
        raise NotReadError("rope_indices gives layers rotations of their own, which are not read of a file of litgpt")
    name = str(config.get("name", "")).lower()
    kind = next((kind for begin, kind in _TYPES.items() if name.startswith(begin)), "llama")
    translated: Config = {"model_type": kind, **renamed(config, _NAMES)}
    translated["sliding_window"] = config.get("sliding_window_size")
    condensed = number_at(config, "rope_condense_ratio", 1.0)
    adjustments = config.get("rope_adjustments")
    if adjustments is not None:
        translated["rope_scaling"] = _scaling(adjustments)
    if condensed != 1 and adjustments is not None:
        raise NotReadError(f"rope_condense_ratio = {condensed:g} next to rope_adjustments is not read")
    if condensed != 1:
        translated["rope_scaling"] = {"rope_type": "linear", "factor": condensed}
    text = (
        "of litgpt was read for its rotation, widths and lengths; windows, softcaps and scales of its layers were not"
    )
    note = Finding("name", text, "rotation-of-litgpt")
    layout: Layout = "interleaved" if config.get("rope_interleave") is True else "half"
    return Translated(translated, "litgpt", layout, (note,), {ours: theirs for theirs, ours in _NAMES.items()})


def _scaling(adjustments: Any) -> Config:
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
    if _YARN <= set(keys) <= _YARN | _OPTIONAL and original is not None:
        return {"rope_type": "yarn", **block, **({} if "mscale" in keys else {"attention_factor": 1.0})}
    raise ValueError(f"rope_adjustments = {shown(adjustments)} is no scaling of litgpt")
