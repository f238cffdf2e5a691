"""kvpress's KeyRerotationPress compared with `CacheEditor`; skipped where kvpress is not installed.

Seen with kvpress 0.5.5, which wants transformers below 5.3.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from posenc.hf import CacheEditor

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("block", [{"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0}])
def test_keys_of_a_press_closed_up(block: dict[str, object]) -> None:
    """The same keys and values, layer by layer and head by head, up to the rounding of their float32 angles."""
    kvpress = pytest.importorskip("kvpress")
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=3, hidden_size=64, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, rope_parameters={"rope_theta": 1e4, **block},
    )  # fmt: skip
    model, ids = LlamaForCausalLM(config).eval(), torch.randint(0, 64, (2, 40))
    press = kvpress.KeyRerotationPress(kvpress.KnormPress(compression_ratio=0.4))
    pressed, cache = DynamicCache(), DynamicCache()
    with torch.no_grad():
        with press(model):
            model(ids, past_key_values=pressed)
        model(ids, past_key_values=cache)
    kept = pressed.layers[0].keys.shape[2]
    named = [(-layer.keys.norm(dim=-1)).topk(kept, dim=-1).indices for layer in cache.layers]
    CacheEditor(model).keep(cache, named, close_up=True)
    for ours, theirs in zip(cache.layers, pressed.layers, strict=True):
        assert ours.keys.shape == theirs.keys.shape == (2, 2, 24, 16)
        torch.testing.assert_close(ours.keys, theirs.keys, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.values, theirs.values, rtol=0, atol=0)
