"""litgpt: model_config.yaml, which it reads instead of config.json.

Source: litgpt 0.5.13, config.py and model.py (build_rope_cache), whose cache the bench compared with transformers.
"""

from __future__ import annotations

import json
from typing import Any

from posenc.hf.serving.lines import Line, Serving, block_in, gain_of_yarn
from posenc.hf.serving.table import verdict, version_of

COLUMN = "litgpt"
VERSION = version_of(COLUMN)
_KEYS = {
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}


def line(serving: Serving) -> Line:
    """The settings of litgpt."""
    rope = serving.rope
    block = block_in("transformers", rope, serving.length)
    settings = {"block_size": serving.length, **_settings(block, rope.rotary_dim / rope.head_dim)}
    checked = verdict(COLUMN, [block], model_type="llama")  # one cache serves all of its models
    command = "" if checked.right is False else f"model_config.yaml: {json.dumps(settings)}"
    return Line("litgpt", VERSION, command, checked.right, str(checked))


def _settings(block: dict[str, Any], share: float) -> dict[str, Any]:
    kind = block["rope_type"]
    settings: dict[str, Any] = {"rope_base": block["rope_theta"], "rotary_percentage": share}
    if kind == "linear":
        return {**settings, "rope_condense_ratio": block["factor"]}
    if kind == "default":
        return settings
    if kind not in _KEYS or block.get("attention_factor") is not None:
        raise ValueError(f"rope_adjustments has no such scaling as {kind} with these keys")
    adjustments = {key: block[key] for key in _KEYS[kind] if key in block}
    if kind == "yarn":  # without mscale its gain is 1
        adjustments = {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": gain_of_yarn(block)[1], **adjustments}
    adjustments["original_max_seq_len"] = block["original_max_position_embeddings"]
    return {**settings, "rope_adjustments": adjustments}
