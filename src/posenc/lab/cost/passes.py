"""The calls that are measured: one layer of attention reads, learns or decodes, and a whole model reads or learns.

Each encoding has its own first values, as before a training, and input is drawn at random: what gates and counters
make of content costs what it costs then. Options that follow the trained length do so here; tables of positions have a
row for every position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.attend import explain_backend
from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding, no_autocast
from posenc.lab.config import LONGEST, Config
from posenc.lab.cost.costs import MODEL_PASSES
from posenc.lab.models.decoder import VOCABULARY, Decoder
from posenc.lab.specs import Shape, build_encodings, encoding_names
from posenc.layers import KVCache, SelfAttention
from posenc.layers.cache.keys import NewTokens

PIECE = 256  # tokens that a cache is filled with at a time
MOST_SECONDS = 24 * 3600  # of one cell


@dataclass(frozen=True)
class Conditions:
    """The numbers that decide a cost. Two costs are comparable if and only if these and the machine are equal.

    Raises:
        ValueError: for lengths that do not grow, no time, or a device left open.
    """

    config: Config  # of a comparison of texts
    lengths: tuple[int, ...]  # tokens that a layer alone reads, growing, in a batch of 1
    seconds: float  # for the timed rounds of one cell

    def __post_init__(self) -> None:
        lengths, shown = self.lengths, ",".join(map(str, self.lengths))
        if not lengths or lengths[0] < 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
            raise ValueError(f"--lengths {shown}: tokens from 1 on are needed, and they must grow")
        if lengths[-1] > LONGEST:
            raise ValueError(f"--lengths {shown}: at most {LONGEST:,} tokens are taken")
        if not 0 < self.seconds <= MOST_SECONDS:
            raise ValueError(f"--seconds {self.seconds}: a positive number up to {MOST_SECONDS:,} is needed")
        if self.device == "auto":
            raise ValueError("device is auto: costs need a device that was chosen before")

    @property
    def device(self) -> str:
        """Where it is measured."""
        return self.config.machine.device

    @property
    def dtype(self) -> torch.dtype:
        """Of a layer alone, and of the whole model's autocast."""
        return torch.bfloat16 if self.config.training.precision == "bfloat16" else torch.float32

    def shape(self, layers: int) -> Shape:
        """Of a model that is trained at the training length."""
        m = self.config.model
        return Shape(m.dim, m.heads, layers, self.config.training.train_length)

    def shown(self) -> dict[str, str]:
        """Every number that decides, in words."""
        known = self.config.shown()
        decide = ("dim", "heads", "layers", "train length", "batch size", "precision", "device", "threads")
        lengths = ", ".join(map(str, self.lengths))
        return {**{name: known[name] for name in decide}, "lengths": lengths, "seconds a cell": f"{self.seconds:g}"}


class Call(NamedTuple):
    """Something to measure."""

    run: Callable[[], object]
    path: str  # of attention


def make_call(spec: str, work: str, length: int, conditions: Conditions) -> Call:
    """One call of a pass at a length, with its inputs made.

    Args:
        spec: encodings as the lab names them.
        work: a key of `posenc.lab.cost.costs.PASSES`.
        length: tokens; for "decode" those in the cache.
        conditions: of the measuring.
    """
    if work in MODEL_PASSES:
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


def make_layer(spec: str, conditions: Conditions) -> nn.Module:
    """One layer with all encodings of a spec, including those that act on embeddings."""
    c = conditions
    rows = max(c.config.training.train_length, c.lengths[-1] + 1)
    shape = replace(c.shape(1), options={name: {"max_length": rows} for name in encoding_names(spec)})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = build_encodings(spec, shape)
        inside = [*built.embedding, *built.attention[0]]
        layer: nn.Module = SelfAttention(shape.dim, shape.heads, encodings=inside)
    return layer.to(c.device, c.dtype)


def fill_cache(layer: nn.Module, x: Tensor, size: int = PIECE) -> KVCache:
    """The cache that a layer fills from ``x`` (1, tokens, dim), in pieces of ``size`` tokens.

    Pieces do not attend to each other: what is kept of a token depends on it and its position alone, so this costs no
    matrix of all pairs.
    """
    full = KVCache()
    for start in range(0, x.shape[1], size):
        piece, part = x[:, start : start + size], KVCache()
        layer(piece, torch.arange(start, start + piece.shape[1], device=x.device), cache=part)
        if part.k is None or part.v is None:
            raise RuntimeError("the layer filled no cache")
        new = NewTokens(part.k, part.v, part.token_states, length=part.length, rotated=part.rotated)
        full._take(full._extended(new), part.last)
    return full


def decode(layer: nn.Module, token: Tensor, cache: KVCache) -> Tensor:
    """One step, ``token`` (1, 1, dim), after which the cache is what it was before."""
    with torch.inference_mode():
        out: Tensor = layer(token, cache=cache)
        cache.crop(token.shape[1])
    return out


def path_of(layer: nn.Module, x: Tensor, cache: KVCache | None = None) -> str:
    """The path of attention that the layer takes for ``x`` (batch, tokens, dim), after the tokens in the cache."""
    layer = next(part for part in layer.modules() if isinstance(part, SelfAttention))
    q, k, v = (
        projection(x).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    acting: list[Encoding] = [e for e in layer.encodings if isinstance(e, Encoding)]
    token_states = [e.token_state(x) if isinstance(e, ScoreEncoding) else None for e in acting]
    if cache is not None:
        draft = cache._extended(NewTokens(k, v, token_states, length=cache.length, rotated=cache.rotated))
        k, v, token_states = draft.k, draft.v, draft.token_states
    rotated = cache is not None and cache.rotated
    pairs = zip(acting, token_states, strict=True)
    left = [(e, state) for e, state in pairs if not (rotated and isinstance(e, RotaryEncoding))]
    with no_autocast(x.device.type):
        return explain_backend(q, k, v, [e for e, _ in left], token_states=[f for _, f in left]).backend


def _model_call(spec: str, learns: bool, length: int, conditions: Conditions) -> Call:
    c, m = conditions, conditions.config.model
    model = Decoder(spec, c.shape(m.layers), hidden=m.hidden, seed=0).to(c.device)
    size, generator = (c.config.training.batch_size, length + 1), torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, size, generator=generator).to(c.device)
    half = partial(torch.autocast, torch.device(c.device).type, torch.bfloat16, enabled=c.dtype == torch.bfloat16)
    with torch.inference_mode(not learns), half():
        path = path_of(model, model.embed(tokens[:, :-1]))

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


def _gradients(out: Tensor, parameters: Sequence[Tensor], gradient: Tensor | None = None) -> tuple[Tensor | None, ...]:
    trained = [tensor for tensor in parameters if tensor.requires_grad]
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(out, trained, gradient, allow_unused=True)
    return gradients


def _normal(batch: int, tokens: int, conditions: Conditions) -> Tensor:
    size, generator = (batch, tokens, conditions.config.model.dim), torch.Generator().manual_seed(tokens)
    return torch.randn(size, generator=generator).to(conditions.device, conditions.dtype)
