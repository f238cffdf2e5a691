"""params.json of Meta and Mistral: the rotation by their own formulas, the layers, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc.hf import as_text, model_from_config, read_rope
from posenc.hf.families.family import FULL, SLIDING

LLAMA_31 = {  # of Meta-Llama-3.1-8B
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "ffn_dim_multiplier": 1.3,
    "multiple_of": 1024, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True,
}  # fmt: skip
MISTRAL = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
    "norm_eps": 1e-05, "vocab_size": 32768, "rope_theta": 1000000.0,
}  # fmt: skip
YARN = {"original_max_position_embeddings": 8192, "factor": 16.0, "beta": 32.0, "alpha": 1.0}
LATENT = {"qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128, "kv_lora_rank": 256, "q_lora_rank": 1024}


def by_meta(theta: float, factor: float, high: float) -> float:
    """Meta's apply_scaling, for one frequency."""
    wave, old = 2 * math.pi / theta, 8192
    if wave < old / high:
        return theta
    if wave > old:
        return theta / factor
    smooth = (old / wave - 1) / (high - 1)
    return (1 - smooth) * theta / factor + smooth * theta


@pytest.mark.parametrize(
    ("change", "factor", "high"),
    [
        ({}, 8.0, 4.0),
        ({"rope_scaling_factor": 32.0, "rope_high_freq_factor": 2.0}, 32.0, 2.0),
        ({"nope_layer_interval": 4, "attention_chunk_size": 8192}, 16.0, 1.0),
    ],
)
def test_llama_3_recipe_of_meta(change: dict[str, Any], factor: float, high: float) -> None:
    read = read_rope({**LLAMA_31, **change})
    unscaled = [500000.0 ** (-2 * pair / 128) for pair in range(64)]
    expected = torch.tensor([by_meta(theta, factor, high) for theta in unscaled], dtype=torch.float64)
    torch.testing.assert_close(read.rope.spectrum().theta, expected, rtol=1e-12, atol=0)
    assert read.rope.layout == "interleaved"
    assert read_rope({**LLAMA_31, **change}, layout="half").rope.layout == "half"


def test_schedule_and_temperature_of_llama_4() -> None:
    arguments = {
        "nope_layer_interval": 4,
        "attention_chunk_size": 4096,
        "attn_temperature_tuning": True,
        "floor_scale": 64.0,
    }
    with pytest.raises(ValueError, match="floor_scale"):
        model_from_config({**LLAMA_31, **arguments})
    model = model_from_config({**LLAMA_31, **arguments, "floor_scale": 64, "attn_scale": 0.2})
    assert [n for n, layer in enumerate(model.layers) if layer.rotation is None] == list(range(3, 32, 4))
    heat = model.layers[3].temperature
    assert heat is not None
    assert heat.options == {"step": 64, "strength": 0.2, "offset": 1}
    assert {layer.temperature for layer in model_from_config({**LLAMA_31, "use_qk_norm": True}).layers} == {None}
    assert all(layer.rotation is not None for layer in model_from_config({**LLAMA_31, "use_qk_norm": True}).layers)


def test_doubts_of_meta() -> None:
    old = {"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-06, "vocab_size": -1}
    old.pop("vocab_size")
    read = read_rope(old)
    assert (read.rope.base, read.rope.scaling) == (10000.0, None)
    assert [finding.name for finding in read.findings] == ["layout-of-params", "base-of-params"]
    small = {finding.name: finding.text for finding in read_rope({**LLAMA_31, "dim": 2048}).findings}
    assert "has 32" in small["factor-of-params"]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("latent", [True, False])
def test_yarn_of_mistral(applied: bool, latent: bool) -> None:
    config = {**MISTRAL, **(LATENT if latent else {}), "yarn": {**YARN, "apply_scale": applied}}
    read = read_rope(config)
    block = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192, "rope_theta": 1e6}
    width = 64 if latent else 128
    unchanged = read_rope({"model_type": "llama", "head_dim": width, "rope_parameters": block}).rope
    assert torch.equal(read.rope.spectrum().theta, unchanged.spectrum().theta)
    sharp = 0.1 * math.log(16) + 1
    assert float(read.rope.spectrum().gain) == pytest.approx(sharp if applied and not latent else 1.0)
    assert read.softmax_factor() == pytest.approx(sharp**2 if applied and latent else 1.0)
    assert read.rope.layout == "interleaved"
    assert read.to_config() == read.config


def test_temperature_of_mistral() -> None:
    heat = {"original_max_position_embeddings": 8192, "beta": 0.1}
    for more in ({}, {"yarn": YARN}, {"yarn": YARN, **LATENT}):
        layer = model_from_config({**MISTRAL, **more, "llama_4_scaling": heat}).layers[0]
        assert layer.temperature is not None
        assert layer.temperature.options == {"step": 8192, "strength": 0.1, "offset": 0}
    assert model_from_config(MISTRAL).layers[0].temperature is None
    shorter = {key: value for key, value in MISTRAL.items() if key != "hidden_dim"}
    for more in ({"yarn": YARN}, {"llama_4_scaling": heat}, LATENT):  # keys that Meta's file has not
        assert read_rope({**MISTRAL, **more}).config == {
            **read_rope({**shorter, **more}).config, "intermediate_size": MISTRAL["hidden_dim"],
        }  # fmt: skip


def test_windows_of_mistral() -> None:
    assert {layer.window for layer in model_from_config({**MISTRAL, "sliding_window": 4096}).layers} == {4096}
    assert {layer.window for layer in model_from_config(MISTRAL).layers} == {None}
    layers = model_from_config({**MISTRAL, "sliding_window": [None, 1024, 1024, 1024]}).layers
    assert [layer.window for layer in layers] == [None, 1024, 1024, 1024] * 8
    assert {layer.kind for layer in layers} == {FULL, SLIDING}


def test_a_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(LLAMA_31))
    assert str(read_rope(tmp_path).rope) == str(read_rope(LLAMA_31).rope)
    assert "interleaved" in as_text(read_rope(tmp_path / "params.json"))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**MISTRAL, "yarn": {**YARN, "gamma": 1}}, "gamma"),
        ({**MISTRAL, "yarn": 4}, "yarn"),
        ({**MISTRAL, "yarn": YARN, "llama_4_scaling": {"original_max_position_embeddings": 4096, "beta": 0.1}},
         "original_max_position_embeddings"),
        ({**MISTRAL, "sliding_window": [None, 1024, 1024]}, "sliding_window"),
        ({**MISTRAL, "sliding_window": [512, 1024]}, "sliding_window"),
        ({**MISTRAL, "dim": 4100, "head_dim": None}, "n_heads"),
        ({**LLAMA_31, "use_scaled_rope": 8}, "use_scaled_rope"),
        ({**LLAMA_31, "rope_scaling_factor": "8"}, "rope_scaling_factor must be a number"),
        ({**LLAMA_31, "rope_theta": "x"}, "read from Meta's params.json"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as error:
        read_rope(config)
    assert words in str(error.value)
