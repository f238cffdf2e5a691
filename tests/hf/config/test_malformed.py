"""Whatever is wrong with a configuration is one ValueError that names the key where it stands.

tests/fuzz/test_configurations.py puts any value into any key; here is what stands between keys, and what errors say.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from posenc.hf.findings import MalformedError
from posenc.hf.limits import CHANNELS, LAYERS, TOKENS
from posenc.rotary.rope import RoPE
from tests.hf.checkpoints import CHECKPOINTS, FULL, SLIDING

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
YARN = {"type": "yarn", "factor": 4.0}
MROPE = {"type": "mrope", "mrope_section": [16, 24, 24]}
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1.0] * 64}
TWICE = "obeys "  # where two keys differ, the correction is the one that transformers takes: tests/reference holds it
WORDS: list[tuple[str, dict[str, Any]]] = [  # what the error names
    # a block
    ("factor", {"rope_scaling": {"type": "dynamic"}}),
    ("high_freq_factor", {"rope_scaling": {"type": "llama3", "factor": 4, "low_freq_factor": 1}}),
    ("long_factor", {"rope_scaling": {**LONGROPE, "long_factor": None}}),
    ("beta_fast", {"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 32}}),
    ("short_factor", {"rope_scaling": {**LONGROPE, "short_factor": [*[1.0] * 63, "x"]}}),
    ("rope_scaling.short_factor", {"rope_scaling": {**LONGROPE, "short_factor": [1e-320] * 64}}),
    ("64", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "head_dim": 64}),
    ("factor", {"rope_scaling": {"type": "linear", "factr": 8.0}}),
    ("mrope_sections", {"rope_scaling": {"type": "mrope", "mrope_sections": [16, 24, 24]}}),
    ("factor", {"rope_scaling": {"factor": 8.0}}),
    ("factor", {"rope_scaling": {**MROPE, "type": None, "factor": 2.0}}),
    ("beta_slow", {"rope_scaling": {**YARN, "beta_fast": 0.5}}),
    ("rope_scaling.beta_fast", {"rope_scaling": {**YARN, "beta_fast": 1e-320}}),
    ("rope_scaling.factor", {"rope_scaling": {**YARN, "factor": 10**18}}),
    ("rope_scaling.vendor", {"rope_scaling": {**YARN, "vendor": {"a": 1}}}),
    ("low_freq_factor", {"rope_scaling": {"type": "llama3", "factor": 4, "low_freq_factor": 4, "high_freq_factor": 1}}),
    ("4096", {"rope_scaling": {"type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 1024}}),
    ("AxialRoPE", {"rope_scaling": {"type": "axial"}}),
    ("rope_scaling.type", {"rope_scaling": {"type": {"a": 1}}}),
    ("ignore=['vendor']", {"rope_scaling": {"type": "linear", "factor": 2.0, "vendor": None}}),
    ("9979", {"rope_scaling": {**{str(number): 0 for number in range(10_000)}, "type": "linear", "factor": 2.0}}),
    ("63", {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 23]}}),
    ("[32, 32]", {"rope_scaling": {"type": "mrope", "mrope_section": [32, 32]}}),
    ("[0, 32, 32]", {"rope_scaling": {"type": "mrope", "mrope_section": [0, 32, 32]}}),
    ("[16, 24, 24]", {"model_type": "qwen2_vl", "head_dim": 64}),
    ("original_max_position_embeddings", {"rope_scaling": LONGROPE, "original_max_position_embeddings": 1}),
    ("max_position_embeddings = 4096", {"rope_scaling": LONGROPE, "original_max_position_embeddings": 8192}),
    # base and share
    ("rope_theta", {"rope_theta": 10**400}),
    ("rope_theta", {"rope_theta": [1e6, 1e4]}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.01}),
    ("head_dim = 128", {"rotary_dim": 256}),
    ("rotary_dim", {"rotary_dim": 64, "partial_rotary_factor": 0.25}),
    ("rotary_pct ", {"model_type": "gpt_neox", "rotary_pct": 2}),
    # given twice
    (f"{TWICE}rope_scaling.rope_type", {"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 4.0}}),
    (f"{TWICE}rope_scaling.rope_type", {"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 4.0}}),
    (f"{TWICE}rope_parameters.rope_theta", {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.25}}),
    (f"{TWICE}original_max_position_embeddings",
     {"original_max_position_embeddings": 1024, "rope_scaling": {**YARN, "original_max_position_embeddings": 4096}}),
    ("rope_scaling and rope_parameters", {"rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 2.0}}),
    # blocks by kind of layers
    ("rope_parameters.factor", {"rope_parameters": {FULL: {"factor": 2.0}, "factor": 2.0}}),
    (f"rope_parameters.{FULL}", {"model_type": "gemma3_text", "rope_parameters": {FULL: None, SLIDING: {}}}),
    (f"rope_parameters.{FULL}.factor", {
        "model_type": "gemma3_text", "rope_parameters": {FULL: {"rope_type": "linear", "factor": 0.5}, SLIDING: {}},
    }),
    ("rope_parameters", {"rope_parameters": {1: 2}}),
    ("flat", {"model_type": "gemma4_text", "rope_parameters": {"rope_theta": 1e4}}),
    ("rope_theta", {"model_type": "modernbert", "local_rope_theta": None}),
    # sizes and layers
    ("num_attention_heads", {"hidden_size": None}),
    ("hidden_size = 4100", {"hidden_size": 4100}),
    ("layer_types", {"layer_types": [FULL] * 3, "num_hidden_layers": 2}),
    ("no_rope_layers", {"no_rope_layers": [2]}),
    ("no_rope_layers", {"no_rope_layers": [1], "num_hidden_layers": 2}),
    ("no_rope_layers", {"no_rope_layers": [1] * (LAYERS + 1)}),
    ("num_hidden_layers", {"num_hidden_layers": 10**18, "no_rope_layer_interval": 4}),
    ("no_rope_layer_interval", {"no_rope_layer_interval": 0}),
    ("per_layer_config.1 ", {"model_type": "gemma4_text", "layer_types": [SLIDING, FULL],
                             "per_layer_config": {"1": "x"}}),
    ("per_layer_config.1.head_dim ", {"model_type": "gemma4_text", "layer_types": [SLIDING, FULL],
                                      "per_layer_config": {"1": {"head_dim": 10**10}}}),
    ("text_config.head_dim", {"text_config": {"model_type": "llama", "head_dim": 0}}),
    # model types
    ("alibi", {"alibi": 1}),
    ("rope_interleave", {"rope_interleave": "yes"}),
    ("'new'", {"model_type": "new"}),
    ("nanochat", {"model_type": "nanochat"}),
    ("hunyuan_vl", {"model_type": "hunyuan_vl"}),
]  # fmt: skip


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as error:
        read_rope(config)
    return str(error.value)


@pytest.mark.parametrize(("word", "change"), WORDS, ids=lambda value: str(value)[:50])
def test_error_says_what_is_wrong(word: str, change: dict[str, Any]) -> None:
    assert word in refusal({**LLAMA, **change})


@pytest.mark.parametrize("value", [True, "64", 64.0, 0, -1, [64], {"a": 1}, 10**18, 1e300, float("nan")], ids=str)
@pytest.mark.parametrize(
    ("key", "model_type"),
    [("max_position_embeddings", "llama"), ("hidden_size", "llama"), ("num_attention_heads", "llama"),
     ("sliding_window", "cohere2"), ("head_dim", "llama"), ("qk_rope_head_dim", "deepseek_v3"),
     ("global_head_dim", "gemma4_text")],
)  # fmt: skip
def test_sizes_are_counts(key: str, model_type: str, value: Any) -> None:
    assert refusal({**LLAMA, "model_type": model_type, key: value}).startswith(f"{key} ")


@pytest.mark.parametrize("value", ["x", 4, True, [1], 0, ""], ids=str)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling", "per_layer_config", "text_config"])
def test_objects_are_objects(key: str, value: Any) -> None:
    assert refusal({**LLAMA, key: value}).startswith(key)


def test_widths_of_heads_are_even_and_lengths_are_read_up_to_the_bound() -> None:
    for width in (63, CHANNELS + 2):
        assert str(CHANNELS) in refusal({**LLAMA, "head_dim": width})
    block = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": TOKENS // 2}
    read = read_rope({**LLAMA, "max_position_embeddings": TOKENS, "rope_scaling": block})
    assert read.rope.scaling.original_length == TOKENS // 2
    gemma = {"model_type": "gemma4_text", "layer_types": [SLIDING, FULL]}
    assert read_rope({**gemma, "per_layer_config": {"²": {"head_dim": 1}, "9" * 5000: {}}}).layers[FULL] is not None


def test_the_path_leads_to_the_key() -> None:
    config = copy.deepcopy(CHECKPOINTS["gemma-3-4b"][0])
    config["text_config"]["rope_scaling"]["factor"] = 0.5
    assert refusal(config).startswith("text_config.rope_scaling.factor ")
    del config["text_config"]["rope_scaling"]
    config["text_config"]["rope_local_base_freq"] = 1
    assert refusal(config).startswith("text_config.rope_local_base_freq ")


def test_a_length_that_nothing_gives_is_an_error() -> None:
    for rope_type in ("yarn", "dynamic"):
        block = {"rope_type": rope_type, "factor": 4.0}
        assert "max_position_embeddings" in refusal({"model_type": "llama", "head_dim": 64, "rope_parameters": block})


def test_all_problems_come_at_once() -> None:
    text = refusal({**LLAMA, "rope_parameters": {"rope_type": "yarn", "factor": "4", "truncate": 1, "beta_fst": 32}})
    assert all(f"rope_parameters.{key} " in text for key in ("factor", "truncate", "beta_fst"))


def test_a_key_of_any_length_leaves_the_error_readable() -> None:
    block = {"rope_type": "yarn", "factor": 2.0, "9" * 900: 1.0, "factr": 2.0}
    text = refusal({**LLAMA, "rope_parameters": block})
    assert len(text) < 1000
    assert "(916 characters) is no key" in text


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_rope(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        read_rope(tmp_path)
    for text in ("{", "[1]", "\x00"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"config\.json"):
            read_rope(tmp_path)
    with pytest.raises(ValueError, match=r"\bint\b"):
        read_rope(4)  # type: ignore[arg-type]


@pytest.mark.parametrize("convention", ["transformers", "deepseek", "vllm", "sglang"])
def test_a_factor_over_one_pair_names_the_type(convention: Any) -> None:
    """Dynamic NTK divides by zero there, in transformers too; YaRN is computed there and not read here."""
    config = {"model_type": "llama", "head_dim": 2, "rope_theta": 1e4, "max_position_embeddings": 8192}
    with pytest.raises(MalformedError) as raised:
        read_rope({**config, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, convention=convention)
    assert [path.rpartition(".")[2] for path in raised.value.problems] == ["rope_type"]
    with pytest.raises(ValueError, match=r"^rope_type") as unread:
        read_rope({**config, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, convention=convention)
    assert not isinstance(unread.value, MalformedError)


@pytest.mark.parametrize("model_type", ["deepseek_v3", "gemma2", "gemma3_text", "gpt_oss"])
@pytest.mark.parametrize("key", ["num_attention_heads", "hidden_size"])
@pytest.mark.parametrize("value", [{"a": 1}, "64", True, -1, 2**70], ids=str)
def test_widths_of_another_kind_are_not_multiplied(model_type: str, key: str, value: object) -> None:
    """The width of a head is these families' own; a width of the stream that is no number changes nothing of it."""
    config = {"model_type": model_type, "rope_theta": 1e4, "max_position_embeddings": 8192}
    read = read_rope({**config, "hidden_size": 64, "num_attention_heads": 16, key: value})
    assert {rope.head_dim for rope in read.layers.values() if isinstance(rope, RoPE)} == {
        rope.head_dim for rope in read_rope(config).layers.values() if isinstance(rope, RoPE)
    }


@pytest.mark.parametrize(
    ("name", "readers"),
    [("ntk", {"vllm"}), ("deepseek_yarn", {"vllm", "sglang"}), ("deepseek_llama_scaling", {"vllm"})],
)
@pytest.mark.parametrize("convention", ["transformers", "vllm", "sglang"])
def test_a_rope_type_of_engines_names_the_conventions_that_read_it(name: str, readers: set[str], convention: Any):
    block = {"rope_type": name, "factor": 2.0, "original_max_position_embeddings": 4096}
    config = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_scaling": block}
    if convention in readers:
        assert read_rope(config, convention=convention).rope.scaling is not None
        return
    with pytest.raises(MalformedError) as error:
        read_rope(config, convention=convention)
    assert {engine for engine in ("vllm", "sglang") if f"convention={engine!r}" in str(error.value)} == readers


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("rope_type", "yarnn", "yarn"),
        ("rope_type", "Linaer", "linear"),
        ("orignal_max_position_embeddings", 2048, "original_max_position_embeddings"),
        ("beta_fsat", 16, "beta_fast"),
    ],
)
def test_a_misspelt_word_names_the_nearest(key: str, value: object, meant: str) -> None:
    block = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4} | {key: value}
    config = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 4096, "rope_parameters": block}
    with pytest.raises(ValueError, match=rf"{key} .*did you mean '?{meant}\b"):
        read_rope(config)
