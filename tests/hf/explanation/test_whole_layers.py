"""Whole layers of a few families against transformers' own attention; tests/reference compares all families."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch

pytest.importorskip("transformers")

from posenc import YaRN, attention
from posenc.hf import LayerAttention, LayerFacts, encodings_of, model_from_config
from posenc.hf.config.layers import CHUNKED
from tests.hf.attach.smallest import compared
from tests.hf.sizes import LENGTH

logging.getLogger("transformers").setLevel(logging.CRITICAL)
# Sinks and windows; chunks, layers without rotation and a temperature; latents; two bases; a cap; a temperature in all.
FEW = ("gpt_oss", "llama4_text", "deepseek_v3", "gemma3_text", "gemma2", "ministral3")
SHOWN = {
    "gpt_oss": {"sink", "window", "base", "layout"}, "llama4_text": {"temperature", "window"},
    "deepseek_v3": {"channels", "layout", "scale"}, "gemma3_text": {"window", "base"}, "gemma2": {"softcap"},
    "ministral3": {"temperature", "scale"},
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_layers_agree_and_planted_faults_show(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = compared(name)
    assert max(layer.gap for layer in result) < 1e-5
    assert set().union(*(layer.faults for layer in result)) >= SHOWN[name]
    for layer in result:
        assert min(layer.faults.values()) > 1e-4, layer


@pytest.mark.parametrize(
    "block",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0},
        {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16,
         "short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]},
    ],
    ids=lambda block: block["rope_type"],
)  # fmt: skip
def test_layers_agree_under_each_scaling(block: dict[str, object]) -> None:
    longest = 16 if block["rope_type"] == "dynamic" else 64
    arguments = {"rope_parameters": {"rope_theta": 1e4, **block}, "max_position_embeddings": longest}
    result = compared("llama", num_hidden_layers=2, **arguments)
    assert max(layer.gap for layer in result) < 1e-5
    assert min(layer.faults["rotation"] for layer in result) > 1e-2


CONFIG = {"model_type": "gpt_oss", "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}


def test_what_a_layer_is_built_of() -> None:
    rope, sink = encodings_of(model_from_config(CONFIG).layers[0])
    assert isinstance(rope.scaling, YaRN)
    assert sink.num_heads == 4


def test_chunks_lie_within_documents() -> None:
    """Chunks of 4 tokens in packed documents are the chunks of each document by itself."""
    attend = LayerAttention(LayerFacts(CHUNKED, window=4, scale=0.25))
    q, k, v = torch.randn(3, 1, 2, 10, 16, generator=torch.Generator().manual_seed(0))
    documents, places = torch.tensor([0] * 6 + [1] * 4), torch.tensor([*range(6), *range(4)])
    result = attend(q, k, v, q_pos=places, k_pos=places, segments=documents)
    alone = [attend(*(x[:, :, part] for x in (q, k, v))) for part in (slice(0, 6), slice(6, 10))]
    torch.testing.assert_close(result, torch.cat(alone, 2))
    first = attention(q[:, :, :4], k[:, :, :4], v[:, :, :4], scale=0.25)
    torch.testing.assert_close(result[:, :, :4], first)


def test_a_window_of_uneven_sides() -> None:
    attend = LayerAttention(LayerFacts("sliding", window=2, ahead=3, causal=False, scale=0.25))
    q, k, v = torch.randn(3, 1, 2, 9, 16, generator=torch.Generator().manual_seed(0))
    far = torch.arange(9) - torch.arange(9)[:, None]
    expected = attention(q, k, v, mask=(far > -2) & (far <= 3), causal=False, scale=0.25)
    torch.testing.assert_close(attend(q, k, v), expected)


def test_decoding_steps_are_the_last_rows() -> None:
    attend = LayerAttention(model_from_config({**CONFIG, "sliding_window": 4}).layers[0])
    q, k, v = torch.randn(3, 1, 4, LENGTH, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(attend(q[:, :, -2:], k, v), attend(q, k, v)[:, :, -2:])


@pytest.mark.parametrize(
    ("facts", "options", "argument"),
    [
        ("full", {}, "facts"),
        (LayerFacts("mamba", attends=False), {}, "facts"),
        (LayerFacts("full", sink="by token", scale=1.0), {}, "facts"),
        (LayerFacts("full", sink="learned", scale=1.0), {}, "num_heads"),
        (LayerFacts("full"), {}, "scale"),
        (LayerFacts("full"), {"scale": -1.0}, "scale"),
        (LayerFacts("full", scale=1.0), {"norms": (torch.nn.Identity(), torch.nn.Identity())}, "norms"),
        (model_from_config({**CONFIG, "model_type": "hunyuan_v1_dense"}).distinct_layers[0], {}, "norms"),
    ],
)
def test_what_does_not_fit_is_refused(facts: object, options: dict[str, object], argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        LayerAttention(facts, **options)
