"""Swin's table: the authors' indices, biases, layer and resizing; and what lies outside and between."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from posenc import SwinBias, attention
from posenc.positions import grid
from tests.golden import config, load, names
from tests.samples import gap, refusals

FILES = names("vision/swin_rpb__*")
RESIZED = names("vision/swin_rpb_resize__*")


def of(name):
    arrays, window = load(name), config(name)["window"]
    swin = SwinBias(arrays["table"].shape[1], window).double()
    swin.load_state_dict({"table": arrays["table"]})
    return swin, grid(*window), arrays


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
@pytest.mark.parametrize("name", FILES)
def test_bias_of_the_authors_code(name, dtype):
    swin, positions, arrays = of(name)
    assert gap(swin(positions.to(dtype), positions.to(dtype)), arrays["bias"]) == 0


@pytest.mark.parametrize("name", FILES)
def test_rows_lie_in_the_authors_order(name):
    swin, positions, arrays = of(name)
    with torch.no_grad():
        swin.table.copy_(torch.arange(len(swin.table))[:, None].expand_as(swin.table))
    assert torch.equal(swin(positions, positions)[0].long(), arrays["index"])


@pytest.mark.parametrize("name", FILES)
def test_their_whole_layer(name):
    swin, positions, arrays = of(name)
    x = arrays["x"]
    qkv = F.linear(x, arrays["qkv_w"], arrays["qkv_b"]).view(*x.shape[:2], 3, swin.num_heads, -1)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    out = attention(q, k, v, [swin], q_pos=positions, k_pos=positions, causal=False)
    y = F.linear(out.transpose(1, 2).flatten(2), arrays["proj_w"], arrays["proj_b"])
    assert gap(y, arrays["y"]) < 1e-6, "the file holds float32"


@pytest.mark.parametrize("name", RESIZED)
def test_resized_as_the_authors_do(name):
    arrays, made_with = load(name), config(name)
    old, new = made_with["old"], made_with["new"]
    swin = SwinBias(arrays["table"].shape[1], (old, old)).double()
    swin.load_state_dict({"table": arrays["table"]})
    resized = swin.resized((new, new))
    assert resized.window == (new, new)
    assert gap(resized.table, arrays["resized"]) < 1e-5, "the file holds float32"


def test_resizing_goes_axis_by_axis():
    swin = SwinBias(2, (3, 4)).double()
    table = swin.table.T.view(1, 2, 5, 7)
    for mode in ("bicubic", "bilinear"):
        expected = F.interpolate(table, size=(9, 3), mode=mode).flatten(2)[0].T
        assert gap(swin.resized((5, 2), mode=mode).table, expected) < 1e-12
        assert gap(swin.resized((3, 4), mode=mode).table, swin.table) == 0
    line = SwinBias(2, (4,)).bfloat16()
    assert line.resized((9,)).table.shape == (17, 2)
    assert line.resized((9,)).table.dtype == torch.bfloat16
    video = SwinBias(2, (2, 3, 4))
    with torch.no_grad():
        video.table.fill_(0.5)
    assert gap(video.resized((4, 5, 3)).table, torch.full((7 * 9 * 5, 2), 0.5)) < 1e-6


test_refusals = refusals(
    {
        "window": [
            lambda: SwinBias(2, ()),
            lambda: SwinBias(2, (7, 0)),
            lambda: SwinBias(2, 7),
            lambda: SwinBias(2, (7, 7.5)),
            lambda: SwinBias(2, (7, 7)).resized((7,)),
        ],
        "mode": [lambda: SwinBias(2, (7, 7)).resized((9, 9), mode="nearest")],
    }
)
