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
PLAIN: Config = {"rope_type": "default", "rope_theta": 1e4}


def llama(block: Config, **given: Any) -> Config:
    """A Llama of 8,192 tokens with this block."""
    return {
        "model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 5e5,
        "rope_scaling": block, **given,
    }  # fmt: skip


PLANTED: list[tuple[set[str], str, Config]] = [  # names of the alarms, what was planted, where
    (
        {"version-5-spelling"}, "version 5 read by version 4",
        {**LLAMA_31, "transformers_version": "4.57.1", "rope_parameters": {**LLAMA_3, "rope_theta": 5e5}},
    ),
    ({"base-lost"}, "a base lost beside llama3", {**LLAMA_31, "rope_scaling": LLAMA_3}),
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
    ({"mscale-alone"}, "mscale alone", {**QWEN, "rope_scaling": {**YARN, "mscale": 1.0}}),
    ({"factor-and-lengths-differ"}, "a factor too small", {**QWEN, "rope_scaling": {**YARN, "factor": 2.0}}),
    (
        {"factor-and-lengths-differ"}, "a length beyond the factor",
        {**QWEN, "max_position_embeddings": 262144, "rope_scaling": YARN},
    ),
    (
        {"original-length-missing"}, "no original length",
        {**QWEN, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    ),
    ({"original-length-not-below"}, "a length not grown", llama(LLAMA_3)),
    ({"key-ignored"}, "the key of another family", {**NEOX, "rope_theta": 5e5}),
    (
        {"share-ignored"}, "a share that the code ignores",
        llama({}, rope_parameters={**PLAIN, "partial_rotary_factor": 0.5}, rope_theta=None),
    ),
    ({"layout-key-ignored"}, "the other layout", llama({}, rope_scaling=None, rope_interleave=True)),
    (
        {"su-fails", "length-dependent"}, "the first name of longrope",
        {**PHI, "rope_scaling": {**FACTORS, "type": "su"}},
    ),
    (
        {"long-factors-unused", "length-dependent"}, "long factors that nobody uses",
        {**PHI, "model_type": "phimoe", "rope_scaling": FACTORS},
    ),
    (
        {"original-length-ignored", "length-dependent"}, "an original length in the block alone",
        {
            **{key: value for key, value in PHI.items() if not key.startswith("original")},
            "rope_scaling": {**FACTORS, "original_max_position_embeddings": 8192},
        },
    ),
    ({"length-dependent"}, "dynamic NTK", llama({"rope_type": "dynamic", "factor": 2.0})),
    ({"alpha-ignored"}, "Hunyuan's alpha elsewhere", llama({"rope_type": "dynamic", "alpha": 1000.0})),
    ({"malformed"}, "too few long factors", {**PHI, "rope_scaling": {**FACTORS, "long_factor": [2.0] * 40}}),
    ({"malformed"}, "too many short factors", {**PHI, "rope_scaling": {**FACTORS, "short_factor": [1.0] * 96}}),
    ({"malformed"}, "a rope type that is none", llama({"rope_type": "yarm", "factor": 4.0})),
    ({"malformed"}, "a gain of nothing", {**QWEN, "rope_scaling": {**YARN, "attention_factor": 0.0}}),
    ({"malformed"}, "a factor that shrinks", llama({"rope_type": "linear", "factor": 0.25})),
    ({"malformed"}, "no factor", llama({"rope_type": "linear"})),
    ({"malformed"}, "a key that is none", llama({**LINEAR, "facter": 2.0})),
    ({"malformed"}, "two shares", llama({}, rope_scaling=None, rotary_dim=32, partial_rotary_factor=0.25)),
    (
        {"unreadable"}, "two blocks that differ",
        {**QWEN, "rope_scaling": YARN, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    (
        {"unreadable"}, "a flat block for several kinds of layers",
        {"model_type": "gemma4_text", "head_dim": 64, "rope_parameters": PLAIN},
    ),
    ({"unreadable"}, "fewer kinds than layers", llama({}, num_hidden_layers=4, layer_types=["full_attention"] * 3)),
    (
        {"head-width-differs"}, "another head_dim than the part that turns",
        {
            "model_type": "deepseek_v3", "qk_rope_head_dim": 64, "head_dim": 128, "rope_theta": 1e4,
            "max_position_embeddings": 4096,
        },
    ),
    ({"key-of-another-family"}, "keys of GPT-2 in a Llama", llama({}, n_positions=4096)),
    ({"key-unread"}, "a key that nobody reads", llama({}, rope_thetta=1e6)),
]  # fmt: skip
NOTED: list[tuple[str, Config]] = [  # a note, and no alarm
    ("yarn-on-short-prompts", {**QWEN, "rope_scaling": YARN}),
    ("length-beyond-base", {**QWEN, "rope_theta": 1e4}),
    ("yarn-gain-in-engines", {**QWEN, "rope_scaling": {**YARN, "attention_factor": 1.0}}),
    ("remote-code", llama({}, auto_map={"AutoModelForCausalLM": "modeling.Mine"})),
    ("encodings-attached", llama({}, posenc={"encodings": [{"name": "alibi"}]})),
]
MENDED = {  # of the planted, those that a correction mends for certain, and the rotation that is right
    "version 5 read by version 4": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "a base lost beside llama3": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "linear over llama3, the base lost": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "linear over llama3": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "llama3 lost": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
    "rotary_dim lost": {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "rope_theta": 5e6},
    "mscale alone": {**QWEN, "rope_scaling": {**YARN, "mscale": 1.0}},
    "a factor too small": {**QWEN, "rope_scaling": {**YARN, "factor": 2.0}},
    "the key of another family": {**NEOX, "rotary_emb_base": 5e5},
    "the first name of longrope": {**PHI, "rope_scaling": FACTORS},
}
