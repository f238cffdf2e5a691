"""Context parallelism: each process holds some tokens of a sequence, and its queries attend to the keys of all.

    rank r:   q_r, k_r, v_r at positions p_r
    k, v      = the shards of all ranks, gathered, in the order of the sequence
    o_r       = attention(a run of q_r, k and v up to the run's end), for each run of adjacent positions

The idea: ring attention sends shards of keys around and merges partial softmaxes, which is exact only for encodings
that never read the logits of several shards together. Here keys and values are gathered instead: the queries of a run
are the last tokens of its keys, the default of `attention`, so every encoding and every backend works, counted gates
and stick-breaking included. The invariant: a rank's result equals the result of one process over the whole sequence.
The backward pass sums the gradients of k and v over the ranks and returns each rank its part (reduce-scatter).

The price is memory: keys, values and token states of the whole sequence on each rank, O(n), and their gradients in
float32 or better; never scores. Communication does not overlap with computation. First the ranks compare their
arguments, so that an error on one rank is an error on all, and exchange their positions; the host waits for both.
Source: the gathering of keys and values is the context parallelism of Llama 3, arXiv 2407.21783, section 3.3.2;
    `merged` is the merging of ring attention, arXiv 2310.01889.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from posenc.attend import attention
from posenc.backends import Backend
from posenc.distributed.shards import agree, check_group, gathered, place, runs
from posenc.dropout import check_dropout
from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding, no_autocast
from posenc.rotate import rotated
from posenc.validate import (
    as_list,
    axes_of,
    check_encodings,
    check_length,
    check_segments,
    check_softcap,
    check_tensors,
    check_window,
    suggests_argument_names,
    token_states_of,
)

_SAME_ON_ALL_RANKS = (
    "sizes and dtype of q, k and v", "encodings", "token_states", "segments", "options", "requires_grad",
)  # fmt: skip


@suggests_argument_names
def sharded_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding] = (),
    *,
    positions: Tensor,
    x: Tensor | None = None,
    token_states: Sequence[Tensor | None] | None = None,
    group: dist.ProcessGroup | None = None,
    segments: Tensor | None = None,
    scale: float | None = None,
    length: int | None = None,
    window: int | None = None,
    backend: Backend = "auto",
    softcap: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention over a text whose tokens are spread over the processes of a group; call it on all of them.

    Results and gradients equal `attention` over the full sequence in one process. Gradients of parameters are each
    rank's share: sum them over the group. Every rank must take part in the backward pass. torch.compile leaves its
    graph here.

    Args:
        q, k, v: as for `attention`, of this rank's tokens alone. Ranks may hold different numbers of tokens.
        encodings: the same on every rank.
        positions: integers ``(tokens,)``, the places of this rank's tokens in the text; 0 … n − 1 once each over all
            ranks. Contiguous shards and `positions.zigzag` are one and two runs of neighbours; each run is one call
            of `attention`, so tokens dealt out one by one are slow.
        x, token_states: as for `attention`, of this rank's tokens.
        group: the process group; default all processes.
        segments: documents of packed rows, ``(*batch, tokens)``, of this rank's tokens.
        scale, window, backend, softcap: as for `attention`.
        dropout: as for `attention`; each rank draws from its own generator.
        length: tokens that a length-dependent rotation spans; default the whole text, or each document.

    Returns:
        ``(batch, heads, tokens, value_dim)``: the results of this rank's queries.

    Raises:
        ValueError: on all ranks, where one of them was given what does not fit or the ranks do not fit together; where
            no process group is initialised.

    >>> import torch.distributed as dist
    >>> from posenc import RoPE, attention
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> out = sharded_attention(q, k, v, [RoPE(64)], positions=torch.arange(16))
    >>> torch.allclose(out, attention(q, k, v, [RoPE(64)]), atol=1e-6)
    True
    >>> dist.destroy_process_group()
    """
    group = check_group(group)
    with no_autocast(q.device.type):
        fault, agreed, states_left = None, dict.fromkeys(_SAME_ON_ALL_RANKS, ""), list[Tensor | None]()
        try:
            encodings, own_segments = _check(q, k, v, encodings, positions, segments, length, window)
            check_softcap(softcap)
            check_dropout(dropout)
            states_left = _token_states(encodings, x, token_states, k)
            agreed = _must_agree(q, k, v, encodings, states_left, segments, (scale, length, window, softcap, dropout))
        except ValueError as error:
            fault = error
        counts = agree(fault, agreed, q, group)
        positions = positions.to(q.device).long()
        text = place(positions, counts, group)
        k, v, *wholes = gathered(text, [k, v, *(f for f in states_left if f is not None)])
        states_left = [None if f is None else wholes.pop(0) for f in states_left]
        all_segments = None if own_segments is None else text.in_order(own_segments[:, None])[:, 0]
        if length is None and own_segments is not None and all_segments is not None:
            q, k, encodings, states_left = _rotated_by_document(
                q, k, encodings, states_left, positions, (own_segments, all_segments)
            )
        elif length is None:
            length = k.shape[2]
        results = [
            attention(
                q[:, :, start:stop], k[:, :, :end], v[:, :, :end], encodings,
                token_states=[None if f is None else f[:, :, :end] for f in states_left],
                segments=None if all_segments is None else all_segments[:, :end],
                scale=scale, length=length, window=window, backend=backend, softcap=softcap, dropout=dropout,
            )
            for start, stop, end in runs(positions)
        ]  # fmt: skip
    return torch.cat(results, 2)


def merged(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Softmax attention over disjoint shards of the keys, merged exactly, as ring attention does.

        lse = log Σ_r exp lse_r,      out = Σ_r exp(lse_r − lse) · out_r

    Args:
        parts: of each shard, the result ``(..., queries, value_dim)`` and the log of the sum of its exponentials
            ``(..., queries)``, natural, −inf where a query attends to no key of the shard.

    Returns:
        The same pair for all shards, so that merging goes on: the result in the dtype of the results, lse in float32
        or better. Differentiable in both; kernels often give an lse without gradients.

    Raises:
        ValueError: for no parts, or shapes that do not fit.

    >>> scores, values = torch.randn(3, 8), torch.randn(8, 4)
    >>> parts = [(s.softmax(-1) @ v, s.logsumexp(-1)) for s, v in zip(scores.chunk(2, -1), values.chunk(2))]
    >>> torch.allclose(merged(parts)[0], scores.softmax(-1) @ values, atol=1e-6)
    True
    """
    if not parts:
        raise ValueError("parts must hold at least one pair (out, lse), got none")
    shape = parts[0][0].shape
    for out, lse in parts:
        if out.shape != shape or lse.shape != shape[:-1]:
            raise ValueError(
                f"parts must be pairs (..., queries, value_dim) and (..., queries), all of one shape {tuple(shape)}, "
                f"got {tuple(out.shape)} and {tuple(lse.shape)}"
            )
    dtype = parts[0][0].dtype
    wide = torch.promote_types(dtype, torch.float32)
    lses = torch.stack([lse.to(wide) for _, lse in parts])
    largest = lses.detach().amax(0)
    unseen = largest == -math.inf  # a query that attends to no key: zeros, and zero gradients, not NaN
    largest = largest.masked_fill(unseen, 0.0)
    shares = (lses - largest).exp()
    total = shares.sum(0).masked_fill(unseen, 1.0)
    outs = torch.stack([out.to(wide) for out, _ in parts])
    lse = (largest + total.log()).masked_fill(unseen, -math.inf)
    return ((shares / total).unsqueeze(-1) * outs).sum(0).to(dtype), lse


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    positions: Tensor,
    segments: Tensor | None,
    length: int | None,
    window: int | None,
) -> tuple[list[Encoding], Tensor | None]:
    """The encodings as a list and the segments as (batch | 1, tokens); a ValueError for errors visible on one rank."""
    check_tensors(q, k, v)
    tokens, encodings = k.shape[2], as_list(encodings)
    check_encodings(encodings, q.shape[1])
    if q.shape[2] != tokens:
        raise ValueError(f"q, k and v must be of the same tokens, got {q.shape[2]} in q and {tokens} in k")
    if axes_of(encodings) > 1:
        raise ValueError("encodings: places in a text have one coordinate, these want several a position")
    if not isinstance(positions, Tensor) or positions.shape != (tokens,):
        got = tuple(positions.shape) if isinstance(positions, Tensor) else type(positions).__name__
        raise ValueError(f"positions must be a tensor (tokens,) = ({tokens},), got {got}")
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(f"positions must be integers, got {positions.dtype}")
    check_length(length)
    check_window(window)
    parts = check_segments(segments, q, k)
    content = any(isinstance(e, ScoreEncoding) and e.reads.unrotated for e in encodings)
    if parts is not None and length is None and content and any(_spanning(e) for e in encodings):
        raise ValueError(
            "length must be declared where segments and a length-dependent rotation meet an encoding that looks at "
            "content"
        )
    return encodings, None if parts is None else parts[1].long()


def _token_states(
    encodings: Sequence[Encoding], x: Tensor | None, token_states: Sequence[Tensor | None] | None, k: Tensor
) -> list[Tensor | None]:
    """What each encoding keeps of this rank's tokens."""
    remembered = token_states_of(encodings, x, token_states, k)
    for token_state in remembered:
        if token_state is not None and (token_state.ndim < 3 or token_state.shape[2] != k.shape[2]):
            raise ValueError(f"token_states must be (batch, heads, {k.shape[2]}, ...), got {tuple(token_state.shape)}")
    return remembered


def _must_agree(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    token_states: Sequence[Tensor | None],
    segments: Tensor | None,
    options: tuple[float | None, ...],
) -> dict[str, str]:
    """Descriptions of what must be the same on all ranks."""
    kinds = [None if f is None else (*f.shape[:2], *f.shape[3:], f.dtype) for f in token_states]
    learning = [torch.is_grad_enabled() and t is not None and t.requires_grad for t in (k, v, *token_states)]
    q_sizes, k_sizes, v_sizes = ((*t.shape[:2], t.shape[3]) for t in (q, k, v))
    agreed = [
        f"{q_sizes}, {k_sizes} and {v_sizes} (batch, heads, width), {q.dtype}",
        ", ".join(type(e).__name__ for e in encodings),
        str(kinds), str(None if segments is None else tuple(segments.shape[:-1])), str(options), str(learning),
    ]  # fmt: skip
    return dict(zip(_SAME_ON_ALL_RANKS, agreed, strict=True))


def _spanning(encoding: Encoding) -> bool:
    return isinstance(encoding, RotaryEncoding) and encoding.length_dependent


def _rotated_by_document(
    q: Tensor,
    k: Tensor,
    encodings: Sequence[Encoding],
    token_states: list[Tensor | None],
    positions: Tensor,
    segments: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, list[Encoding], list[Tensor | None]]:
    """q and k through rotations that span a document, which may end after a run; the encodings and states left."""
    last = max((i for i, e in enumerate(encodings) if _spanning(e)), default=-1)
    turning = [e for e in encodings[: last + 1] if isinstance(e, RotaryEncoding)]
    left = [i for i, e in enumerate(encodings) if i > last or not isinstance(e, RotaryEncoding)]
    q, k = rotated(turning, q, k, positions, torch.arange(k.shape[2], device=k.device), None, None, segments)
    return q, k, [encodings[i] for i in left], [token_states[i] for i in left]
