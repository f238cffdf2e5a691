"""BEiT's table: windows that are no squares, its geometric rule, and tokens without a place."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from posenc.bias import BEiTBias
from posenc.positions import NO_POSITION, grid
from tests.samples import gap

CLASS = torch.tensor([[NO_POSITION, 0]])


def of(table, window):
    beit = BEiTBias(table.shape[1], window=window).double()
    beit.load_state_dict({"table": table})
    return beit


def test_windows_that_are_no_squares():
    beit = of(torch.randn(5 * 9 + 3, 2).double(), (3, 5))
    table = beit.table[:-3].T.view(1, 2, 5, 9)
    expected = F.interpolate(table, size=(7, 11), mode="bilinear").flatten(2)[0].T
    resized = beit.resized((4, 6), mode="bilinear")
    assert gap(resized.table, torch.cat([expected, beit.table[-3:]])) < 1e-12
    assert gap(beit.resized((3, 5)).table, beit.table) == 0


def test_the_geometric_rule_keeps_what_is_near():
    beit = of(torch.randn(9 * 9 + 3, 2).double(), (5, 5))
    larger, smaller = beit.resized((9, 9)), beit.resized((3, 3))
    near = grid(2, 2)
    for resized in (larger, smaller):
        assert gap(resized(near, near), beit(near, near)) < 1e-9
    corner = torch.tensor([[8, 8]])
    assert gap(larger(corner, corner - 8), beit(corner, corner - 4)) < 1e-9, "the edge goes to the edge"
    past = BEiTBias(1, window=(1, 2)).resized((1, 9))
    assert past.table.shape == (17 + 3, 1), "a factor above 1.5 would be wanted: the edge's number goes on"


def test_tokens_without_a_place_have_rows_of_their_own():
    beit = of(torch.randn(52, 2).double(), (4, 4))
    from_it, to_it, between = beit.table[-3:]
    image = torch.cat([CLASS, grid(4, 4), torch.tensor([[NO_POSITION, 1]])])
    for places in (image, image.double(), image[torch.arange(18) * 5 % 18]):
        bias, lost = beit(places, places), places[:, 0] == NO_POSITION
        assert gap(bias[:, lost][:, :, ~lost], from_it[:, None, None].expand(2, 2, 16)) == 0
        assert gap(bias[:, ~lost][:, :, lost], to_it[:, None, None].expand(2, 16, 2)) == 0
        assert gap(bias[:, lost][:, :, lost], between[:, None, None].expand(2, 2, 2)) == 0
