"""Log-CPB: the coordinates and biases of Swin V2's code, the paper's formula, and positions of one and more axes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from posenc import LogCPB, attention
from posenc.positions import grid
from tests.golden import config, load, names
from tests.samples import gap, refusals

FILES = names("swinv2_logcpb_*")


def of(name, **options):
    arrays, made_with = load(name), config(name)
    trained = [before or now for before, now in zip(made_with["pretrained_window"], made_with["window"], strict=True)]
    heads, hidden = arrays["w2"].shape
    cpb = LogCPB(heads, axes=2, hidden=hidden, window=trained, **options).double()
    with torch.no_grad():
        cpb.inner_weight.copy_(arrays["w1"])
        cpb.inner_bias.copy_(arrays["b1"])
        cpb.outer_weight.copy_(arrays["w2"])
    return cpb, made_with["window"], arrays


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", FILES)
def test_bias_of_the_authors_code(name, dtype):
    cpb, window, arrays = of(name)
    positions = grid(*window).to(dtype)
    bias = cpb.to(dtype)(positions, positions)
    assert bias.dtype == dtype
    assert gap(bias, arrays["bias"]) < 2e-5, "the file holds float32"


@pytest.mark.parametrize("name", FILES)
def test_their_whole_layer(name):
    """Cosine attention: q and k normalised, the learned scale inside q."""
    cpb, window, arrays = of(name)
    x, positions, heads = arrays["x"], grid(*window), cpb.num_heads
    bias = torch.cat([arrays["q_b"], torch.zeros_like(arrays["q_b"]), arrays["v_b"]])
    q, k, v = F.linear(x, arrays["qkv_w"], bias).view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    q = F.normalize(q, dim=-1) * arrays["logit_scale"].clamp(max=math.log(100)).exp()
    out = attention(
        q, F.normalize(k, dim=-1), v, [cpb], q_pos=positions, k_pos=positions, causal=False, scale=1.0, backend="dense"
    )
    y = F.linear(out.transpose(1, 2).flatten(2), arrays["proj_w"], arrays["proj_b"])
    assert gap(y, arrays["y"]) < 2e-6, "the file holds float32"


def test_it_starts_almost_flat_and_stays_between_0_and_16():
    cpb = LogCPB(4)
    positions = torch.arange(50)
    assert gap(cpb(positions, positions), torch.full((4, 50, 50), 8.0)) < 1.0
    with torch.no_grad():
        cpb.outer_weight.mul_(1e6)
    bias = cpb(positions, positions)
    assert bias.min() >= 0
    assert bias.max() <= 16


test_refusals = refusals(
    {
        "window": [lambda: LogCPB(2, window=1), lambda: LogCPB(2, axes=2, window=(7, 7, 7))],
        "q_pos": [lambda: LogCPB(2, axes=2)(torch.arange(4), grid(2, 2))],
        "k_pos": [
            lambda: LogCPB(2, axes=2)(grid(2, 2), grid(2, 2, 2)),
            lambda: LogCPB(2, axes=2)(grid(2, 2), grid(2, 2).half()),
        ],
    }
)
