"""Forty faults of kinds that people met, each in a published config and with the thread in which it happened.

A fault counts as found where an alarm names one of its keys. They were written down from the threads, each in the file
in which it would lie, and not from what the rules look for.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

Config = dict[str, Any]
_PUBLISHED = Path(__file__).parents[2] / "golden" / "published_configs.jsonl"
_SMOLLM_3 = [1, 1, 1, 0] * 9
_GEMMA_KINDS = [*5 * ["sliding_attention"], "full_attention"]
RELEASED: dict[str, Config] = {  # further models, by their cards
    "google/gemma-3-4b-it": {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
        "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 1024, "query_pre_attn_scalar": 256,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": (_GEMMA_KINDS * 6)[:34],
    },
    "google/gemma-3-270m": {
        "model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "max_position_embeddings": 32768,
        "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 512, "query_pre_attn_scalar": 256,
        "layer_types": _GEMMA_KINDS * 3,
    },
    "HuggingFaceTB/SmolLM3-3B": {
        "model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
        "num_key_value_heads": 4, "vocab_size": 128256, "max_position_embeddings": 65536, "rope_theta": 5e6,
        "no_rope_layers": _SMOLLM_3, "no_rope_layer_interval": 4, "use_sliding_window": False,
    },
    "Qwen/Qwen2-VL-7B-Instruct": {
        "model_type": "qwen2_vl", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768, "max_window_layers": 28,
        "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "sliding_window": 32768,
        "use_sliding_window": False,
    },
    "Qwen/Qwen3-32B": {
        "model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "max_window_layers": 64, "rope_theta": 1e6, "sliding_window": None, "use_sliding_window": False,
    },
    "zai-org/GLM-4.6V": {
        "model_type": "glm4v_moe", "text_config": {
            "model_type": "glm4v_moe_text", "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552, "max_position_embeddings": 131072,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5,
                                "mrope_section": [8, 12, 12]}},
    },
    "facebook/esm2_t33_650M_UR50D": {
        "model_type": "esm", "hidden_size": 1280, "num_hidden_layers": 33, "num_attention_heads": 20, "vocab_size": 33,
        "max_position_embeddings": 1026, "position_embedding_type": "rotary", "pad_token_id": 1,
    },
}  # fmt: skip
_GGUF = {"tensors.without_factors": True}
GGUF: dict[str, Config] = {  # metadata of files as llama.cpp's converter writes them
    "Qwen1.5-72B": {
        "general.architecture": "qwen2", "qwen2.context_length": 32768, "qwen2.embedding_length": 8192,
        "qwen2.block_count": 80, "qwen2.attention.head_count": 64, "qwen2.attention.head_count_kv": 64,
        "qwen2.rope.freq_base": 1e6, **_GGUF,
    },
    "Qwen3-30B-A3B": {
        "general.architecture": "qwen3moe", "qwen3moe.context_length": 131072, "qwen3moe.embedding_length": 2048,
        "qwen3moe.block_count": 48, "qwen3moe.attention.head_count": 32, "qwen3moe.attention.head_count_kv": 4,
        "qwen3moe.attention.key_length": 128, "qwen3moe.attention.value_length": 128, "qwen3moe.rope.freq_base": 1e6,
        "qwen3moe.rope.scaling.type": "yarn", "qwen3moe.rope.scaling.factor": 4.0,
        "qwen3moe.rope.scaling.original_context_length": 32768, **_GGUF,
    },
    "gemma-3-4b": {
        "general.architecture": "gemma3", "gemma3.context_length": 131072, "gemma3.embedding_length": 2560,
        "gemma3.block_count": 34, "gemma3.attention.head_count": 8, "gemma3.attention.head_count_kv": 4,
        "gemma3.attention.key_length": 256, "gemma3.attention.value_length": 256, "gemma3.rope.freq_base": 1e6,
        "gemma3.attention.sliding_window": 1024, "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0, **_GGUF,
    },
    "Qwen2.5-7B-1M": {
        "general.architecture": "qwen2", "qwen2.context_length": 131072, "qwen2.embedding_length": 3584,
        "qwen2.block_count": 28, "qwen2.attention.head_count": 28, "qwen2.attention.head_count_kv": 4,
        "qwen2.rope.freq_base": 1e6, "qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0,
        "qwen2.rope.scaling.original_context_length": 32768, **_GGUF,
    },
}  # fmt: skip


class Reported(NamedTuple):
    """A fault.

    Attributes:
        thread: in which it happened.
        what: went wrong.
        model: whose config or metadata is changed.
        changes: by dotted key the value; None removes a key.
        keys: of which the alarm must name one.
    """

    thread: str
    what: str
    model: str
    changes: Config
    keys: tuple[str, ...]


_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
_BASE, _SHARE = ("rope_theta", "rope_parameters"), ("partial_rotary_factor", "rotary_dim", "rope_parameters")
_LENGTHS = ("max_position_embeddings", "original_max_position_embeddings", "factor", "rope_scaling", "rope_type")
REPORTED = [
    Reported("lyogavin/airllm#368", "the base is not carried over", "meta-llama/Llama-3.1-8B", {"rope_theta": None},
             _BASE),
    Reported("Luce-Org/lucebox#447", "the base of another size of the family", "Qwen/Qwen3.5-27B",
             {"text_config.rope_parameters.rope_theta": 1e6}, _BASE),
    Reported("THUDM/slime#1720", "the default of the class in the place of the base", "zai-org/GLM-4.6V",
             {"text_config.rope_parameters.rope_theta": 10000.0}, _BASE),
    Reported("Lightning-AI/litgpt#2217", "v0.1's base in v0.2", "mistralai/Mistral-7B-v0.1",
             {"sliding_window": None, "rope_theta": 10000.0}, _BASE),
    Reported("Open-Athena/MarinFold#184", "a scaling that version 4 does not find", "meta-llama/Llama-3.1-8B",
             {"rope_theta": None, "transformers_version": "4.57.1", "rope_scaling": None, "rope_parameters": {
                 "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                 "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}, ("rope_parameters",)),
    Reported("unslothai/unsloth#7028", "linear scaling over llama3", "meta-llama/Llama-3.1-8B",
             {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "max_position_embeddings": 262144}, _LENGTHS),
    Reported("floneum/kalosm#340", "llama3's scaling is not read", "meta-llama/Llama-3.1-8B", {"rope_scaling": None},
             _LENGTHS),
    Reported("lablup/mlxcel#1340", "linear 8 of the full layers is not read", "google/gemma-3-4b-it",
             {"rope_scaling": None}, _LENGTHS),
    Reported("antonellof/ferrox#39", "linear 8 on the sliding layers too", "google/gemma-3-4b-it",
             {"rope_theta": None, "rope_local_base_freq": None, "rope_scaling": None, "rope_parameters": {
                 "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                 "sliding_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4}}},
             ("rope_parameters", "rope_type", "factor")),
    Reported("Blaizzy/mlx-vlm#1927", "the base of the full layers on the sliding ones", "google/gemma-3-1b-it",
             {"rope_local_base_freq": 1e6}, ("rope_local_base_freq", "rope_parameters", "rope_theta")),
    Reported("NVIDIA/Megatron-LM#1418", "the declared length for the trained one", "deepseek-ai/DeepSeek-V3",
             {"rope_scaling.original_max_position_embeddings": 163840}, _LENGTHS),
    Reported("NVIDIA-NeMo/Automodel#2652", "yarn without its original length", "Qwen/Qwen3-8B",
             {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}, "max_position_embeddings": 81920}, _LENGTHS),
    Reported("agentscope-ai/Trinity-RFT#389", "a trained length below all releases", "Qwen/Qwen3-8B",
             {"rope_scaling": {**_YARN, "original_max_position_embeddings": 16384}, "max_position_embeddings": 65536},
             _LENGTHS),
    Reported("vllm-project/recipes#794", "a million tokens declared without a scaling", "Qwen/Qwen3.5-27B",
             {"text_config.max_position_embeddings": 1010000}, _LENGTHS),
    Reported("NVIDIA/Megatron-LM#6305", "factor 8 where Llama 3.2 has 32", "meta-llama/Llama-3.1-8B",
             {"hidden_size": 2048, "num_hidden_layers": 16, "rope_scaling.factor": 8.0, "intermediate_size": 8192,
              "num_attention_heads": 32, "head_dim": 64, "tie_word_embeddings": True}, _LENGTHS),
    Reported("onnxruntime/mobius#548", "the softmax scale without mscale_all_dim", "moonshotai/Kimi-K2-Instruct",
             {"rope_scaling.mscale_all_dim": None, "rope_scaling.mscale": None}, ("mscale", "mscale_all_dim")),
    Reported("NVIDIA/Megatron-LM#1429", "mscale in the place of mscale_all_dim", "deepseek-ai/DeepSeek-V2-Lite",
             {"rope_scaling.mscale_all_dim": None}, ("mscale", "mscale_all_dim")),
    Reported("deepseek-ai/DeepSeek-R1#684", "a gain under a key that few readers have", "Qwen/Qwen3-8B",
             {"rope_scaling": {**_YARN, "attn_factor": 0.8782488562869419}, "max_position_embeddings": 131072},
             ("attn_factor",)),
    Reported("lablup/mlxcel#1358", "the long factors for short texts too", "microsoft/Phi-3-mini-128k-instruct",
             {"rope_scaling.short_factor": "=rope_scaling.long_factor"}, ("short_factor", "long_factor")),
    Reported("huggingface/transformers#48241", "the share is lost as the config is saved", "MiniMaxAI/MiniMax-M2",
             {"rotary_dim": None}, _SHARE),
    Reported("ml-explore/mlx-lm#1698", "all channels rotate", "zai-org/GLM-4-32B-0414", {"partial_rotary_factor": 1.0},
             _SHARE),
    Reported("AI-Hypercomputer/maxtext#4616", "the share is lost next to M-RoPE", "Qwen/Qwen3.5-27B",
             {"text_config.rope_parameters.partial_rotary_factor": 1.0}, (*_SHARE, "mrope_section")),
    Reported("jagmarques/nexusquant#12", "Gemma 4's full layers rotate whole heads", "google/gemma-4-31B",
             {"text_config.rope_parameters.full_attention.partial_rotary_factor": 1.0}, _SHARE),
    Reported("huggingface/transformers#33401", "the sections of M-RoPE are lost", "Qwen/Qwen2-VL-7B-Instruct",
             {"rope_scaling": {"type": "mrope"}}, ("mrope_section", "rope_scaling")),
    Reported("huggingface/transformers#43756", "the flags of NoPE inverted", "HuggingFaceTB/SmolLM3-3B",
             {"no_rope_layers": [0, 0, 0, 1] * 9}, ("no_rope_layers",)),
    Reported("timtoole02/Camelid#535", "every layer rotates", "HuggingFaceTB/SmolLM3-3B",
             {"no_rope_layers": [1] * 36}, ("no_rope_layers",)),
    Reported("peremartra/optipfair#20", "fewer layers than kinds", "google/gemma-3-270m", {"num_hidden_layers": 14},
             ("layer_types", "num_hidden_layers")),
    Reported("NVIDIA-NeMo/Megatron-Bridge#4875", "windows in the other layers", "google/gemma-2-9b",
             {"layer_types": ["full_attention", "sliding_attention"] * 21}, ("layer_types",)),
    Reported("huggingface/transformers#39696", "a schedule in letters without its list", "LGAI-EXAONE/EXAONE-4.0-32B",
             {"sliding_window_pattern": "LLLG", "layer_types": None}, ("sliding_window_pattern", "layer_types")),
    Reported("Blackwellboy/model-serving-minefield#107", "a window that no layer has", "Qwen/Qwen3-8B",
             {"sliding_window": 2048, "use_sliding_window": True, "max_window_layers": 36},
             ("sliding_window", "use_sliding_window", "max_window_layers")),
    Reported("ggml-org/llama.cpp#26848", "the window is lost", "CohereForAI/c4ai-command-r7b-12-2024",
             {"sliding_window": None, "layer_types": ["full_attention"] * 32},
             ("sliding_window", "layer_types", "sliding_window_pattern")),
    Reported("OpenNMT/CTranslate2#1882", "Granite's multiplier is not read", "ibm-granite/granite-3.1-8b-base",
             {"attention_multiplier": None}, ("attention_multiplier",)),
    Reported("huggingface/transformers#31891", "224 for 256 under the softmax", "google/gemma-2-9b",
             {"query_pre_attn_scalar": 224}, ("query_pre_attn_scalar",)),
    Reported("marin-community/marin#2098", "a head of hidden_size over heads", "Qwen/Qwen3-32B", {"head_dim": 80},
             ("head_dim",)),
    Reported("facebookresearch/esm#628", "a scaling of code that has none", "facebook/esm2_t33_650M_UR50D",
             {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ("rope_scaling",)),
    Reported("ollama/ollama#2379", "a file without its base", "Qwen1.5-72B", {"qwen2.rope.freq_base": None},
             ("rope.freq_base",)),
    Reported("ggml-org/llama.cpp#13331", "yarn is not written", "Qwen3-30B-A3B",
             {"qwen3moe.rope.scaling.type": None, "qwen3moe.rope.scaling.factor": None,
              "qwen3moe.rope.scaling.original_context_length": None},
             ("max_position_embeddings", "context_length", "qwen3moe.context_length")),
    Reported("ollama/ollama#13474", "Gemma 3's scale is not written", "gemma-3-4b",
             {"gemma3.rope.scaling.type": None, "gemma3.rope.scaling.factor": None},
             ("max_position_embeddings", "context_length", "gemma3.context_length")),
    Reported("ikawrakow/ik_llama.cpp#2003", "the factor under yarn_ext_factor", "Qwen3-30B-A3B",
             {"qwen3moe.rope.scaling.yarn_ext_factor": 4.0}, ("rope.scaling.yarn_ext_factor",)),
    Reported("ggml-org/llama.cpp#13312", "the length of the file is not raised", "Qwen2.5-7B-1M",
             {"qwen2.context_length": 32768},
             ("rope.scaling.original_context_length", "context_length", "max_position_embeddings",
              "rope.scaling.factor", "original_max_position_embeddings")),
]  # fmt: skip


def config_of(model: str) -> Config:
    """The config or metadata of a model."""
    if model in RELEASED or model in GGUF:
        return copy.deepcopy((RELEASED | GGUF)[model])
    for line in _PUBLISHED.read_text(encoding="utf-8").splitlines():
        record: Config = json.loads(line)
        if record["model"] == model:
            found: Config = record["config"]
            return found
    raise ValueError(f"no config of {model}")


def planted(fault: Reported) -> Config:
    """The config with the fault in it."""
    config = config_of(fault.model)
    for path, value in fault.changes.items():
        names = [path] if "general.architecture" in config else path.split(".")
        inner = config
        for name in names[:-1]:
            inner = inner[name]
        if isinstance(value, str) and value.startswith("="):
            value = copy.deepcopy(_at(config, value[1:].split(".")))
        if value is None:
            inner.pop(names[-1], None)
        else:
            inner[names[-1]] = copy.deepcopy(value)
    return config


def _at(config: Config, names: list[str]) -> Any:
    value: Any = config
    for name in names:
        value = value[name]
    return value
