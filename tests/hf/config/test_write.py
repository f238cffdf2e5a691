"""A RoPE made by hand becomes keys that make transformers turn the same way, or an error that says what can be done."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from posenc import RoPE
from posenc.frequencies.clex import CLEX
from posenc.frequencies.modules import (
    DynamicNTK,
    DynamicPositionInterpolation,
    DynamicYaRN,
    Llama3,
    LongRoPE,
    NTKAware,
    NTKByParts,
    PartNTK,
    PositionInterpolation,
    Proportional,
    YaRN,
)
from posenc.frequencies.multiscale import MultiScale
from posenc.frequencies.resonance import Resonance
from posenc.hf import convert_config, read_rope, rope_to_config
from posenc.hf.config.rotation import equivalent
from tests.hf.checkpoints import CHECKPOINTS, FULL

SHORT, LONG = [1.0 + 0.1 * i for i in range(32)], [1.0 + i for i in range(32)]
ORIGINAL = {"original_max_position_embeddings": 4096}
BY_HAND: list[tuple[Any, dict[str, Any]]] = [
    (None, {"rope_type": "default"}),
    (PositionInterpolation(8.0), {"rope_type": "linear", "factor": 8.0}),
    (DynamicNTK(2.0, original_length=2048), {"rope_type": "dynamic", "factor": 2.0}),
    (YaRN(4.0, original_length=4096), {"rope_type": "yarn", "factor": 4.0, **ORIGINAL}),
    (
        YaRN(40.0, original_length=4096, mscale=1.0, mscale_all_dim=1.0, truncate=False, beta_fast=16.0),
        {
            "rope_type": "yarn", "factor": 40.0, **ORIGINAL, "beta_fast": 16.0, "truncate": False, "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    ),
    (
        Llama3(8.0, original_length=4096),
        {"rope_type": "llama3", "factor": 8.0, **ORIGINAL, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ),
    (
        NTKByParts(8.0, original_length=4096),
        {"rope_type": "llama3", "factor": 8.0, **ORIGINAL, "low_freq_factor": 1.0, "high_freq_factor": 32.0},
    ),
    (
        LongRoPE(SHORT, LONG, original_length=4096, factor=32.0),
        {"rope_type": "longrope", "factor": 32.0, **ORIGINAL, "short_factor": SHORT, "long_factor": LONG},
    ),
    (
        LongRoPE(SHORT, LONG, original_length=4096, factor=32.0, gain=1.25),
        {
            "rope_type": "longrope", "factor": 32.0, **ORIGINAL, "short_factor": SHORT, "long_factor": LONG,
            "attention_factor": 1.25,
        },
    ),
    (Proportional(0.25), {"rope_type": "proportional", "partial_rotary_factor": 0.25}),
    (
        torch.nn.Sequential(Proportional(0.25), PositionInterpolation(2.0)),
        {"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.0},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("scaling", "block"), BY_HAND, ids=lambda value: str(value)[:40])
def test_version_5(scaling: Any, block: dict[str, Any]) -> None:
    rope = RoPE(64, base=500000.0, scaling=scaling)
    config = rope_to_config(rope)
    lengths = {"dynamic": 2048, "yarn": 4096 * block.get("factor", 1), "longrope": 131072}
    kind = block["rope_type"]
    length = {"max_position_embeddings": lengths[kind]} if kind in lengths else {}
    assert config == {"head_dim": 64, **length, "rope_parameters": {"rope_theta": 500000.0, **block}}
    assert equivalent(read_rope(config).rope, rope)


@pytest.mark.parametrize(("scaling", "block"), BY_HAND, ids=lambda value: str(value)[:40])
def test_version_4(scaling: Any, block: dict[str, Any]) -> None:
    rope = RoPE(64, base=500000.0, scaling=scaling)
    if block["rope_type"] == "proportional":
        with pytest.raises(ValueError, match="version=5"):
            rope_to_config(rope, version=4)
        return
    config = rope_to_config(rope, version=4)
    config.pop("max_position_embeddings", None)
    expected = None if block["rope_type"] == "default" else block
    assert config == {"head_dim": 64, "rope_theta": 500000.0, "rope_scaling": expected}


def test_ntk_aware_is_another_base() -> None:
    rope = RoPE(64, scaling=NTKAware(4.0))
    config = rope_to_config(rope)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": pytest.approx(1e4 * 4 ** (64 / 62))}
    assert equivalent(read_rope(config).rope, rope)


def test_partial_rotation() -> None:
    rope = RoPE(80, rotary_dim=20, scaling=YaRN(2.0, original_length=4096))
    assert rope_to_config(rope)["rope_parameters"]["partial_rotary_factor"] == 0.25
    assert rope_to_config(rope, version=4)["partial_rotary_factor"] == 0.25
    for head_dim in (46, 58, 96, 110):
        for rotary_dim in range(2, head_dim + 1, 2):
            config = rope_to_config(RoPE(head_dim, rotary_dim=rotary_dim))
            assert int(head_dim * config["rope_parameters"].get("partial_rotary_factor", 1.0)) == rotary_dim


def test_keys_of_a_family() -> None:
    neox = rope_to_config(RoPE(256, rotary_dim=64, base=20000), version=4, model_type="gpt_neox")
    assert neox == {
        "model_type": "gpt_neox", "head_dim": 256, "rotary_emb_base": 20000, "rotary_pct": 0.25, "rope_scaling": None,
    }  # fmt: skip
    gptj = rope_to_config(RoPE(256, rotary_dim=64, layout="interleaved"), model_type="gptj")
    assert gptj == {"model_type": "gptj", "head_dim": 256, "rotary_dim": 64}
    with pytest.raises(ValueError, match="10000"):
        rope_to_config(RoPE(256, rotary_dim=64, layout="interleaved", base=5e5), model_type="gptj")
    minimax = rope_to_config(RoPE(128, rotary_dim=64), version=4, model_type="minimax_m2")
    assert (minimax["rotary_dim"], minimax["rope_theta"]) == (64, 10000.0)
    deepseek = rope_to_config(RoPE(64, layout="interleaved"), model_type="deepseek_v3")
    assert deepseek["qk_rope_head_dim"] == 64
    with pytest.raises(ValueError, match="lama"):
        rope_to_config(RoPE(64), model_type="lama")
    with pytest.raises(ValueError, match="interleaved"):
        rope_to_config(RoPE(64, layout="interleaved"), model_type="llama")


def test_kinds_of_layers() -> None:
    layers = {"full_attention": RoPE(64, base=1e6, scaling=PositionInterpolation(8.0)), "sliding_attention": RoPE(64)}
    config = rope_to_config(layers)
    assert config["rope_parameters"] == {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    assert rope_to_config({**layers, "sliding_attention": None})["rope_parameters"]["sliding_attention"] is None
    assert rope_to_config(layers, version=4, model_type="gemma3_text") == {
        "model_type": "gemma3_text", "head_dim": 64, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }  # fmt: skip
    with pytest.raises(ValueError, match="version=5"):
        rope_to_config(layers, version=4)
    with pytest.raises(ValueError, match="version"):
        rope_to_config(layers, version=6)
    with pytest.raises(ValueError, match=r"head_dim .* \[32, 64\]"):
        rope_to_config({**layers, "sliding_attention": RoPE(32)})


NO_ROPE_TYPE = [
    Resonance(),
    torch.nn.Sequential(YaRN(4.0, original_length=4096), Resonance()),
    YaRN(4.0, original_length=4096, ramp="rotations"),
    YaRN(4.0, original_length=4096, extrapolation_factor=0.5),
    PartNTK(4.0, original_length=4096),
]


@pytest.mark.parametrize("scaling", NO_ROPE_TYPE, ids=str)
def test_what_no_rope_type_means_is_refused_or_written_as_factors(scaling: Any) -> None:
    rope = RoPE(64, rotary_dim=32, scaling=scaling)
    with pytest.raises(ValueError, match="as_longrope=True"):
        rope_to_config(rope)
    config = rope_to_config(rope, as_longrope=True, original_length=4096)
    assert config["rope_parameters"]["rope_type"] == "longrope"
    assert "rope_type" not in {finding.key for finding in read_rope(config).findings}, "one spectrum for all lengths"
    assert equivalent(read_rope(config).rope, rope)


@pytest.mark.parametrize(
    "scaling",
    [
        LongRoPE(SHORT, LONG, original_length=4096, factor=32.0, start_tokens=4),
        LongRoPE(SHORT, LONG, original_length=4096, factor=32.0, short_gain=1.0, long_gain=1.2),
        DynamicPositionInterpolation(original_length=4096),
        DynamicNTK(original_length=4096, schedule="powers"),
        DynamicYaRN(original_length=4096),
        CLEX(32, original_length=4096),
        MultiScale(4),
    ],
    ids=str,
)
def test_what_not_even_factors_can_say_is_refused(scaling: Any) -> None:
    for as_longrope in (False, True):
        with pytest.raises(ValueError, match=r"rope type|as_longrope"):
            rope_to_config(RoPE(64, scaling=scaling), as_longrope=as_longrope, original_length=4096)


def test_factors_need_pairs_that_turn_and_a_length() -> None:
    with pytest.raises(ValueError, match="as_longrope"):
        rope_to_config(RoPE(64, scaling=Proportional(0.5)), as_longrope=True, original_length=4096)
    with pytest.raises(ValueError, match="original_length"):
        rope_to_config(RoPE(64, scaling=Resonance()), as_longrope=True)


def test_gains_that_transformers_cannot_name_become_its_number() -> None:
    for scaling in (
        YaRN(4.0, original_length=4096, attn_factor=2.0),
        LongRoPE(SHORT, LONG, original_length=4096, factor=32.0, short_gain=1.5, long_gain=1.5),
        LongRoPE(SHORT, LONG, original_length=4096, factor=32.0, gain="yarn"),
    ):
        rope = RoPE(64, scaling=scaling)
        block = rope_to_config(rope)["rope_parameters"]
        assert block["attention_factor"] == pytest.approx(float(rope.spectrum(8192).gain))
        assert not {"attn_factor", "mscale", "short_mscale"} & set(block)


def test_both_spellings_in_one_file_are_read_and_stay_alike() -> None:
    """As exporters write them for readers of versions 4 and 5; a change reaches both."""
    scaling = {"rope_type": "linear", "factor": 2.0}
    both = {**LLAMA_BOTH, "rope_scaling": scaling, "rope_parameters": {**scaling, "rope_theta": 5e5}}
    read = read_rope(both)
    assert read.to_config() == both
    longer = RoPE(64, base=1e6, scaling=YaRN(4.0, original_length=4096, beta_fast=16.0))
    written = read.with_rope(longer).to_config()
    assert (written["rope_theta"], written["rope_parameters"]["rope_theta"]) == (1e6, 1e6)
    for name in ("rope_scaling", "rope_parameters"):
        assert {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}.items() <= written[name].items()
    with pytest.raises(ValueError, match=r"rope_scaling.*rope_parameters"):
        read_rope({**both, "rope_scaling": {**scaling, "factor": 4.0}})


LLAMA_BOTH = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 5e5}


def test_dynamic_ntk_outside_a_block() -> None:
    """nomic-embed's own code: a factor and a training length outside any block, with defaults of its own."""
    config = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 8192,
              "rotary_emb_base": 1000, "rotary_scaling_factor": 2}  # fmt: skip
    read = read_rope(config)
    assert read.to_config() == config
    assert read.rope.scaling.original_length == 2048, "the default of its config class"
    assert read_rope({**config, "max_trained_positions": 1024}).rope.scaling.original_length == 1024
    assert read_rope({**config, "rotary_scaling_factor": None}).rope.scaling is None
    for scaling in (YaRN(2.0, original_length=2048), YaRN(4.0, original_length=2048), None):
        other = read.with_rope(RoPE(64, base=1000.0, scaling=scaling)).to_config()
        assert other["rotary_scaling_factor"] is None, "which is dynamic NTK's alone"
        assert read_rope(other).rope.scaling == scaling or repr(read_rope(other).rope.scaling) == repr(scaling)
    for spelling in ("v5", "both"):
        with pytest.raises(ValueError, match="trained length"):
            convert_config(config, spelling)


# max_position_embeddings follows a rotation that was changed, and leaves alone what was not

LLAMA, _ = CHECKPOINTS["llama-2-7b"]
ONES = [1.0] * 64


def written(name: str, scaling: Any, base: float = 1e4, version: int | None = None) -> dict[str, Any]:
    config, _ = CHECKPOINTS[name]
    result: dict[str, Any] = read_rope(config).with_rope(RoPE(128, base=base, scaling=scaling)).to_config(version)
    return result


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        (YaRN(4.0, original_length=4096), 16384),
        (YaRN(1.0, original_length=4096), 4096),
        (LongRoPE(ONES, ONES, original_length=4096, factor=8.0), 32768),
        (Llama3(8.0, original_length=4096), 32768),
        (PositionInterpolation(4.0), 4096),
        (DynamicNTK(2.0, original_length=4096), 4096),
        (DynamicNTK(2.0, original_length=2048), 2048),
        (NTKAware(4.0), 4096),
        (None, 4096),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [None, 4, 5])
def test_a_new_scaling_declares_what_it_stretches_to(scaling: Any, length: int, version: int | None) -> None:
    config = written("llama-2-7b", scaling, version=version)
    assert config["max_position_embeddings"] == length
    block = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "factor" in block and block["rope_type"] in ("yarn", "longrope", "llama3"):
        assert block["original_max_position_embeddings"] == 4096, "the trained length stands in the block"


def test_the_length_follows_another_factor() -> None:
    assert written("yarn-llama-2-7b-64k", YaRN(4.0, original_length=4096))["max_position_embeddings"] == 16384
    assert written("yarn-llama-2-7b-64k", YaRN(32.0, original_length=4096))["max_position_embeddings"] == 131072
    assert written("yarn-llama-2-7b-64k", None)["max_position_embeddings"] == 65536, "for the new base, who knows"
    assert written("llama-3.1-8b", Llama3(8.0, original_length=8192), 1e6)["max_position_embeddings"] == 131072


def test_a_block_that_leaned_on_the_old_length_says_it() -> None:
    config = {**LLAMA, "rope_scaling": {"type": "yarn", "factor": 2.0}}
    read = read_rope(config)
    assert read.to_config() == config
    changed = read.with_rope(RoPE(128, scaling=YaRN(8.0, original_length=2048))).to_config()
    assert changed["max_position_embeddings"] == 16384
    assert changed["rope_scaling"] == {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}
    assert read_rope(changed).rope.scaling.original_length == 2048


def test_kinds_of_layers_and_inner_parts() -> None:
    config, _ = CHECKPOINTS["gemma-3-4b"]
    read = read_rope(config)
    rope = RoPE(256, base=1e6, scaling=YaRN(8.0, original_length=32768))
    text = read.with_rope({FULL: rope}).to_config(version=5)["text_config"]
    assert text["max_position_embeddings"] == 262144
    assert "max_position_embeddings" not in read.with_rope({FULL: rope}).to_config(version=5)


def test_a_length_from_nothing() -> None:
    assert rope_to_config(RoPE(64, scaling=YaRN(4.0, original_length=4096)))["max_position_embeddings"] == 16384
    for scaling in (Llama3(8.0, original_length=8192), PositionInterpolation(4.0), None):
        assert "max_position_embeddings" not in rope_to_config(RoPE(64, scaling=scaling))


def test_keys_that_nothing_reads_survive() -> None:
    for kind in ("default", "linear", "dynamic"):
        factor = {} if kind == "default" else {"factor": 2.0}
        block = {"type": kind, **factor, "finetuned": True, "original_max_position_embeddings": 4096}
        config = {**LLAMA, "rope_scaling": block, "vendor": {"deep": [1, {"x": None}]}}
        assert read_rope(config).to_config() == config
