"""Whatever is wrong with a configuration is one ValueError that names the key."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from posenc.hf.findings import MalformedError
from posenc.rotary.rope import RoPE
from tests.hf.checkpoints import CHECKPOINTS

YARN = {"type": "yarn", "factor": 4.0}
MROPE = {"type": "mrope", "mrope_section": [16, 24, 24]}
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1.0] * 64}
WORDS: list[tuple[str, dict[str, Any]]] = [  # what the error names; tests/fuzz changes configs at random
    ("factor", {"rope_scaling": {"type": "linear", "factor": True}}),
    ("factor", {"rope_scaling": {"type": "linear", "factor": math.nan}}),
    ("factor", {"rope_scaling": {"type": "dynamic"}}),
    ("high_freq_factor", {"rope_scaling": {"type": "llama3", "factor": 4, "low_freq_factor": 1}}),
    ("long_factor", {"rope_scaling": {**LONGROPE, "long_factor": None}}),
    ("beta_fast", {"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 32}}),
    ("short_factor", {"rope_scaling": {**LONGROPE, "short_factor": [*[1.0] * 63, "x"]}}),
    ("rope_type", {"rope_scaling": {"type": "linear", "rope_type": "proportional", "factor": 2.0}}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.25}}),
    ("yarn", {"rope_scaling": {**YARN, "type": "yarnn"}}),
    ("factor", {"rope_scaling": {"type": "linear", "factr": 8.0}}),
    ("mrope_sections", {"rope_scaling": {"type": "mrope", "mrope_sections": [16, 24, 24]}}),
    ("factor", {"rope_scaling": {"factor": 8.0}}),
    ("factor", {"rope_scaling": {**MROPE, "type": None, "factor": 2.0}}),
    ("beta_slow", {"rope_scaling": {**YARN, "beta_fast": 0.5}}),
    ("low_freq_factor", {"rope_scaling": {"type": "llama3", "factor": 4, "low_freq_factor": 4, "high_freq_factor": 1}}),
    ("4096", {"rope_scaling": {"type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 1024}}),
    ("AxialRoPE", {"rope_scaling": {"type": "axial"}}),
    ("ignore=['vendor']", {"rope_scaling": {"type": "linear", "factor": 2.0, "vendor": None}}),
    ("63", {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 23]}}),
    ("[32, 32]", {"rope_scaling": {"type": "mrope", "mrope_section": [32, 32]}}),
    ("[0, 32, 32]", {"rope_scaling": {"type": "mrope", "mrope_section": [0, 32, 32]}}),
    ("[16, 24, 24]", {"model_type": "qwen2_vl", "head_dim": 64}),
    ("rope_scaling", {"rope_scaling": "linear"}),
    ("rope_scaling", {"rope_scaling": [4.0]}),
    ("'1e6'", {"rope_theta": "1e6"}),
    ("rope_theta", {"rope_theta": [1e6, 1e4]}),
    ("rope_theta", {"rope_theta": 1}),
    ("partial_rotary_factor", {"partial_rotary_factor": 1.5}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.01}),
    ("head_dim = 128", {"rotary_dim": 256}),
    ("rotary_dim", {"rotary_dim": 64, "partial_rotary_factor": 0.25}),
    ("rope_parameters.rope_theta", {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}),
    ("rope_scaling and rope_parameters", {"rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 2.0}}),
    ("rope_parameters.factor", {"rope_parameters": {"full_attention": {"factor": 2.0}, "factor": 2.0}}),
    ("rope_parameters.full_attention", {
        "model_type": "gemma3_text", "rope_parameters": {"full_attention": None, "sliding_attention": {}},
    }),
    ("num_attention_heads", {"hidden_size": None}),
    ("hidden_size", {"hidden_size": "4096"}),
    ("head_dim", {"head_dim": 63}),
    ("flat", {"model_type": "gemma4_text", "rope_parameters": {"rope_theta": 1e4}}),
    ("rope_theta", {"model_type": "modernbert", "local_rope_theta": None}),
    ("'new'", {"model_type": "new"}),
    ("nanochat", {"model_type": "nanochat"}),
    ("hunyuan_vl", {"model_type": "hunyuan_vl"}),
]  # fmt: skip


@pytest.mark.parametrize(("word", "change"), WORDS, ids=str)
def test_error_says_what_is_wrong(word: str, change: dict[str, Any]) -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
    with pytest.raises(ValueError) as error:
        read_rope({**config, **change})
    assert word in str(error.value)


def test_a_length_that_nothing_gives_is_an_error() -> None:
    for rope_type in ("yarn", "dynamic"):
        block = {"rope_type": rope_type, "factor": 4.0}
        with pytest.raises(ValueError, match="max_position_embeddings"):
            read_rope({"model_type": "llama", "head_dim": 64, "rope_parameters": block})


def test_all_problems_come_at_once() -> None:
    block = {"rope_type": "yarn", "factor": "4", "truncate": 1, "beta_fst": 32}
    with pytest.raises(ValueError) as error:
        read_rope({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 4096, "rope_parameters": block})
    assert all(f"rope_parameters.{key} " in str(error.value) for key in ("factor", "truncate", "beta_fst"))


def test_a_key_of_any_length_leaves_the_error_readable() -> None:
    block = {"rope_type": "yarn", "factor": 2.0, "9" * 900: 1.0, "factr": 2.0}
    with pytest.raises(MalformedError) as error:
        read_rope({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_parameters": block})
    assert len(str(error.value)) < 1000
    assert "(916 characters) is no key" in str(error.value)


def test_nested_blocks_name_their_layers() -> None:
    config, _ = CHECKPOINTS["gemma-3-1b, saved by version 5"]
    blocks = {**config["rope_parameters"], "full_attention": {"rope_type": "linear", "factor": 0.5}}
    with pytest.raises(ValueError, match=r"rope_parameters\.full_attention\.factor"):
        read_rope({**config, "rope_parameters": blocks})


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
@pytest.mark.parametrize("value", [{"a": 1}, [64], "64", 64.0, True, -1, 0, 2**70], ids=str)
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
