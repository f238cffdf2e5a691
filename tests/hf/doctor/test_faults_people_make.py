"""Mistakes that people make with a checkpoint, on folders saved by transformers: each is alarmed by name and reason.

The sizes are small, and what belongs to positions is as in the releases: bases, lengths, scalings, shares and windows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from posenc.hf.doctor import examine  # noqa: E402
from tests.hf.doctor.saved_models import change_config, saved  # noqa: E402

Change = Callable[[Path], None]
SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
    "num_hidden_layers": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
UNSCALED = {"rope_type": "default", "rope_theta": 1e6}
LLAMA_3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}
LONG = [1.0 + 4 * pair for pair in range(8)]
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 32,
           "n_shared_experts": 1, "first_k_dense_replace": 1}  # fmt: skip
BERT = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 128,
        "max_position_embeddings": 512}  # fmt: skip
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
          "linear_value_head_dim": 16}  # fmt: skip
GEMMA_LAYERS = {
    "num_hidden_layers": 6, "max_position_embeddings": 131072, "head_dim": 32, "sliding_window": 1024,
    "query_pre_attn_scalar": 32,
}  # fmt: skip
FULL_LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # the model type and its sizes, next to SIZES
    "llama": ("llama", {"max_position_embeddings": 131072, "rope_parameters": LLAMA_3, "head_dim": 16}),
    "mistral": ("mistral", {"max_position_embeddings": 32768, "sliding_window": None, "rope_parameters": UNSCALED}),
    "windows": ("mistral", {"max_position_embeddings": 32768, "sliding_window": 4096,
                            "rope_parameters": {**UNSCALED, "rope_theta": 1e4}}),
    "qwen2": ("qwen2", {"max_position_embeddings": 32768, "rope_parameters": UNSCALED}),
    "qwen3": ("qwen3", {"max_position_embeddings": 40960, "head_dim": 32, "rope_parameters": UNSCALED}),
    "yarn": ("qwen2", {"max_position_embeddings": 131072, "rope_parameters": YARN}),
    "gemma3": ("gemma3_text", {**GEMMA_LAYERS, "rope_parameters": {
        "full_attention": FULL_LINEAR, "sliding_attention": {**UNSCALED, "rope_theta": 1e4}}}),
    "gemma3-images": ("gemma3", {"text_config": {**SIZES, **GEMMA_LAYERS}, "mm_tokens_per_image": 256,
                                 "vision_config": {
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2, "patch_size": 14,
        "image_size": 896}}),
    "gemma4": ("gemma4_text", {**GEMMA_LAYERS, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 128,
                               "num_kv_shared_layers": 0}),
    "gpt_oss": ("gpt_oss", {
        "max_position_embeddings": 131072, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1,
        "sliding_window": 128, "initial_context_length": 4096,
        "rope_parameters": {**YARN, "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096}}),
    "phi3": ("phi3", {
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "num_key_value_heads": 4,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096,
                            "short_factor": [1.0] * 8, "long_factor": LONG}}),
    "deepseek": ("deepseek_v3", {
        "max_position_embeddings": 163840, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, **EXPERTS,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "rope_parameters": {**YARN, "rope_theta": 1e4, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                            "original_max_position_embeddings": 4096}}),
    "smollm3": ("smollm3", {"max_position_embeddings": 65536, "rope_parameters": {**UNSCALED, "rope_theta": 5e6}}),
    "exaone4": ("exaone4", {"max_position_embeddings": 131072, "head_dim": 16, "sliding_window": 4096,
                            "sliding_window_pattern": 4, "rope_parameters": {**LLAMA_3, "factor": 16.0}}),
    "glm4_moe": ("glm4_moe", {"max_position_embeddings": 131072, "head_dim": 32, **EXPERTS, "use_qk_norm": True,
                              "rope_parameters": {**UNSCALED, "partial_rotary_factor": 0.5}}),
    "granite": ("granite", {"max_position_embeddings": 131072, "attention_multiplier": 0.0625,
                            "rope_parameters": UNSCALED}),
    "hybrid": ("qwen3_5_text", {
        "max_position_embeddings": 262144, "head_dim": 32, **LINEAR,
        "rope_parameters": {**UNSCALED, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1],
                            "mrope_interleaved": True}}),
    "lfm2": ("lfm2", {"max_position_embeddings": 128000, "rope_parameters": UNSCALED,
                      "layer_types": ["conv", "full_attention", "conv", "full_attention"]}),
    "jamba": ("jamba", {"num_hidden_layers": 8, "mamba_d_state": 4, "mamba_dt_rank": 4, "num_experts": 2,
                        "num_experts_per_tok": 1, "use_mamba_kernels": False}),
    "bamba": ("bamba", {"max_position_embeddings": 4096, "attn_layer_indices": [1, 3], "mamba_n_heads": 8,
                        "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}),
    "modernbert": ("modernbert", {"num_hidden_layers": 6, "cls_token_id": 1, "sep_token_id": 2}),
}  # fmt: skip
WITHOUT_SIZES: dict[str, tuple[str, dict[str, Any]]] = {  # without SIZES
    "gptj": ("gptj", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 2048, "rotary_dim": 8,
                      "vocab_size": 128}),
    "t5": ("t5", {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_heads": 4, "num_layers": 2, "vocab_size": 128}),
    "longformer": ("longformer", {**BERT, "max_position_embeddings": 4098, "attention_window": [512, 512]}),
    "gpt_neo": ("gpt_neo", {"hidden_size": 64, "num_heads": 4, "num_layers": 2, "vocab_size": 128, "window_size": 256,
                            "attention_types": [[["global", "local"], 1]]}),
    "whisper": ("whisper", {
        "d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_attention_heads": 4, "vocab_size": 128,
        "decoder_attention_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "decoder_start_token_id": 1}),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A function that gives a fresh copy of a saved model, which is built once."""
    root = tmp_path_factory.mktemp("people")
    copies = iter(range(10**6))

    def copy(name: str) -> Path:
        source = root / name
        if not source.exists():
            if name in WITHOUT_SIZES:
                model_type, sizes = WITHOUT_SIZES[name]
            else:
                model_type, sizes = MODELS[name][0], {**SIZES, **MODELS[name][1]}
            if name == "gemma3-images":
                sizes = MODELS[name][1]
            saved(model_type, source, **sizes)
        return Path(shutil.copytree(source, root / f"copy-{next(copies)}"))

    yield copy
    shutil.rmtree(root)


def keys(*inside: str, **values: Any) -> Change:
    """Other values under keys of config.json; None removes a key."""
    return lambda folder: change_config(folder, *inside, **values)


def nulls(*names: str) -> Change:
    """Null under keys of config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **dict.fromkeys(names)}))

    return change


def block(*inside: str, **values: Any) -> Change:
    """Other values in rope_parameters; None removes a key."""
    return keys("rope_parameters", *inside, **values)


def next_to_config(file: str, **content: Any) -> Change:
    """A file next to config.json."""
    return lambda folder: (folder / file).write_text(json.dumps(content)) and None


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 17209530\n"
KINDS = ["full_attention", "linear_attention", "linear_attention", "linear_attention"]
FAULTS: list[tuple[str, str, Change, str, str]] = [  # what, in which model, how; the name of the alarm and its reason
    ("queries without their rank", "deepseek", nulls("q_lora_rank"), "tensors-unread", "q_a_proj"),
    ("recurrent layers listed as attention", "hybrid", keys(layer_types=["full_attention"] * 4), "tensors-unread",
     "linear_attn"),
    ("layers shifted", "hybrid", keys(layer_types=KINDS), "tensors-unread", "linear_attn"),
    ("another offset", "jamba", keys(attn_layer_offset=2), "tensors-missing", "layers.*.self_attn"),
    ("other indices", "bamba", keys(attn_layer_indices=[0, 2]), "tensors-missing", "layers.*.self_attn"),
    ("longrope lost, its length kept", "phi3", keys(rope_parameters={**UNSCALED, "rope_theta": 1e4}), "scaling-lost",
     "4,096"),
    ("yarn lost, its length kept", "gpt_oss", keys(rope_parameters={**UNSCALED, "rope_theta": 150000.0}),
     "scaling-lost", "4,096"),
    ("lists exchanged", "phi3", block(long_factor=[1.0] * 8, short_factor=LONG), "factor-lists-swapped", "exchanged"),
    ("a list too short", "phi3", block(long_factor=LONG[:7]), "malformed", "8"),
    ("the local block scaled too", "gemma3", block("sliding_attention", rope_type="linear", factor=8.0),
     "rotation-of-windows", "scaling"),
    ("the local base without its last word", "gemma3", keys(rope_local_base=20000.0), "key-misspelt",
     "rope_local_base_freq"),
    ("blocks exchanged", "modernbert", keys(rope_parameters={
        "full_attention": {**UNSCALED, "rope_theta": 1e4}, "sliding_attention": {**UNSCALED, "rope_theta": 160000.0}}),
     "rotation-of-windows", "full ones"),
    ("the share lost", "gemma4", block("full_attention", partial_rotary_factor=None), "share-lost", "0.25"),
    ("a scaling next to the text part", "gemma3-images",
     keys(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "levels-differ", "text_config"),
    ("all layers rotate", "smollm3", keys(no_rope_layers=[1] * 4), "nope-layers-lost", "every 4. layer"),
    ("a scaling that nobody reads", "gptj", keys(rope_scaling={"rope_type": "linear", "factor": 4.0}), "scaling-unread",
     "fixes the frequencies"),
    ("the multiplier lost", "granite", keys(attention_multiplier=None), "softmax-scale", "means 1"),
    ("the multiplier inverted", "granite", keys(attention_multiplier=16.0), "softmax-scale", "16"),
    ("a pointer in the place of the tokenizer", "llama", lambda folder: (folder / "tokenizer.json").write_text(POINTER)
     and None, "other-file-unread", "Git LFS"),
    ("the factor's key misspelt", "yarn", block(factor=None, facter=4.0), "malformed", "facter"),
    ("factors of frequencies exchanged", "llama", block(low_freq_factor=4.0, high_freq_factor=1.0), "malformed",
     "freq_factor"),
    ("another window in params.json", "windows",
     next_to_config("params.json", dim=64, n_layers=4, head_dim=16, hidden_dim=96, n_heads=4, n_kv_heads=2,
                    norm_eps=1e-5, vocab_size=128, rope_theta=1e4, sliding_window=8192), "other-file-differs", "8,192"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "alarm", "reason"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_each_is_alarmed_with_its_reason(
    name: str, change: Change, alarm: str, reason: str, model: Callable[[str], Path]
) -> None:
    folder = model(name)
    assert examine(folder).healthy, str(examine(folder))
    change(folder)
    report = examine(folder)
    alarms = [finding for finding in report.findings if finding.alarms and finding.name == alarm]
    reasons = [f"{finding.key} {finding.text}" for finding in alarms]
    assert any(reason in text for text in reasons), str(report)


def test_there_are_more_than_thirty() -> None:
    assert len({fault[0] for fault in FAULTS}) == len(FAULTS) > 20
