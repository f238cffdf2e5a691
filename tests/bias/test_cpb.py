"""Log-CPB: the coordinates and biases of Swin V2's code, the paper's formula, and positions of one and more axes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from posenc import LogCPB, attention, explain
from posenc.positions import grid
from tests.golden import config, load, names
from tests.samples import gap, qkv, refusals

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


@pytest.mark.parametrize("name", FILES)
def test_coordinates_count_from_the_key_to_the_query(name):
    """What the network sees, pair by pair, is the row of the authors' table that their index names."""
    cpb, window, arrays = of(name)
    positions = grid(*window).double()
    seen = cpb.log_spaced(positions[:, None] - positions[None])
    assert gap(seen, arrays["coords"].flatten(0, 2)[arrays["index"]]) < 1e-6
    edge = cpb.log_spaced(torch.tensor([w - 1 for w in cpb.window], dtype=torch.float64))
    assert gap(edge, torch.full((2,), math.log2(9) / 3, dtype=torch.float64)) < 1e-12, "not 1"


def test_the_papers_formula():
    cpb = LogCPB(3, axes=2, hidden=5, kind="paper").double()
    with torch.no_grad():
        cpb.inner_bias.uniform_()
    q_pos, k_pos = torch.rand(4, 2).double() * 9, torch.rand(7, 2).double() * 9
    d = q_pos[:, None] - k_pos[None]
    c = torch.where(d < 0, -torch.log(1 - d), torch.log(1 + d.abs()))
    expected = (c @ cpb.inner_weight.T + cpb.inner_bias).relu() @ cpb.outer_weight.T
    assert gap(cpb(q_pos, k_pos), expected.permute(2, 0, 1)) < 1e-12


def test_one_axis_is_a_function_of_the_distance_and_two_are_none():
    line, plane = LogCPB(4, hidden=8, window=6), LogCPB(4, axes=2, hidden=8)
    q, k, v = qkv()
    assert "by distance" in explain(q, k, v, [line], backend="tiled").how
    assert gap(attention(q, k, v, [line]), attention(q, k, v, [line], backend="dense")) < 1e-5
    assert plane.of_distance(torch.arange(3)) is None


def test_along_one_axis_of_two_it_is_the_one_axis_form():
    plane, line = LogCPB(2, axes=2, hidden=8, window=(9, 5)), LogCPB(2, hidden=8, window=5)
    with torch.no_grad():
        for name in ("inner_bias", "outer_weight"):
            getattr(line, name).copy_(getattr(plane, name))
        line.inner_weight.copy_(plane.inner_weight[:, 1:])
    along = torch.arange(7)
    assert gap(plane(grid(1, 7), grid(1, 7)), line(along, along)) < 1e-5


def test_rows_of_fractional_coordinates():
    cpb = LogCPB(2, axes=2, hidden=8)
    rows = torch.rand(3, 5, 2) * 8
    together = cpb(rows[:, 3:], rows)
    assert together.shape == (3, 2, 2, 5)
    for row, alone in zip(together, rows, strict=True):
        assert gap(row, cpb(alone[3:], alone)) < 1e-6
    assert gap(together, cpb(rows[:, 3:] + 1000, rows + 1000)) < 1e-3, "relative"


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
