"""Sequences in a cache and in a batch: steps, chunks, padding, packing and batch mates give the results of one call."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc import positions as position
from posenc.encoding import EmbeddingEncoding, Encoding
from posenc.layers import KVCache, SelfAttention
from posenc.testing.cases import EVERYWHERE, Case, Probe, applies_to, tokens_of, width_after
from posenc.testing.compare import expect_close, expect_same

TOKENS = 10


class Layer(nn.Module):
    """`SelfAttention` around a case; embeddings that append channels act before the layer, the others inside."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        encodings = case.make(torch.float64)
        width = width_after(case, encodings, torch.float64)
        outside: list[Encoding] = []
        if width != case.dim:
            outside = [e for e in encodings if isinstance(e, EmbeddingEncoding)]
        self.embeddings = nn.ModuleList(outside)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(3)
            self.attend = SelfAttention(
                width,
                case.num_heads,
                num_kv_heads=case.num_kv_heads,
                head_dim=case.head_dim,
                encodings=[e for e in encodings if e not in outside],
                causal=True,
            ).double()

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | None = None,
        length: int | None = None,
    ) -> Tensor:
        past = 0 if cache is None else len(cache)
        here = self.case.positions(position.after(past, x.shape[1])) if positions is None else positions
        for embedding in self.embeddings:
            x = embedding(x, here)
        positions = here if self.case.axes > 1 else positions
        out: Tensor = self.attend(
            x, positions, attention_mask=attention_mask, segments=segments, cache=cache, length=length
        )
        return out


def decode(layer: Layer, x: Tensor, sizes: list[int], length: int | None = None) -> Tensor:
    """The layer over x in pieces of the given sizes, with one cache."""
    cache = KVCache()
    return torch.cat([layer(part, cache=cache, length=length) for part in torch.split(x, sizes, 1)], 1)


def expect_decoding(what: str, case: Case, sizes: list[int]) -> None:
    """Decoding in pieces equals one call over all tokens.

    Where frequencies depend on the length of a row, that holds with a declared length; without one, each piece equals
    the last rows of a call over the tokens up to its end, which is all that such a method promises.
    """
    layer, x = Layer(case), tokens_of(case, sum(sizes), batch=2)
    if not case.length_dependent:
        expect_close(what, decode(layer, x, sizes), layer(x))
        return
    ends = torch.tensor(sizes).cumsum(0).tolist()
    prefixes = [layer(x[:, :end])[:, end - size :] for size, end in zip(sizes, ends, strict=True)]
    expect_close(f"{what}, length undeclared", decode(layer, x, sizes), torch.cat(prefixes, 1))
    far = case.max_length
    expect_close(f"{what}, length {far} declared", decode(layer, x, sizes, far), layer(x, length=far))


@applies_to(*EVERYWHERE)
def decode_step_by_step(case: Case) -> None:
    """Token by token with a cache gives what one call over all tokens gives."""
    expect_decoding("decoded token by token", case, [1] * TOKENS)


@applies_to(*EVERYWHERE)
def decode_in_chunks(case: Case) -> None:
    """Chunked prefill, then steps, then another chunk: the same as one call over all tokens."""
    expect_decoding("decoded in chunks", case, [TOKENS - 6, 1, 3, 2])


@applies_to(*EVERYWHERE)
def decode_padded_batch(case: Case) -> None:
    """Prompts of different lengths, padded on the left, continue as each would alone."""
    layer, prompt, new = Layer(case), 6, 3
    lengths = torch.tensor([6, 4])
    x = tokens_of(case, prompt + new, batch=2)
    attention_mask = torch.arange(prompt) >= prompt - lengths[:, None]
    cache = KVCache()
    layer(x[:, :prompt], case.positions(position.from_mask(attention_mask)), attention_mask=attention_mask, cache=cache)
    steps = []
    for step in range(new):
        here = case.positions(position.after(lengths + step))
        steps.append(layer(x[:, prompt + step : prompt + step + 1], here, cache=cache))
    for row, length in enumerate(lengths.tolist()):
        for step, got in enumerate(steps):
            alone = layer(x[row : row + 1, prompt - length : prompt + step + 1])[:, -1:]
            expect_close(f"row of {length} tokens, step {step}", got[row : row + 1], alone)


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
