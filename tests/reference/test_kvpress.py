"""kvpress's KeyRerotationPress compared with `CacheEditor`; skipped where kvpress is not installed.

Seen with kvpress 0.5.5, whose hooks want transformers below 5.3: what a press does in them is called by itself.
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
    cache, pressed = DynamicCache(), []
    with torch.no_grad():
        model(ids, past_key_values=cache)
        for cached, layer in zip(cache.layers, model.model.layers, strict=True):
            layer.self_attn.rotary_emb = model.model.rotary_emb  # as a press does around a call
            pressed.append(press.compress(layer.self_attn, None, cached.keys, cached.values, None, {}))
    kept = pressed[0][0].shape[2]
    named = [(-cached.keys.norm(dim=-1)).topk(kept, dim=-1).indices for cached in cache.layers]
    CacheEditor(model).keep(cache, named, close_up=True)
    for ours, (keys, values) in zip(cache.layers, pressed, strict=True):
        assert ours.keys.shape == keys.shape == (2, 2, 24, 16)
        torch.testing.assert_close(ours.keys, keys, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.values, values, rtol=0, atol=0)
