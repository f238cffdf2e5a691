"""Counts of gates: CoPE in all its forms, however far or near its counting comes to an end."""

from __future__ import annotations

import pytest
import torch

from posenc import CoPE, attention
from tests.backends.tiled.compare import (
    HEAD_DIM,
    SITUATIONS,
    Products,
    called,
    differentiated,
    errors,
    expect_dense,
    expect_same,
)
from tests.samples import gap, mostly_slow, qkv

LISTS = (
    "cope",
    "cope scaled",
    "cope separate",
    "cope relative",
    "rope+cope",
    "rope+cope rotated",
    "cope+alibi+sticks",
    "everything",
)


@pytest.mark.parametrize("situation", mostly_slow(SITUATIONS, "window", "packed"))
@pytest.mark.parametrize("name", ["two copes", "two copes+sticks"])
def test_two_counts_under_what_hides_keys(name, situation):
    expect_dense(name, 70)
    expect_dense(name, 70, 80, **SITUATIONS[situation](70, 80))
    expect_dense(name, 3, 80)


@pytest.mark.parametrize("name", LISTS)
def test_float32_against_float64(name):
    result = errors(name, torch.float32)
    result.pop("1 FIRE.outer.bias", None)  # zero, as every key of a row gains the same
    assert max(result.values()) < 3e-4, result


@pytest.mark.parametrize("name", [name for name in LISTS if name not in ("cope separate", "everything")])
def test_bfloat16_against_float64(name):
    result = errors(name, torch.bfloat16)
    assert max(result.values()) < 3e-2, result


def cope(max_position: int, **options) -> CoPE:
    encoding = CoPE(HEAD_DIM, max_position=max_position, **options).double()
    with torch.no_grad():
        encoding.table.normal_(generator=torch.Generator().manual_seed(0))
    return encoding


@pytest.mark.parametrize("situation", ["", "mask of all"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("max_position", "size"), [(1, 3.0), (2, 0.1), (299, 1.0), (5000, 1.0), (40, 0.0)])
def test_counts_that_end_at_once_or_never(max_position, size, scaled, situation):
    """One open gate is the end; or the table is longer than the text; or all gates are one half."""
    tensors = called(300, batch=1)
    tensors[0] = tensors[0] * size
    options = SITUATIONS[situation](300, 300) if situation else {}
    encodings = [cope(max_position, scaled=scaled)]
    got, expected = (differentiated(encodings, tensors, backend=backend, **options) for backend in ("tiled", "dense"))
    expect_same(got, expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_gates_that_are_all_open_or_all_shut(sign):
    """Counts are whole numbers then, between which z has no slope; or zero."""
    q, k, v = qkv(1, 2, 130, head_dim=HEAD_DIM, dtype=torch.float64)
    q, k = q.abs() * 50, sign * k.abs() * 50
    encodings = [cope(30)]
    tensors = [q, k, v, torch.zeros(1, 130, 1, dtype=torch.float64)]
    got, expected = (differentiated(encodings, tensors, backend=backend, scale=1.0) for backend in ("tiled", "dense"))
    assert gap(got["result"], expected["result"]) < 1e-10
    assert all(t.isfinite().all() for t in got.values())


@pytest.mark.parametrize("length", [700])
def test_keys_behind_the_last_position_need_no_gates(length):
    """With gates of their own, products for gates are made for near keys alone."""
    tensors = called(length, batch=1)
    seen = {}
    for last in (20, length):
        encodings = [cope(last, gates="values")]
        values = tensors[1].clone()
        with torch.no_grad(), Products() as products:
            out = attention(*tensors[:2], values, encodings, backend="tiled")
        assert gap(out, attention(*tensors[:2], values, encodings, backend="dense")) < 1e-10
        seen[last] = products.elements
    assert seen[20] < seen[length]
