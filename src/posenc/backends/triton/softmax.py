"""Softmax attention with terms of its own in the logits, on a GPU: the operator around the kernels.

Memory for the results, the copies of a row by distance, and two numbers a query; nothing of the size length × length.
Every launch is one of a fixed number, none waits for the device, and results are the same in every run.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.backends.triton import launch, softmax_kernels, term_kernels
from posenc.backends.triton.launch import KernelVisibility, Terms
from posenc.backends.triton.terms import ENTRIES, gate_sums, network_tables, row_copies, segments
from posenc.dropout import Dropout
from posenc.operators import operator_with_backward

CHUNK = 16  # blocks of queries of one diagonal that a program of the row's gradient sums up
_LOG2_E = math.log2(math.e)


def attend_softmax(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms,
    scale: float,
    visibility: KernelVisibility,
    softcap: float | None = None,
    dropout: Dropout | None = None,
    seen: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor:
    """Softmax attention, ``(batch, heads, queries, value_dim)`` in the dtype of q; zeros where nothing is visible.

    Args:
        q, k, v: as in `attention`, of one dtype, float32 or less, and at most `launch.WIDEST_SOFTMAX` wide.
        terms: what is added to the logits.
        scale: of the products of q and k.
        visibility: which keys each query attends to.
        softcap: what scale · q·k is capped to, before the terms.
        dropout: which weights are dropped, with its seed; p below 1.
        seen, documents: bool and int64 ``(batch | 1, keys)``, which keys' gates count, and in which of several sums.
    """
    q, k, v = (launch.row_contiguous(x) for x in (q, k, v))
    row = terms.row
    # The gradient of a sum is a difference, of sums of dS over its row and over its column, and stands as the two parts
    # of the gradient of the pair: `gate_sums` subtracts them in float64.
    sums = None if terms.gates is None else gate_sums(terms.gates, (q.shape[0], q.shape[1]), seen, documents)
    tables = None if terms.network is None else network_tables(terms.network)
    wants_row = row is not None and row.requires_grad and torch.is_grad_enabled()
    seed, p, first = (None, 0.0, 0) if dropout is None else (dropout.seed, dropout.p, dropout.first)
    out: Tensor = _operator(
        q, k, v, row, sums, tables, terms.sink, terms.entries, terms.slopes, visibility.q_ids, visibility.k_ids, seed,
        scale, visibility.causal, visibility.window, softcap or 0.0, p, first, wants_row,
    )[0]  # fmt: skip
    return out


class _Operands(NamedTuple):
    """A call in the order of the operator."""

    q: Tensor
    k: Tensor
    v: Tensor
    row: Tensor | None
    sums: Tensor | None
    tables: Tensor | None
    sink: Tensor | None
    entries: Tensor | None
    slopes: Tensor | None
    q_ids: Tensor | None
    k_ids: Tensor | None
    seed: Tensor | None
    scale: float
    causal: bool
    window: int
    softcap: float
    dropped: float
    first_query: int
    wants_row: bool

    def constants(self) -> dict[str, Any]:
        """What kernels are compiled for, tiles aside."""
        return {
            "CAUSAL": self.causal, "WINDOW": self.window > 0, "IDS": self.q_ids is not None,
            "ROW": self.row is not None, "SLOPES": self.slopes is not None, "GATES": self.sums is not None,
            "SEGMENTS": segments(self.tables), "CAP": self.softcap > 0, "DROP": self.dropped > 0,
            "SINK": self.sink is not None,
            "EXACT": launch.exact(self.q), "D": self.q.shape[3], "WIDTH": launch.padded(self.q.shape[3]),
            "DV": self.v.shape[3], "VALUES": launch.padded(self.v.shape[3]),
        }  # fmt: skip

    def pointers(self, copies: Tensor | None) -> tuple[Tensor, ...]:
        """Tensors in the order of kernels; others instead of those that are not there."""
        rest = copies, self.slopes, self.sums, self.tables, self.sink, self.q_ids, self.k_ids, self.seed
        return self.q, self.k, self.v, *(self.q if x is None else x for x in rest)

    def numbers(self) -> tuple[float | int, ...]:
        """Plain numbers of kernels, in their order."""
        least = min(round(self.dropped * 2**32), 2**32 - 1) - 2**31
        factor = 1 / (1 - self.dropped)
        return self.scale, self.softcap * _LOG2_E, least, factor, self.first_query

    def strides(self, copies: Tensor | None) -> tuple[int, ...]:
        """Numbers between rows of the batch, heads and tokens; of copies; sums; between documents."""
        plane = 0 if self.sums is None else self.sums.stride(0)
        length = 0 if copies is None else copies.shape[-1]
        of_head = 0 if copies is None or copies.shape[0] == 1 else copies.stride(0)
        *of_tensors, ids_q, ids_k = launch.strides((self.q, self.k, self.v), self.q_ids, self.k_ids)
        return *of_tensors, of_head, length, plane, ids_q, ids_k

    def sizes(self) -> tuple[int, ...]:
        """Heads, heads of a group, queries, keys, window."""
        return (
            self.q.shape[1], self.q.shape[1] // self.k.shape[1], self.q.shape[2], self.k.shape[2], self.window
        )  # fmt: skip

    def copies(self) -> Tensor | None:
        """The row by distance as kernels read it."""
        lengths = self.q.shape[2], self.k.shape[2]
        return row_copies(self.row, self.entries, self.tables, *lengths, centred=self.sink is None)


def _forward(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Results, and log2 of the norms of softmax, ``(batch, heads, queries)``."""
    of = _Operands(*inputs)
    q, v = of.q, of.v
    out = q.new_empty(*q.shape[:3], v.shape[3])
    norms = q.new_empty(q.shape[:3], dtype=torch.float32)
    copies = of.copies()

    def start(tile: launch.Tile) -> None:
        softmax_kernels.forward[(-(-q.shape[2] // tile.rows), q.shape[0] * q.shape[1])](
            *of.pointers(copies), out, norms, *of.numbers(), *of.strides(copies), *of.sizes(), **of.constants(),
            **tile.constants(),
        )  # fmt: skip

    launch.fitted("forward", of.constants(), q, start)
    return out, norms


def _backward(grad: Tensor, grad_norms: Tensor, out: Tensor, norms: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    of = _Operands(*inputs)
    q, k, v = of.q, of.k, of.v
    (batch, heads, queries), num_kv_heads, keys = q.shape[:3], k.shape[1], k.shape[2]
    grad = launch.row_contiguous(grad.to(q.dtype))
    of_grad = grad.stride()[:3]
    delta, copies = torch.empty_like(norms), of.copies()
    pointers = (*of.pointers(copies), grad, norms, delta)
    rest = (*of.numbers(), *of.strides(copies), *of_grad, *of.sizes())
    constants = of.constants()
    grad_q, grad_k, grad_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    grad_row, grad_sums, grad_tables, grad_sink = (norms.new_empty(0) for _ in range(4))
    if of.sums is not None:  # keys before all queries have no row
        grad_sums = torch.empty_like(of.sums) if queries == keys else torch.zeros_like(of.sums)

    def start_queries(tile: launch.Tile) -> Tensor:
        blocks = -(-queries // tile.rows)
        parts = norms.new_empty((0,) if of.tables is None else (batch, heads, blocks, of.tables.shape[1]))
        softmax_kernels.queries_backward[(blocks, batch * heads)](
            *pointers, out, grad_q, grad_sums, parts, *rest, **constants, **tile.constants()
        )
        return parts

    def start_keys(tile: launch.Tile) -> None:
        softmax_kernels.keys_backward[(-(-keys // tile.columns), batch * num_kv_heads)](
            *pointers, grad_k, grad_v, grad_sums, *rest, **constants, **tile.constants()
        )

    of_tables = launch.fitted("queries", constants, q, start_queries)
    launch.fitted("keys", constants, q, start_keys)
    if of.tables is not None:
        grad_tables = of_tables.sum((0, 2))
    if of.row is not None:
        grad_row = _row_gradient(of, pointers, rest, constants) if of.wants_row else torch.empty_like(of.row)
    if of.sink is not None:
        share = torch.exp2(of.sink.float()[:, None] * _LOG2_E - norms)
        grad_sink = -(share * delta).sum((0, 2)).to(of.sink.dtype)
    return grad_q, grad_k, grad_v, grad_row, grad_sums, grad_tables, grad_sink


def _row_gradient(
    of: _Operands, pointers: tuple[Tensor, ...], rest: tuple[float | int, ...], constants: dict[str, Any]
) -> Tensor:
    """The gradient of the row, of its shape."""
    assert of.row is not None
    (batch, heads, queries), keys, row = of.q.shape[:3], of.k.shape[2], of.row
    entries = queries + keys - 1

    def start(tile: launch.Tile) -> tuple[Tensor, int]:
        size, blocks = tile.rows, -(-queries // tile.rows)
        nearest = 0 if of.causal else -min(queries - 1, (of.window or queries) - 1)  # of keys that come later
        farthest = min(keys - 1, (of.window or keys) - 1)
        first, last, chunks = nearest // size, -(-farthest // size), -(-blocks // CHUNK)
        parts = of.q.new_empty(heads, chunks, last - first + 1, 2, size, dtype=torch.float32)
        softmax_kernels.row_backward[(last - first + 1, chunks, heads)](
            *pointers, parts, *rest, batch, CHUNK, first, **constants, **tile.constants()
        )
        return parts, first

    parts, first = launch.fitted("row", constants, of.q, start)
    result, shared = torch.empty_like(row), row.shape[0] == 1
    programs = -(-entries // ENTRIES) if of.entries is None else row.shape[1]
    term_kernels.row_gradient[(programs, row.shape[0])](
        parts, parts if of.entries is None else of.entries, result, *result.stride(), heads, entries, queries - 1,
        *parts.shape[1:3], first, SHARED=shared, INDEX=of.entries is not None, SIZE=parts.shape[4], BLOCK=ENTRIES,
    )  # fmt: skip
    return result


def _fake(q, k, v, *rest):  # type: ignore[no-untyped-def]
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_backward(grad, grad_norms, out, norms, *inputs):  # type: ignore[no-untyped-def]
    return tuple(out.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs[:7])


_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? row, Tensor? sums, Tensor? tables, Tensor? sink, Tensor? index, "
    "Tensor? slopes, Tensor? q_ids, Tensor? k_ids, Tensor? seed, float scale, bool causal, SymInt window, "
    "float softcap, float dropped, SymInt first_query, bool wants_row"
)
_operator = operator_with_backward(
    "attend_softmax",
    _forward,
    _backward,
    fake=_fake,
    fake_backward=_fake_backward,
    keep=lambda inputs, outputs: (*outputs, *inputs),
    schema=f"({_INPUTS}) -> (Tensor, Tensor)",
    backward_schema=f"(Tensor grad, Tensor? grad_norms, Tensor out, Tensor norms, {_INPUTS}) -> "
    f"({', '.join(['Tensor'] * 7)})",
)
