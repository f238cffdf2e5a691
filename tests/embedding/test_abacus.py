"""Abacus: equal digits share a row; shifts, and first values."""

from __future__ import annotations

import torch

from posenc import positions
from posenc.embedding.abacus import Abacus


def test_digits_of_equal_value_share_a_row():
    text = "  73+441=415"  # 37 + 144 = 514, written from the right
    tokens = torch.tensor([list(text.encode())])
    rows = Abacus(4, max_length=5).encode(positions.abacus(tokens, list(b"0123456789")))[0]
    ones, tens, hundreds = ([2, 5, 9], [3, 6, 10], [7, 11])
    for equal in (ones, tens, hundreds, [0, 1, 4, 8]):
        assert torch.equal(rows[equal], rows[equal[:1]].expand(len(equal), -1))
    assert len(rows.unique(dim=0)) == 4


def test_a_shift_trains_later_rows_and_leaves_other_tokens_alone():
    encoding, tokens = Abacus(3, max_length=12), torch.tensor([[1, 1, 0, 1]])
    encoding.encode(positions.abacus(tokens, [1], shift=9)).sum().backward()
    assert encoding.table.grad[:, 0].nonzero().flatten().tolist() == [0, 10, 11]


def test_rows_of_other_tokens_are_learned_too():
    encoding = Abacus(3, max_length=4)
    assert encoding.table[0].any(), "the authors look row 0 up; it is not padding"
    encoding.encode(torch.tensor([0])).sum().backward()
    assert encoding.table.grad[0].all()


def test_initial_table():
    torch.manual_seed(0)
    assert Abacus(8).table.shape == (1024, 8)
    for std in (1.0, 0.25):
        table = Abacus(64, max_length=500, init_std=std).table
        assert abs(table.std() / std - 1) < 0.02
        assert table.abs().max() > 3 * std, "not truncated"
