"""Calls handed to PyTorch's own flex_attention: the same as the definition, for each encoding that can be said."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from posenc import ALiBi, ForgetGate, RoPE, T5Bias, attention
from posenc.backends.flex.export import flex_call
from posenc.bias import FIRE, KERPLE, Sandwich
from posenc.score import CoPE
from tests.samples import gap, qkv

LISTS = {
    "rope": lambda: [RoPE(16)],
    "alibi": lambda: [ALiBi(4)],
    "t5": lambda: [T5Bias(4)],
    "kerple": lambda: [KERPLE(4)],
    "sandwich": lambda: [Sandwich(4)],
    "fire": lambda: [FIRE(4)],
    "forget": lambda: [ForgetGate(32, num_heads=4)],
    "rope and alibi": lambda: [RoPE(16), ALiBi(4)],
}


@pytest.mark.parametrize("name", LISTS)
def test_equals_the_definition(name: str) -> None:
    torch.manual_seed(0)
    encodings, (q, k, v) = LISTS[name](), qkv(2, 4, 20, 40, 16, num_kv_heads=2, dtype=torch.float64)
    options = {"x": torch.randn(2, 40, 32, dtype=torch.float64), "mask": torch.rand(2, 1, 40) > 0.2, "window": 30}
    with torch.no_grad():
        call = flex_call(q, k, v, encodings, **options)
        right = attention(q, k, v, encodings, backend="dense", **options)
        assert gap(flex_attention(**call._asdict()), right) < 1e-12
        assert call.mask_mod is not None
        index = torch.arange(40)
        seen = call.mask_mod(torch.tensor(1), torch.tensor(0), torch.tensor(3), index)
    assert seen.tolist() == (options["mask"][1, 0] & (index <= 23) & (index > 23 - 30)).tolist()


def test_what_it_cannot_say_is_named() -> None:
    q, k, v = qkv(1, 4, 8, 8, 16)
    with torch.no_grad(), pytest.raises(ValueError, match="CoPE"):
        flex_call(q, k, v, [CoPE(16, max_position=8)])
    assert flex_call(q, k, v, causal=False).mask_mod is None
