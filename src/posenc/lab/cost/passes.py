"""The calls that are measured: one layer of attention reads, learns or decodes, and a whole model reads or learns.

Each encoding has its own first values, as before a training, and input is drawn at random: what gates and counters
make of content costs what it costs then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.attention import explain
from posenc.catalogue import Entry
from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding, own_precision
from posenc.lab.cost.conditions import Conditions
from posenc.lab.model import VOCABULARY, Decoder
from posenc.lab.specs import Shape, build_encodings
from posenc.layers import KVCache, SelfAttention

PIECE = 256  # tokens that a cache is filled with at a time


class Call(NamedTuple):
    """Something to measure."""

    run: Callable[[], object]
    path: str  # of attention


@dataclass(frozen=True)
class LongShape(Shape):
    """A shape whose tables of positions reach further than the training length."""

    rows: int

    def words(self, entry: Entry) -> dict[str, object]:
        """The same words for all entries, with rows for every position that is measured."""
        return {**super().words(entry), "max_length": self.rows}


def make_call(spec: str, work: str, length: int, conditions: Conditions) -> Call:
    """One call of a pass at a length, with its inputs made.

    Args:
        spec: encodings as the lab names them.
        work: a key of `posenc.lab.cost.results.PASSES`.
        length: tokens; for "decode" those in the cache.
        conditions: of the measuring.
    """
    if work in ("model", "model-forward"):
        return _model_call(spec, work == "model", length, conditions)
    layer = make_layer(spec, conditions)
    x = _normal(1, length, conditions)
    if work == "train":
        return Call(partial(_learn, layer, x.requires_grad_(), _normal(1, length, conditions)), path_of(layer, x))
    with torch.inference_mode():
        if work == "forward":
            return Call(partial(_read, layer, x), path_of(layer, x))
        cache, token = fill_cache(layer, x), _normal(1, 1, conditions)
        return Call(partial(decode, layer, token, cache), path_of(layer, token, cache))


def make_layer(spec: str, conditions: Conditions) -> SelfAttention:
    """One layer with all encodings of a spec, those of the embedding at its door."""
    c = conditions
    shape = LongShape(c.dim, c.heads, 1, c.train_length, rows=max(c.train_length, c.lengths[-1] + 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = build_encodings(spec, shape)
        layer = SelfAttention(c.dim, c.heads, encodings=[*built.embedding, *built.attention[0]])
    return layer.to(c.device, getattr(torch, c.precision))


def fill_cache(layer: SelfAttention, x: Tensor) -> KVCache:
    """A cache as the layer fills it, ``x`` (1, tokens, dim), in pieces that do not look at each other.

    What is kept of a token depends on it and its position alone, so this costs no matrix of all pairs.
    """
    full = KVCache()
    for start in range(0, x.shape[1], PIECE):
        piece, part = x[:, start : start + PIECE], KVCache()
        layer(piece, torch.arange(start, start + piece.shape[1], device=x.device), cache=part)
        if part.k is None or part.v is None:
            raise RuntimeError("the layer filled no cache")
        full.take(full.extended(part.k, part.v, part.features, rotated=part.rotated, length=part.length), part.last)
    return full


def decode(layer: SelfAttention, token: Tensor, cache: KVCache) -> Tensor:
    """One step, ``token`` (1, 1, dim), after which the cache is what it was before."""
    with torch.inference_mode():
        out: Tensor = layer(token, cache=cache)
        cache.crop(token.shape[1])
    return out


def path_of(layer: SelfAttention, x: Tensor, cache: KVCache | None = None) -> str:
    """The path of attention that the layer takes for ``x`` (batch, tokens, dim), after the tokens in the cache."""
    q, k, v = (
        projection(x).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    acting: list[Encoding] = [e for e in layer.encodings if isinstance(e, Encoding)]
    features = [e.remember(x) if isinstance(e, ScoreEncoding) else None for e in acting]
    if cache is not None:
        draft = cache.extended(k, v, features, rotated=cache.rotated, length=cache.length)
        k, v, features = draft.k, draft.v, draft.features
    turned = cache is not None and cache.rotated
    left = [(e, f) for e, f in zip(acting, features, strict=True) if not (turned and isinstance(e, RotaryEncoding))]
    with own_precision(x.device.type):
        return explain(q, k, v, [e for e, _ in left], features=[f for _, f in left]).path


def _model_call(spec: str, learns: bool, length: int, conditions: Conditions) -> Call:
    c = conditions
    shape = Shape(c.dim, c.heads, c.layers, c.train_length)
    model = Decoder(spec, shape, hidden=c.hidden, seed=0).to(c.device)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (c.batch_size, length + 1), generator=generator).to(c.device)
    half = partial(torch.autocast, torch.device(c.device).type, torch.bfloat16, enabled=c.precision == "bfloat16")
    block = next(model.blocks.children())
    attention = next(part for part in block.children() if isinstance(part, SelfAttention))
    with torch.inference_mode(not learns), half():
        path = path_of(attention, model.embed(tokens[:, :-1]))

    def run() -> object:
        with torch.inference_mode(not learns):
            with half():
                out: Tensor = model(tokens[:, :-1])
            if not learns:
                return out
            loss = F.cross_entropy(out.flatten(0, 1).float(), tokens[:, 1:].flatten())
            return _gradients(loss, [*model.parameters()])

    return Call(run, path)


def _read(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        out: Tensor = layer(x)
    return out


def _learn(layer: nn.Module, x: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return _gradients(layer(x), [x, *layer.parameters()], gradient)


def _gradients(out: Tensor, wanted: Sequence[Tensor], gradient: Tensor | None = None) -> tuple[Tensor | None, ...]:
    found: tuple[Tensor | None, ...] = torch.autograd.grad(out, wanted, gradient, allow_unused=True)
    return found


def _normal(batch: int, tokens: int, conditions: Conditions) -> Tensor:
    drawn = torch.randn(batch, tokens, conditions.dim, generator=torch.Generator().manual_seed(tokens))
    return drawn.to(conditions.device, getattr(torch, conditions.precision))
