"""Positions of a text: their promises over all the shapes that batches take."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import ALiBi, RoPE, T5Bias, attention, positions
from posenc.bias import FIRE
from posenc.call import prepare_call
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
    assert not by_index(encodings, where, documents)


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
