"""What a model family's own code decides and no configuration says: layout, default base, default share of the head.

One line a family. Read in the modelling and configuration files of transformers 5.23; `tests/reference` holds every
line of the table against the code. A family that is not here is read like Llama, with a remark; those that no `RoPE`
can stand for are in `posenc.hf.foreign`, and what a family does beside turning is in `posenc.hf.beside`.
"""

from __future__ import annotations

from posenc.hf.family import FULL, SLIDING
from posenc.hf.family import Family as Family
from posenc.hf.family import Kind as Kind
from posenc.hf.family import Order as Order

_LLAMA = Family()
_HALF_SHARE = Family(share=0.5, default_share=True)
_QUARTER = Family(share=0.25, default_share=True)
_INTERLEAVED = Family(layout="interleaved")
_LATENT = Family(layout="interleaved", latent=True)
_CHOSEN = _LATENT._replace(layout_key=True)
_PHI3 = Family(default_share=True, original=4096)
_NEOX = Family(share=0.25, default_share=True, theta_key="rotary_emb_base", share_key="rotary_pct")
_GPTJ = Family(layout="interleaved", share_key="rotary_dim", default_share=True, fixed=True)
_GLM = Family(share=0.5, layout="interleaved", default_share=True)
_GLM_V = Family(default_share=True, sections=(8, 12, 12))
_QWEN_2_VL = Family(base=1e6, sections=(16, 24, 24))
_QWEN_3_VL = Family(base=5e5, sections=(24, 20, 20), order="interleaved")
_ERNIE_VL = Family(base=5e5, layout="interleaved", sections=(22, 22, 20), order="time last")
_GEMMA3 = Family(kinds={FULL: Kind("rope_theta", 1e6, True), SLIDING: Kind("rope_local_base_freq", 1e4, False)})
_MODERNBERT = Family(kinds={FULL: Kind("global_rope_theta", 1.6e5, True), SLIDING: Kind("local_rope_theta", 1e4, True)})
_OLMO3 = Family(base=5e5, kinds={FULL: Kind("rope_theta", 5e5, True), SLIDING: Kind("rope_theta", 5e5, False)})
_GEMMA4 = Family(
    nested=True,
    full_head_dim=512,
    block={
        SLIDING: {"rope_type": "default", "rope_theta": 1e4},
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
)
_FULL_ROPE = {"rope_type": "default", "rope_theta": 1e6}
_EMBEDDING_GEMMA2 = _GEMMA4._replace(block={SLIDING: {"rope_type": "default", "rope_theta": 1e4}, FULL: _FULL_ROPE})
_LLAMA3 = {"rope_type": "llama3", "original_max_position_embeddings": 8192, "low_freq_factor": 1.0}
_YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0}
_LLAMA_4 = {"mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}  # of Mistral's blocks
_GPT_OSS = Family(
    base=1.5e5,
    block={
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096,
    },
)  # fmt: skip


def _all(names: str, family: Family) -> dict[str, Family]:
    return dict.fromkeys(names.split(), family)


_FAMILIES: dict[str, Family] = {
    "apertus": Family(base=1.2e7, block={**_LLAMA3, "factor": 8.0, "high_freq_factor": 4.0}),
    "bailing_hybrid": _LATENT._replace(base=6e6),
    "beam": Family(nested=True, block={SLIDING: {"rope_type": "default", "rope_theta": 1e4}, FULL: None}),
    "blt_patcher": _INTERLEAVED,
    "cohere_compass_text": _QWEN_3_VL._replace(base=1e4, nested=True),
    "cwm": Family(base=1e6, block={**_LLAMA3, "factor": 16.0, "high_freq_factor": 4.0}),
    **_all(
        "arcee aria_text chameleon dbrx diffllama doge deepseek_ocr2_encoder deepseek_ocr2_text "
        "dia_decoder dia_encoder dots1 esmc eurobert falcon falcon_h1 gemma gemma2 "
        "gradium_phonon_tts granite granite4_vision_text granite_docling_text granitemoe granitemoeshared hrm_text "
        "hunyuan_v1_dense hunyuan_v1_moe hyperclovax idefics jais2 kyutai_speech_to_text lasr_encoder llama mimi "
        "mimi_decoder mimi_encoder ministral mistral moshi olmo olmo2 olmoe pocket_tts "
        "pocket_tts_audio_tokenizer qwen2 qwen2_moe qwen3 qwen3_moe seed_oss starcoder2 t5_gemma_module timesfm2_5 "
        "unlimited_ocr_text vaultgemma voxtral_realtime_encoder voxtral_realtime_text",
        _LLAMA,
    ),
    **_all("bitnet csm evolla flex_olmo mllama_text_model muse_glimmer_assistant", Family(base=5e5)),
    **_all("emu3_text_model lfm2 lfm2_moe minimax mixtral phimoe", Family(base=1e6)),
    **_all("qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text", _QWEN_2_VL),
    **_all("qwen3_vl_text qwen3_vl_moe_text", _QWEN_3_VL),
    **_all("qwen3_5_text qwen3_5_moe_text", _QUARTER._replace(sections=(11, 11, 10), order="interleaved")),
    **_all("glm4v_text glm_ocr_text", _GLM_V._replace(layout="interleaved")),
    **_all("ernie4_5_moe_vl ernie4_5_vl_moe_text", _ERNIE_VL),
    **_all("glm4_moe nemotron persimmon phi recurrent_gemma bamba", _HALF_SHARE),
    **_all("qwen3_next stablelm", _QUARTER),
    **_all("phi3 phi4_multimodal", _PHI3),
    **_all("glm glm4", _GLM),
    **_all("cohere", _INTERLEAVED._replace(base=5e5)),
    **_all("cohere2 cohere2_moe", _INTERLEAVED._replace(plain=(FULL,), only_sliding=True)),
    **_all("ernie4_5 ernie4_5_moe", _INTERLEAVED._replace(base=5e5)),
    **_all("codegen gptj", _GPTJ),
    **_all("blt_global_transformer blt_local_decoder blt_local_encoder", _INTERLEAVED._replace(base=5e5)),
    **_all("afmoe flint", Family(plain=(FULL,), only_sliding=True)),
    **_all("exaone4 exaone_moe kolibri1", Family(plain=(FULL,))),
    **_all("granite_swa granitemoe_swa", Family(bases_key="layer_rope_theta", bases_choose=True)),
    **_all("axk2 deepseek_v2 deepseek_v32 glm_moe_dsa", _LATENT),
    **_all("axk1 deepseek_v3 glm4_moe_lite youtu", _CHOSEN),
    **_all("gemma3_text gemma3n_text t5gemma2_text t5gemma2_decoder", _GEMMA3),
    **_all("modernbert modernbert-decoder", _MODERNBERT),
    **_all("gemma4_text gemma4_unified_text", _GEMMA4),
    **_all("mellum zaya", Family(nested=True, default_share=True)),
    "cosmos3_edge_text": _QWEN_3_VL._replace(base=1e8),
    "deepseek_v4": Family(
        layout="interleaved",
        default_share=True,
        trailing=True,
        share=64 / 512,
        kinds={"main": Kind("rope_theta", 1e4, False), "compress": Kind("compress_rope_theta", 1.6e5, True)},
        scaled={"attention_factor": 1.0},
        width_key="qk_rope_head_dim",
    ),
    "diffusion_gemma_text": _GEMMA4,
    "embedding_gemma2_text": _EMBEDDING_GEMMA2,
    "esm": Family(turns_if=("position_embedding_type", "rotary")),
    "glmasr_encoder": _HALF_SHARE,
    "glm4v_moe_text": _GLM_V._replace(share=0.5),
    "glm_image_text": _GLM_V,
    "gpt_neox": _NEOX,
    "gpt_neox_japanese": _NEOX._replace(share=1.0),
    "gpt_oss": _GPT_OSS,
    "higgs_audio_v2": Family(
        base=5e5,
        block={
            **_LLAMA3,
            "factor": 32.0,
            "high_freq_factor": 0.5,
            "low_freq_factor": 0.125,
            "original_max_position_embeddings": 1024,
        },
    ),
    "hy_v3": Family(base=11158840.0),
    "hy_v4": Family(latent=True),
    "jina_embeddings_v3": Family(base=2e4),
    "granitemoehybrid": Family(turns_if=("position_embedding_type", "rope")),
    "gte": Family(base=1.6e5),
    "jetmoe": Family(head_key="kv_channels"),
    "helium": _INTERLEAVED._replace(base=1e5),
    "lfm3": Family(base=1e6, nested=True),
    "llama4_text": _INTERLEAVED._replace(base=5e5, plain_every=4),
    "laguna": Family(
        nested=True,
        default_share=True,
        block={
            SLIDING: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
            FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
        },
    ),
    "longcat_flash": _LATENT._replace(base=1e7),
    "mimo_v2_flash": Family(
        default_share=True,
        share=0.334,
        kinds={FULL: Kind("rope_theta", 5e6, True), SLIDING: Kind("swa_rope_theta", 1e4, False)},
    ),
    "minicpm3": Family(latent=True),
    "minimax_m3_vl_text": Family(base=5e6, default_share=True),
    "ministral3": Family(
        base=1e6, block={**_YARN, **_LLAMA_4, "factor": 16.0, "original_max_position_embeddings": 16384}
    ),
    "mistral4": _CHOSEN._replace(
        block={**_YARN, **_LLAMA_4, "factor": 128.0, "original_max_position_embeddings": 8192}
    ),
    "mistral_large4_text": _LATENT._replace(
        plain_every=4,
        block={**_YARN, "factor": 2048.0, "original_max_position_embeddings": 512, "attention_factor": 1.0},
    ),
    "moonshine": Family(layout="interleaved", share=0.9, default_share=True),
    "moonshine_streaming": Family(layout="interleaved", share=0.8, default_share=True),
    "muse_glimmer_text": Family(bases_key="layer_rope_theta"),
    "muse_spark_text": Family(base=5e5, bases_key="layer_rope_theta"),
    "minimax_m2": Family(base=5e6, default_share=True, share_key="rotary_dim"),
    "nomic_bert": Family(base=1e3),
    "olmo3": _OLMO3,
    "olmo_hybrid": Family(null_base=True),
    "openai_privacy_filter": _GPT_OSS._replace(layout="interleaved"),
    "paddleocr_vl_text": _QWEN_2_VL._replace(base=5e5),
    "qwen4_exp_text": Family(default_share=True, sections=(11, 11, 10), order="interleaved"),
    "roformer": Family(layout="interleaved", fixed=True),
    "zamba2": Family(turns_if=("use_mem_rope", True), head_key="attention_head_dim"),
    "qwen3_omni_moe_text": _QWEN_3_VL._replace(base=1e6),
    "smollm3": Family(base=2e6, plain_every=4),
    "solar_open": Family(base=1e6, default_share=True),
}

_HEADS = {  # widths that the code has where a configuration has none, whatever its stream and heads
    32: "axk2 minicpm3",
    64: "axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa gpt_oss hy_v4 "
    "longcat_flash mistral_large4_text muse_spark_text openai_privacy_filter voxtral_realtime_encoder youtu",
    80: "timesfm2_5",
    128: "afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4 helium "
    "higgs_audio_v2 hrm_text hy_v3 jetmoe kolibri1 laguna lfm3 llama4_text mellum minimax_m2 minimax_m3_vl_text "
    "ministral3 muse_glimmer_assistant muse_glimmer_text paddleocr_vl_text qwen3 qwen3_vl_text seed_oss "
    "solar_open zaya",
    192: "mimo_v2_flash",
    256: "diffusion_gemma_text embedding_gemma2_text gemma gemma2 gemma3_text gemma3n_text gemma4_text "
    "gemma4_unified_text qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text t5_gemma_module t5gemma2_decoder "
    "t5gemma2_text vaultgemma",
    512: "deepseek_v4",
}
_HEAD_DIM = {name: width for width, names in _HEADS.items() for name in names.split()}
FAMILIES = {name: family._replace(head_dim=_HEAD_DIM.get(name)) for name, family in _FAMILIES.items()}


# Model types of released files that run the code of another family: transformers reads EXAONE 4.5's text part as an
# EXAONE 4, and Kimi-K2's own code is DeepSeek-V3's.
SAME_CODE = {"exaone4_5_text": "exaone4", "kimi_k2": "deepseek_v3"}


def family_of(model_types: list[str], *, latent: bool) -> tuple[Family, bool]:
    """The family of the first of ``model_types`` that is known, and True; else one to assume, and False.

    Args:
        model_types: of the text part, and of the whole.
        latent: whether the configuration has ``qk_rope_head_dim``.
    """
    meant = [SAME_CODE.get(name, name) for name in model_types]
    names = [name for given in meant for name in (given, f"{given}_text")]
    known = next((name for name in names if name in FAMILIES), None)
    if known is not None:
        return FAMILIES[known], True
    return (_LATENT if latent else _LLAMA), False
