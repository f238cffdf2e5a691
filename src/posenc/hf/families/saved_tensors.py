"""What the weights of a model type hold beside the plain projections: norms of queries and keys, biases, further layers.

Source: the tensors of the models that transformers 5.23 builds from the default config of each model type
    (``AutoModelFor...._from_config`` on the meta device; tests/reference/test_saved_tensors.py builds them again).
"""

from __future__ import annotations

EQUAL_HEADS = frozenset(  # rotating families without a key for the number of key/value heads: as many as query heads
    "codegen esm gpt_neox gpt_neox_japanese gptj modernbert modernbert-decoder nomic_bert persimmon roformer".split()
)
TRANSPOSED = frozenset(  # projections stored with inputs first (transformers' Conv1D)
    "gpt2 openai-gpt imagegpt decision_transformer".split()
)
VARYING = frozenset(  # widths of heads by other rules than N heads of D channels, or layers of other modules
    "EvollaModel clvp clvp_encoder convbert evolla kimi_linear mimo_v2_flash minimax mistral_large4_text mobilebert sapiens2 "
    "squeezebert hrm_text cohere_asr maskformer vits neucodec xcodec2 efficientnet pe_audio pe_audio_encoder".split()
)
WITHOUT_TABLE_RULES = frozenset("canine layoutlmv3 vilt".split())  # several tables of one name, or hashed ones
STREAM_KEYS = {"qwen2_vl_vision": "embed_dim"}  # where hidden_size is the width after the tower
BIAS_BY_KEY = frozenset(  # biases of q_proj, k_proj and v_proj by attention_bias
    "afmoe apertus arcee bitnet cohere cohere2 csm diffllama doge eurobert exaone_moe flex_olmo gemma gemma2 gemma3_text "
    "gemma3n_text gemma4_text glm glm4 glm4_moe gpt_oss granite granite_swa granitemoe granitemoe_swa granitemoeshared "
    "helium hy_v3 internlm3 jais2 laguna llama llama4_text nanochat olmo olmo2 olmo3 olmoe phimoe qwen3 qwen3_5_moe_text "
    "qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 solar_open "
    "vaultgemma".split()
)
BIASED = frozenset(  # biases of q_proj, k_proj and v_proj whatever the config says
    "phi qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text".split()
)
UNBIASED = frozenset("cwm exaone4 jamba minimax_m2 ministral3 mistral mixtral mllama_text_model".split())
NORMED = frozenset(  # norms of queries and keys in every layer that has projections of its own
    "afmoe apertus exaone4 exaone_moe flex_olmo gemma3_text gemma4_text hy_v3 laguna lfm2 minimax_m2 olmo2 olmo3 olmoe "
    "qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text".split()
)
UNNORMED = frozenset(
    "arcee ernie4_5 gemma gemma2 glm glm4 gpt_oss granite granitemoe helium internlm3 llama ministral3 mistral mixtral "
    "mllama_text_model olmo phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text seed_oss smollm3 starcoder2".split()
)
NORMS_AROUND_ONE = frozenset(  # whose norms multiply by the weight itself, where others multiply by 1 + weight
    "exaone4 olmo2 olmo3 olmoe qwen3 qwen3_moe qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text".split()
)
