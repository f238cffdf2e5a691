"""What `model_from_config` tells of layers, and ``posenc explain --families``; live models: tests/reference."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

import posenc_cli
from posenc import RoPE
from posenc.hf import model_from_config, read_rope
from posenc.hf.families import NON_ROTARY, ROTARY, UNSUPPORTED
from posenc.hf.families.family import FULL, SLIDING

SMALL: dict[str, Any] = {"num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4}


def test_a_temperature_that_a_released_file_switches_on_by_a_number() -> None:
    model = {**SMALL, "model_type": "llama4_text", "head_dim": 16, "attn_temperature_tuning": 4}
    assert [layer.temperature is not None for layer in model_from_config(model).layers] == ([False] * 3 + [True]) * 2


def test_kinds_bases_and_scales() -> None:
    model = model_from_config({**SMALL, "model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 64})
    assert [(item.kind, numbers) for item, numbers in model.kinds] == [(SLIDING, [0, 1, 2, 3, 4, 6, 7]), (FULL, [5])]
    assert [item.rotation.base for item in (model.layers[0], model.layers[5]) if item.rotation is not None] == [
        1e4,
        1e6,
    ]
    assert {item.scale for item in model.layers} == {0.125}
    widths = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "kv_lora_rank": 32}
    latent = model_from_config({**SMALL, "model_type": "deepseek_v3", **widths}).latent
    assert latent is not None
    assert latent._asdict() == {"rotated": 8, "unrotated": 8, "value": 16, "keys": 32, "queries": None}


def test_what_does_not_tell_its_layers_apart() -> None:
    model = model_from_config({"model_type": "llama", "head_dim": 16})
    assert model.layers == ()
    assert [numbers for _, numbers in model.kinds] == [[]]
    with pytest.raises(ValueError, match="sliding_window"):
        model_from_config({**SMALL, "model_type": "mistral", "sliding_window": "x"})


def test_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert posenc_cli.run(["explain", "--families"]) == 0
    *lines, counts = capsys.readouterr().out.splitlines()
    states = {name: (state, text) for name, state, text, *_ in (line.split("\t") for line in lines)}
    assert len(lines) == len(ROTARY) + len(NON_ROTARY) + len(UNSUPPORTED)
    compared = sum(not family.not_compared for family in ROTARY.values())
    assert re.findall(r"\d+", counts) == [str(n) for n in (len(ROTARY), len(NON_ROTARY), len(UNSUPPORTED), compared)]
    assert states["gpt_oss"][0] == "read"
    assert all(part in states["gpt_oss"][1] for part in ("half", "150000", "windows", "sinks"))
    assert all(part in states["llama4_text"][1] for part in ("chunks", "temperature"))
    assert states["bert"][0] == "no rotation"
    assert states["dinov3_vit"] == ("refused", UNSUPPORTED["dinov3_vit"])
    assert posenc_cli.run(["explain", "--families", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["counts"].values()) == [len(ROTARY), len(NON_ROTARY), len(UNSUPPORTED), compared]
    assert {item["name"]: (item["state"], item["text"]) for item in data["families"]} == states
    assert posenc_cli.run(["explain", "x", "--families"]) == 2


def test_factors_of_each_frequency() -> None:
    config = {"model_type": "llama", "head_dim": 8, "rope_theta": 1e4, "max_position_embeddings": 64}
    read, alpha = read_rope(config), torch.tensor([0.0, 0.5, -0.25, 1.0], dtype=torch.float64)
    learned = read.with_factors(alpha.exp().tolist())
    expected = RoPE(8).spectrum().theta * alpha.exp()
    for length in (None, 1000):
        torch.testing.assert_close(learned.rope.spectrum(length).theta, expected, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="factors"):
        read.with_factors([1.0])
    with pytest.raises(ValueError, match="factors"):
        read.with_factors(["x"] * 4)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="max_position_embeddings"):
        read_rope({"model_type": "llama", "head_dim": 8}).with_factors([1.0] * 4)
