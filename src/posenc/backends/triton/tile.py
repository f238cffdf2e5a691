"""What kernels share: loads and stores of rows, visible keys of a tile, and which tiles hold any."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(start, first, limit, step, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Rows first … first + ROWS − 1 of a matrix whose rows are ``step`` numbers apart, zeros beyond its edges."""
    rows, columns = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (rows < limit)[:, None] & (columns < width)[None, :]
    return tl.load(start + rows.to(tl.int64)[:, None] * step + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(start, values, first, limit, step, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The opposite of `load_rows`."""
    rows, columns = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (rows < limit)[:, None] & (columns < width)[None, :]
    to = start + rows.to(tl.int64)[:, None] * step + columns[None, :]
    tl.store(to, values.to(start.dtype.element_ty), mask=inside)


@triton.jit
def add_rows(start, values, first, limit, step, width, MORE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Store rows that no other program touches; with MORE add to them."""
    if MORE:
        values += load_rows(start, first, limit, step, width, ROWS, WIDTH)
    store_rows(start, values, first, limit, step, width, ROWS, WIDTH)


@triton.jit
def product(left, right, EXACT: tl.constexpr):
    """A matrix product in float32; EXACT: of three products of shortened floats, which keep the digits of float32."""
    if EXACT:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="tf32x3")
    return tl.dot(left, right)


@triton.jit
def is_visible(
    rows, columns, q_ids, k_ids, queries, keys, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, CURRENT: tl.constexpr,
):  # fmt: skip
    """Whether queries ``rows`` attend to keys ``columns``: order, window, documents; own keys only with CURRENT."""
    apart = (rows + (keys - queries))[:, None] - columns[None, :]
    visible = (rows < queries)[:, None] & (columns < keys)[None, :]
    if CAUSAL:
        visible &= apart >= 0
    if WINDOW:
        visible &= (apart < window) & (apart > -window)
    if IDS:
        row_ids = tl.load(q_ids + rows, mask=rows < queries, other=0)
        column_ids = tl.load(k_ids + columns, mask=columns < keys, other=0)
        visible &= row_ids[:, None] == column_ids[None, :]
    if not CURRENT:
        visible &= apart != 0
    return visible


@triton.jit
def key_blocks(
    first, queries, keys, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Blocks of keys, from … to − 1, of which queries first … first + ROWS − 1 may attend to any."""
    own_key = first + (keys - queries)  # of the first query
    low, high = own_key * 0, own_key * 0 + keys
    if WINDOW:
        low = tl.maximum(low, own_key - window + 1)
        high = tl.minimum(high, own_key + ROWS - 1 + window)
    if CAUSAL:
        high = tl.minimum(high, own_key + ROWS)
    high = tl.maximum(high, 0)
    return low // COLUMNS, (high + COLUMNS - 1) // COLUMNS


@triton.jit
def query_range(
    first, start, stop, queries, keys, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Of queries start … stop − 1 the blocks from ``start`` that may attend to keys first … first + COLUMNS."""
    aligned = first + (queries - keys)  # the query whose own key is the first
    low, high = aligned * 0 + start, aligned * 0 + stop
    if CAUSAL:
        low = tl.maximum(low, aligned)
    if WINDOW:
        low = tl.maximum(low, aligned - window + 1)
        high = tl.minimum(high, aligned + COLUMNS - 1 + window)
    return start + (low - start) // ROWS * ROWS, high
