"""What configurations in the wild look like, written by hand after their config.json, and what each one means.

Whole published files with their facts are in tests/golden/published_configs.jsonl; here are other spellings and models.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

PHI3_SHORT = [1.05, 1.05, 1.05, 1.1, 1.1, 1.15] + [1.2 + 0.05 * i for i in range(42)]
PHI3_LONG = [1.03, 1.05, 1.05, 1.08] + [1.2 + 1.45 * i for i in range(44)]


class Rotary(NamedTuple):
    """What the layers of one kind should do; sections are pairs that read time, row and column."""

    head_dim: int
    rotary_dim: int
    base: float
    layout: str = "half"
    scaling: str | None = None
    numbers: Mapping[str, Any] = MappingProxyType({})
    sections: tuple[int, ...] | None = None
    order: str = "chunked"


def _llama(**more: Any) -> dict[str, Any]:
    return {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32000, **more}


LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
LLAMA3_NUMBERS = {"original_length": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
DEEPSEEK_YARN = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
DEEPSEEK_NUMBERS = {"factor": 40, "original_length": 4096, "beta_fast": 32, "beta_slow": 1, "truncate": True}
GPT_OSS = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
    "truncate": False,
}  # fmt: skip
GEMMA4 = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}
PHI3_NUMBERS = {"original_length": 4096, "factor": 32.0, "short": PHI3_SHORT, "long": PHI3_LONG}
FULL, SLIDING = "full_attention", "sliding_attention"

CHECKPOINTS: dict[str, tuple[dict[str, Any], dict[str, Rotary | None]]] = {
    "llama-2-7b": (_llama(max_position_embeddings=4096, rope_scaling=None), {"all": Rotary(128, 128, 10000.0)}),
    "llama-2-7b, saved by version 5": (
        _llama(head_dim=128, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}),
        {"all": Rotary(128, 128, 10000.0)},
    ),
    "llama-3.1-8b": (
        _llama(max_position_embeddings=131072, rope_theta=500000.0, rope_scaling={**LLAMA3, "factor": 8.0}),
        {"all": Rotary(128, 128, 5e5, "half", "Llama3", {"factor": 8, **LLAMA3_NUMBERS})},
    ),
    "llama-3.2-1b": (
        {
            "model_type": "llama", "head_dim": 64, "hidden_size": 2048, "num_attention_heads": 32,
            "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {**LLAMA3, "factor": 32.0},
        },
        {"all": Rotary(64, 64, 5e5, "half", "Llama3", {"factor": 32, **LLAMA3_NUMBERS})},
    ),
    "yarn-llama-2-7b-64k": (
        _llama(
            max_position_embeddings=65536,
            rope_scaling={"factor": 16.0, "finetuned": True, "original_max_position_embeddings": 4096, "type": "yarn"},
        ),
        {"all": Rotary(128, 128, 1e4, "half", "YaRN", {"factor": 16, "original_length": 4096})},
    ),
    "longchat-7b-v1.5-32k": (
        _llama(max_position_embeddings=4096, rope_scaling={"factor": 8.0, "type": "linear"}),
        {"all": Rotary(128, 128, 1e4, "half", "PositionInterpolation", {"factor": 8})},
    ),
    "dynamic": (
        _llama(max_position_embeddings=2048, rope_scaling={"factor": 2.0, "type": "dynamic"}),
        {"all": Rotary(128, 128, 1e4, "half", "DynamicNTK", {"factor": 2, "original_length": 2048})},
    ),
    "qwen2.5-7b-instruct with yarn": (
        {
            "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "max_position_embeddings": 32768,
            "rope_theta": 1000000.0, "sliding_window": 131072, "use_sliding_window": False,
            "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
        },
        {
            "all": Rotary(
                128, 128, 1e6, "half", "YaRN", {"factor": 4, "original_length": 32768, "attention_factor": None}
            )
        },
    ),
    "qwen3-8b": (
        {
            "model_type": "qwen3", "head_dim": 128, "hidden_size": 4096, "num_attention_heads": 32,
            "max_position_embeddings": 40960, "rope_scaling": None, "rope_theta": 1000000,
        },
        {"all": Rotary(128, 128, 1e6)},
    ),
    "qwen3-next-80b": (
        {
            "model_type": "qwen3_next", "head_dim": 256, "partial_rotary_factor": 0.25, "rope_theta": 10000000,
            "rope_scaling": None, "max_position_embeddings": 262144,
        },
        {"all": Rotary(256, 64, 1e7)},
    ),
    "deepseek-v3": (
        {
            "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000,
            "rope_scaling": {**DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
        {"all": Rotary(64, 64, 1e4, "interleaved", "YaRN", {**DEEPSEEK_NUMBERS, "mscale": 1.0, "mscale_all_dim": 1.0})},
    ),
    "gpt-oss-20b": (
        {
            "model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "num_attention_heads": 64,
            "sliding_window": 128, "max_position_embeddings": 131072, "initial_context_length": 4096,
            "rope_theta": 150000, "rope_scaling": GPT_OSS,
        },
        {"all": Rotary(64, 64, 1.5e5, "half", "YaRN", {"factor": 32, "original_length": 4096, "truncate": False})},
    ),
    "gpt-oss without a block": (
        {"model_type": "gpt_oss", "head_dim": 64, "max_position_embeddings": 131072},
        {"all": Rotary(64, 64, 1.5e5, "half", "YaRN", {"factor": 32, "original_length": 4096, "truncate": False})},
    ),
    "phi-3-mini-128k, first spelling": (
        {
            "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {"long_factor": PHI3_LONG, "short_factor": PHI3_SHORT, "type": "su"},
        },
        {"all": Rotary(96, 96, 1e4, "half", "LongRoPE", PHI3_NUMBERS)},
    ),
    "phi-3.5-mini": (
        {
            "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {"long_factor": PHI3_LONG, "short_factor": PHI3_SHORT, "type": "longrope"},
        },
        {"all": Rotary(96, 96, 1e4, "half", "LongRoPE", PHI3_NUMBERS)},
    ),
    "phi-3.5-moe": (
        {
            "model_type": "phimoe", "hidden_size": 3072, "num_attention_heads": 32, "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {
                "long_factor": PHI3_LONG, "long_mscale": 1.25, "original_max_position_embeddings": 4096,
                "short_factor": PHI3_SHORT, "short_mscale": 1.243163121016122, "type": "longrope",
            },
        },
        {"all": Rotary(96, 96, 1e4, "half", "LongRoPE", {"short_gain": 1.243163121016122, "long_gain": 1.25})},
    ),
    "gemma-3-4b": (
        {
            "model_type": "gemma3", "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
            "text_config": {
                "model_type": "gemma3_text", "head_dim": 256, "hidden_size": 2560, "num_attention_heads": 8,
                "max_position_embeddings": 131072, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
                "sliding_window_pattern": 6,
            },
        },
        {FULL: Rotary(256, 256, 1e6, "half", "PositionInterpolation", {"factor": 8}), SLIDING: Rotary(256, 256, 1e4)},
    ),
    "gemma-3-1b, saved by version 5": (
        {
            "model_type": "gemma3_text", "head_dim": 256, "num_hidden_layers": 2, "sliding_window": 512,
            "layer_types": [SLIDING, FULL],
            "rope_parameters": {
                FULL: {"rope_theta": 1000000, "rope_type": "default"},
                SLIDING: {"rope_theta": 10000, "rope_type": "default"},
            },
        },
        {FULL: Rotary(256, 256, 1e6), SLIDING: Rotary(256, 256, 1e4)},
    ),
    "gemma-4": (
        {
            "model_type": "gemma4_text", "head_dim": 256, "num_hidden_layers": 6, "layer_types": [SLIDING] * 5 + [FULL],
            "rope_parameters": GEMMA4, "per_layer_config": {"5": {"head_dim": 512}},
        },
        {SLIDING: Rotary(256, 256, 1e4), FULL: Rotary(512, 512, 1e6, "half", "Proportional", {"fraction": 0.25})},
    ),
    "olmo-3-7b": (
        {
            "model_type": "olmo3", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 65536,
            "rope_theta": 500000, "sliding_window": 4096, "num_hidden_layers": 4,
            "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
            "rope_scaling": {
                "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
                "original_max_position_embeddings": 8192, "rope_type": "yarn",
            },
        },
        {
            FULL: Rotary(128, 128, 5e5, "half", "YaRN", {"attention_factor": 1.2079441541679836}),
            SLIDING: Rotary(128, 128, 5e5),
        },
    ),
    "pythia-1b": (
        {
            "model_type": "gpt_neox", "hidden_size": 2048, "num_attention_heads": 8, "max_position_embeddings": 2048,
            "rotary_emb_base": 10000, "rotary_pct": 0.25,
        },
        {"all": Rotary(256, 64, 1e4)},
    ),
    "gpt-j-6b": (
        {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_positions": 2048, "rotary": True, "rotary_dim": 64},
        {"all": Rotary(256, 64, 1e4, "interleaved")},
    ),
    "minimax-m2": (
        {"model_type": "minimax_m2", "head_dim": 128, "hidden_size": 3072, "rope_theta": 5000000, "rotary_dim": 64},
        {"all": Rotary(128, 64, 5e6)},
    ),
    "stablelm-3b, first spelling": (
        {
            "model_type": "stablelm", "hidden_size": 2560, "num_attention_heads": 32, "rope_pct": 0.25,
            "rope_theta": 10000,
        },
        {"all": Rotary(80, 20, 1e4)},
    ),
    "persimmon-8b": (
        {"model_type": "persimmon", "hidden_size": 4096, "num_attention_heads": 64, "rope_theta": 25000.0},
        {"all": Rotary(64, 32, 25000.0)},
    ),
    "qwen2-vl-7b": (
        {
            "model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1000000.0,
            "rope_scaling": {"mrope_section": [16, 24, 24], "type": "mrope"}, "vision_config": {"hidden_size": 3584},
        },
        {"all": Rotary(128, 128, 1e6, sections=(16, 24, 24))},
    ),
    "qwen2-vl-7b, with both names of the type": (
        {
            "model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1000000.0,
            "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
        },
        {"all": Rotary(128, 128, 1e6, sections=(16, 24, 24))},
    ),
    "qwen2.5-vl-7b with yarn": (
        {
            "model_type": "qwen2_5_vl", "max_position_embeddings": 128000,
            "text_config": {
                "model_type": "qwen2_5_vl_text", "hidden_size": 3584, "num_attention_heads": 28,
                "max_position_embeddings": 131072, "rope_theta": 1000000.0,
                "rope_scaling": {
                    "type": "yarn", "mrope_section": [16, 24, 24], "factor": 4,
                    "original_max_position_embeddings": 32768,
                },
            },
        },
        {"all": Rotary(128, 128, 1e6, "half", "YaRN", {"factor": 4, "original_length": 32768}, (16, 24, 24))},
    ),
    "qwen3-vl-8b": (
        {
            "model_type": "qwen3_vl", "vision_config": {"model_type": "qwen3_vl", "hidden_size": 1152},
            "text_config": {
                "model_type": "qwen3_vl_text", "head_dim": 128, "hidden_size": 4096, "num_attention_heads": 32,
                "max_position_embeddings": 262144, "rope_theta": 5000000,
                "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
            },
        },
        {"all": Rotary(128, 128, 5e6, sections=(24, 20, 20), order="interleaved")},
    ),
    "qwen3.5, saved by version 5": (
        {
            "model_type": "qwen3_5_text", "head_dim": 256, "max_position_embeddings": 262144,
            "rope_parameters": {
                "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
                "rope_theta": 10000000, "rope_type": "default",
            },
        },
        {"all": Rotary(256, 64, 1e7, sections=(11, 11, 10), order="interleaved")},
    ),
    "qwen3-omni-30b": (
        {
            "model_type": "qwen3_omni_moe", "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "text_config": {
                    "model_type": "qwen3_omni_moe_text", "head_dim": 128, "rope_theta": 1000000,
                    "max_position_embeddings": 65536,
                    "rope_scaling": {
                        "interleaved": True, "mrope_interleaved": True, "mrope_section": [24, 20, 20],
                        "rope_type": "default", "type": "default",
                    },
                },
            },
        },
        {"all": Rotary(128, 128, 1e6, sections=(24, 20, 20), order="interleaved")},
    ),
    "glm-4.1v-9b": (
        {
            "model_type": "glm4v",
            "text_config": {
                "model_type": "glm4v_text", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 10000.0,
                "max_position_embeddings": 65536, "partial_rotary_factor": 0.5,
                "rope_scaling": {"mrope_section": [8, 12, 12], "rope_type": "default"},
            },
        },
        {"all": Rotary(128, 64, 1e4, "interleaved", sections=(8, 12, 12))},
    ),
    "ernie-4.5-vl-28b": (
        {
            "model_type": "ernie4_5_vl_moe",
            "text_config": {
                "model_type": "ernie4_5_vl_moe_text", "hidden_size": 2560, "num_attention_heads": 20,
                "max_position_embeddings": 131072,
                "rope_parameters": {"mrope_section": [22, 22, 20], "rope_theta": 500000.0, "rope_type": "default"},
            },
        },
        {"all": Rotary(128, 128, 5e5, "interleaved", sections=(22, 22, 20), order="time last")},
    ),
    "falcon-7b": (
        {"model_type": "falcon", "alibi": False, "hidden_size": 4544, "num_attention_heads": 71, "rope_theta": 10000.0},
        {"all": Rotary(64, 64, 1e4)},
    ),
    "smollm3-3b": (
        {
            "model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "rope_theta": 5000000.0,
            "num_hidden_layers": 8, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0], "rope_scaling": None,
        },
        {"all": Rotary(128, 128, 5e6)},
    ),
}  # fmt: skip
