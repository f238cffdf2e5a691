"""LieRE: the authors' rotations, which are relative only where generators commute; heads, blocks and tokens' places."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.positions import grid, spaced, with_prefix
from posenc.rotary import LieRE
from tests.rotary.test_axes import golden, vision
from tests.samples import gap, refusals


def whole_rotation(liere, position):
    """R(position) of each head, float64 ``(heads, head_dim, head_dim)``."""
    width = liere.head_dim
    x = torch.eye(width, dtype=torch.float64).expand(1, liere.num_heads, width, width)
    at = position.expand(width, -1) if liere.axes > 1 else position.expand(width)
    return liere.rotate(x, liere.table(at, like=x))[0].mT.detach()


@golden("liere__*")
def test_rotations_of_every_layer(name):
    arrays, meta = vision(name)
    sizes = [i // p for i, p in zip(meta["infer_image"], meta["patch"], strict=True)]
    trained = [i // p for i, p in zip(meta["image"], meta["patch"], strict=True)]
    positions = spaced(grid(*sizes), sizes, trained)
    assert gap(positions, arrays["positions"]) < 1e-6
    for layer in range(arrays["params"].shape[1]):
        built = LieRE(
            64, num_heads=meta["heads"], axes=meta["axes"], block=meta["generator_dim"], per_head=meta["per_head"]
        )
        liere = built.from_official(arrays["params"][:, layer])
        rows = liere.rows
        if liere.block > 2:
            (table,) = liere.table(arrays["positions"])
            exact = arrays["R_from_f64_exp"][1:, layer].unflatten(1, (rows, -1)).transpose(0, 1)
            assert gap(table, exact) < meta["tol"]
        places = with_prefix(arrays["positions"])
        for x in "qk":
            got = liere.rotate(arrays[x], liere.table(places))
            assert gap(got, arrays[f"{x}_rot"][layer]) < meta["tol_rot"]
            assert torch.equal(got[:, :, 0], arrays[x][:, :, 0])


def test_comropes_own_liere():
    arrays, meta = vision("comroperepo_liere__b4_sf1_s20")
    liere = LieRE(meta["head_dim"], num_heads=meta["heads"], block=meta["block"]).from_official(arrays["freqs"])
    (table,) = liere.table(arrays["positions"])
    exact = arrays["R64"].unflatten(-1, (-1, 4)).unflatten(2, (-1, 4)).diagonal(dim1=2, dim2=4).movedim(-1, 2)
    assert gap(table, exact.transpose(0, 1)) < meta["tol"]
    for x in "qk":
        assert gap(liere.rotate(arrays[x], (table,)), arrays[f"{x}_rot"]) < meta["tol_rot"]


def test_comropes_plain_rope_is_blocks_of_2_that_all_heads_share():
    arrays, meta = vision("comroperepo_vanilla_rope__b2_th0.681292_s30")
    liere = LieRE(meta["head_dim"], num_heads=meta["heads"], block=2, per_head=False).from_official(arrays["A"][0])
    for x in "qk":
        got = liere.rotate(arrays[x], liere.table(arrays["positions"]))
        assert gap(got, arrays[f"{x}_rot"]) < meta["tol_rot"]


@pytest.mark.parametrize("block", [4, 8, 64])
def test_not_relative_in_larger_blocks_over_two_axes(block):
    liere = LieRE(64, num_heads=1, block=block).double()
    x, y = torch.tensor([0.3, 0.9], dtype=torch.float64), torch.tensor([0.8, 0.1], dtype=torch.float64)
    of_x, of_y, between = (whole_rotation(liere, at) for at in (x, y, y - x))
    assert gap(of_x.mT @ of_y, between) > 0.1
    assert gap(of_x.mT @ of_x, torch.eye(64, dtype=torch.float64)[None]) < 1e-12


def test_first_generators_are_uniform():
    liere = LieRE(64, num_heads=8).requires_grad_(False)
    assert liere.generators.shape == (2, 8, 1, 64 * 63 // 2)
    assert 0 <= float(liere.generators.min()) < 0.1
    assert 2 * math.pi - 0.1 < float(liere.generators.max()) <= 2 * math.pi
    assert LieRE(16, num_heads=2, init_scale=0.5).generators.max().item() <= 0.5
    assert not LieRE(16, num_heads=2, init_scale=0.0).generators.any()


test_refusals = refusals(
    {
        "block": [lambda: LieRE(7, num_heads=2), lambda: LieRE(8, num_heads=2, block=16)],
        "num_kv_heads": [
            lambda: LieRE(8, num_heads=4, num_kv_heads=3),
            lambda: LieRE(8, num_heads=4).rotate(
                torch.zeros(1, 2, 3, 8), LieRE(8, num_heads=4).table(torch.rand(3, 2))
            ),
            lambda: LieRE(8, num_heads=4).rotate(
                torch.zeros(1, 8, 3, 8), LieRE(8, num_heads=4).table(torch.rand(3, 2))
            ),
        ],
        "params": [lambda: LieRE(8, num_heads=2).from_official(torch.zeros(2, 3, 8, 8))],
        "head_dim": [
            lambda: LieRE(8, num_heads=4).rotate(torch.zeros(1, 4, 3, 9), LieRE(8, num_heads=4).table(torch.rand(3, 2)))
        ],
        "positions": [lambda: LieRE(8, num_heads=4).table(torch.rand(3))],
    }
)
