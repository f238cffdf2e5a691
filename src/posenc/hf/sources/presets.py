"""Configurations of well-known checkpoints, cut down to what their rotation needs.

    read_rope(preset("deepseek-v3")).softmax_factor()
    json.dumps(preset("qwen2.5-yarn")["rope_scaling"])

The same YaRN means different things in different code; `posenc.hf.config.rotation` has the table of conventions.

- "deepseek-v2", "deepseek-v3": mscale and mscale_all_dim; the gains of rotated q and k cancel, and the softmax scale
  has m(40, mscale_all_dim)² instead.
- "qwen2.5-yarn", "qwen3-yarn": the block that Qwen's model cards tell users to add: plain YaRN, factor 4.
- "gpt-oss": truncate false, so the ramp starts and ends between pairs.
- "vllm-yarn": the same rotation as "qwen2.5-yarn" in the keys of older vLLM; read it with convention="vllm".
- "llama-3.1", "llama-3.2", "gemma-3", "gemma-4": other recipes, for comparison.

Source: the config.json files of deepseek-ai/DeepSeek-V2, deepseek-ai/DeepSeek-V3, openai/gpt-oss-20b,
    meta-llama/Llama-3.1-8B, meta-llama/Llama-3.2-1B, google/gemma-3-1b-pt and the defaults of transformers'
    Gemma4TextConfig; the model cards of Qwen/Qwen2.5-7B-Instruct and Qwen/Qwen3-8B.
"""

from __future__ import annotations

import copy
import difflib

from posenc.arguments import shown
from posenc.hf.sources.load import Config

_QWEN_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
_LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def _deepseek(model_type: str, mscale: float) -> Config:
    return {
        "model_type": model_type, "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
            "mscale": mscale, "mscale_all_dim": mscale,
        },
    }  # fmt: skip


PRESETS: dict[str, Config] = {
    "deepseek-v2": _deepseek("deepseek_v2", 0.707),
    "deepseek-v3": _deepseek("deepseek_v3", 1.0),
    "qwen2.5-yarn": {
        "model_type": "qwen2", "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
        "rope_scaling": _QWEN_YARN,
    },
    "qwen3-yarn": {
        "model_type": "qwen3", "head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1000000,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    },
    "gpt-oss": {
        "model_type": "gpt_oss", "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
            "beta_slow": 1.0, "truncate": False,
        },
    },
    "vllm-yarn": {
        "model_type": "qwen2", "head_dim": 128, "max_position_embeddings": 32768,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768,
            "attn_factor": 1.0, "extrapolation_factor": 1.0, "apply_yarn_scaling": True,
        },
    },
    "llama-3.1": {
        "model_type": "llama", "head_dim": 128, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": _LLAMA_3,
    },
    "llama-3.2": {
        "model_type": "llama", "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {**_LLAMA_3, "factor": 32.0},
    },
    "gemma-3": {
        "model_type": "gemma3_text", "head_dim": 256, "max_position_embeddings": 32768, "rope_theta": 1000000,
        "rope_local_base_freq": 10000, "rope_scaling": None,
    },
    "gemma-4": {
        "model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
        },
    },
}  # fmt: skip


def preset(name: str) -> Config:
    """A copy of the configuration of a well-known checkpoint.

    Raises:
        ValueError: for an unknown name; it shows the nearest and all.

    >>> preset("gpt-oss")["rope_scaling"]["truncate"]
    False
    """
    if not isinstance(name, str):
        raise ValueError(f"name must be one of {', '.join(PRESETS)}, got {shown(name)}")
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"name: preset {name!r} is not known; {hint}there are {', '.join(PRESETS)}")
    return copy.deepcopy(PRESETS[name])
