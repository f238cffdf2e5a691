"""Decoding: what a cache makes of the same tokens, one at a time or in chunks."""

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
    """`SelfAttention` around a case; embeddings that append channels stand before its door, the others inside."""

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
            torch.manual_seed(3)
            self.attend = SelfAttention(
                width,
                case.num_heads,
                kv_heads=case.kv_heads,
                head_dim=case.head_dim,
                encodings=[e for e in encodings if e not in outside],
            ).double()

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        padding: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        past = 0 if cache is None else len(cache)
        here = self.case.positions(position.after(past, x.shape[1])) if positions is None else positions
        for embedding in self.embeddings:
            x = embedding(x, here)
        positions = here if self.case.axes > 1 else positions
        out: Tensor = self.attend(x, positions, padding=padding, segments=segments, cache=cache)
        return out


def decode(layer: Layer, x: Tensor, sizes: list[int]) -> Tensor:
    """The layer over x in pieces of the given sizes, with one cache."""
    cache = KVCache()
    return torch.cat([layer(part, cache=cache) for part in torch.split(x, sizes, 1)], 1)


@applies_to(*EVERYWHERE)
def decode_step_by_step(case: Case) -> None:
    """Token by token with a cache gives what one call over all tokens gives."""
    layer, x = Layer(case), tokens_of(case, TOKENS, batch=2)
    expect_close("decoded token by token", decode(layer, x, [1] * TOKENS), layer(x))


@applies_to(*EVERYWHERE)
def decode_in_chunks(case: Case) -> None:
    """Chunked prefill, then steps, then another chunk: the same as one call over all tokens."""
    layer, x = Layer(case), tokens_of(case, TOKENS, batch=2)
    expect_close("decoded in chunks", decode(layer, x, [4, 1, 3, 2]), layer(x))


@applies_to(*EVERYWHERE)
def decode_padded_batch(case: Case) -> None:
    """Prompts of different lengths, padded on the left, continue as each would alone."""
    layer, prompt, new = Layer(case), 6, 3
    lengths = torch.tensor([6, 4])
    x = tokens_of(case, prompt + new, batch=2)
    padding = torch.arange(prompt) >= prompt - lengths[:, None]
    cache = KVCache()
    layer(x[:, :prompt], case.positions(position.from_mask(padding)), padding=padding, cache=cache)
    steps = []
    for step in range(new):
        here = case.positions(position.after(lengths + step))
        steps.append(layer(x[:, prompt + step : prompt + step + 1], here, cache=cache))
    for row, length in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, prompt - length :])[:, length:]
        expect_close(f"row of {length} tokens", torch.cat(steps, 1)[row : row + 1], alone)
