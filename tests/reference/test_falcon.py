"""ALiBi as transformers' Falcon has it: inside the scale."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, read_attention
from tests.samples import gap

pytest.importorskip("transformers")
pytestmark = pytest.mark.reference


def test_falcons_weights() -> None:
    from transformers import FalconConfig
    from transformers.models.falcon.modeling_falcon import FalconAttention, build_alibi_tensor

    torch.manual_seed(0)
    config = FalconConfig(
        hidden_size=64, num_attention_heads=8, num_hidden_layers=1, alibi=True, multi_query=False, vocab_size=11,
        new_decoder_architecture=False, attention_dropout=0.0, attn_implementation="eager",
    )  # fmt: skip
    reference, x, seen = FalconAttention(config, layer_idx=0).eval(), torch.randn(2, 12, 64), torch.ones(2, 12)
    hidden = torch.full((12, 12), -1e9).triu(1).expand(2, 1, -1, -1)
    with torch.no_grad():
        q, k, _ = (t.transpose(1, 2) for t in reference._split_heads(reference.query_key_value(x * 5)))
        alibi = build_alibi_tensor(seen, 8, torch.float32)
        expected = reference(x * 5, alibi=alibi, attention_mask=hidden, output_attentions=True)[1]
    read = read_attention(q, k, encodings=[ALiBi(8, bias_scale=8**-0.5)])
    assert gap(read.weights, expected) < 1e-5
    assert gap(read_attention(q, k, encodings=[ALiBi(8)]).weights, expected) > 1e-2
