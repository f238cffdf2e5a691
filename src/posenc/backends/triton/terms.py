"""What is added to the logits, as the softmax kernels read it: sums of gates, tables of a network, copies of a row.

Each is one launch, and its gradient another.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends.triton import term_kernels
from posenc.backends.triton.launch import row_contiguous
from posenc.operators import operator_with_backward
from posenc.structure import DistanceNetwork

BLOCK = 1024  # gates that a program sums up at a time
ENTRIES = 256  # of a row
BEYOND = 256  # entries that the last tiles read beyond the last query and key


# Gates ----------------------------------------------------------------------------------------------------------------


def gate_sums(gates: Tensor, shape: tuple[int, int], seen: Tensor | None, ids: Tensor | None) -> Tensor:
    """Running sums of gates, ``(2, batch, heads, keys)`` float32: pairs of floats.

    Args:
        gates: ``(batch | 1, heads | 1, keys)``, float32 or less.
        shape: batch and heads.
        seen: bool ``(batch | 1, keys)``; the gates of other keys are 1.
        ids: documents of the keys ``(batch | 1, keys)``, which need not lie in one piece: each has sums of its own.
    """
    order = None if ids is None else ids.argsort(dim=-1, stable=True)
    seen = None if seen is None else seen.contiguous().view(torch.uint8)
    result: Tensor = _gate_sums(gates.expand(*shape, -1), seen, order)
    return result


def _between_rows(x: Tensor | None) -> int:
    return 0 if x is None or x.shape[0] == 1 else x.stride(0)


def _gate_sums_forward(gates: Tensor, seen: Tensor | None, order: Tensor | None) -> Tensor:
    batch, heads, keys = gates.shape
    sums = gates.new_empty(2, batch, heads, keys, dtype=torch.float32)
    term_kernels.gate_sums[(batch * heads,)](
        gates, gates if seen is None else seen, gates if order is None else order, sums, *gates.stride(),
        _between_rows(seen), _between_rows(order), heads, keys, sums[0].numel(),
        SEEN=seen is not None, ORDER=order is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return sums


def _gate_sums_backward(grad: Tensor, gates: Tensor, seen: Tensor | None, order: Tensor | None) -> Tensor:
    """Of sums whose gradient is the difference of the two parts of ``grad``: see `softmax.attend_softmax`."""
    grad = grad.contiguous()
    _, batch, heads, keys = grad.shape
    d_gates = grad.new_empty(batch, heads, keys)
    term_kernels.gate_sums_backward[(batch * heads,)](
        grad, grad if seen is None else seen, grad if order is None else order, d_gates, _between_rows(seen),
        _between_rows(order), heads, keys, d_gates.numel(), SEEN=seen is not None, ORDER=order is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return d_gates.to(gates.dtype)


_gate_sums = operator_with_backward(
    "gate_sums",
    _gate_sums_forward,
    _gate_sums_backward,
    fake=lambda gates, seen, order: gates.new_empty(2, *gates.shape, dtype=torch.float32),
    fake_backward=lambda grad, gates, seen, order: gates.new_empty(gates.shape),
    keep=lambda inputs, outputs: inputs,
)


def log_gates(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logs of the gates of few tokens, ``(batch, heads, tokens)`` float32, without gradients.

    Args:
        x: ``(batch, tokens, dim)``, float32 or less.
        weight, bias: ``(heads, dim)`` and ``(heads,)``, of a linear layer.
    """
    gates: Tensor = _log_gates(row_contiguous(x), row_contiguous(weight), bias)
    return gates


@torch.library.custom_op("posenc::log_gates", mutates_args=())
def _log_gates(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    (batch, tokens, dim), heads = x.shape, weight.shape[0]
    gates = x.new_empty(batch, heads, tokens, dtype=torch.float32)
    term_kernels.log_gates[(batch * tokens, heads)](
        x, weight, x if bias is None else bias, gates, *x.stride()[:2], weight.stride(0), tokens, heads, dim,
        BIAS=bias is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return gates


@_log_gates.register_fake
def _fake_gates(x, weight, bias):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape[0], weight.shape[0], x.shape[1], dtype=torch.float32)


# Networks -------------------------------------------------------------------------------------------------------------


def network_tables(network: DistanceNetwork) -> Tensor:
    """``(heads, 4 + 3 · segments)`` float32, see `term_kernels.network_tables`."""
    c, multiplier, inner, inner_bias, outer, outer_bias, *numbers = network
    result: Tensor = _network_tables(c, multiplier, inner, inner_bias, outer.contiguous(), outer_bias, *numbers)
    return result


def segments(tables: Tensor | None) -> int:
    """Segments that there is room for; 0 without a network."""
    return 0 if tables is None else (tables.shape[1] - 4) // 3


def _sizes(units: int) -> dict[str, int]:
    return {"UNITS": max(2, 1 << (units - 1).bit_length()), "SEGMENTS": 1 << units.bit_length()}


def _network_forward(
    c: Tensor, multiplier: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor,
    threshold: float, epsilon: float, leak: float,
) -> Tensor:  # fmt: skip
    heads, units = outer.shape
    sizes = _sizes(units)
    tables = c.new_empty(heads, 4 + 3 * sizes["SEGMENTS"], dtype=torch.float32)
    term_kernels.network_tables[(heads,)](
        c, multiplier, inner, inner_bias, outer, outer_bias, tables, threshold, epsilon, leak, units, inner.stride(0),
        outer.stride(0), **sizes,
    )  # fmt: skip
    return tables


def _network_backward(
    grad: Tensor, c: Tensor, multiplier: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor,
    threshold: float, epsilon: float, leak: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    heads, units = outer.shape
    found = (
        c.new_empty(c.shape), multiplier.new_empty(multiplier.shape), inner.new_empty(units),
        inner_bias.new_empty(units), outer.new_empty(heads, units), outer_bias.new_empty(heads),
    )  # fmt: skip
    term_kernels.network_tables_backward[(1,)](
        grad.contiguous(), c, multiplier, inner, inner_bias, outer, outer_bias, *found, threshold, leak, heads, units,
        inner.stride(0), outer.stride(0), **_sizes(units),
    )  # fmt: skip
    return found


_network_tables = operator_with_backward(
    "network_tables",
    _network_forward,
    _network_backward,
    fake=lambda c, multiplier, inner, inner_bias, outer, *rest: c.new_empty(
        outer.shape[0], 4 + 3 * _sizes(outer.shape[1])["SEGMENTS"], dtype=torch.float32
    ),
    fake_backward=lambda grad, *inputs: tuple(x.new_empty(x.shape) for x in inputs[:6]),
    keep=lambda inputs, outputs: inputs,
)


# KERPLE ---------------------------------------------------------------------------------------------------------------


def kerple_row(
    p: Tensor, a: Tensor, mu: Tensor | None, distance: Tensor, kind: str, least: float, eps: float
) -> Tensor:
    """KERPLE at distances, ``(heads, entries)`` float32; gradients go to p, a and mu.

    Args:
        p, a, mu: ``(heads,)``; of BAM, a is the log of its factor.
        distance: int64 ``(entries,)``.
        kind: of `posenc.bias.KERPLE`.
        least: bound of p and a from below, but for BAM.
        eps: what BAM adds to distances.
    """
    row: Tensor = _kerple(p, a, mu, distance, ("log", "power", "bam").index(kind), least, eps)
    return row


def _kerple_forward(
    p: Tensor, a: Tensor, mu: Tensor | None, distance: Tensor, kind: int, least: float, eps: float
) -> Tensor:
    heads, entries = len(p), len(distance)
    row = p.new_empty(heads, entries, dtype=torch.float32)
    term_kernels.kerple[(-(-entries // ENTRIES), heads)](
        p, a, p if mu is None else mu, distance, row, entries, KIND=kind, SHIFT=mu is not None, LEAST=least, EPS=eps,
        BLOCK=ENTRIES,
    )  # fmt: skip
    return row


def _kerple_backward(
    grad: Tensor, p: Tensor, a: Tensor, mu: Tensor | None, distance: Tensor, kind: int, least: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    d_p, d_a = torch.empty_like(p), torch.empty_like(a)
    d_mu = p.new_empty(0) if mu is None else torch.empty_like(mu)
    term_kernels.kerple_backward[(len(p),)](
        grad, p, a, p if mu is None else mu, distance, d_p, d_a, d_mu, *grad.stride(), len(distance), KIND=kind,
        SHIFT=mu is not None, LEAST=least, EPS=eps, BLOCK=BLOCK,
    )  # fmt: skip
    return d_p, d_a, d_mu


_kerple = operator_with_backward(
    "kerple_row",
    _kerple_forward,
    _kerple_backward,
    fake=lambda p, a, mu, distance, *rest: p.new_empty(p.shape[0], distance.shape[0], dtype=torch.float32),
    fake_backward=lambda grad, p, a, mu, *rest: tuple(
        p.new_empty(0) if x is None else x.new_empty(x.shape) for x in (p, a, mu)
    ),
    keep=lambda inputs, outputs: inputs,
)


# Rows -----------------------------------------------------------------------------------------------------------------


def row_copies(
    row: Tensor | None, index: Tensor | None, tables: Tensor | None, queries: int, keys: int, *, centred: bool
) -> Tensor | None:
    """A row by distance as the softmax kernels read it, ``(heads | 1, 8, length)`` float32: see `term_kernels`.

    Args:
        row, index: as in `Terms`.
        tables: of a network, whose psi is the row then.
        queries, keys: of the call.
        centred: whether the entry at distance 0 is taken off all.
    """
    if row is None and tables is None:
        return None
    like = tables if row is None else row
    assert like is not None
    heads, entries = 1 if row is None else row.shape[0], queries + keys - 1
    length = -(-(entries + BEYOND) // 4) * 4
    copies = like.new_empty(heads, 8, length, dtype=torch.float32)
    term_kernels.row_copies[(-(-length // ENTRIES), heads)](
        like, like if index is None else index, like if tables is None else tables, copies, *like.stride(), entries,
        length, min(queries - 1, entries - 1), CENTRED=centred and row is not None, INDEX=index is not None,
        NETWORK=row is None, BLOCK=ENTRIES,
    )  # fmt: skip
    return copies
