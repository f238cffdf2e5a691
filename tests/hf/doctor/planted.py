"""Configs with one fault each: the names of the findings on it, and of nothing else; and configs that are healthy.

Faults that reported.py has from a thread are not planted again.
"""

from __future__ import annotations

from typing import Any

from posenc.hf import preset

Config = dict[str, Any]
LLAMA_31: Config = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 128256,
    "max_position_embeddings": 131072,
}  # fmt: skip
LLAMA_3: Config = preset("llama-3.1")["rope_scaling"]
LINEAR: Config = {"rope_type": "linear", "factor": 2.0}
QWEN: Config = {"model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 131072}
YARN: Config = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
PHI: Config = {
    "model_type": "phi3", "head_dim": 96, "max_position_embeddings": 131072, "rope_theta": 1e4,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
FACTORS: Config = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
NEOX: Config = {"model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}
GEMMA = preset("gemma-4")
GEMMA_3: Config = {"model_type": "gemma3_text", "head_dim": 64, "max_position_embeddings": 32768}
MINISTRAL: Config = {
    "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
LAGUNA: Config = {"model_type": "laguna", "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": 512}
DEFAULT_ROPE: Config = {"rope_type": "default", "rope_theta": 1e4}


def llama(block: Config, **keys: Any) -> Config:
    """A Llama of 8,192 tokens with this block."""
    return {
        "model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 5e5,
        "rope_scaling": block, **keys,
    }  # fmt: skip


QWEN_3: Config = {
    **QWEN, "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 40960,
}  # fmt: skip
GEMMA: Config = {
    **GEMMA_3, "num_hidden_layers": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 1024,
}  # fmt: skip
LLAMA_4: Config = {
    "model_type": "llama4_text", "head_dim": 128, "num_attention_heads": 40, "num_key_value_heads": 8,
    "num_hidden_layers": 8, "rope_theta": 5e5, "max_position_embeddings": 8192, "attention_chunk_size": 8192,
}  # fmt: skip
DEEPSEEK: Config = {
    "model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512,
    "rope_theta": 1e4, "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                     "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
}  # fmt: skip
GPT_OSS: Config = {
    "model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "num_hidden_layers": 36, "vocab_size": 201088,
    "num_attention_heads": 64, "num_key_value_heads": 8, "rope_theta": 150000, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
                     "beta_slow": 1.0, "truncate": False},
}  # fmt: skip
VISION: Config = {
    "model_type": "qwen2_vl",
    "text_config": {
        "model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12, "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "max_position_embeddings": 32768,
    },
}  # fmt: skip


def without(config: Config, *keys: str) -> Config:
    return {key: value for key, value in config.items() if key not in keys}


def block_of(config: Config, **changes: Any) -> Config:
    """The config with changed keys in its block; None removes one."""
    block = {key: value for key, value in {**config["rope_scaling"], **changes}.items() if value is not None}
    return {**config, "rope_scaling": block}


def misspelt(config: Config, key: str, wrong: str) -> Config:
    return {**without(config, key), wrong: config[key]}


MISTRAL: Config = {
    "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000, "max_position_embeddings": 32768, "rope_theta": 1e4, "sliding_window": None,
}  # fmt: skip
SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"
WINDOWED: Config = {**QWEN_3, "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 4096}
PLANTED: list[tuple[set[str], str, Config]] = [  # names of the alarms, what was planted, where
    (
        {"version-5-spelling"}, "version 5 read by version 4",
        {**LLAMA_31, "transformers_version": "4.57.1", "rope_parameters": {**LLAMA_3, "rope_theta": 5e5}},
    ),
    ({"key-ignored"}, "GPT-NeoX's share under another family's key", {**NEOX, "partial_rotary_factor": 0.5}),
    ({"base-lost"}, "a base lost next to llama3", {**LLAMA_31, "rope_scaling": LLAMA_3}),
    ({"base-lost"}, "a base lost", {"model_type": "mistral", "head_dim": 128, "max_position_embeddings": 131072}),
    (
        {"base-lost", "linear-over-llama3"}, "linear over llama3, the base lost",
        {**LLAMA_31, "max_position_embeddings": 262144, "rope_parameters": LINEAR},
    ),
    ({"linear-over-llama3"}, "linear over llama3", {**LLAMA_31, "rope_scaling": LINEAR, "rope_theta": 5e5}),
    ({"scaling-lost"}, "llama3 lost", {**LLAMA_31, "rope_theta": 5e5}),
    ({"mscale-alone"}, "mscale and a zero", {**QWEN, "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0}}),
    (
        {"original-length-not-below"}, "original and declared length exchanged",
        {**QWEN, "max_position_embeddings": 32768,
         "rope_scaling": {**YARN, "original_max_position_embeddings": 131072}},
    ),
    ({"original-length-not-below"}, "a length not grown", llama(LLAMA_3)),
    ({"key-ignored"}, "the key of another family", {**NEOX, "rope_theta": 5e5}),
    (
        {"share-ignored"}, "a share that the code ignores",
        llama({}, rope_parameters={**DEFAULT_ROPE, "partial_rotary_factor": 0.5}, rope_theta=None),
    ),
    ({"layout-key-ignored"}, "the other layout", llama({}, rope_scaling=None, rope_interleave=True)),
    (
        {"original-length-ignored"}, "an original length in the block alone",
        {
            **{key: value for key, value in PHI.items() if not key.startswith("original")},
            "rope_scaling": {**FACTORS, "original_max_position_embeddings": 8192},
        },
    ),
    ({"alpha-ignored"}, "Hunyuan's alpha elsewhere", llama({"rope_type": "dynamic", "alpha": 1000.0})),
    ({"malformed"}, "too few long factors", {**PHI, "rope_scaling": {**FACTORS, "long_factor": [2.0] * 40}}),
    (
        {"unreadable"}, "two blocks that differ",
        {**QWEN, "rope_scaling": YARN, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    (
        {"unreadable"}, "a flat block for several kinds of layers",
        {"model_type": "gemma4_text", "head_dim": 64, "rope_parameters": DEFAULT_ROPE},
    ),
    ({"unreadable"}, "fewer kinds than layers", llama({}, num_hidden_layers=4, layer_types=["full_attention"] * 3)),
    ({"key-of-another-family"}, "keys of GPT-2 in a Llama", llama({}, n_positions=4096)),
    ({"scaling-unread"}, "a scaling in a model without a rotation", {"model_type": "gpt2", "rope_scaling": LINEAR}),
    (
        {"block-of-no-layer"}, "a block for layers that there are not",
        {**GEMMA_3, "rope_parameters": {"global": DEFAULT_ROPE, "full_attention": {**DEFAULT_ROPE, "rope_theta": 1e6},
                                      "sliding_attention": DEFAULT_ROPE}},
    ),
    (
        {"layer-orders-differ"}, "two orders of layers",
        {**GEMMA_3, "num_hidden_layers": 6, "sliding_window_pattern": 3,
         "layer_types": [*["sliding_attention"] * 5, "full_attention"]},
    ),
    (
        {"factor-lists-swapped"}, "the lists of LongRoPE exchanged",
        {**PHI, "rope_scaling": {**FACTORS, "short_factor": [2.0] * 48, "long_factor": [1.0] * 48}},
    ),
    ({"sections-ignored"}, "M-RoPE in a Llama", llama({"type": "mrope", "mrope_section": [8, 12, 12]})),
    ({"base-of-sliding-ignored"}, "one base for two kinds of layers",
     {"model_type": "olmo3", "head_dim": 64, "rope_theta": 1e6, "max_position_embeddings": 4096}),
    ({"base-of-sliding-ignored"}, "a flat block for two kinds with bases of their own",
     {"model_type": "dots3_note_text", "hidden_size": 5120, "num_attention_heads": 128, "num_hidden_layers": 8,
      "rope_theta": 8e7, "swa_rope_theta": 5e4, "max_position_embeddings": 131072, "rope_scaling": YARN}),
    *(({"key-ignored"}, f"a base of {name} outside a block", {"model_type": name, **sizes, "rope_theta": 5e6})
      for name, sizes in (
        ("ministral3", {"head_dim": 128, "max_position_embeddings": 262144}),
        ("mimo_v2_flash", {"head_dim": 192, "max_position_embeddings": 262144, "rope_theta": 5e6,
                           "swa_rope_theta": 5e4}))),
    ({"base-lost"}, "a block without the base that its class has in its own",
     {"model_type": "ministral3", "head_dim": 128, "max_position_embeddings": 262144, "rope_parameters": MINISTRAL}),
    ({"key-ignored", "share-ignored"}, "GPT-NeoX's share in a Llama", llama({}, rotary_pct=0.5)),
    *(({"share-lost"}, f"rope type proportional in {name} without its share",
       {"model_type": name, "hidden_size": 128, "num_attention_heads": 4,
        "rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4}})
      for name in ("llama", "qwen2", "mistral")),
    ({"share-ignored"}, "a share next to the blocks of Gemma 4", {
        "model_type": "gemma4_text", "partial_rotary_factor": 0.5, "max_position_embeddings": 131072,
        "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                               "partial_rotary_factor": 0.25}, "sliding_attention": DEFAULT_ROPE}}),
    ({"key-ignored"}, "a share under a third name", {"model_type": "stablelm", "head_dim": 64, "rope_pct": 0.5}),
    ({"key-misspelt", "base-below-releases"}, "rope_thta", misspelt(QWEN_3, "rope_theta", "rope_thta")),
    ({"key-misspelt"}, "max_position_embedings",
     misspelt(QWEN_3, "max_position_embeddings", "max_position_embedings")),
    ({"key-misspelt"}, "rope_scalling", {**QWEN_3, "rope_scalling": YARN}),
    ({"key-misspelt"}, "use_sliding_windows", misspelt(WINDOWED, "use_sliding_window", "use_sliding_windows")),
    ({"key-misspelt"}, "a misspelt key next to the right one", {**QWEN_3, "rope_thetas": 1e4}),
    ({"declared-beyond-scaling"}, "factor 2 for four times the length",
     {**QWEN, "rope_scaling": {**YARN, "factor": 2.0}}),
    ({"base-below-releases"}, "a version-4 file without a base",
     {**without(QWEN_3, "rope_theta"), "transformers_version": "4.51.0"}),
    ({"base-lost"}, "a version-5 block without a base",
     {**without(QWEN, "rope_theta"), "rope_parameters": YARN}),
    ({"rotation-of-windows"}, "blocks of layers exchanged",
     {**without(GEMMA, "rope_theta", "rope_local_base_freq"),
      "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1e4},
                          SLIDING: {"rope_type": "default", "rope_theta": 1e6}}}),
    ({"layer-orders-differ"}, "LLLG against layer_types",
     {"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
      "layer_types": [FULL] + [SLIDING] * 3, "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 8192}),
    ({"layers-unread"}, "an offset beyond the period",
     {"model_type": "jamba", "num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 4}),
    ({"nope-layers-inverted"}, "no layer rotates", {**LLAMA_4, "no_rope_layers": [0] * 8}),
    ({"scaling-beyond-declared"}, "factor 40 for 4", {**QWEN, "rope_scaling": {**YARN, "factor": 40.0}}),
    ({"window-of-no-layer"}, "use_sliding_window without a window", {**WINDOWED, "sliding_window": None}),
    ({"layers-unread"}, "a window as a string", {**GEMMA, "sliding_window": "1024"}),
    ({"sliding-layers-lost"}, "full attention in all layers of gpt-oss", {**GPT_OSS, "layer_types": [FULL] * 36}),
    ({"key-misspelt"}, "a misspelt key of BERT", {"model_type": "bert", "max_position_embedings": 4096}),
    ({"levels-differ"}, "a longer length next to the text part", {**VISION, "max_position_embeddings": 131072}),
    ({"levels-differ"}, "a scaling next to the text part",
     {"model_type": "gemma3", "text_config": GEMMA, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ({"position-padding"}, "another padding id in RoBERTa", {"model_type": "roberta", "pad_token_id": 3}),
    ({"original-length-declared"}, "131,072 over 131,072 in Phi 3",
     {**PHI, "original_max_position_embeddings": 131072, "rope_scaling": FACTORS}),
    ({"scaling-lost"}, "longrope lost, its length kept", PHI),
    ({"scaling-lost"}, "yarn lost, its length kept",
     {**without(GPT_OSS, "rope_scaling"), "vocab_size": 128, "initial_context_length": 4096,
      "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}}),
    ({"layout-inverted"}, "the layout of DeepSeek-V3 inverted", {**DEEPSEEK, "rope_interleave": False}),
    ({"windows-differ"}, "two windows in ModernBERT",
     {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6,
      "local_attention": 128, "sliding_window": 32, "max_position_embeddings": 8192}),
    ({"layers-unread"}, "a window with a point",
     {"model_type": "mistral", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 1e4, "sliding_window": 512.0}),
    ({"version-5-spelling"}, "a base inside rope_scaling, read by version 4",
     {**without(QWEN, "rope_theta"), "transformers_version": "4.51.0", "rope_scaling": {**YARN, "rope_theta": 1e6}}),
    ({"key-misspelt"}, "the local base without its last word",
     misspelt(GEMMA, "rope_local_base_freq", "rope_local_base")),
]  # fmt: skip
NOTED: list[tuple[str, Config]] = [  # a note, and no alarm
    ("truncate-unread", {**GEMMA, "rope_scaling": {**YARN, "original_max_position_embeddings": 8192,
                                                   "truncate": False}}),
    ("factor-and-lengths-differ", {**QWEN, "rope_scaling": {**YARN, "factor": 5.0}}),
    ("length-of-linear", llama(LINEAR)),
    ("mscale-all-dim-not-latent", {**QWEN, "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("length-dependent", llama({"rope_type": "dynamic", "factor": 2.0})),
    ("long-factors-unused", {**PHI, "model_type": "phimoe", "rope_scaling": FACTORS}),
    ("share-ignored", {"model_type": "minimax", "head_dim": 128, "rope_theta": 1e6, "rotary_dim": 64}),
    (
        "base-ignored-by-transformers",
        {"model_type": "dbrx", "d_model": 64, "n_heads": 4, "attn_config": {"rope_theta": 5e5}},
    ),
    ("position-type-ignored", {"model_type": "bert", "position_embedding_type": "relative_key_query"}),
    ("key-unread", llama({}, use_rotary_pos_emb=True)),
    ("unknown-family", {"model_type": "nobody_knows", "head_dim": 64, "rope_theta": 1e4}),
    (
        "length-unread",
        {
            "model_type": "cohere",
            "head_dim": 128,
            "rope_theta": 8e6,
            "max_position_embeddings": 8192,
            "model_max_length": 131072,
        },
    ),
    ("dual-chunk-unread", {**QWEN, "dual_chunk_attention_config": {"original_max_position_embeddings": 32768}}),
    (
        "key-outside-blocks",
        {**LAGUNA, "rope_parameters": {"full_attention": DEFAULT_ROPE, "original_max_position_embeddings": 4096}},
    ),
    ("yarn-on-short-prompts", {**QWEN, "rope_scaling": YARN}),
    ("length-beyond-base", {**QWEN, "rope_theta": 1e4}),
    ("yarn-gain-in-engines", {**QWEN, "rope_scaling": {**YARN, "attention_factor": 1.0}}),
    ("remote-code", llama({}, auto_map={"AutoModelForCausalLM": "modeling.Mine"})),
    ("encodings-attached", llama({}, posenc={"encodings": [{"name": "alibi"}]})),
    ("version-5-spelling", {**without(QWEN, "rope_theta"), "rope_scaling": {**YARN, "rope_theta": 1e6}}),
    ("window-of-no-layer", {**QWEN, "num_hidden_layers": 5, "sliding_window": 2048}),
    ("key-of-an-engine", {**QWEN, "rope_scaling": {**YARN, "extrapolation_factor": 1.0}}),
    ("original-length-not-below", {**GPT_OSS, "max_position_embeddings": 512}),
]  # fmt: skip
SILENT: list[tuple[str, Config]] = [  # as released: nothing to say at all of these names
    ("mscale-alone", {**QWEN, "rope_scaling": {**YARN, "mscale": 1.0}}),
    ("mscale-alone", {**QWEN, "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.0}}),
    ("version-5-spelling", {
        "model_type": "qwen3_5_text", "transformers_version": "4.57.0.dev0", "head_dim": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "mrope_section": [11, 11, 10]},
    }),
    ("share-ignored", {
        "model_type": "minimax_m3_vl_text", "head_dim": 128, "rotary_dim": 64, "partial_rotary_factor": 0.5,
        "rope_theta": 5e6,
    }),
    ("key-ignored", {"model_type": "nomic_bert", "head_dim": 64, "rotary_emb_base": 1000}),
    ("key-ignored", {"model_type": "cohere", "head_dim": 64, "rope_theta": 5e5, "rotary_pct": 1.0}),
    ("key-unread", {"model_type": "bloom", "n_layer": 2, "n_head": 4, "hidden_size": 64, "num_properties": 3}),
    ("factor-and-lengths-differ", {**LLAMA_31, "rope_scaling": LLAMA_3, "rope_theta": 5e5}),
]  # fmt: skip
HEALTHY: dict[str, Config] = {  # no alarm
    "qwen3": QWEN_3, "gemma3": GEMMA, "llama4": LLAMA_4, "deepseek": DEEPSEEK, "gpt-oss": GPT_OSS, "qwen2-vl": VISION,
    "llama-3.1": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "a longer base than released": {**QWEN_3, "rope_theta": 5e6},
    "sizes of no release": {**QWEN_3, "num_hidden_layers": 4, "rope_theta": 1e4},
    "the text part of another model": {"model_type": "fun_asr_nano", "text_config": {**QWEN_3, "rope_theta": 1e4}},
    "AFM's factor of 20 over 16": {**QWEN, "rope_scaling": {**YARN, "factor": 5.0}},
    "a misspelt key with the value that is read": {**QWEN_3, "rope_thetas": 1e6},
    "the default of max_window_layers next to a list":
        {**WINDOWED, "max_window_layers": 28, "layer_types": [SLIDING, FULL] * 2},
    "the default interval next to other layers":
        {**LLAMA_4, "no_rope_layers": [1, 0] * 4, "no_rope_layer_interval": 4},
    "128,000 and 131,072 as in Qwen2.5-VL":
        {**VISION, "max_position_embeddings": 32000, "rope_theta": 1e6},
    "RoBERTa's 514": {"model_type": "roberta", "max_position_embeddings": 514},
    "2,050 rows": {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 2050},
    "a name of its own": {"model_type": "layoutlm", "max_2d_position_embeddings": 1024},
    "Qwen 3 with factor 4": {**QWEN_3, "rope_scaling": YARN},
    "a decoder by itself": {"model_type": "bert", "is_decoder": True, "architectures": ["BertLMHeadModel"]},
    "the window of Mistral 0.1": {**MISTRAL, "sliding_window": 4096},
    "the block of Qwen 2.5's card":
        {**QWEN, "model_type": "qwen2", "max_position_embeddings": 32768, "rope_scaling": YARN},
    "MiniCPM's equal lists over the declared length":
        {"model_type": "minicpm3", "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "max_position_embeddings": 32768,
         "rope_theta": 1e4, "rope_scaling": {"type": "longrope", "short_factor": [1.5] * 16, "long_factor": [1.5] * 16,
                                             "original_max_position_embeddings": 32768}},
    "a switch that is off, as in Qwen 2.5": {**QWEN, "use_sliding_window": False, "sliding_window": 4096},
    "ModernBERT's window under both of its keys":
        {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6,
         "local_attention": 128, "sliding_window": 64, "max_position_embeddings": 8192},
    "Granite Docling's multiplier, which its class has":
        {"model_type": "granite_docling_text", "head_dim": 64, "rope_theta": 1e6, "max_position_embeddings": 32768},
    "a million, of a model of other sizes": {**QWEN, "max_position_embeddings": 1010000},
}  # fmt: skip
MENDED = {  # of the planted, those that a correction mends for certain, and the rotation that is right
    "version 5 read by version 4": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "a base lost next to llama3": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "linear over llama3, the base lost": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "linear over llama3": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "llama3 lost": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "the key of another family": {**NEOX, "rotary_emb_base": 5e5},
}
