"""Live models beside their configurations: those of a few families agree, and what is changed afterwards shows."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from posenc.hf.attach import attach
from posenc.hf.attach.live_model import inspect
from tests.hf.attach.smallest import built

logging.getLogger("transformers").setLevel(logging.CRITICAL)


@pytest.mark.parametrize(
    "name", ["llama", "gemma3_text", "gpt_oss", "deepseek_v3", "phi", "glm", "cohere2", "gpt_neox"]
)
def test_models_agree_with_their_configurations(name: str) -> None:
    result = inspect(built(name))
    assert result.agrees, str(result)
    assert any(layer.gap is not None for layer in result.layers)
    assert max(layer.gap or 0 for layer in result.layers) < 2e-4


def _yarn(model: Any) -> None:
    model.config.rope_parameters = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                                    "original_max_position_embeddings": 16}  # fmt: skip


def _linear(model: Any) -> None:
    model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}


def _base(model: Any) -> None:
    model.config.rope_parameters = {"rope_type": "default", "rope_theta": 5e5}


def _module(model: Any) -> None:
    model.rotary_emb.inv_freq.mul_(0.5)


def _scale(model: Any) -> None:
    model.layers[1].self_attn.scaling = 0.3


@pytest.mark.parametrize(
    ("change", "says"),
    [(_yarn, "gain"), (_linear, "8 of 8"), (_base, "7 of 8"), (_module, "8 of 8"), (_scale, "0.3")],
)  # fmt: skip
def test_what_is_changed_afterwards_shows(change: Any, says: str) -> None:
    model = built("llama")
    change(model)
    assert says in str(inspect(model))
    assert "compute something else" in str(inspect(model)).splitlines()[-1], "the verdict"


def test_windows_and_attached_encodings() -> None:
    model = built("gpt_oss")
    sliding = next(m for m in model.modules() if getattr(m, "sliding_window", None) and hasattr(m, "layer_idx"))
    sliding.sliding_window = 5
    assert re.search(r"window.*\b5\b.*\b8\b", str(inspect(model)))
    attach(model, "alibi", layers=[1])
    result = inspect(model).layers
    assert result[0].attached is None
    assert "ALiBi(4" in str(result[1])


def test_only_models_of_transformers() -> None:
    with pytest.raises(ValueError, match="model"):
        inspect(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_is_not_taken_for_another_configuration(dtype: torch.dtype) -> None:
    name, model = str(dtype).removeprefix("torch."), built("llama").to(dtype)
    for cast in (model, model.float()):  # widened again, the frequencies stay rounded
        text = str(inspect(cast))
        assert f"rounded to {name}" in text
        assert "another configuration" not in text
