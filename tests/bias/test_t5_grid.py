"""T5's buckets along several axes against LayoutLMv2, LayoutLMv3 and UDOP."""

from __future__ import annotations

import pytest
import torch

from posenc.bias import T5GridBias
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


def test_differences_are_cut_towards_zero():
    bias = T5GridBias(1, axes=1, num_buckets=8, max_distance=10, factor=10.0)
    assert bias.bucket(torch.tensor([0.09, -0.09, 0.11, -0.19, 0.25]), 0).tolist() == [0, 0, 5, 1, 6]
    assert bias.bucket(torch.tensor([0, 1, -1]), 0).tolist() == [0, 7, 3]


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
