"""Sizes of the smallest model of each family that works: a few narrow layers with every kind of its schedule.

A family costs no line where `TINY` fits it. `MORE` has the numbers of those that want others, `CLASSES` the class where
the configuration does not lead to it. The record of a family says why it is not built (``not_compared``).
"""

from __future__ import annotations

from typing import Any

LENGTH, TRAINED = 28, 16  # tokens of a text, of which the last lie beyond the trained length
TINY: dict[str, Any] = {
    "num_hidden_layers": 8, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 16,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "sliding_window": 8, "attention_chunk_size": 8,
    "floor_scale": 8, "max_position_embeddings": TRAINED, "kv_lora_rank": 16, "q_lora_rank": 16,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip


def _all(names: str, sizes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict.fromkeys(names.split(), sizes)


def _sections(*sections: int, **block: Any) -> dict[str, Any]:
    """M-RoPE of heads this narrow."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections), **block}}


_MISTRAL = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
_GPTJ = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 64, "n_positions": 64, "rotary_dim": 8}
_MAMBA = {
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 8, "mamba_chunk_size": 8,
}  # fmt: skip

MORE: dict[str, dict[str, Any]] = {
    **_all(
        "axk1 axk2 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa hy_v4 longcat_flash "
        "minicpm3 youtu esmc",
        {"num_key_value_heads": 4},
    ),
    "longcat_flash": {
        "num_key_value_heads": 4, "head_dim": 8, "num_layers": 4, "num_hidden_layers": 8, "ffn_hidden_size": 64,
        "expert_ffn_hidden_size": 32, "zero_expert_num": 2, "moe_topk": 2, "n_routed_experts": 4,
    },
    "mistral4": {"num_key_value_heads": 4, "rope_parameters": _MISTRAL},
    "ministral3": {"rope_parameters": _MISTRAL},
    "mistral_large4_text": {"num_key_value_heads": 4},
    **_all(
        "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text paddleocr_vl_text glm_image_text "
        "glm4v_text glm_ocr_text",
        _sections(2, 3, 3),
    ),
    **_all("cosmos3_edge_text qwen3_vl_text qwen3_vl_moe_text", _sections(4, 2, 2)),
    "qwen3_omni_moe_text": {**_sections(4, 2, 2), "head_dim": 16},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": None, "sliding_attention": _sections(4, 2, 2)["rope_parameters"]},
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 2,
    },
    **_all(
        "qwen3_5_text qwen3_5_moe_text",
        {"head_dim": 32, **_sections(2, 1, 1, partial_rotary_factor=0.25)},
    ),
    "glm4v_moe_text": _sections(1, 1, 2, partial_rotary_factor=0.5),
    **_all("ernie4_5_moe_vl ernie4_5_vl_moe_text", {"moe_intermediate_size": [32, 32], **_sections(3, 3, 2)}),
    **_all("modernbert modernbert-decoder", {"local_attention": 16}),
    "recurrent_gemma": {"attention_window_size": 8},
    "zaya": {"num_experts_per_tok": 1},
    "zamba2": {
        "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2, "layer_types": ["mamba", "hybrid"] * 2,
    },
    "dots1": {"n_shared_experts": 1},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] * 8},
    "csm": {"max_position_embeddings": 64},
    "diffusion_gemma_text": {"top_k_experts": 2},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "attention"] * 2, **_MAMBA},
    "bamba": {"attn_layer_indices": [1, 3], "num_hidden_layers": 4, **_MAMBA},
    "falcon_h1": {"num_hidden_layers": 3, "mamba_d_ssm": 128, **_MAMBA},
    **_all("codegen gptj", _GPTJ),
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 4},
    "gemma3n_text": {
        "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64,
        "activation_sparsity_pattern": [0.0] * 8, "intermediate_size": [64] * 8, "laurel_rank": 8,
    },
    "gemma4_text": {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64},
    "kyutai_speech_to_text": {
        "codebook_vocab_size": 65, "num_codebooks": 2, "ffn_dim": 64, "pad_token_id": 3, "audio_pad_token_id": 3,
        "audio_bos_token_id": 4,
    },
    "mimo_v2_flash": {"head_dim": 24, "swa_head_dim": 24},
    "minimax_m3_vl_text": {"rotary_dim": 16},
    "phi4_multimodal": {
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 28, "crop_size": 28,
        },
        "audio_config": {"hidden_size": 32, "intermediate_size": 32, "num_blocks": 1, "num_attention_heads": 2},
    },
    "evolla": {
        "protein_encoder_config": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                                   "intermediate_size": 32, "vocab_size": 64},
        "aligner_num_add_layers": 1, "resampler_depth": 1, "resampler_heads": 2, "resampler_num_latents": 4,
        "num_hidden_layers": 4,
    },
    "idefics": {
        "num_hidden_layers": 4, "cross_layer_interval": 2, "additional_vocab_size": 2,
        "vision_config": {"embed_dim": 32, "image_size": 28, "intermediate_size": 32, "num_hidden_layers": 1,
                          "num_attention_heads": 2},
        "perceiver_config": {"use_resampler": False, "resampler_n_latents": 4, "resampler_depth": 1,
                             "resampler_n_heads": 2, "resampler_head_dim": 8},
    },
    "dbrx": {"d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 16,
             "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
             "ffn_config": {"ffn_hidden_size": 32, "hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2}},
    "chameleon": {"vq_config": {"embed_dim": 8, "num_embeddings": 8, "base_channels": 32, "latent_channels": 32,
                                "resolution": 64}, "vocabulary_map": {"<image>": 9}},
    **_all(
        "mimi mimi_encoder mimi_decoder pocket_tts_audio_tokenizer", {"num_key_value_heads": 4, "upsample_groups": 1}
    ),
    "gradium_phonon_tts": {"num_key_value_heads": 4, "flow_head_config": {"hidden_size": 32, "condition_dim": 64}},
    "pocket_tts": {"audio_prompt_token_id": 60, "audio_latent_token_id": 61, "audio_prompt_bos_token_id": 62,
                   "audio_bos_token_id": 63, "num_key_value_heads": 4,
                   "flow_head_config": {"hidden_size": 32, "condition_dim": 64}},
    "dia_decoder": {"cross_num_attention_heads": 4, "cross_head_dim": 16, "cross_num_key_value_heads": 4,
                    "cross_hidden_size": 64, "num_channels": 2},
    "glmasr_encoder": {"num_mel_bins": 8, "num_key_value_heads": 4},
    "lasr_encoder": {"num_mel_bins": 32, "subsampling_conv_channels": 8, "dropout": 0.0, "layerdrop": 0.0},
    "moonshine": {
        "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 4, "encoder_num_attention_heads": 4,
        "decoder_num_attention_heads": 4, "num_hidden_layers": 4,
    },
    "moonshine_streaming": {
        "num_key_value_heads": 4, "num_hidden_layers": 3,
        "encoder_config": {"hidden_size": 64, "num_hidden_layers": 1},
    },
    "t5gemma2_text": {"num_hidden_layers": 6},
    "blt_global_transformer": {"num_key_value_heads": 4},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 64,
        "indexer_compress_ratio": 4, "hc_lowrank": 8, "ngram_vocab_size_base": 97, "head_dim": 16,
        "split_ngram_parts": 1, "shared_expert_intermediate_size": 32, "linear_num_key_heads": 2,
        "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        **_sections(4, 2, 2),
    },
}  # fmt: skip
CLASSES: dict[str, str] = {
    "blt_global_transformer": "BltGlobalTransformer", "blt_patcher": "BltPatcher",
    "csm": "CsmBackboneModel", "dia_encoder": "DiaEncoder",
    "dia_decoder": "DiaDecoder", "glmasr_encoder": "GlmAsrEncoder", "lasr_encoder": "LasrEncoder",
    "mimi": "MimiTransformerModel", "mimi_encoder": "MimiTransformerModel", "mimi_decoder": "MimiTransformerModel",
    "pocket_tts_audio_tokenizer": "PocketTTSAudioTokenizerTransformerModel", "moonshine": "MoonshineDecoder",
    "moonshine_streaming": "MoonshineStreamingDecoder",
    "t5_gemma_module": "T5GemmaEncoder", "t5gemma2_text": "T5Gemma2TextEncoder",
    "voxtral_realtime_encoder": "VoxtralRealtimeEncoder",
}  # fmt: skip
BY_TORCH = ("falcon",)  # whose eager attention is written into its forward
EMBEDDED = ("csm", "gradium_phonon_tts", "kyutai_speech_to_text", "pocket_tts", "voxtral_realtime_encoder")
LATER: dict[str, dict[str, Any]] = {  # what parts of a model read of the whole's configuration
    **_all("t5_gemma_module t5gemma2_text", {"dropout_rate": 0.0}),
}
