"""What the weights of a model type hold in addition to plain projections: q/k norms, biases, odd widths.

Source: the tensors of the models that transformers 5.23 builds from the default config of each model type, on the meta
    device; tests/hf/doctor/test_tensor_checks.py saves and examines a small model of each family that it lists.
"""

from __future__ import annotations


def _types(names: str) -> frozenset[str]:
    return frozenset(names.split())


EQUAL_HEADS = _types(  # rotating families without a key for key/value heads: as many as query heads
    "codegen esm gpt_neox gpt_neox_japanese gptj gte idefics modernbert modernbert-decoder nomic_bert persimmon "
    "roformer"
)
TRANSPOSED = _types("gpt2 openai-gpt imagegpt decision_transformer")  # inputs first (transformers' Conv1D)
VARYING = _types(  # widths of heads by other rules than N heads of D channels, or layers of other modules
    "EvollaModel axk2 clvp clvp_encoder cohere_asr convbert efficientnet evolla fun_asr_nano_encoder hrm_text "
    "kimi_linear maskformer mimo_v2_flash minimax mistral_large4_text mobilebert neucodec pe_audio pe_audio_encoder "
    "sapiens2 squeezebert vits xcodec2"
)
WITHOUT_TABLE_RULES = _types("canine layoutlmv3 vilt")  # several tables of one name, or hashed ones
STREAM_KEYS = {"qwen2_vl_vision": "embed_dim"}  # where hidden_size is the width behind the tower
VALUE_WIDTHS = _types("mimo_v2")  # that read v_head_dim without latent attention
BIAS_BY_KEY = _types(  # biases of q_proj, k_proj and v_proj by attention_bias
    "afmoe apertus arcee bitnet cohere cohere2 csm diffllama doge eurobert exaone_moe flex_olmo gemma gemma2 "
    "gemma3_text gemma3n_text gemma4_text glm glm4 glm4_moe gpt_oss granite granite_swa granitemoe granitemoe_swa "
    "granitemoeshared helium hy_v3 internlm3 jais2 laguna llama llama4_text nanochat olmo olmo2 olmo3 olmoe phimoe "
    "qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text "
    "seed_oss smollm3 solar_open vaultgemma"
)
BIAS_BY_DEFAULT = _types("glm glm4 gpt_oss jais2 seed_oss")  # where attention_bias is true if it is not given
SHARED_KEYS = _types("gemma3n_text gemma4_text")  # whose last layers may take the keys of others
OTHER_OUTPUTS = _types("lfm2")  # whose output projection has another name than o_proj
BIASED = _types(  # biases of q_proj, k_proj and v_proj whatever the config says
    "phi qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text"
)
UNBIASED = _types("cwm exaone4 jamba minimax_m2 ministral3 mistral mixtral mllama_text_model")
NORMED = _types(  # norms of queries and keys in every layer that has projections of its own
    "afmoe apertus exaone4 exaone_moe flex_olmo gemma3_text gemma4_text hy_v3 laguna lfm2 minimax_m2 olmo2 olmo3 olmoe "
    "qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text"
)
UNNORMED = _types(
    "arcee ernie4_5 gemma gemma2 glm glm4 gpt_oss granite granitemoe helium internlm3 llama ministral3 mistral mixtral "
    "mllama_text_model olmo phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text seed_oss smollm3 starcoder2"
)
NORMED_BY_KEY = _types("cohere glm4_moe")  # norms of queries and keys by use_qk_norm
NORMS_AROUND_ONE = _types(  # whose norms multiply by the weight itself, where others multiply by 1 + weight
    "exaone4 olmo2 olmo3 olmoe qwen3 qwen3_moe qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text"
)
ALWAYS_SINKS = _types("gpt_oss openai_privacy_filter")  # in every layer; these do not begin as zeros
PATCHES_AT_RANDOM = _types("dinov2 dinov2_with_registers vit")  # whose tables of patches do not begin as zeros
