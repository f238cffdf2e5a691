"""Positions of a text: counted, packed, padded, skipped, perturbed; what they promise over all shapes of batches."""

from __future__ import annotations

import copy

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import ALiBi, RoPE, T5Bias, attention, positions
from posenc.bias import FIRE
from posenc.call import prepare_call
from posenc.positions import Image, Video, checking, grid, packed, padded, skipped
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


@pytest.mark.parametrize("encodings", [[ALiBi(4)], [RoPE(16), T5Bias(4)]])
def test_distances_in_packed_documents_are_those_of_indices(encodings):
    cu_seqlens = torch.tensor([0, 20, 20, 51, 83])
    documents, where = positions.segments_from_cu_seqlens(cu_seqlens), positions.from_cu_seqlens(cu_seqlens)
    q, k, v = torch.randn(3, 1, 4, 83, 16)

    def by_index(encodings, where, documents, **options):
        return prepare_call(q, k, v, encodings, q_pos=where, segments=documents, **options).aligned

    for at in (where, positions.from_segments(documents[None])):
        assert by_index(encodings, at, documents)
        got = attention(q, k, v, encodings, q_pos=at, segments=documents)
        right = attention(q, k, v, encodings, q_pos=where.clone(), segments=documents, backend="dense")
        assert torch.allclose(got, right, atol=1e-5)
    assert not by_index([FIRE(4)], where, documents), "which reads the position of the query as well"
    assert not by_index(encodings, where, documents, causal="positions")
    others = positions.segments_from_cu_seqlens(torch.tensor([0, 20, 52, 83]))
    apart = torch.tensor([0] * 20 + [1] * 31 + [0] * 32)  # one document that begins again
    for segments in (others, documents.clone(), apart):
        assert not by_index(encodings, where, segments)
    assert not by_index(encodings, positions.from_segments(apart), apart)
    assert not prepare_call(q, k, v, encodings, q_pos=where, k_pos=where + 1, segments=documents).aligned
    where[:5] += 1
    for written in (where, copy.deepcopy(where)):
        assert not by_index(encodings, written, documents)


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


def test_after_counts_on():
    assert positions.after(5).tolist() == [5]
    assert positions.after(5, 3).tolist() == [5, 6, 7]
    assert positions.after(torch.tensor([2, 0], dtype=torch.int32), 2).tolist() == [[2, 3], [0, 1]]


@bounded
@given(st.lists(st.lists(st.integers(0, 4), min_size=8, max_size=8), min_size=1, max_size=4), st.integers(0, 99))
def test_abacus_counts_along_runs_of_digits(rows, shift):
    digits = {1, 3}
    expected = []
    for row in rows:
        run, ids = 0, []
        for token in row:
            run = run + 1 if token in digits else 0
            ids.append(run + shift if run else 0)
        expected.append(ids)
    assert positions.abacus(torch.tensor(rows), digits, shift=shift).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_abacus_in_any_integer_dtype(dtype):
    tokens = torch.tensor([48, 48, 2, 48], dtype=dtype)
    assert positions.abacus(tokens, [48]).tolist() == [1, 2, 0, 1]
    assert positions.abacus(tokens, [48 + 256]).tolist() == [0, 0, 0, 0], "no token id wraps around"
    assert positions.abacus(tokens, [48], shift=300).dtype == torch.int64


def test_abacus_compiles():
    compiled = torch.compile(positions.abacus, fullgraph=True, backend="eager", dynamic=True)
    for tokens in (torch.tensor([1, 1, 0]), torch.tensor([0, 1, 1, 1, 0, 1])):
        digits = torch.tensor([1])
        assert torch.equal(compiled(tokens, digits), positions.abacus(tokens, digits))


# Rows of different contents, padded into a batch or packed into a row.


several = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@bounded
@given(several, st.sampled_from(["left", "right"]), st.booleans())
def test_padded_rows_come_back(sizes, side, coordinates):
    rows = [grid(n, 2)[:n] + 3 if coordinates and n else torch.zeros(n, *[2] * coordinates).long() for n in sizes]
    filled, mask = padded(rows, side=side)
    assert filled.shape[:2] == mask.shape == (len(rows), max(sizes))
    assert not filled[~mask].any(), "padding is at 0"
    for row, got, here in zip(rows, filled, mask, strict=True):
        assert torch.equal(got[here], row)
        padding = here if side == "left" else here.flip(0)
        assert torch.equal(padding, padding.sort().values), f"padding lies on the {side}"


@bounded
@given(several)
def test_packed_documents(sizes):
    documents = [torch.arange(n) for n in sizes]
    row, segments = packed(documents)
    assert row.tolist() == [p for n in sizes for p in range(n)]
    assert segments.tolist() == [i for i, n in enumerate(sizes) for _ in range(n)]


def test_packed_grids():
    row, segments = packed([grid(2, 3), grid(1, 2)])
    assert row.tolist() == [*grid(2, 3).tolist(), [0, 0], [0, 1]]
    assert segments.tolist() == [0] * 6 + [1] * 2


def test_rows_of_two_dtypes_keep_their_positions():
    counted, measured = torch.arange(3), torch.tensor([0.5, 1.5])
    assert padded([counted, measured])[0].tolist() == [[0.0, 1.0, 2.0], [0.0, 0.5, 1.5]]
    assert packed([counted.int(), counted + 2**40])[0].tolist() == [0, 1, 2, 2**40, 2**40 + 1, 2**40 + 2]


# Builders of positions: counts of any kind, and sizes that stay open where they are traced.


def test_counts_of_numpy_and_of_tensors():
    three, pair = numpy.int64(3), torch.tensor([2, 3])
    assert torch.equal(grid(*pair), grid(2, 3))
    assert torch.equal(grid(three, numpy.int32(2)), grid(3, 2))
    assert torch.equal(positions.after(three, three), torch.arange(3, 6))
    assert torch.equal(positions.centred(grid(2, 3), pair), positions.centred(grid(2, 3), (2, 3)))
    assert torch.equal(
        positions.cropped(grid(2, 3), pair, numpy.float32(0.5)), positions.cropped(grid(2, 3), (2, 3), 0.5)
    )
    assert torch.equal(positions.seconds(three, torch.tensor(2.0)), positions.seconds(3, 2.0))
    parts = [Image(*pair), Video(three, 1, 1, torch.tensor(0.5), between=numpy.array([1, 2]))]
    expected = positions.stream([Image(2, 3), Video(3, 1, 1, 0.5, between=(1, 2))], family="qwen3-vl")
    assert torch.equal(positions.stream(parts, family="qwen3-vl"), expected)


class Builds(torch.nn.Module):
    """What a model may build of the sizes of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = positions.after(0, x.shape[1])
        checking.check("here", here, x.shape[1], x.shape[0])
        there = checking.wide(positions.from_mask(x[..., 0] > 0))
        lost = checking.has_no_position(positions.on_all_axes(there, 2), axes=2)
        return x + (here + checking.span(there) + lost)[..., None]


def test_sizes_stay_open_where_they_are_traced():
    tokens, x = torch.export.Dim("tokens"), torch.randn(2, 9, 3)
    exported = torch.export.export(Builds(), (x,), dynamic_shapes=({1: tokens},)).module()
    compiled = torch.compile(Builds(), fullgraph=True, backend="eager", dynamic=True)
    for result in (exported, compiled):
        for length in (9, 13):
            x = torch.randn(2, length, 3)
            assert torch.equal(result(x), Builds()(x))


# PoSE's positions: draws reach all their bounds; one row and a generator.


def test_draws_reach_all_their_bounds() -> None:
    result = skipped(4, 6, text_length=5, batch=400, generator=torch.Generator().manual_seed(0))
    gaps = result.positions.diff(dim=-1)
    assert {tuple(row) for row in gaps.tolist()} == {
        (1, 1, 1),
        *((g, 1, 1) for g in (2, 3)),
        *((1, g, 1) for g in (2, 3)),
    }
    assert (result.positions[:, 0] == 0).all()
    assert set(result.tokens[:, -1].tolist()) == {3, 4}


def test_one_row_and_a_generator() -> None:
    first, second = (skipped(16, 64, text_length=80, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.positions.shape == first.tokens.shape == (16,)
    assert torch.equal(first.positions, second.positions)
    with pytest.raises(ValueError, match="tokens"):
        skipped(9, 8)
    with pytest.raises(ValueError, match="text_length"):
        skipped(4, 8, text_length=3)


# The mark of tokens without a place, in every dtype.


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64], ids=str)
def test_the_mark_is_exact(dtype):
    marked = torch.tensor([[positions.NO_POSITION, 0], [positions.NO_POSITION + 200, 0], [0, 0]]).to(dtype)
    assert marked[0, 0].item() == positions.NO_POSITION
    assert checking.has_no_position(marked, axes=2).tolist() == [True, False, False]
    assert checking.has_no_position(marked[:, 0], axes=1).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_no_small_integer_is_the_mark(dtype):
    """−2^31, cast to one of these, is 0."""
    assert not checking.has_no_position(torch.zeros(3, 2, dtype=dtype), axes=2).any()
    assert not checking.has_no_position(torch.zeros(3, dtype=dtype), axes=1).any()
