"""Ten models published in 2026, chosen by name before any of them was read here, and their configs.

Of three the config is written from public code that quotes the file; of the others it is what the config class in
transformers saves, whose defaults are those of the checkpoint that its documentation names.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]
_INTERVAL = [*3 * ["linear_attention"], "full_attention"]
QUOTED: dict[str, Config] = {
    "zai-org/GLM-5.3": {
        "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78, "num_attention_heads": 64,
        "num_key_value_heads": 64, "head_dim": 192, "qk_head_dim": 256, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
        "v_head_dim": 256, "kv_lora_rank": 512, "q_lora_rank": 2048, "index_topk": 2048, "index_head_dim": 128,
        "index_n_heads": 32, "max_position_embeddings": 1048576, "rope_interleave": True, "vocab_size": 154880,
        "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"}, "indexer_rope_interleave": True,
        "transformers_version": "5.15.0",
    },
    "Qwen/Qwen4-Exp": {
        "model_type": "qwen4_exp", "text_config": {
            "model_type": "qwen4_exp_text", "hidden_size": 2560, "num_hidden_layers": 48, "num_attention_heads": 24,
            "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 262144,
            "indexer_budget": 2048, "indexer_compress_ratio": 4, "indexer_head_dim": 128, "indexer_n_heads": 4,
            "indexer_kv_heads": 1, "full_attention_interval": 4, "layer_types": _INTERVAL * 12,
            "partial_rotary_factor": 0.25,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                                "mrope_interleaved": True, "mrope_section": [11, 11, 10]}},
    },
    "inclusionAI/Ling-3.0-flash": {
        "model_type": "bailing_hybrid", "hidden_size": 2560, "num_hidden_layers": 42, "num_attention_heads": 32,
        "num_key_value_heads": 32, "head_dim": 128, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_theta": 6000000, "rotary_dim": 64, "rope_interleave": True,
        "vocab_size": 157184, "layer_group_size": 6, "max_position_embeddings": 262144,
    },
}  # fmt: skip
OF_CLASSES = {  # by name, the model type whose class has its numbers
    "allenai/Olmo-Hybrid-7B": "olmo_hybrid", "tencent/Hy4-preview": "hy_v4",
    "IQuestLab/IQuest-Coder-V1-40B-Instruct": "iquestcoder", "stepfun-ai/Step-3.7-Flash": "step3p7",
    "LiquidAI/LFM3-1.7B": "lfm3", "JetBrains/Mellum2-12B-A2.5B-Base": "mellum",
    "mistralai/Mistral-Large-4-1T-A52B": "mistral_large4",
}  # fmt: skip
NAMES = [*QUOTED, *OF_CLASSES]
