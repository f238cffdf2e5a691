"""Batches: rows, documents and calls that share a tensor or a module, and nothing else."""

from __future__ import annotations

import torch

from posenc import positions as position
from posenc.testing.cases import EVERYWHERE, Case, Probe, applies_to, tokens_of
from posenc.testing.compare import expect_close, expect_same
from posenc.testing.decoding import Layer


@applies_to(*EVERYWHERE)
def packed_documents(case: Case) -> None:
    """Documents packed into one row, with positions that restart, are treated as separate rows."""
    sizes = [5, 3, 7]
    segments = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    layer, x = Layer(case), tokens_of(case, sum(sizes), batch=2)
    packed = layer(x, case.positions(position.from_segments(segments)), segments=segments)
    for number, (got, document) in enumerate(zip(torch.split(packed, sizes, 1), torch.split(x, sizes, 1), strict=True)):
        expect_close(f"document {number} of a packed row", got, layer(document))


@applies_to(*EVERYWHERE)
def left_padding(case: Case) -> None:
    """A row padded on the left, with positions that count its real tokens, is treated as the row alone."""
    layer, x, lengths = Layer(case), tokens_of(case, 9, batch=3), (9, 5, 2)
    attention_mask = torch.arange(9) >= 9 - torch.tensor(lengths)[:, None]
    out = layer(x, case.positions(position.from_mask(attention_mask)), attention_mask=attention_mask)
    for row, length in enumerate(lengths):
        expect_close(f"row of {length} tokens", out[row : row + 1, 9 - length :], layer(x[row : row + 1, 9 - length :]))


@applies_to(*EVERYWHERE)
def batch_mates(case: Case) -> None:
    """A long row in the batch changes no other row; only its padding grows."""
    layer, short, long = Layer(case), 5, 40
    x = tokens_of(case, long, batch=2)
    attention_mask = torch.arange(long) < torch.tensor([short, long])[:, None]
    together = layer(x, attention_mask=attention_mask)[:1, :short]
    expect_close("a short row next to a long one", together, layer(x[:1, :short]))


@applies_to(*EVERYWHERE)
def no_trace_of_a_call(case: Case) -> None:
    """The same call gives the same bits before and after long, low-precision and training calls on the same module."""
    probe = Probe(case, dtype=torch.float32)
    x, positions = tokens_of(case, 6, dtype=torch.float32), case.positions(torch.arange(6))
    before = probe(x, positions)
    many = min(case.max_length, 100)
    long = tokens_of(case, many, batch=2, dtype=torch.float32)
    probe(long, case.positions(torch.arange(many)))
    probe(long.requires_grad_(), case.positions(torch.arange(many))).sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        probe(x, positions)
    expect_same("after long, training and autocast calls", probe(x, positions), before)
    encodings = [*probe.embeddings, *probe.inside]
    Probe(case, encodings, dtype=torch.bfloat16)(x.bfloat16(), positions)
    expect_same("after a bfloat16 call", probe(x, positions), before)
