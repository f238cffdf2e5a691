"""The chapter "What models do": its rows are the configs', and their rotations and QK-norms are transformers' own."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("pyarrow", reason="needs the extra lab")
pytest.importorskip("latex2mathml", reason="needs the extra docs")

from guide.models import ReleasedModel, memory_pattern, models_table, released_models, table, way_to_long_context

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
MODELS = Path(transformers.__file__).parent / "models"
ROWS = {row.name: row for row in released_models()}
OWN_CODE = {"kimi_k2": "deepseek_v3"}  # model types whose code is another's
NORMS = re.compile(r"\b(?:q_norm|q_b_norm|qk_norm|query_layernorm) = ")


def text_config(row: ReleasedModel) -> dict[str, Any]:
    """The part of a config that transformers' rotary module takes."""
    config = copy.deepcopy(dict(row.read.text_config))
    config.setdefault("model_type", row.read.text_config.model_type)
    config["model_type"] = OWN_CODE.get(config["model_type"], config["model_type"])
    return config


@pytest.mark.parametrize("name", [row.name for row in released_models() if row.ropes])
def test_rotations_are_those_of_transformers(name: str) -> None:
    from tests.hf.transformers_models import rotary_module, transformers_frequencies

    row = ROWS[name]
    if name == "gpt-j-6b":  # which has no rotary module, but a table
        from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

        sines = create_sinusoidal_positions(2, row.config["rotary_dim"])[1, : row.config["rotary_dim"] // 2]
        assert torch.allclose(sines, torch.tensor(row.ropes[0][1].spectrum().theta.tolist()).sin(), rtol=1e-5)
        return
    module = rotary_module(text_config(row))
    for kind, rope in row.ropes:
        own_name = next((n for n in (kind.kind, "compress", "main") if hasattr(module, f"{n}_inv_freq")), "all")
        if name == "DeepSeek-V4-Flash":
            own_name = "main" if kind.kind == "sliding_attention" else "compress"
        theta, gain = transformers_frequencies(module, row.declared, own_name)
        spectrum = rope.spectrum(row.declared)
        expected = spectrum.theta.tolist()
        assert theta.tolist() == pytest.approx(expected[: len(theta)], rel=2e-5), kind.kind
        assert not any(expected[len(theta) :])
        assert gain == pytest.approx(float(spectrum.gain), rel=1e-5)


@pytest.mark.skipif(not transformers.__version__.startswith("5.23."), reason="lines of transformers 5.23")
@pytest.mark.parametrize("name", ROWS)
def test_the_norm_of_queries_is_where_the_row_says(name: str) -> None:
    row = ROWS[name]
    lines = (MODELS / row.code).read_text(encoding="utf-8").splitlines()
    if row.qk_norm == "no":
        switched_off = row.config.get("text_config", row.config).get("use_qk_norm") is False
        assert switched_off or not [line for line in lines if NORMS.search(line)]
    else:
        named = NORMS if row.qk_norm == "yes" else re.compile(r"\b(?:q|kv)_a_layernorm = ")
        assert named.search(lines[row.line - 1]), lines[row.line - 1]


def test_another_config_gives_another_row() -> None:
    row = ROWS["Llama-3.1-8B"]
    config = {**row.config, "rope_theta": 10_000.0, "max_position_embeddings": 65_536}
    before, after = table([row]).splitlines()[-1], table([dataclasses.replace(row, config=config)]).splitlines()[-1]
    assert "| 500,000 |" in before
    assert before.replace("| 500,000 |", "| 10,000 |").replace("131,072", "65,536") == after


def test_groups_are_told_from_the_layers() -> None:
    assert way_to_long_context(ROWS["Llama-3.1-8B"]) == "both"
    assert way_to_long_context(ROWS["DeepSeek-V3"]) == "scaled"
    assert way_to_long_context(ROWS["Trinity-Mini"]) == "nope"
    assert [memory_pattern(ROWS[name]) for name in ("Qwen3.5-27B", "gpt-oss-120b", "DeepSeek-V3", "MiniMax-M2")] == [
        "linear", "local", "latent", "grouped",
    ]  # fmt: skip
    assert ROWS["gpt-oss-120b"].name in models_table("decoders")
    assert ROWS["ModernBERT-base"].name in models_table("encoders")
