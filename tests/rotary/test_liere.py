"""LieRE: the authors' rotations, which are relative only where generators commute; heads, blocks and tokens' places."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions import NOWHERE, grid, spaced, with_prefix
from posenc.rotary import LieRE
from tests.rotary.test_axes import golden, vision
from tests.samples import bounded, gap, qkv, refusals


def from_upper(upper, block):
    """Skew matrices ``(..., block, block)`` from their entries above the diagonal, row by row."""
    row, column = torch.triu_indices(block, block, 1)
    matrices = upper.new_zeros(*upper.shape[:-1], block, block)
    matrices[..., row, column], matrices[..., column, row] = upper, -upper
    return matrices


def rotations(liere, positions):
    """R ``(rows, tokens, blocks, b, b)`` in float64, by torch's own exponential."""
    full = from_upper(liere.generators.detach().double(), liere.block)  # (axes, rows, blocks, b, b)
    return torch.matrix_exp(torch.einsum("ta,ahkij->htkij", positions.double(), full).contiguous())


def rotated_blocks(x, matrices):
    """Blocks of x rotated by matrices ``(rows, tokens, blocks, b, b)``; the rest of a head as it is."""
    blocks, width = matrices.shape[2:4]
    matrices = matrices.repeat_interleave(x.shape[1] // len(matrices), 0)
    parts = x[..., : blocks * width].double().unflatten(-1, (blocks, width))
    return torch.cat([torch.einsum("htkij,bhtkj->bhtki", matrices, parts).flatten(-2), x[..., blocks * width :]], -1)


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


@pytest.mark.parametrize(("axes", "block"), [(2, 2), (3, 2), (1, 2), (1, 4), (1, 12), (1, 8)])
@bounded
@given(data=st.data(), whole=st.booleans())
def test_relative_in_blocks_of_2_and_along_one_axis(axes, block, data, whole):
    number = st.integers(-1000, 1000) if whole else st.integers(-1000, 1000).map(lambda n: n / 64)
    x, y = (torch.tensor(data.draw(st.tuples(*[number] * axes)), dtype=torch.float64) for _ in range(2))
    liere = LieRE(12, num_heads=4, axes=axes, block=block, num_kv_heads=2).double()
    of_x, of_y, between = (whole_rotation(liere, at) for at in (x, y, y - x))
    assert gap(of_x.mT @ of_y, between) < 2e-12
    assert gap(of_x.mT @ of_x, torch.eye(12, dtype=torch.float64).expand(4, -1, -1)) < 1e-12


@pytest.mark.parametrize("block", [4, 8, 64])
def test_not_relative_in_larger_blocks_over_two_axes(block):
    liere = LieRE(64, num_heads=1, block=block).double()
    x, y = torch.tensor([0.3, 0.9], dtype=torch.float64), torch.tensor([0.8, 0.1], dtype=torch.float64)
    of_x, of_y, between = (whole_rotation(liere, at) for at in (x, y, y - x))
    assert gap(of_x.mT @ of_y, between) > 0.1
    assert gap(of_x.mT @ of_x, torch.eye(64, dtype=torch.float64)[None]) < 1e-12


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("block", [2, 4, 6, 8, None])
@pytest.mark.parametrize(("num_kv_heads", "per_head"), [(4, True), (2, True), (2, False)])
def test_equal_to_exponentials_of_torch(axes, block, num_kv_heads, per_head):
    torch.manual_seed(0)
    liere = LieRE(16, num_heads=4, axes=axes, block=block, num_kv_heads=num_kv_heads, per_head=per_head)
    q, k, _ = qkv(
        batch=3, heads=4, num_kv_heads=num_kv_heads, queries=5, head_dim=16, dtype=torch.float64, transposed=True
    )
    positions = torch.rand(5, axes, dtype=torch.float64)
    exact = rotations(liere, positions)
    at = positions if axes > 1 else positions[:, 0]
    for got, x in zip(liere(q, k, at, at), (q, k), strict=True):
        assert gap(got, rotated_blocks(x, exact)) < 1e-12
    for got, x in zip(liere(q.float(), k.float(), at, at), (q, k), strict=True):
        assert got.dtype == torch.float32
        assert gap(got, rotated_blocks(x, exact)) < 1e-5
    rows = torch.stack([at, at.flip(0), at * 0.5])
    for got, x in zip(liere(q, k, rows, rows), (q, k), strict=True):
        for row in range(3):
            alone = rotations(liere, rows[row].view(5, axes))
            assert gap(got[row : row + 1], rotated_blocks(x[row : row + 1], alone)) < 1e-12


@pytest.mark.parametrize(("axes", "block"), [(2, 2), (2, 4), (2, 8), (2, 64), (1, 8)])
def test_float32_gradients(axes, block):
    torch.manual_seed(0)
    liere = LieRE(64, num_heads=2, axes=axes, block=block)
    positions, x, grad = torch.rand(9, axes), torch.randn(2, 2, 9, 64), torch.randn(2, 2, 9, 64)
    at = positions if axes > 1 else positions[:, 0]
    got = torch.autograd.grad(liere.rotate(x, liere.table(at)), liere.generators, grad)[0]
    exact = liere.generators.detach().double().requires_grad_()
    full = torch.einsum("ta,ahkij->htkij", positions.double(), from_upper(exact, block))
    expected = torch.autograd.grad(rotated_blocks(x, torch.matrix_exp(full.contiguous())), exact, grad.double())[0]
    assert gap(got, expected) < 3e-5 * float(expected.abs().max())


@pytest.mark.parametrize("options", [{}, {"block": 2}, {"block": 8}, {"block": 6}])
def test_tokens_without_a_place_stay_as_they_are(options):
    liere, x = LieRE(16, num_heads=2, **options), torch.randn(2, 2, 7, 16)
    positions = with_prefix(grid(1, 4), 3)
    assert int(positions[0, 0]) == NOWHERE
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        got = liere.rotate(x.to(dtype), liere.table(positions, like=x.to(dtype)))
        assert torch.equal(got[:, :, :3], x.to(dtype)[:, :, :3])
        assert gap(got[:, :, 4:], x.to(dtype)[:, :, 4:]) > 0.1


def test_a_remainder_of_the_head_is_not_rotated():
    liere, x = LieRE(20, num_heads=2, block=8), torch.randn(1, 2, 5, 20)
    got = liere.rotate(x, liere.table(torch.rand(5, 2)))
    assert torch.equal(got[..., 16:], x[..., 16:])
    assert gap(got[..., :16], x[..., :16]) > 0.1


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
