"""Decomposed relative positions against SAM, ViTDet and MViTv2's pooled keys."""

from __future__ import annotations

import pytest
import torch

from posenc import Shaw, attention
from posenc.positions import NOWHERE, grid
from posenc.score import DecomposedRelative
from tests.golden import vision
from tests.samples import gap, qkv, refusals


def holding(arrays, window=None) -> DecomposedRelative:
    """The encoding with a model's tables, for a window of another size if need be."""
    tables = arrays["rel_pos_h"], arrays["rel_pos_w"]
    relative = DecomposedRelative(tables[0].shape[1], [(len(table) + 1) // 2 for table in tables]).double()
    relative.from_official(*tables)
    return relative if window is None else relative.resized(window)


@pytest.mark.parametrize("name", ["sam__w3x5_3x5_H2", "sam__w4x4_5x6_H2", "vitdet__w3x5_3x5_H2", "vitdet__w7x6_4x5_H2"])
def test_a_whole_layer(name):
    arrays, meta = vision(f"decomposed_{name}")
    height, width = meta["sizes"]
    x = arrays["x"].double().flatten(1, 2)
    qkv_ = x @ arrays["qkv_w"].double().T + arrays["qkv_b"].double()
    q, k, v = qkv_.unflatten(-1, (3, meta["heads"], -1)).permute(2, 0, 3, 1, 4)
    places = grid(height, width)
    order = torch.randperm(height * width)
    out = attention(
        q[:, :, order], k, v, [holding(arrays, (height, width))], q_pos=places[order], k_pos=places, causal=False
    )
    y = out.transpose(1, 2).flatten(2) @ arrays["proj_w"].double().T + arrays["proj_b"].double()
    tolerance = 5e-6 if "sam" in name else 1e-12  # SAM's softmax is of float32
    assert gap(y, arrays["y"].flatten(1, 2)[:, order]) < tolerance


def test_pooled_keys():
    """Queries of 6 × 4 and keys pooled to 3 × 2: they lie at 1, 3, 5 and 1, 3."""
    arrays, _ = vision("decomposed_pooled__q6x4_k3x2")
    relative = holding(arrays)
    q = arrays["q"].double().unsqueeze(1)
    k = torch.zeros(2, 1, 6, q.shape[-1], dtype=torch.float64)
    eye = torch.eye(6, dtype=torch.float64).expand(2, 1, 6, 6)
    out = attention(q, k, eye, [relative], q_pos=grid(6, 4), k_pos=grid(3, 2) * 2 + 1, causal=False)
    assert gap(out[:, 0], arrays["bias"].double().flatten(2).softmax(-1)) < 2e-6


def test_one_axis_is_shaw_with_an_unscaled_query():
    q, k, v = qkv(dtype=torch.float64)
    relative, shaw = DecomposedRelative(8, (4,)).double(), Shaw(8, max_distance=3, values=False).double()
    with torch.no_grad():
        shaw.key_table.copy_(relative.tables[0].flip(0) / 0.3)
    got, expected = (attention(q, k, v, [e], scale=0.3, causal=False) for e in (relative, shaw))
    assert gap(got, expected) < 1e-12


def test_fractions_in_float32_are_as_good_as_in_float64():
    """In a float64 call differences of float32 fractions are not rounded to float32."""
    q, k, v = qkv(dtype=torch.float64)
    at, relative = torch.arange(6).mul(0.1).sin(), DecomposedRelative(8, (3,), init_std=1.0).double()
    got, expected = (attention(q, k, v, [relative], q_pos=p, k_pos=p, causal=False) for p in (at, at.double()))
    assert gap(got, expected) < 1e-14


def test_tokens_without_a_place_and_places_outside_the_window():
    relative = DecomposedRelative(8, (3, 4), init_std=1.0).double()
    q, k, _ = qkv(1, 2, 3, dtype=torch.float64)
    lost = torch.tensor([[NOWHERE, 0], [0, 0], [1, 2]])
    zero = torch.zeros(1, 2, 3, 3, dtype=torch.float64)

    def added(q_pos, k_pos):
        identity = torch.eye(3, dtype=torch.float64).expand(1, 2, -1, -1)
        weights = attention(q, torch.zeros_like(k), identity, [relative], q_pos=q_pos, k_pos=k_pos, causal=False)
        return weights.log() - weights.log()[..., :1]

    assert gap(added(lost, lost)[:, :, :1], zero[:, :, :1]) < 1e-12
    near, far = torch.tensor([[0, 0], [2, 3], [-2, -3]]), torch.tensor([[0, 0], [9, 2**20], [-9, -(2**20)]])
    here = torch.zeros(3, 2, dtype=torch.int64)
    assert gap(added(far, here), added(near, here)) < 1e-12
    assert gap(added(here, far), added(here, near)) < 1e-12
    between = (added(here, near.double()) + added(here, here.double() + near[1])) / 2
    assert between.shape == zero.shape


test_refusals = refusals(
    {
        "window": [
            lambda: DecomposedRelative(8, 3),
            lambda: DecomposedRelative(8, (3, 0)),
            lambda: DecomposedRelative(8, (3, 3)).resized((3,)),
        ],
        "init_std": [lambda: DecomposedRelative(8, (3, 3), init_std=-1)],
        "tables": [lambda: DecomposedRelative(8, (3, 3)).from_official(torch.ones(5, 8))],
        "head_dim": [lambda: attention(*qkv(), [DecomposedRelative(16, (3,))])],
        "q_pos": [lambda: attention(*qkv(), [DecomposedRelative(8, (3, 3))], q_pos=torch.arange(6), causal=False)],
    }
)
