"""Real configurations are read right, and reading and writing them changes nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc import RoPE
from posenc.frequencies.modules import YaRN
from posenc.hf import model_from_config, read_rope, rope_from_config
from posenc.hf.config.rotation import equivalent, order_of, text_rope
from posenc.hf.config.text_config import find_text_config
from posenc.rotary.mrope import MRoPE
from tests.hf.checkpoints import CHECKPOINTS, FULL, SLIDING, Rotary


def attributes(module: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: getattr(module, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in result.items()}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_is_read_right(name: str) -> None:
    config, expected = CHECKPOINTS[name]
    read = read_rope(config)
    assert set(read.layers) == set(expected)
    for kind, turn in expected.items():
        rope = read.layers[kind]
        if turn is None or rope is None:
            assert rope is turn is None
            continue
        assert isinstance(rope, MRoPE) == (turn.sections is not None)
        if isinstance(rope, MRoPE):
            assert (rope.sections, order_of(rope), rope.axes) == (turn.sections, turn.order, 3)
        rope = text_rope(rope)
        assert (rope.head_dim, rope.rotary_dim, rope.base, rope.layout) == turn[:4]
        assert (None if rope.scaling is None else type(rope.scaling).__name__) == turn.scaling
        assert attributes(rope.scaling, turn.numbers) == turn.numbers


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_round_trip_is_the_identity(name: str) -> None:
    config, _ = CHECKPOINTS[name]
    before = copy.deepcopy(config)
    written = read_rope(config).to_config()
    assert written == before
    assert json.dumps(written) == json.dumps(before), "numbers keep their type, keys their order"
    assert config == before, "the caller's dictionary is left alone"


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_in_the_other_spelling_turns_the_same(name: str) -> None:
    config, expected = CHECKPOINTS[name]
    for version in (5, 4):
        if version == 4 and name == "gemma-4":
            with pytest.raises(ValueError, match="version=5"):
                read_rope(config).to_config(version=4)
            continue
        written = read_rope(config).to_config(version=version)
        again = read_rope(written)
        assert set(again.layers) == set(expected)
        for kind, turn in expected.items():
            rotation, read = again.layers[kind], read_rope(config).layers[kind]
            assert turn is None or (rotation is not None and read is not None and equivalent(rotation, read))
        text = find_text_config(written)
        if text["model_type"] != "gptj":
            assert ("rope_parameters" in text) == (version == 5) != ("rope_scaling" in text)


def test_a_changed_number_changes_its_key_alone() -> None:
    config, _ = CHECKPOINTS["qwen2.5-7b-instruct with yarn"]
    read = read_rope(config)
    written = read.with_rope(RoPE(128, base=1e6, scaling=YaRN(2.0, original_length=32768))).to_config()
    assert written == {**config, "rope_scaling": {**config["rope_scaling"], "factor": 2.0}}


def test_a_changed_base_goes_where_the_old_one_stood() -> None:
    config, _ = CHECKPOINTS["pythia-1b"]
    written = read_rope(config).with_rope(RoPE(256, base=20000, rotary_dim=128)).to_config()
    assert written == {**config, "rotary_emb_base": 20000, "rotary_pct": 0.5}
    config, _ = CHECKPOINTS["minimax-m2"]
    written = read_rope(config).with_rope(RoPE(128, base=5e6, rotary_dim=32)).to_config()
    assert written == {**config, "rotary_dim": 32}


def test_another_rope_type_takes_the_place_of_the_old_one() -> None:
    config, _ = CHECKPOINTS["llama-3.1-8b"]
    read = read_rope(config)
    written = read.with_rope(RoPE(128, base=5e5, scaling=YaRN(16.0, original_length=8192, beta_fast=64.0))).to_config()
    block = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192, "beta_fast": 64.0}
    assert written["rope_scaling"] == block
    assert {**written, "rope_scaling": config["rope_scaling"]} == config
    assert read.with_rope(RoPE(128, base=5e5)).to_config()["rope_scaling"]["rope_type"] == "default"


def test_a_spelling_without_room_is_refused() -> None:
    config, _ = CHECKPOINTS["olmo-3-7b"]
    read = read_rope(config)
    changed = read.with_rope({FULL: RoPE(128, base=1e6)})
    with pytest.raises(ValueError, match="version=5"):
        changed.to_config(version=4)
    with pytest.raises(ValueError, match="sliding_attention"):
        changed.to_config()
    nested = changed.to_config(version=5)["rope_parameters"]
    assert (nested[FULL]["rope_theta"], nested[SLIDING]["rope_theta"]) == (1e6, 5e5)


def test_another_layout_or_width_is_refused() -> None:
    read = read_rope(CHECKPOINTS["llama-2-7b"][0])
    with pytest.raises(ValueError, match="interleaved"):
        read.with_rope(RoPE(128, layout="interleaved")).to_config()
    with pytest.raises(ValueError, match="64"):
        read.with_rope(RoPE(64)).to_config()


def test_silent_blocks_take_what_stands_beside_them() -> None:
    nested = {"model_type": "gemma3_text", "head_dim": 64, "rope_parameters": {FULL: {"rope_type": "default"}}}
    assert {kind: rope.base for kind, rope in read_rope(nested).layers.items()} == {FULL: 1e6, SLIDING: 1e4}
    with_outer = {**nested, "rope_theta": 5e5, "rope_local_base_freq": 3e4}
    read = read_rope(with_outer)
    assert {kind: rope.base for kind, rope in read.layers.items()} == {FULL: 5e5, SLIDING: 3e4}
    assert read.to_config() == with_outer
    assert read.findings == ()
    assert [finding.key for finding in read_rope(nested).findings] == ["rope_theta"] * 2
    changed = read.with_rope({SLIDING: RoPE(64, base=2e4)}).to_config()["rope_parameters"]
    assert changed == {FULL: {"rope_type": "default"}, SLIDING: {"rope_theta": 2e4}}
    other = {
        "model_type": "gemma4_text",
        "head_dim": 64,
        "rope_theta": 7e5,
        "rope_parameters": {SLIDING: {}, FULL: None},
    }
    assert read_rope(other).layers[SLIDING].base == 7e5
    assert read_rope(other).layers[FULL] is None


def test_layers_by_number() -> None:
    read = read_rope(CHECKPOINTS["gemma-4"][0])
    assert [read.for_layer(i).base for i in range(6)] == [1e4] * 5 + [1e6]
    with pytest.raises(ValueError, match="index"):
        read.for_layer(6)
    smol = read_rope(CHECKPOINTS["smollm3-3b"][0])
    assert [smol.for_layer(i) is None for i in range(8)] == [False, False, False, True] * 2


def test_front_doors(tmp_path: Path) -> None:
    config, _ = CHECKPOINTS["gemma-3-4b"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    sources = (config, tmp_path, str(tmp_path / "config.json"), WithDict(config))
    assert {rope_from_config(source, SLIDING).base for source in sources} == {1e4}
    with pytest.raises(ValueError, match=r"full_attention.*sliding_attention"):
        rope_from_config(config)
    with pytest.raises(ValueError, match="slidin'"):
        rope_from_config(config, "slidin")
    assert rope_from_config({"model_type": "llama", "layer_types": [FULL]}, FULL, head_dim=64).head_dim == 64


def test_arguments_overrule_the_configuration() -> None:
    config, _ = CHECKPOINTS["llama-2-7b"]
    assert read_rope(config, layout="interleaved").rope.layout == "interleaved"
    assert read_rope(config, head_dim=64).rope.head_dim == 64
    with pytest.raises(ValueError, match="convention"):
        read_rope(config, convention="tgi")  # type: ignore[arg-type]


class WithDict:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def to_dict(self) -> dict[str, Any]:
        return self.config


class TestConventions:
    def read(self, *, model_type: str = "llama", convention: str = "transformers", **more: Any) -> Any:
        width = "qk_rope_head_dim" if model_type == "deepseek_v3" else "head_dim"
        block = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
        config = {"model_type": model_type, width: 64, "rope_parameters": {**block, **more}}
        read = read_rope(config, convention=convention)  # type: ignore[arg-type]
        assert read.to_config() == config
        return read

    def gain(self, **options: Any) -> float:
        return float(self.read(**options).rope.spectrum().gain)

    def test_gain(self) -> None:
        m = 1.2772588722239782  # 0.1 ln 16 + 1
        assert self.gain() == pytest.approx(m)
        assert self.gain(mscale=1.0, mscale_all_dim=1.0) == pytest.approx(1.0)
        assert self.gain(mscale=2.0, mscale_all_dim=1.0) == pytest.approx(1.5545177444479563 / m)
        for alone in ({"mscale": 2.0}, {"mscale": 0.0}, {"mscale": 0.0, "mscale_all_dim": 0.0}):
            assert self.gain(**alone) == pytest.approx(m), "0 and one alone count as absent"
        assert self.gain(mscale=2.0, convention="deepseek") == pytest.approx(1.5545177444479563)
        assert self.gain(attention_factor=1) == 1.0
        assert self.gain(convention="vllm", attention_factor=1) == 1.0
        for key, value in (("attn_factor", 2.0), ("apply_yarn_scaling", False), ("extrapolation_factor", 0.5)):
            read = self.read(convention="vllm", **{key: value})
            assert float(read.rope.spectrum().gain) == pytest.approx(m), "vLLM 0.33 does not read it"
            assert torch.equal(read.rope.spectrum().theta, self.read().rope.spectrum().theta)
            assert {item.level for item in read.findings if item.name == "key-of-older-vllm"} == {"fault"}

    @pytest.mark.parametrize("convention", ["vllm", "sglang"])
    def test_a_zero_is_a_number_for_the_types_of_deepseeks_own_code(self, convention: str) -> None:
        m, keys = 1.2772588722239782, {"rope_type": "deepseek_yarn", "mscale": 0.0, "mscale_all_dim": 1.0}
        assert self.gain(convention=convention, **keys) == pytest.approx(1 / m)
        assert self.gain(convention=convention, **{**keys, "mscale": 1.0, "mscale_all_dim": 0.0}) == pytest.approx(m)

    def test_softmax_factor(self) -> None:
        both = {"mscale": 1.0, "mscale_all_dim": 1.0}
        square = 1.2772588722239782**2
        assert self.read(**both).softmax_factor() == 1.0
        assert self.read(**both, model_type="deepseek_v3").softmax_factor() == pytest.approx(square)
        assert self.read(**both, convention="deepseek").softmax_factor() == pytest.approx(square)
        assert self.read(model_type="deepseek_v3").softmax_factor() == 1.0

    @pytest.mark.parametrize("key", ["attn_factor", "extrapolation_factor", "apply_yarn_scaling"])
    def test_keys_of_engines_are_kept_and_change_nothing(self, key: str) -> None:
        """As transformers reads them: deepseek-ai/DeepSeek-R1#684."""
        value = {"attn_factor": 0.8782488562869419, "extrapolation_factor": 0.5, "apply_yarn_scaling": False}[key]
        read, plain = self.read(**{key: value}), self.read()
        assert float(read.rotation.spectrum().gain) == float(plain.rotation.spectrum().gain)
        assert read.to_config() == read.config
        assert [finding.level for finding in read.findings if finding.key == key] == ["suspicion"]


# `ignore`: keys that stay in a configuration and are not read

LATENT_BLOCK = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 4096,
    "mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 32.0,
}  # fmt: skip
LATENT: dict[str, Any] = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_parameters": LATENT_BLOCK}
SCALES = ("mscale", "mscale_all_dim")


def without(*keys: str) -> dict[str, Any]:
    return {**LATENT, "rope_parameters": {key: value for key, value in LATENT_BLOCK.items() if key not in keys}}


@pytest.mark.parametrize("keys", [("mscale",), SCALES, ("beta_fast",)], ids=str)
def test_an_ignored_key_is_as_if_it_were_not_there(keys: tuple[str, ...]) -> None:
    for config in (LATENT, {**LATENT, "rope_parameters": {**LATENT_BLOCK, **dict.fromkeys(keys, "nonsense")}}):
        read, bare = read_rope(config, ignore=keys), read_rope(without(*keys))
        assert str(read.rope) == str(bare.rope)
        assert read.softmax_factor() == bare.softmax_factor()
        assert [finding.name for finding in read.findings] == [finding.name for finding in bare.findings]
        assert model_from_config(config, ignore=keys).distinct_layers[0].rotation is not None
    assert str(read_rope(LATENT, ignore=["mscale"]).rope) != str(read_rope(LATENT).rope)


def test_it_stays_where_it_stands() -> None:
    read = read_rope(LATENT, ignore=SCALES)
    assert read.to_config() == LATENT
    for version in (4, 5):
        block = read.to_config(version=version)["rope_scaling" if version == 4 else "rope_parameters"]
        assert (block["mscale"], block["mscale_all_dim"]) == (0.707, 1.0)
    other = RoPE(64, base=1e4, layout="interleaved", scaling=YaRN(8.0, original_length=4096))
    block = read.with_rope(other).to_config()["rope_parameters"]
    assert (block["factor"], block["mscale"], block["mscale_all_dim"]) == (8.0, 0.707, 1.0)
    other = RoPE(64, base=1e4, layout="interleaved", scaling=YaRN(8.0, original_length=4096, attention_factor=2.0))
    block = read.with_rope(other).to_config()["rope_parameters"]
    assert (block["attention_factor"], block["mscale"]) == (float(other.spectrum().gain), 0.707)
    sharper = RoPE(64, base=1e4, layout="interleaved", scaling=YaRN(8.0, original_length=4096, beta_fast=16.0))
    with pytest.raises(ValueError, match=r"beta_fast|RoPE"):
        read_rope(LATENT, ignore=["beta_fast"]).with_rope(sharper).to_config()


def test_what_stands_twice_or_is_needed() -> None:
    twice = {**LATENT, "original_max_position_embeddings": 8192, "max_position_embeddings": 163840}
    with pytest.raises(ValueError, match="original_max_position_embeddings"):
        read_rope(twice)
    assert read_rope(twice, ignore=["original_max_position_embeddings"]).findings
    with pytest.raises(ValueError, match="factor"):
        read_rope(LATENT, ignore=["factor"])


def test_a_null_base_where_it_means_no_rotation() -> None:
    """Olmo Hybrid's released checkpoints."""
    config = {"model_type": "olmo_hybrid", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8}
    for none in ({"rope_theta": None}, {"rope_parameters": {"rope_type": "default", "rope_theta": None}}):
        assert set(read_rope({**config, **none}).layers.values()) == {None}
        assert {layer.rotation for layer in model_from_config({**config, **none}).layers} == {None}
    assert read_rope({**config, "rope_theta": 5e5}).rope.base == 5e5
    assert read_rope({"model_type": "llama", "head_dim": 16, "rope_theta": None}).rope.base == 1e4


def test_expected_table_is_not_vacuous() -> None:
    turns = [turn for _, expected in CHECKPOINTS.values() for turn in expected.values() if isinstance(turn, Rotary)]
    assert {turn.scaling for turn in turns} == {
        None, "PositionInterpolation", "DynamicNTK", "YaRN", "LongRoPE", "Llama3", "Proportional",
    }  # fmt: skip
