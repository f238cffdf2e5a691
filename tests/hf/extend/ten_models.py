"""Ten released models and the rope keys of a longer context, written down from what their authors publish.

The blocks are written out by hand, not computed. Sources: the model cards and the README that `DOCUMENTED` names; where
the authors document nothing, the rule that the module `plan` states for the rope type.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from tests.golden import configs

PUBLISHED = {line["model"]: line["config"] for line in configs("published_configs")}
_GPT_OSS = {  # openai/gpt-oss-120b without quantisation and expert settings
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "head_dim": 64, "hidden_size": 2880,
    "initial_context_length": 4096, "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "max_position_embeddings": 131072,
    "model_type": "gpt_oss", "num_attention_heads": 64, "num_hidden_layers": 36, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                     "rope_type": "yarn", "truncate": False},
    "rope_theta": 150000, "sliding_window": 128, "transformers_version": "4.55.0.dev0", "vocab_size": 201088,
}  # fmt: skip


def _instruct() -> dict[str, Any]:
    """Qwen2.5-7B-Instruct: the base model's config but for the length and the end of a text."""
    config: dict[str, Any] = copy.deepcopy(PUBLISHED["Qwen/Qwen2.5-7B"])
    config.pop("use_mrope")
    return {**config, "max_position_embeddings": 32768, "eos_token_id": 151645, "transformers_version": "4.43.1"}


class Extended(NamedTuple):
    """A model, a length, and every key of its text config that must change."""

    name: str
    config: dict[str, Any]
    length: int
    keys: dict[str, Any]
    documented: bool


_GEMMA = PUBLISHED["google/gemma-4-31B"]["text_config"]["rope_parameters"]
_DEEPSEEK = PUBLISHED["deepseek-ai/DeepSeek-V3"]["rope_scaling"]
_LLAMA = PUBLISHED["meta-llama/Llama-3.1-8B"]["rope_scaling"]
TEN = (
    Extended("Qwen2.5-7B-Instruct", _instruct(), 131072, {
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    }, True),
    Extended("Qwen3-8B", PUBLISHED["Qwen/Qwen3-8B"], 131072, {
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    }, True),
    Extended("Qwen3.5-27B", PUBLISHED["Qwen/Qwen3.5-27B"], 1010000, {
        "max_position_embeddings": 1010000,
        "rope_parameters": {
            "mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "yarn", "rope_theta": 10000000,
            "partial_rotary_factor": 0.25, "factor": 4.0, "original_max_position_embeddings": 262144,
        },
    }, True),
    Extended("Qwen3-VL", PUBLISHED["Qwen/Qwen3-VL-8B-Instruct"], 1000000, {
        "max_position_embeddings": 1000000,
        "rope_scaling": {
            "rope_type": "yarn", "mrope_section": [24, 20, 20], "mrope_interleaved": True, "factor": 3.0,
            "original_max_position_embeddings": 262144,
        },
    }, True),
    Extended("gpt-oss", _GPT_OSS, 262144, {
        "max_position_embeddings": 262144,
        "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 64.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        },
    }, False),
    Extended("Gemma 4", PUBLISHED["google/gemma-4-31B"], 524288, {
        "max_position_embeddings": 524288,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional",
                               "factor": 2.0},
            "sliding_attention": _GEMMA["sliding_attention"],
        },
    }, False),
    Extended("EXAONE 4", PUBLISHED["LGAI-EXAONE/EXAONE-4.0-32B"], 262144, {"max_position_embeddings": 262144}, False),
    Extended("DeepSeek-V3", PUBLISHED["deepseek-ai/DeepSeek-V3"], 327680, {
        "max_position_embeddings": 327680, "rope_scaling": {**_DEEPSEEK, "factor": 80},
    }, False),
    Extended("Llama 3.1", PUBLISHED["meta-llama/Llama-3.1-8B"], 262144, {
        "max_position_embeddings": 262144, "rope_scaling": {**_LLAMA, "factor": 16.0},
    }, False),
    Extended("Gemma 3 1B", PUBLISHED["google/gemma-3-1b-it"], 131072, {
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    }, False),
)  # fmt: skip
