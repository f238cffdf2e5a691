"""The product over shared key heads: its numbers, and that no key is copied once for each query head."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import attention, create_encoding
from posenc.heads import by_key_head
from tests.samples import gap

SIZES = {"dim": 64, "num_heads": 32, "num_kv_heads": 8, "head_dim": 64, "max_length": 512, "train_length": 512}


class Largest(TorchDispatchMode):
    """How many numbers the largest new tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.is_contiguous():
            self.numbers = max(self.numbers, out.numel())
        return out


@pytest.mark.parametrize("group", [1, 3])
def test_by_key_head(group):
    rows, per_key_head = torch.randn(2, 2 * group, 4, 5), torch.randn(2, 2, 5, 6)
    expected = rows @ per_key_head.repeat_interleave(group, 1)
    assert gap(by_key_head(rows, per_key_head), expected) < 1e-5
    assert gap(by_key_head(rows, per_key_head.flatten(0, 1)), expected) < 1e-5
    assert gap(by_key_head(rows.mT.contiguous().mT, per_key_head), expected) < 1e-5
    narrow = per_key_head.bfloat16()
    assert gap(by_key_head(rows, narrow), by_key_head(rows, narrow.float())) < 1e-5


@pytest.mark.parametrize("name", ["alibi", "cope", "dape", "fox", "grape_a", "grape_ap", "path", "shaw"])
def test_one_query_copies_no_key_for_each_head_of_its_group(name):
    encodings, x = [create_encoding(name, **SIZES)], torch.randn(1, 512, 64)
    q, (k, v) = torch.randn(1, 32, 1, 64), torch.randn(2, 1, 8, 512, 64)
    with torch.no_grad():
        token_states = [e.token_state(x) if hasattr(e, "token_state") else None for e in encodings]
        with Largest() as largest:
            attention(q, k, v, encodings, token_states=token_states, backend="dense")
    assert largest.numbers <= 1.1 * k.numel()
