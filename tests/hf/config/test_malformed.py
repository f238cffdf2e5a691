"""Whatever is wrong with a configuration is one ValueError that names the key."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc.hf import read_rope
from posenc.hf.config.block_schema import COMMON, RULES, TYPES
from posenc.hf.findings import MalformedError
from posenc.rotary.rope import RoPE
from tests.hf.checkpoints import CHECKPOINTS
from tests.hf.config.generated import configs

Malformed = tuple[dict[str, Any], str]  # a malformed configuration, and the key that the error must name
NO_NUMBERS = [True, "4", "many", math.nan, math.inf, -1.0, -4, [4.0], {"a": 1}, 0]


def block_of(config: dict[str, Any]) -> dict[str, Any] | None:
    return config.get("rope_parameters") or config.get("rope_scaling")


@st.composite
def wrong_values(draw: st.DrawFn) -> Malformed:
    config = draw(configs())
    inner = block_of(config) or {}
    places = [(inner, key) for key in inner if key in RULES] + [
        (config, key) for key in ("rope_theta",) if key in config
    ]
    where, key = draw(st.sampled_from(places))
    wrong = [value for value in NO_NUMBERS if not RULES[key].holds(value)]
    where[key] = draw(st.sampled_from(wrong))
    return config, key


@st.composite
def missing_keys(draw: st.DrawFn) -> Malformed:
    config = draw(configs("linear dynamic llama3 longrope"))
    inner = block_of(config) or {}
    rope_type = inner.get("rope_type", inner.get("type"))
    key = draw(st.sampled_from([*TYPES[rope_type].required, "rope_type"]))
    for name in (key, "type") if key == "rope_type" else (key,):
        inner.pop(name, None)
    return config, key


@st.composite
def unknown_keys(draw: st.DrawFn) -> Malformed:
    config = draw(configs("linear dynamic yarn llama3 longrope"))
    inner = block_of(config) or {}
    old = draw(st.sampled_from([key for key in inner if key not in (*COMMON, "type")]))
    at = draw(st.integers(1, len(old) - 2))
    new = draw(
        st.sampled_from([old[:at] + old[at + 1 :], old[:at] + old[at] * 3 + old[at + 1 :], old.upper(), f"my_{old}"])
    )
    inner[new] = inner.pop(old)
    return config, new


@st.composite
def unknown_types(draw: st.DrawFn) -> Malformed:
    config = draw(configs("linear dynamic yarn llama3 longrope proportional"))
    inner = block_of(config) or {}
    name = "type" if "type" in inner else "rope_type"
    inner[name] = draw(
        st.sampled_from(["yarnn", "ntk", "Linear", "long_rope", "llama_3", "axial", "", 4, None, ["yarn"]])
    )
    if inner[name] is None:
        inner["factor"] = 2.0
    return config, name


@st.composite
def strange_keys(draw: st.DrawFn) -> Malformed:
    config = draw(configs("default linear dynamic llama3 proportional"))
    key = draw(st.sampled_from(["beta_fast", "mscale", "short_factor", "attn_factor", "mixed_b", "x", "truncate"]))
    value = {"short_factor": [1.0] * 16, "truncate": True}.get(key, 2.0)
    config.setdefault("rope_parameters", None)
    inner = block_of(config)
    if inner is None:
        config["rope_parameters"] = inner = {"rope_type": "default"}
        del config["rope_scaling"]
    inner[key] = value
    return config, key


@st.composite
def contradictions(draw: st.DrawFn) -> Malformed:
    config = draw(configs("linear dynamic yarn llama3"))
    inner = block_of(config) or {}
    rope_type = inner.get("rope_type", inner.get("type"))
    kind = draw(st.sampled_from(["type", "theta", "share", "length"]))
    if kind == "type":
        inner |= {"type": rope_type, "rope_type": "proportional"}
        return config, "rope_type"
    if kind == "theta":
        config["rope_theta"] = 11.0
        inner["rope_theta"] = 12.0
        return config, "rope_theta"
    if kind == "share":
        config["partial_rotary_factor"] = 0.5
        inner["partial_rotary_factor"] = 0.25
        return config, "partial_rotary_factor"
    inner["original_max_position_embeddings"] = 1024
    config["original_max_position_embeddings"] = 1000
    return config, "original_max_position_embeddings"


@st.composite
def wrong_lengths(draw: st.DrawFn) -> Malformed:
    config = draw(configs("longrope"))
    inner = block_of(config) or {}
    key = draw(st.sampled_from(["short_factor", "long_factor"]))
    inner[key] = draw(st.sampled_from([inner[key][:-1], [*inner[key], 2.0], [], [*inner[key][:-1], "x"], 4.0]))
    return config, key


MALFORMED = st.one_of(
    wrong_values(), missing_keys(), unknown_keys(), unknown_types(), strange_keys(), contradictions(), wrong_lengths()
)


@settings(max_examples=120, deadline=None)
@given(MALFORMED)
def test_malformed_configuration_names_its_key(malformed: Malformed) -> None:
    config, key = malformed
    with pytest.raises(MalformedError) as error:
        read_rope(config)
    named = {path.rpartition(".")[2] for path in error.value.problems}
    assert key in named | ({"rope_type"} if key == "type" else set()), error.value


YARN = {"type": "yarn", "factor": 4.0}
MROPE = {"type": "mrope", "mrope_section": [16, 24, 24]}
WORDS: list[tuple[str, dict[str, Any]]] = [  # what the error names besides the key, of what the strategies above lack
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
