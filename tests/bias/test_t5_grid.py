"""T5's buckets along several axes against LayoutLMv2, LayoutLMv3 and UDOP."""

from __future__ import annotations

import pytest
import torch

from posenc import T5Bias
from posenc.bias import T5GridBias
from posenc.positions import NOWHERE, grid
from tests.golden import vision
from tests.samples import gap, refusals


def holding(arrays, **options) -> T5GridBias:
    """The encoding with a model's tables, (buckets, heads) each."""
    tables = [arrays[name] for name in ("table_t", "table_x", "table_y")]
    sizes = tuple(len(table) for table in tables)
    bias = T5GridBias(tables[0].shape[1], axes=3, num_buckets=sizes, **options).double()
    bias.load_state_dict({"weight": torch.cat(tables)})
    return bias


@pytest.mark.parametrize(("model", "head_dim"), [("layoutlmv2", None), ("layoutlmv3", 16)])
def test_layoutlm(model, head_dim):
    """The place in the text, the left edge and the lower edge of each box; version 3 divides by √head_dim."""
    arrays, _ = vision(f"t5_grid_{model}__H3")
    scale = 1.0 if head_dim is None else head_dim**-0.5
    bias = holding(arrays, max_distance=(128, 256, 256), bias_scale=scale)
    places = torch.cat([arrays["positions"].unsqueeze(-1), arrays["bbox"][..., [0, 3]]], -1)
    assert gap(bias(places, places), arrays["bias"]) < 1e-12


def test_udop():
    """The place in the text and the middle of each box, from 0 to 1, in float32 as theirs."""
    arrays, _ = vision("t5_grid_udop__H3")
    bias = holding(arrays, max_distance=(128, 100, 100), factor=(1.0, 100.0, 100.0))
    bbox = arrays["bbox"]
    text = torch.arange(bbox.shape[1], dtype=torch.float32).expand(bbox.shape[0], -1)
    places = torch.stack([text, bbox[..., [0, 2]].mean(-1), bbox[..., [1, 3]].mean(-1)], -1)
    assert gap(bias(places, places), arrays["bias"]) < 1e-12


def test_buckets():
    """Every difference that a page of a thousand units has."""
    arrays, meta = vision("t5_grid_buckets")
    for buckets, longest in meta["shapes"]:
        bias = T5GridBias(1, axes=1, num_buckets=buckets, max_distance=longest)
        assert torch.equal(bias.bucket(arrays["differences"], 0), arrays[f"buckets_{buckets}_{longest}"])


def test_one_axis_is_t5():
    grid_bias, t5 = T5GridBias(4, axes=1, num_buckets=32, max_distance=128), T5Bias(4, bidirectional=True)
    grid_bias.load_state_dict(t5.state_dict())
    line = torch.arange(0, 400, 3)
    assert torch.equal(grid_bias(line, line), t5(line, line))
    assert torch.equal(grid_bias.of_distance(line - 200), t5.of_distance(line - 200))


def test_axes_add_up_and_differences_are_looked_up_once():
    bias = T5GridBias(2, num_buckets=(8, 16), max_distance=(6, 20), init_std=1.0).double()
    places = grid(9, 13)  # many pairs for each difference
    rows, columns = bias.tables
    d = places[None, :] - places[:, None]  # p_key − p_query
    expected = rows[bias.bucket(d[..., 0], 0)] + columns[bias.bucket(d[..., 1], 1)]
    assert gap(bias(places, places), expected.movedim(-1, 0)) < 1e-12
    assert gap(bias(places[:3], places[:5]), expected.movedim(-1, 0)[:, :3, :5]) < 1e-12
    full = bias(places.double(), places.double())
    assert gap(full, bias(places, places)) < 1e-12
    lost = places.clone()
    lost[4] = torch.tensor([NOWHERE, 0])
    assert not bias(lost, places)[:, 4].any()
    assert not bias(places, lost)[..., 4].any()


def test_differences_are_cut_towards_zero():
    bias = T5GridBias(1, axes=1, num_buckets=8, max_distance=10, factor=10.0)
    assert bias.bucket(torch.tensor([0.09, -0.09, 0.11, -0.19, 0.25]), 0).tolist() == [0, 0, 5, 1, 6]
    assert bias.bucket(torch.tensor([0, 1, -1]), 0).tolist() == [0, 7, 3]


def test_parameters_are_the_tables_alone():
    bias = T5GridBias(3)
    assert {name: tuple(t.shape) for name, t in bias.state_dict().items()} == {"weight": (128, 3)}
    assert [tuple(t.shape) for t in bias.tables] == [(64, 3), (64, 3)]
    bias(grid(3, 3), grid(3, 3)).sum().backward()
    assert bias.weight.grad.any()


test_refusals = refusals(
    {
        "num_buckets": [
            lambda: T5GridBias(3, num_buckets=7),
            lambda: T5GridBias(3, num_buckets=2),
            lambda: T5GridBias(3, num_buckets=(32, 64, 64)),
            lambda: T5GridBias(3, num_buckets=(32, 64.0)),
        ],
        "max_distance": [lambda: T5GridBias(3, max_distance=16), lambda: T5GridBias(3, max_distance=(256,))],
        "factor": [lambda: T5GridBias(3, factor=0.0), lambda: T5GridBias(3, factor=(1.0, -1.0))],
    }
)
