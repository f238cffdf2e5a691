"""GRAPE-AP: the authors' results, biases and gradients, with a projection's p and tied to the keys."""

from __future__ import annotations

import pytest
import torch

from posenc import attention, read_attention
from posenc.score import GRAPEAP
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv, refusals

FILES = names("grape_ap_*")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, dtype):
    inputs, arrays = config(name), load(name, dtype)
    tied = inputs["tie"] != "none"
    grape = GRAPEAP(16, num_heads=inputs["heads"], path_dim=inputs["p_head_dim"], tie="key" if tied else "none").to(
        dtype
    )
    leaves = {n: arrays[n].transpose(1, 2).requires_grad_() for n in ("qkv" if tied else "qkvp")}
    call = {"token_states": [leaves.get("p")]}
    q, k, v = (leaves[n] for n in "qkv")
    out = attention(q, k, v, [grape], **call)
    assert gap(out, arrays["out"].transpose(1, 2)) < FLOATS[dtype]
    under, baseline = read_attention(q, k, v, [grape], **call).scores, read_attention(q, k, v).scores
    seen = arrays["allowed"]
    assert gap((under - baseline)[:, :, seen], arrays["bias"][:, :, seen]) < 10 * FLOATS[dtype]
    result = torch.autograd.grad(out, list(leaves.values()), arrays["grad_out"].transpose(1, 2))
    for leaf, got in zip(leaves, result, strict=True):
        assert gap(got, arrays[f"grad_{leaf}"].transpose(1, 2)) < 10 * FLOATS[dtype], leaf


test_refusals = refusals(
    {
        "path_dim": [
            lambda: GRAPEAP(16, num_heads=2, path_dim=7),
            lambda: attention(*qkv(1, 2, 3), [GRAPEAP(16, num_heads=2, path_dim=6, tie="key")]),
        ],
        "x": [lambda: attention(*qkv(1, 2, 3), [GRAPEAP(16, num_heads=2, path_dim=8)])],
    }
)
