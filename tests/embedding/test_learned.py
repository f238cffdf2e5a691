"""Learned embedding: first values, scale, dropout, and longer tables interpolated from trained ones."""

from __future__ import annotations

import pytest
import torch

from posenc import Learned
from posenc.embedding import grow_table
from tests.samples import gap


def test_initial_table():
    torch.manual_seed(0)
    encoding = Learned(64, max_length=500, offset=2, padding_idx=1, init_std=0.1)
    assert encoding.table.shape == (502, 64)
    assert encoding.table[1].abs().max() == 0
    assert encoding.table.abs().max() <= 0.2
    assert 0.07 < encoding.table.std() < 0.1, "normal, cut at two standard deviations"


def test_scale_and_concat():
    encoding, x = Learned(4, max_length=8, scale=0.5, combine="concat"), torch.randn(2, 3, 5)
    out = encoding(x, torch.tensor([2, 0, 7]))
    assert out.shape == (2, 3, 9)
    assert torch.equal(out[..., :5], x)
    assert torch.equal(out[0, :, 5:], 0.5 * encoding.table[[2, 0, 7]])


def test_dropout_in_training_only():
    encoding = Learned(64, max_length=50, dropout=0.5, init_std=1.0)
    x, positions = torch.zeros(1, 50, 64), torch.arange(50)
    assert 0.3 < (encoding.train()(x, positions) == 0).float().mean() < 0.7
    assert torch.equal(encoding.eval()(x, positions)[0], encoding.table)


class TestGrowing:
    def test_interpolation_keeps_both_ends_and_the_order_between(self):
        encoding = Learned(4, max_length=5)
        with torch.no_grad():
            encoding.table.copy_(torch.arange(5.0)[:, None] * torch.tensor([1.0, -2.0, 0.5, 3.0]))
        grown = grow_table(encoding, 9)
        assert torch.equal(grown.table[0], encoding.table[0])
        assert torch.equal(grown.table[-1], encoding.table[-1])
        assert gap(grown.table[::2], encoding.table) < 1e-6, "every second row is an old one"
        assert gap(grown.table[1::2], (encoding.table[1:] + encoding.table[:-1]) / 2) < 1e-6

    @pytest.mark.parametrize("mode", ["interpolate", "tile"])
    def test_same_length_is_a_copy_and_the_old_one_stays(self, mode):
        encoding = Learned(4, max_length=5, offset=2, padding_idx=1, scale=0.5, layer_norm=1e-5, dropout=0.25).eval()
        before = encoding.table.clone()
        grown = grow_table(encoding, 5, mode=mode)
        assert torch.equal(grown.table, before)
        assert grown.table.data_ptr() != encoding.table.data_ptr()
        grow_table(encoding, 50, mode=mode).table.data.zero_()
        assert torch.equal(encoding.table, before)
        assert (grown.offset, grown.padding_idx, grown.scale, grown.dropout.p) == (2, 1, 0.5, 0.25)
        assert not grown.training

    def test_rows_before_position_zero_are_kept(self):
        encoding = Learned(4, max_length=5, offset=2, padding_idx=1)
        grown = grow_table(encoding, 11)
        assert torch.equal(grown.table[:2], encoding.table[:2])
        assert torch.equal(grown.encode(torch.tensor([0, 10])), encoding.encode(torch.tensor([0, 4])))

    def test_a_norm_comes_along(self):
        encoding = Learned(4, max_length=5, layer_norm=1e-5)
        torch.nn.init.normal_(encoding.norm.weight)
        assert torch.equal(grow_table(encoding, 6).norm.weight, encoding.norm.weight)

    def test_double_tables_keep_their_digits(self):
        encoding = Learned(4, max_length=5).double()
        torch.nn.init.normal_(encoding.table)
        assert torch.equal(grow_table(encoding, 9).table[[0, -1]], encoding.table[[0, -1]])

    def test_a_frozen_table_stays_frozen(self):
        assert not grow_table(Learned(4, max_length=5).requires_grad_(False), 9).table.requires_grad


def test_a_padding_row_among_the_rows_stays_zero():
    assert not grow_table(Learned(4, max_length=5, padding_idx=2), 9).table[2].any()
