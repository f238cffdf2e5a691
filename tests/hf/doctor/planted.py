"""Configurations with one fault each: the name of the check that finds it, and of nothing else."""

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
    (
        {"share-lost"}, "rotary_dim lost",
        {"model_type": "minimax_m2", "head_dim": 128, "max_position_embeddings": 196608, "rope_theta": 5e6},
    ),
    ({"mscale-alone"}, "mscale alone", {**QWEN, "rope_scaling": {**YARN, "mscale": 0.707}}),
    ({"mscale-alone"}, "mscale and a zero", {**QWEN, "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0}}),
    (
        {"original-length-not-below"}, "original and declared length exchanged",
        {**QWEN, "max_position_embeddings": 32768,
         "rope_scaling": {**YARN, "original_max_position_embeddings": 131072}},
    ),
    (
        {"original-length-missing"}, "no original length",
        {**QWEN, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
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
    ({"key-misspelt"}, "a misspelt base", llama({}, rope_thetta=1e6)),
    ({"key-misspelt"}, "a misspelt block", llama({}, rope_scailing=LINEAR)),
    ({"scaling-unread"}, "a scaling in a model without a rotation", {"model_type": "gpt2", "rope_scaling": LINEAR}),
    (
        {"block-of-no-layer"}, "a block for layers that there are not",
        {**GEMMA_3, "rope_parameters": {"global": DEFAULT_ROPE, "full_attention": {**DEFAULT_ROPE, "rope_theta": 1e6},
                                      "sliding_attention": DEFAULT_ROPE}},
    ),
    ({"rotation-of-windows"}, "the bases of layers exchanged",
     {**GEMMA_3, "rope_theta": 1e4, "rope_local_base_freq": 1e6}),
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
]  # fmt: skip
NOTED: list[tuple[str, Config]] = [  # a note, and no alarm
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
]
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
MENDED = {  # of the planted, those that a correction mends for certain, and the rotation that is right
    "version 5 read by version 4": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "a base lost next to llama3": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "linear over llama3, the base lost": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "linear over llama3": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "llama3 lost": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "the key of another family": {**NEOX, "rotary_emb_base": 5e5},
}
