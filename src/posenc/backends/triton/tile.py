"""What kernels share: loads and stores of rows, visible keys of a tile, and which tiles hold any."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_tile(start, first, limit, step, ROWS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr):
    """Rows first … first + ROWS − 1 of a matrix of width D, zeros beyond its edges; rows before its start are zeros."""
    rows, columns = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = ((rows >= 0) & (rows < limit))[:, None]
    if D != WIDTH:
        inside &= (columns < D)[None, :]
    return tl.load(start + rows.to(tl.int64)[:, None] * step + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(start, values, first, limit, step, width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The opposite of `load_tile`."""
    rows, columns = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (rows < limit)[:, None] & (columns < width)[None, :]
    to = start + rows.to(tl.int64)[:, None] * step + columns[None, :]
    tl.store(to, values.to(start.dtype.element_ty), mask=inside)


@triton.jit
def add_rows(
    start, values, first, limit, step, width: tl.constexpr, MORE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Store rows that no other program touches; with MORE add to them."""
    if MORE:
        values += load_tile(start, first, limit, step, ROWS, width, WIDTH)
    store_rows(start, values, first, limit, step, width, ROWS, WIDTH)


@triton.jit
def product(left, right, EXACT: tl.constexpr):
    """A matrix product in float32; EXACT: of three products of shortened floats, which keep the digits of float32."""
    if EXACT:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="tf32x3")
    return tl.dot(left, right)


@triton.jit
def sees(i, j, of_i, of_j, queries, keys, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr):
    """Whether queries i attend to keys j; ``of_i`` and ``of_j`` are their documents. Of shapes that broadcast."""
    n = (keys - queries) + i - j
    seen = (i < queries) & (j < keys) & (j >= 0)
    if CAUSAL:
        seen &= n >= 0
    if WINDOW:
        seen &= (n < window) & (n > -window)
    if IDS:
        seen &= of_i == of_j
    return seen


@triton.jit
def is_visible(
    i, j, q_ids, k_ids, queries, keys, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, CURRENT: tl.constexpr = True,
):  # fmt: skip
    """Whether queries i attend to keys j, alike, whose documents are loaded; to their own keys only with CURRENT."""
    of_i, of_j = i, j
    if IDS:
        of_i = tl.load(q_ids + i, mask=i < queries, other=0)
        of_j = tl.load(k_ids + j, mask=(j >= 0) & (j < keys), other=0)
    seen = sees(i, j, of_i, of_j, queries, keys, window, CAUSAL, WINDOW, IDS)
    if not CURRENT:
        seen &= i + (keys - queries) != j
    return seen


@triton.jit
def key_ranges(
    first, queries, keys, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Blocks of keys for queries first …: masked from the first number on, plain from the second, then masked again."""
    own = first + (keys - queries)
    last_own = tl.minimum(first + BM, queries) - 1 + (keys - queries)
    low, high = own * 0, own * 0 + keys
    if WINDOW:
        low = tl.maximum(low, own - window + 1)
        high = tl.minimum(high, last_own + window)
    if CAUSAL:
        high = tl.minimum(high, last_own + 1)
    high = tl.maximum(high, low)
    first_block, end_block = low // BN, (high + BN - 1) // BN
    full_low, full_high = first_block, keys // BN
    if CAUSAL:
        full_high = tl.minimum(full_high, tl.maximum(own + 1, 0) // BN)
    if WINDOW:
        full_low = (tl.maximum(last_own - window + 1, 0) + BN - 1) // BN
        if not CAUSAL:
            full_high = tl.minimum(full_high, tl.maximum(own + window, 0) // BN)
    if IDS:
        full_low = end_block
    full_low = tl.minimum(tl.maximum(full_low, first_block), end_block)
    full_high = tl.minimum(tl.maximum(full_high, full_low), end_block)
    return first_block, full_low, full_high, end_block


@triton.jit
def query_ranges(
    first_key, queries, keys, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """The same of blocks of queries for keys first_key …."""
    ahead = queries - keys
    last_key = tl.minimum(first_key + BN, keys) - 1
    low, high = first_key * 0, first_key * 0 + queries
    if CAUSAL:
        low = tl.maximum(low, first_key + ahead)
    if WINDOW:
        low = tl.maximum(low, first_key + ahead - window + 1)
        high = tl.minimum(high, last_key + ahead + window)
    high = tl.maximum(high, low)
    first_block, end_block = low // BM, (high + BM - 1) // BM
    full_low, full_high = first_block, queries // BM
    if CAUSAL:
        full_low = (tl.maximum(last_key + ahead, 0) + BM - 1) // BM
    if WINDOW:
        full_high = tl.minimum(full_high, tl.maximum(first_key + ahead + window, 0) // BM)
        if not CAUSAL:
            full_low = tl.maximum(full_low, (tl.maximum(last_key + ahead - window + 1, 0) + BM - 1) // BM)
    full_low = tl.where(first_key + BN > keys, end_block, full_low)  # ragged keys are masked everywhere
    if IDS:
        full_low = end_block
    full_low = tl.minimum(tl.maximum(full_low, first_block), end_block)
    full_high = tl.minimum(tl.maximum(full_high, full_low), end_block)
    return first_block, full_low, full_high, end_block
