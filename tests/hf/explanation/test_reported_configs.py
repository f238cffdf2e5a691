"""Spellings of published and reported configurations, with what transformers' classes make of them."""

from __future__ import annotations

from typing import Any

import pytest

from posenc.hf import explain, read_rope, serve_flags
from posenc.hf.doctor import examine

Config = dict[str, Any]
SLIDING, FULL = "sliding_attention", "full_attention"
MODERNBERT: Config = {
    "model_type": "modernbert-decoder", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6,
    "local_attention": 128, "global_attn_every_n_layers": 3, "max_position_embeddings": 8192,
}  # fmt: skip
EXAONE: Config = {
    "model_type": "exaone4", "num_hidden_layers": 64, "head_dim": 128, "sliding_window": 4096, "rope_theta": 1e6,
    "sliding_window_pattern": "LLLG", "max_position_embeddings": 131072,
}  # fmt: skip
QWEN_MOE: Config = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8, "rope_theta": 1e6}
NO_OP, ATTENDS = ({"attention": {"no_op": flag}} for flag in (True, False))
LAYERS: dict[str, tuple[Config, dict[str, int]]] = {  # the layers of each kind
    "LFM2-700M as first released": (
        {"model_type": "lfm2", "hidden_size": 1536, "num_attention_heads": 24, "num_hidden_layers": 16,
         "full_attn_idxs": [2, 5, 8, 10, 12, 14], "rope_theta": 1e6, "max_position_embeddings": 128000},
        {"conv": 10, FULL: 6},
    ),
    "Inkling": (
        {"model_type": "inkling_text", "hidden_size": 4096, "num_hidden_layers": 42, "num_attention_heads": 32,
         "head_dim": 128, "local_layer_ids": [0, 1, 3]},
        {"hybrid_sliding": 3, "hybrid": 39},
    ),
    "LongCat-Flash": (
        {"model_type": "longcat_flash", "num_layers": 28, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
         "rope_theta": 1e7, "max_position_embeddings": 131072},
        {FULL: 56},
    ),
    "Nemotron-NAS": (
        {"model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 4,
         "rope_theta": 5e5, "block_configs": [ATTENDS, NO_OP, ATTENDS, ATTENDS], "max_position_embeddings": 131072},
        {FULL: 3, "mlp": 1},
    ),
    "EXAONE 4 in letters": (EXAONE, {SLIDING: 48, FULL: 16}),
    "EXAONE MoE in letters": ({**EXAONE, "model_type": "exaone_moe"}, {SLIDING: 48, FULL: 16}),
    "Gemma 3 in letters": (
        {"model_type": "gemma3_text", "num_hidden_layers": 12, "head_dim": 256, "sliding_window_pattern": "LLLLLG"},
        {SLIDING: 10, FULL: 2},
    ),
    "Gemma 4 with its last layers cut off, whose class makes the last one full": (
        {"model_type": "gemma4_text", "num_hidden_layers": 4, "layer_types": [SLIDING] * 4}, {SLIDING: 3, FULL: 1},
    ),
    "Llama 4 with another interval, whose chunks are the layers that rotate": (
        {"model_type": "llama4_text", "head_dim": 64, "num_attention_heads": 4, "num_hidden_layers": 6,
         "no_rope_layer_interval": 3}, {"chunked_attention": 4, FULL: 2},
    ),
    "SmolLM3 with windows, which its layers without rotation have": (
        {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 8, "rope_theta": 5e6,
         "use_sliding_window": True, "sliding_window": 512}, {FULL: 6, SLIDING: 2},
    ),
    "Qwen 2 with experts, every second layer of the first four": (
        {**QWEN_MOE, "model_type": "qwen2_moe", "max_window_layers": 4, "use_sliding_window": True},
        {SLIDING: 2, FULL: 6},
    ),
    "Qwen 2 with experts as released": (
        {**QWEN_MOE, "model_type": "qwen2_moe", "use_sliding_window": False, "sliding_window": 65536}, {FULL: 8},
    ),
    "Qwen 3 with experts, every layer": (
        {**QWEN_MOE, "model_type": "qwen3_moe", "use_sliding_window": True, "sliding_window": 512}, {SLIDING: 8},
    ),
    "dots.llm1 with windows from its second layer on": (
        {"model_type": "dots1", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
         "max_window_layers": 1},
        {SLIDING: 3, FULL: 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_each_kind(name: str) -> None:
    config, counts = LAYERS[name]
    kinds = explain(config).facts["schedule"]["kinds"]
    assert {kind["kind"]: len(kind["layers"]) for kind in kinds} == counts


def test_sliding_window_goes_before_local_attention() -> None:
    kinds = explain({**MODERNBERT, "sliding_window": 32}).facts["schedule"]["kinds"]
    assert {kind["window"] for kind in kinds if kind["kind"] == SLIDING} == {32}
    kinds = explain(MODERNBERT).facts["schedule"]["kinds"]
    assert {kind["window"] for kind in kinds if kind["kind"] == SLIDING} == {64}


def test_the_alibi_of_jina_is_added_to_scaled_scores() -> None:
    jina = {"model_type": "bert", "position_embedding_type": "alibi", "hidden_size": 768, "num_attention_heads": 12}
    assert explain(jina).facts["encodings"][0]["posenc"] == "ALiBi(num_heads)"
    falcon = {"model_type": "falcon", "alibi": True, "hidden_size": 64, "num_attention_heads": 4}
    assert "bias_scale" in explain(falcon).facts["encodings"][0]["posenc"]


def test_esm_reads_no_scaling() -> None:
    block = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 1026}
    esm = {"model_type": "esm", "position_embedding_type": "rotary", "hidden_size": 128, "num_attention_heads": 2}
    scaled = read_rope({**esm, "rope_scaling": block, "max_position_embeddings": 16416})
    assert scaled.rotation.scaling is None
    assert {finding.name for finding in scaled.findings if finding.alarms} == {"scaling-unread"}
    assert scaled.to_config() == scaled.config


def test_a_retriever_is_read_by_the_model_inside_it() -> None:
    """ColPali and ColQwen2 build ``vlm_config``; a text_config next to it, of an older file, is read by no class."""
    qwen = {"model_type": "qwen2_vl", "text_config": {"hidden_size": 1536, "num_attention_heads": 12, "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}}  # fmt: skip
    read = read_rope({"model_type": "colqwen2", "vlm_config": qwen})
    assert (read.text_config.model_type, read.text_config.path) == ("qwen2_vl_text", ("vlm_config", "text_config"))
    stale = {"model_type": "gemma", "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    gemma = {"model_type": "paligemma", "text_config": {"hidden_size": 2048, "num_attention_heads": 8}}
    assert read_rope({"model_type": "colpali", "text_config": stale, "vlm_config": gemma}).rotation.scaling is None


SCALES: list[tuple[Config, float]] = [  # of the softmax, where the class decides it
    ({"model_type": "gemma3_text"}, 256**-0.5),
    ({"model_type": "gemma3_text", "query_pre_attn_scalar": 168}, 168**-0.5),
    ({"model_type": "granite", "hidden_size": 4096, "num_attention_heads": 32}, 1.0),
    ({"model_type": "hyperclovax", "hidden_size": 4096, "num_attention_heads": 64}, 64**-0.5),
    ({"model_type": "bloom", "n_embed": 1024, "n_head": 16}, 64**-0.5),
    ({"model_type": "bloom", "n_embed": 14336, "num_attention_heads": 112}, 128**-0.5),
    (
        {
            "model_type": "zamba2",
            "hidden_size": 64,
            "num_attention_heads": 4,
            "attention_head_dim": 32,
            "layers_block_type": ["hybrid"] * 2,
        },
        16**-0.5,
    ),
    ({"model_type": "decision_transformer", "hidden_size": 128, "n_embd": 768, "n_head": 1}, 128**-0.5),
]


@pytest.mark.parametrize(("config", "scale"), SCALES, ids=lambda value: str(value)[:50])
def test_scales_that_a_config_leaves_to_its_class(config: Config, scale: float) -> None:
    kinds = explain({"num_hidden_layers": 2, **config}).facts["schedule"]["kinds"]
    assert [kind["softmax_scale"] for kind in kinds] == [pytest.approx(scale)] * len(kinds)


def test_sliding_layers_of_inkling_have_a_width_of_their_own() -> None:
    inkling = {**LAYERS["Inkling"][0], "swa_head_dim": 64}
    kinds = explain(inkling).facts["schedule"]["kinds"]
    assert {kind["kind"]: kind["softmax_scale"] for kind in kinds} == {"hybrid_sliding": 1 / 64, "hybrid": 1 / 128}


@pytest.mark.parametrize("part", ["llm_config", "thinker_config"])
def test_a_stray_part_replaces_no_text_model(part: str) -> None:
    llama = {"model_type": "llama", "head_dim": 8, "max_position_embeddings": 2048, "rope_theta": 1e4}
    assert read_rope({**llama, part: {"rope_type": "x"}}).rotation.head_dim == 8


def test_chunks_bound_what_a_pair_can_rotate_within() -> None:
    llama_4 = {
        "model_type": "llama4_text", "head_dim": 128, "num_attention_heads": 40, "num_hidden_layers": 8,
        "rope_theta": 5e5, "max_position_embeddings": 1048576, "attention_chunk_size": 8192,
    }  # fmt: skip
    layer = explain(llama_4).facts["layers"]["all"]
    assert (layer["window"], layer["pairs_without_full_rotation"]) == (8192, 29)


def test_heads_of_latent_attention_have_unrotated_channels() -> None:
    config = {
        "model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512,
        "max_position_embeddings": 163840, "rope_theta": 1e4,
    }  # fmt: skip
    explanation = explain(config)
    layer = explanation.facts["layers"]["all"]
    assert (layer["head_dim"], layer["head_width"]) == (64, 192)
    assert "192 channels, 64 in pairs" in str(explanation)


def test_parts_of_a_composite_that_are_not_read_are_named() -> None:
    text = {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}
    tower = {"model_type": "siglip_vision_model", "hidden_size": 32}
    composite = {"model_type": "llava", "text_config": text, "vision_config": tower, "quantization_config": {"bits": 4}}
    explanation = explain(composite)
    assert explanation.facts["parts_not_read"] == {"vision_config": "siglip_vision_model"}
    assert "vision_config (siglip_vision_model)" in str(explanation)
    omni = {"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "qwen2_5_omni_thinker", "text_config": text,
            "audio_config": {"d_model": 32}}, "talker_config": {"hidden_size": 8}}  # fmt: skip
    assert explain(omni).facts["parts_not_read"] == {"talker_config": "", "thinker_config.audio_config": ""}
    assert explain(text).facts["parts_not_read"] == {}


def test_layers_that_predict_further_tokens_are_none_of_a_gguf_file() -> None:
    """ggml-org/llama.cpp#26848: block_count has them, and the layers of the model lost a window."""
    keys = {
        "context_length": 131072, "block_count": 65, "embedding_length": 5120, "attention.head_count": 40,
        "attention.head_count_kv": 8, "attention.key_length": 128, "attention.sliding_window": 4096,
        "rope.freq_base": 1e6, "nextn_predict_layers": 1,
    }  # fmt: skip
    exaone = {"general.architecture": "exaone4", **{f"exaone4.{key}": value for key, value in keys.items()}}
    explanation = explain(exaone).facts
    assert {kind["kind"]: len(kind["layers"]) for kind in explanation["schedule"]["kinds"]} == {SLIDING: 48, FULL: 16}
    assert list(explanation["parts_not_read"]) == ["num_nextn_predict_layers"]
    assert read_rope(exaone).to_config()["num_hidden_layers"] == 64
    glm = {"context_length": 131072, "block_count": 47, "embedding_length": 4096, "attention.head_count": 96,
           "attention.head_count_kv": 8, "attention.key_length": 128, "rope.dimension_count": 64,
           "rope.freq_base": 1e6, "nextn_predict_layers": 1}  # fmt: skip
    glm = {"general.architecture": "glm4moe", **{f"glm4moe.{key}": value for key, value in glm.items()}}
    assert len(explain(glm).facts["schedule"]["kinds"][0]["layers"]) == 46


@pytest.mark.parametrize(
    ("config", "kind", "rotated", "rotating", "layout"),
    [  # NVIDIA-NeMo/Megatron-Bridge#4195, ml-explore/mlx-lm#1698
        ({"model_type": "gemma4_text"}, FULL, 512, 64, "half"),
        ({"model_type": "glm", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 1e4}, "all", 64, 32,
         "interleaved"),
    ],
)  # fmt: skip
def test_shares_that_a_config_leaves_to_its_class(
    config: Config, kind: str, rotated: int, rotating: int, layout: str
) -> None:
    layer = explain({"max_position_embeddings": 131072, **config}).facts["layers"][kind]
    assert (layer["rotary_dim"], layer["rotating_pairs"], layer["layout"]) == (rotated, rotating, layout)


R1 = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "attn_factor": 0.8782488562869419}
QWEN_3 = {"model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 131072}


@pytest.mark.parametrize(
    ("changes", "alarmed", "gains"),
    [
        ({}, True, (1.138629, 1.0)),
        ({"attn_factor": 1.0}, False, (1.138629, 1.138629)),
        ({"attn_factor": 1.0, "extrapolation_factor": 1.0}, False, (1.138629, 1.138629)),
    ],
)
def test_a_key_of_engines_is_told_by_reader(changes: Config, alarmed: bool, gains: tuple[float, float]) -> None:
    """deepseek-ai/DeepSeek-R1#684: transformers and SGLang compute another gain from one file."""
    config = {**QWEN_3, "rope_scaling": {**R1, **changes}}
    assert (examine(config).names() == {"key-of-an-engine"}) == alarmed
    read = (read_rope(config).rotation, read_rope(config, convention="sglang").rotation)
    assert tuple(float(rope.spectrum().gain) for rope in read) == pytest.approx(gains, abs=1e-6)
    finding = next((each for each in examine(config).findings if each.alarms), None)
    if finding is not None:
        assert finding.corrected is not None
        assert finding.corrected["rope_scaling"]["attention_factor"] == pytest.approx(1.0)


def test_windows_leave_no_distance_new_to_llama_cpp() -> None:
    """K-EXAONE: 36 of 48 layers rotate, within 128 tokens, and the 12 full ones do not."""
    kinds = [SLIDING] * 3 + [FULL]
    exaone = {"model_type": "exaone_moe", "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 48,
              "head_dim": 128, "rope_theta": 1e6, "sliding_window": 128, "layer_types": kinds * 12,
              "max_position_embeddings": 262144}  # fmt: skip
    (line,) = [line for line in serve_flags(read_rope(exaone)) if line.name.startswith("llama.cpp")]
    assert line.command


NOT_READ: dict[str, Config] = {
    "a class that posenc does not read": {"model_type": "nanochat", "hidden_size": 4096},
    "latent attention switched off": {
        "model_type": "deepseek_v2", "hidden_size": 1280, "num_attention_heads": 10, "use_mla": False,
        "qk_rope_head_dim": 0, "qk_nope_head_dim": 0, "v_head_dim": 0, "kv_lora_rank": None, "rope_theta": 1e4,
    },
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_READ)
def test_what_is_not_read_is_neither_faulty_nor_healthy(what: str) -> None:
    report = examine(NOT_READ[what])
    assert (report.names(), report.healthy, report.exit_code()) == (set(), False, 3)
