"""Sizes that the configuration classes of transformers have where a text part of a larger model leaves them out.

A composite model (LLaVA, Gemma 3, Qwen2-Audio) saves only what differs from its classes' defaults, so that its
``text_config`` may hold next to nothing. `SIZES` has the defaults of each text model, `TEXT_TYPES` which text model a
composite means where its ``text_config`` has no ``model_type``.

Source: the configuration classes of transformers 5.23, each built without arguments; tests/reference/test_defaults.py
    builds them again.
"""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """Defaults of one class; None where it has none.

    Attributes:
        hidden_size: channels of the stream.
        num_attention_heads: query heads.
        num_hidden_layers: layers.
        max_position_embeddings: tokens.
    """

    hidden_size: int | None
    num_attention_heads: int | None
    num_hidden_layers: int | None
    max_position_embeddings: int | None


Row = tuple[int | None, int | None, int | None, int | None]


def _all(names: str, sizes: Row) -> dict[str, Row]:
    return dict.fromkeys(names.split(), sizes)


def _all_text(names: str, text_type: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), text_type)


_ROWS: dict[str, Row] = {
    "afmoe": (2048, 16, 32, 16384),
    "apertus": (4096, 32, 32, 65536),
    **_all(
        "arcee stablelm",
        (2560, 32, 32, 4096),
    ),
    **_all(
        "aria_text deepseek_ocr2_text deepseek_v2 exaone4 exaone_moe granite granite4_vision_text granitemoe "
        "granitemoe_swa granitemoehybrid granitemoeshared hunyuan_v1_dense hunyuan_v1_moe hyperclovax idefics "
        "llama olmo olmo2 olmo3",
        (4096, 32, 32, 2048),
    ),
    "axk1": (7168, 64, 61, 32768),
    "axk2": (2048, 32, 48, 131072),
    "bailing_hybrid": (2560, 32, 42, 262144),
    "bamba": (4096, 32, 32, 262144),
    "beam": (5120, 48, 52, 8192),
    "bitnet": (2560, 20, 30, 2048),
    "blt_global_transformer": (2048, 16, 25, 4096),
    "blt_local_decoder": (1024, 16, 9, 24576),
    "blt_local_encoder": (1024, 16, 1, 24576),
    "blt_patcher": (768, 12, 14, 8192),
    **_all(
        "chameleon flex_olmo",
        (4096, 32, 32, 4096),
    ),
    **_all(
        "codegen gptj",
        (4096, 16, 28, 2048),
    ),
    **_all(
        "cohere cohere2 cohere2_moe cohere_compass_text",
        (8192, 64, 40, 8192),
    ),
    "cosmos3_edge_text": (2048, 16, 28, 131072),
    **_all(
        "csm diffllama",
        (2048, 32, 16, 2048),
    ),
    "cwm": (6144, 48, 64, 131072),
    "dbrx": (2048, 16, 24, 2048),
    **_all(
        "deepseek_ocr2_encoder qwen2 qwen3",
        (4096, 32, 32, 32768),
    ),
    "deepseek_v3": (7168, 128, 61, 4096),
    "deepseek_v32": (7168, 128, 61, 163840),
    "deepseek_v4": (4096, 64, 43, 1048576),
    "dia_decoder": (2048, 16, 18, 3072),
    "dia_encoder": (1024, 16, 12, 1024),
    **_all(
        "diffusion_gemma_text gemma4_text",
        (2304, 8, 30, 131072),
    ),
    "doge": (1024, 8, 32, 2048),
    "dots1": (4608, 32, 62, 2048),
    "embedding_gemma2_text": (512, 4, 24, 262144),
    "emu3_text_model": (4096, 32, 32, 9216),
    **_all(
        "ernie4_5 paddleocr_vl_text",
        (1024, 16, 18, 131072),
    ),
    **_all(
        "ernie4_5_moe ernie4_5_vl_moe_text",
        (2560, 20, 28, 131072),
    ),
    "esm": (768, 12, 12, 1026),
    "esmc": (2560, 40, 80, 2048),
    **_all(
        "eurobert gte",
        (768, 12, 12, 8192),
    ),
    **_all(
        "evolla falcon_h1",
        (4096, 32, 32, 8192),
    ),
    "falcon": (4544, 71, 32, 2048),
    "flint": (2048, 32, 49, 262144),
    "gemma": (3072, 16, 28, 8192),
    **_all(
        "gemma2 t5_gemma_module vaultgemma",
        (2304, 8, 26, 8192),
    ),
    **_all(
        "gemma3_text t5gemma2_decoder t5gemma2_text",
        (2304, 8, 26, 131072),
    ),
    "gemma3n_text": (2048, 8, 35, 32768),
    "gemma4_unified_text": (2304, 8, 30, 262144),
    **_all(
        "glm glm4 glm_image_text mllama_text_model",
        (4096, 32, 40, 131072),
    ),
    "glm4_moe": (4096, 96, 46, 131072),
    "glm4_moe_lite": (2048, 20, 47, 202752),
    "glm4v_moe_text": (4096, 96, 46, 65536),
    "glm4v_text": (4096, 32, 40, 32768),
    "glm_moe_dsa": (6144, 64, 78, 202752),
    "glm_ocr_text": (1024, 16, 16, 131072),
    "glmasr_encoder": (1280, 20, 32, 1500),
    "gpt_neox": (6144, 64, 44, 2048),
    "gpt_neox_japanese": (2560, 32, 32, 2048),
    "gpt_oss": (2880, 64, 36, 131072),
    "gradium_phonon_tts": (768, 12, 6, 8192),
    "granite_docling_text": (1024, 16, 28, 32768),
    "granite_swa": (2560, 20, 24, 8192),
    "helium": (2560, 20, 24, 4096),
    "higgs_audio_v2": (3072, 24, 28, 2048),
    "hrm_text": (1536, 12, 128, 2048),
    "hy_v3": (4096, 64, 80, 131072),
    "hy_v4": (2816, 32, 34, 262144),
    "jais2": (3328, 26, 32, 8192),
    "jetmoe": (2048, 32, 12, 4096),
    "jina_embeddings_v3": (1024, 16, 24, 8194),
    "kolibri1": (2560, 48, 50, 262144),
    "kyutai_speech_to_text": (2048, 32, 48, 750),
    "laguna": (2048, 48, 40, 131072),
    "lasr_encoder": (512, 8, 17, 10000),
    "lfm2": (2560, 32, 32, 128000),
    "lfm2_moe": (2048, 32, 32, 128000),
    **_all(
        "lfm3 qwen3_vl_moe_text",
        (2048, 16, 24, 128000),
    ),
    "llama4_text": (5120, 40, 48, 131072),
    "longcat_flash": (6144, 64, 56, 131072),
    "mellum": (2304, 32, 28, 131072),
    **_all(
        "mimi mimi_decoder mimi_encoder",
        (512, 8, 8, 8000),
    ),
    **_all(
        "mimo_v2_flash solar_open",
        (4096, 64, 48, 131072),
    ),
    "minicpm3": (2560, 40, 62, 32768),
    **_all(
        "minimax ministral mistral mixtral phimoe voxtral_realtime_text",
        (4096, 32, 32, 131072),
    ),
    "minimax_m2": (3072, 48, 62, 196608),
    "minimax_m3_vl_text": (6144, 64, 60, 524288),
    "ministral3": (4096, 32, 34, 262144),
    "mistral4": (4096, 32, 36, 1048576),
    "mistral_large4_text": (6144, 64, 72, 1048576),
    **_all(
        "modernbert modernbert-decoder",
        (768, 12, 22, 8192),
    ),
    "moonshine": (288, 8, 6, 512),
    "moonshine_streaming": (320, 8, 6, 4096),
    "moshi": (4096, 32, 32, 3000),
    "muse_glimmer_assistant": (6656, 32, 5, 131072),
    "muse_glimmer_text": (6656, 32, 52, 131072),
    "muse_spark_text": (8192, 128, 62, 1048576),
    "nemotron": (6144, 48, 32, 4096),
    "nomic_bert": (768, 12, 12, 2048),
    "olmo_hybrid": (3840, 30, 32, 65536),
    "olmoe": (2048, 16, 16, 4096),
    "openai_privacy_filter": (640, 14, 8, 131072),
    "persimmon": (4096, 64, 36, 16384),
    "phi": (2048, 32, 24, 2048),
    "phi3": (3072, 32, 32, 4096),
    "phi4_multimodal": (3072, 32, 32, 131072),
    "pocket_tts": (1024, 16, 6, 8192),
    "pocket_tts_audio_tokenizer": (512, 8, 2, 8000),
    "qwen2_5_omni_text": (3584, 28, 28, 32768),
    **_all(
        "qwen2_5_vl_text qwen2_vl_text",
        (8192, 64, 80, 32768),
    ),
    "qwen2_moe": (2048, 16, 24, 32768),
    **_all(
        "qwen3_5_moe_text qwen4_exp_text",
        (2048, 16, 40, 32768),
    ),
    "qwen3_5_text": (4096, 16, 32, 32768),
    "qwen3_moe": (2048, 32, 24, 32768),
    "qwen3_next": (2048, 16, 48, 32768),
    "qwen3_omni_moe_text": (2048, 28, 28, 32768),
    "qwen3_vl_text": (4096, 32, 32, 128000),
    "recurrent_gemma": (2560, 10, 26, None),
    "roformer": (768, 12, 12, 1536),
    "seed_oss": (4096, 80, 64, 524288),
    "smollm3": (2048, 16, 36, 32768),
    "starcoder2": (3072, 24, 30, 4096),
    "timesfm2_5": (1280, 16, 20, 16384),
    "unlimited_ocr_text": (1280, 10, 12, 32768),
    "voxtral_realtime_encoder": (1280, 32, 32, 1500),
    "youtu": (2048, 16, 32, 131072),
    "zamba2": (2560, 32, 54, 4096),
    "zaya": (2048, 8, 40, 131072),
}
SIZES = {name: Sizes(*row) for name, row in _ROWS.items()}
TEXT_TYPES: dict[str, str] = {
    "altclip": "altclip_text_model",
    "florence2": "bart",
    **_all_text(
        "grounding-dino mm-grounding-dino vision-text-dual-encoder",
        "bert",
    ),
    "blip": "blip_text_model",
    "bridgetower": "bridgetower_text_model",
    "chinese_clip": "chinese_clip_text_model",
    **_all_text(
        "clip omdet-turbo sam3",
        "clip_text_model",
    ),
    "clipseg": "clipseg_text_model",
    **_all_text(
        "aya_vision cohere2_vision",
        "cohere2",
    ),
    "kimi_k25": "deepseek_v3",
    "emu3": "emu3_text_model",
    "exaone4_5": "exaone4",
    "flava": "flava_text_model",
    "paligemma": "gemma",
    "shieldgemma2": "gemma3_text",
    "gemma4_unified_assistant": "gemma4_unified_text",
    **_all_text(
        "glm46v glmga",
        "glm4v_text",
    ),
    **_all_text(
        "granite_speech granite_speech_plus",
        "granite",
    ),
    "groupvit": "groupvit_text_model",
    "hyperclovax_vision_v2": "hyperclovax",
    "inkling_mm_model": "inkling_text",
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    **_all_text(
        "deepseek_vl deepseek_vl_hybrid glmasr idefics3 janus llava llava_next llava_next_video perception_lm "
        "smolvlm video_llava vipllava voxtral",
        "llama",
    ),
    "metaclip_2": "metaclip_2_text_model",
    **_all_text(
        "idefics2 mistral3",
        "mistral",
    ),
    "mllama": "mllama_text_model",
    **_all_text(
        "modernvbert pe_audio pe_audio_video pe_video",
        "modernbert",
    ),
    **_all_text(
        "nemo_speechlm nemotron_h_omni",
        "nemotron_h",
    ),
    **_all_text(
        "blip-2 instructblip instructblipvideo",
        "opt",
    ),
    "owlv2": "owlv2_text_model",
    "owlvit": "owlvit_text_model",
    "fuyu": "persimmon",
    **_all_text(
        "audioflamingo3 fast_vlm got_ocr2 internvl llava_onevision musicflamingo ovis2 pp_chart2table "
        "qwen2_audio vibevoice vibevoice_asr video_llama_3",
        "qwen2",
    ),
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    **_all_text(
        "fun_asr_nano lighton_ocr moss_transcribe_diarize qianfan_ocr qwen3_asr",
        "qwen3",
    ),
    **_all_text(
        "jev minicpm_ocr minicpmv4_6 minicpmv4_7",
        "qwen3_5_text",
    ),
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "cosmos3_omni": "qwen3_vl_text",
    "siglip2": "siglip2_text_model",
    "siglip": "siglip_text_model",
    "t5gemma2_encoder": "t5gemma2_text",
    "xclip": "xclip_text_model",
}
