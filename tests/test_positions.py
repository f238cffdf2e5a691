"""Builders of positions and segments: their promises over all the shapes that batches take."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import positions
from tests.samples import bounded

lengths = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@bounded
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4))
def test_from_mask_counts_real_tokens(rows):
    mask = torch.tensor(rows)
    counted = positions.from_mask(mask)
    for row, got in zip(rows, counted.tolist(), strict=True):
        real = [p for p, here in zip(got, row, strict=True) if here]
        assert real == list(range(len(real)))
        assert all(0 <= p < max(1, len(real)) for p in got), "padding stays within the range of real positions"
    assert torch.equal(counted, positions.from_mask(mask.long())), "ones and zeros are a mask too"


@bounded
@given(lengths, st.integers(0, 4))
def test_packed_documents_restart_at_zero(sizes, rest):
    cu_seqlens = torch.tensor([0, *sizes]).cumsum(0)
    total = sum(sizes) + rest
    segments = positions.segments_from_cu_seqlens(cu_seqlens, total)
    parts = [*sizes, rest] if rest else sizes
    assert segments.tolist() == [number for number, size in enumerate(parts) for _ in range(size)]
    assert positions.from_segments(segments).tolist() == [p for size in parts for p in range(size)]
    assert torch.equal(positions.from_cu_seqlens(cu_seqlens.int(), total), positions.from_segments(segments))


def test_segments_need_not_be_ordered_nor_equal_over_the_batch():
    segments = torch.tensor([[7, 7, 2, 2, 7], [0, 1, 1, 1, 1]])
    assert positions.from_segments(segments).tolist() == [[0, 1, 0, 1, 0], [0, 0, 1, 2, 3]]


def test_empty_documents_are_skipped():
    assert positions.from_cu_seqlens(torch.tensor([0, 2, 2, 3])).tolist() == [0, 1, 0]


@bounded
@given(st.integers(1, 6), st.integers(1, 5))
def test_zigzag_is_a_balanced_partition(world, chunk):
    length = 2 * world * chunk
    shards = [positions.zigzag(length, rank, world) for rank in range(world)]
    assert sorted(torch.cat(shards).tolist()) == list(range(length))
    work = {int((shard + 1).sum()) for shard in shards}  # causal work: keys that the rank's queries see
    assert len(work) == 1


def test_grid_runs_row_by_row():
    coordinates = positions.grid(2, 3, 4)
    assert coordinates.shape == (24, 3)
    flat = coordinates @ torch.tensor([12, 4, 1])
    assert torch.equal(flat, torch.arange(24))


def test_after_counts_on():
    assert positions.after(5).tolist() == [5]
    assert positions.after(5, 3).tolist() == [5, 6, 7]
    assert positions.after(torch.tensor([2, 0], dtype=torch.int32), 2).tolist() == [[2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: positions.from_mask(torch.ones(4)), "mask must be (batch, tokens)"),
        (lambda: positions.from_segments(torch.zeros(1, 2, 3)), "segments must be"),
        (lambda: positions.segments_from_cu_seqlens(torch.tensor([1, 3])), "cu_seqlens must start at 0"),
        (lambda: positions.segments_from_cu_seqlens(torch.tensor([0, 3, 2])), "never fall"),
        (lambda: positions.segments_from_cu_seqlens(torch.tensor([0.0, 3.0])), "cu_seqlens must be integers"),
        (lambda: positions.segments_from_cu_seqlens(torch.tensor([0])), "cu_seqlens must be integers"),
        (lambda: positions.from_cu_seqlens(torch.tensor([0, 3]), total=2), "total must be at least"),
        (lambda: positions.after(-1), "past must not be negative"),
        (lambda: positions.after(1, 0), "tokens must be at least 1"),
        (lambda: positions.after(torch.tensor([1.0])), "past must be an int or integers"),
        (lambda: positions.zigzag(12, 2, 2), "rank must be in"),
        (lambda: positions.zigzag(10, 0, 2), "length must be a multiple of 2 * world = 4"),
        (lambda: positions.grid(), "sizes must be positive"),
        (lambda: positions.grid(2, 0), "sizes must be positive"),
        (lambda: positions.check("here", torch.arange(3), 4, 1), "here must be (tokens,) or (batch, tokens)"),
        (lambda: positions.check("here", torch.zeros(3, 4).long(), 4, 2), "for 4 tokens and batch 2"),
        (lambda: positions.check("here", torch.zeros(4, 3).long(), 4, 1, axes=2), "(tokens, 2) or (batch, tokens, 2)"),
        (lambda: positions.check_dtype("here", torch.zeros(2).half()), "here must be integers (exact)"),
        (lambda: positions.check_dtype("here", torch.zeros(2).bool()), "positions.long()"),
    ],
)
def test_refusals_name_the_argument(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
