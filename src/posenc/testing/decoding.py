"""Decoding checks: the same tokens through a cache, one at a time or in chunks, give the results of one call."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc import positions as position
from posenc.encoding import EmbeddingEncoding, Encoding
from posenc.layers import KVCache, SelfAttention
from posenc.testing.cases import EVERYWHERE, Case, applies_to, tokens_of, width_after
from posenc.testing.compare import expect_close

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
