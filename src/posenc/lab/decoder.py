"""The decoder that every encoding is tried in: bytes or other tokens in, logits of what comes next out.

    tokens ─ embed ─ (+ embedding encoding) ─ [ norm ─ attention ─ + ─ norm ─ SwiGLU ─ + ] × layers ─ norm ─ head

RMSNorm and SwiGLU as in today's language models, untied embeddings; 0.87 million parameters at dim 128, 4 layers.
The parts that all encodings share get the same initial weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.attention_maps import read_attention
from posenc.embedding.abacus import Abacus
from posenc.encoding import Encoding, RotaryEncoding, Table
from posenc.lab.specs import Shape, build_encodings
from posenc.layers import SelfAttention

VOCABULARY = 256  # bytes


class LabModel(nn.Module):
    """What a task trains. The parts that all encodings share get the same initial weights, bit for bit."""

    lr_multipliers: dict[nn.Parameter, float]  # of the encodings' own parameters

    def parameter_counts(self) -> tuple[int, int]:
        """Number of all parameters, and of the encodings' parameters."""
        return sum(p.numel() for p in self.parameters()), sum(p.numel() for p in self.lr_multipliers)


class SwiGLU(nn.Module):
    """The feed-forward layer: a gate times a value, projected back."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.value = nn.Linear(dim, hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (batch, tokens, dim) to the same shape."""
        out: Tensor = self.out(F.silu(self.gate(x)) * self.value(x))
        return out


class Block(nn.Module):
    """One layer: attention and feed-forward, each on the normalised stream and added to it."""

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        encodings: list[Encoding],
        *,
        causal: bool = True,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.window = window  # of this layer alone
        self.attention_norm = nn.RMSNorm(dim, eps=1e-6)
        layer = own_layer(encodings)
        self.attention = (
            SelfAttention(dim, heads, encodings=encodings, causal=causal)
            if layer is None
            else layer(dim, heads, encodings=encodings)
        )
        self.mlp_norm = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = SwiGLU(dim, hidden)

    def forward(
        self, x: Tensor, positions: Tensor | None = None, *, window: int | None = None, tables: list[Table] | None
    ) -> Tensor:
        """``x`` (batch, tokens, dim); ``window`` tokens that a token sees, itself included; None for all.

        A layer's own window stays, where that is narrower.
        """
        window = narrower(self.window, window)
        x = x + self.attention(self.attention_norm(x), positions, window=window, tables=tables)
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


def own_layer(encodings: list[Encoding]) -> type[SelfAttention] | None:
    """The attention layer that an encoding of the list belongs to: its class's ``attention_layer``, which is causal."""
    layers = [getattr(type(e), "attention_layer", None) for e in encodings]
    return next((layer for layer in layers if layer is not None), None)


def narrower(layer: int | None, call: int | None) -> int | None:
    """The window of a layer in a call, in tokens; None: all."""
    return min((window for window in (layer, call) if window is not None), default=None)


class Decoder(LabModel):
    """A language model with the encodings of ``spec``, of bytes unless ``vocabulary`` says otherwise.

    Args:
        spec: encodings as the lab names them.
        shape: widths and counts, and the training length in tokens.
        hidden: width of the feed-forward layers.
        seed: decides the initial weights; the shared parts depend on nothing else but the vocabulary.
        vocabulary: how many different tokens there are.
    """

    def __init__(self, spec: str, shape: Shape, *, hidden: int, seed: int, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encodings = build_encodings(spec, shape)
            self.embed = nn.Embedding(vocabulary, shape.dim)
            self.embedding_encodings = nn.ModuleList(encodings.embedding)
            self.blocks = nn.ModuleList(
                Block(shape.dim, shape.heads, hidden, layer, window=window)
                for layer, window in zip(encodings.attention, encodings.windows, strict=True)
            )
            self.norm = nn.RMSNorm(shape.dim, eps=1e-6)
            self.head = nn.Linear(shape.dim, vocabulary, bias=False)
        self.lr_multipliers = encodings.lr_multipliers
        self.rotary = shared_rotary(encodings.attention)
        # The embedding starts about as large as what embedding encodings add to it, so that neither drowns the other.
        initialise(self, torch.Generator().manual_seed(seed), std={"embed.weight": 0.5})

    def forward(
        self, tokens: Tensor, window: int | None = None, ids: Tensor | None = None, *, start: int = 0
    ) -> Tensor:
        """Logits of what comes next.

        Args:
            tokens: ``(batch, length)`` integers.
            window: how many tokens a token sees, itself included; None for all before it.
            ids: ``(batch, length)`` places of digits inside their numbers, for Abacus.
            start: position of the first token.

        Returns:
            ``(batch, length, vocabulary)``.
        """
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        for encoding in self.embedding_encodings:
            x = encoding(x, _ids_or_raise(ids) if isinstance(encoding, Abacus) else positions)
        tables = [encoding.table(positions, like=x) for encoding in self.rotary] if self.rotary else None
        passed_positions = positions if start else None
        for block in self.blocks:
            x = block(x, passed_positions, window=window, tables=tables)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _ids_or_raise(ids: Tensor | None) -> Tensor:
    if ids is None:
        raise ValueError("ids must be given: Abacus reads places of digits inside their numbers")
    return ids


def initialise(model: LabModel, generator: torch.Generator, *, std: Mapping[str, float]) -> None:
    """Draw the shared matrices, in the order of their names, from a generator that serves nothing else.

    Products keep a third of their input's variance, but for the parameters whose names ``std`` holds.
    """
    for name, parameter in model.named_parameters():
        if parameter not in model.lr_multipliers and parameter.dim() >= 2:
            width = std.get(name, (3 * parameter.shape[1]) ** -0.5)
            nn.init.normal_(parameter, std=width, generator=generator)


def shared_rotary(layers: list[list[Encoding]]) -> tuple[RotaryEncoding, ...]:
    """The rotary encodings if all layers share them: then one table serves all. A tuple, so that it owns no module."""
    rotary = [tuple(e for e in layer if isinstance(e, RotaryEncoding)) for layer in layers]
    shared = all(layer == rotary[0] and all(e.cacheable() or e.length_dependent for e in layer) for layer in rotary)
    return rotary[0] if shared else ()


@torch.no_grad()
def attention_mass(model: torch.nn.Module, tokens: Tensor, ids: Tensor | None = None) -> tuple[list[int], Tensor]:
    """The share of each head's attention in bins of distance, mean over the queries of the second half of the texts.

    Args:
        model: a `Decoder`, or a model that is called like one, in evaluation mode.
        tokens: ``(count, length)``.
        ids: as `Decoder` takes them.

    Returns:
        The largest distance of each bin in tokens (0, 1, 2, 4, 8, …), and ``(layers · heads, bins)``. Rows sum to 1
        under softmax, and to less where an encoding leaves some attention to nobody.
    """
    layers = [module for module in model.modules() if isinstance(module, SelfAttention)]
    length, masses = tokens.shape[1], list[Tensor]()
    queries = slice(length // 2, length)
    distances = torch.arange(length)[queries, None] - torch.arange(length)
    bins = torch.where(distances > 0, distances.clamp(min=1).log2().ceil() + 1, 0).long()  # 0, 1, 2, 3–4, 5–8, …
    one_hot = torch.nn.functional.one_hot(bins).double() * (distances >= 0)[..., None]
    edges = [0, *(2**n for n in range(one_hot.shape[-1] - 1))]

    def reading(inner: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, call: partial[Tensor]) -> Tensor:
        options: dict[str, Any] = {n: value for n, value in call.keywords.items() if n not in ("backend", "dropout")}
        weights = read_attention(q, k, v, queries=queries, **options).weights.double().cpu()
        masses.append(torch.einsum("bhqk,qkd->hd", weights, one_hot) / (weights.shape[0] * weights.shape[2]))
        return inner(q, k, v, call)

    before = [layer._attend for layer in layers]
    try:
        for layer, attend in zip(layers, before, strict=True):
            layer._attend = partial(reading, attend)  # type: ignore[method-assign]
        device = next(model.parameters()).device
        more = {} if ids is None else {"ids": ids.to(device)}
        model(tokens.to(device), **more)
    finally:
        for layer in layers:
            del layer._attend
    return edges, torch.cat(masses)
