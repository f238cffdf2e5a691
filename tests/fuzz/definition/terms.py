"""Parts of the definition: encodings as names and numbers, calls as tensors, and roundings that can be let in.

The definition itself rounds as float64 does. To learn how far rounding alone may move a result, every intermediate
number is moved at random by what one rounding of the library's precision would: see `Rounding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

TINY = {torch.float64: 1e-300, torch.float32: 1e-37, torch.bfloat16: 1e-37, torch.float16: 6e-8}
SINGLE = torch.finfo(torch.float32).eps
_HOST = 4e-15  # a few roundings of float64


class Rounding:
    """Moves numbers at random by what rounding may do to them; by nothing if both units are 0.

    Args:
        inner: unit of what is computed on the way, relative to the size of a number.
        stored: unit of what is kept in the dtype of the call: rotated queries and keys, weights, results.
        tiny: absolute size of the smallest steps.
        seed: of the random moves.
        least: what scores are rounded by, the unit itself: norms may add it to what they divide by.
    """

    def __init__(
        self, inner: float = 0.0, stored: float = 0.0, tiny: float = 0.0, seed: int = 0, *, least: float = SINGLE
    ) -> None:
        self.inner, self.units, self.tiny, self.least = inner, stored, tiny, least
        self.source = torch.Generator().manual_seed(seed)

    def near(self, x: Tensor, size: Tensor | float | None = None) -> Tensor:
        """``x`` moved by at most ``inner`` · size; size defaults to |x|."""
        return self._moved(x, size, self.inner)

    def stored(self, x: Tensor, size: Tensor | float | None = None) -> Tensor:
        """``x`` moved by at most ``stored`` · size."""
        return self._moved(x, size, self.units)

    def of_host(self, x: Tensor, size: Tensor) -> Tensor:
        """``x`` moved by what float64's own rounding may do, a few units of it, in calls of any precision."""
        return self._moved(x, size, _HOST) if self.inner else x

    def bent(self, x: Tensor, y: Tensor, size: Tensor | float = 1.0, *, host: bool = False) -> Tensor:
        """``y`` = f(``x``) with a derivative that is off by a unit · size, as 1 − s is where a sigmoid s is near 1.

        ``host``: the unit is float64's, in calls of any precision.
        """
        if self.inner == 0.0 or not x.requires_grad:
            return y
        unit = _HOST if host else self.inner
        return y + self._between(x) * (unit * size) * (x - x.detach())

    def _moved(self, x: Tensor, size: Tensor | float | None, unit: float) -> Tensor:
        if unit == 0.0:
            return x
        size = x.detach().abs() if size is None else size.detach() if isinstance(size, Tensor) else size
        moved = x + self._between(x) * (unit * size + self.tiny)
        if moved.requires_grad:  # the gradient that comes back is rounded as well
            moved.register_hook(lambda g: g + self._between(g) * (unit * g.abs() + self.tiny))
        return moved

    def _between(self, like: Tensor) -> Tensor:
        """Numbers in −1 … 1."""
        return torch.rand(like.shape, generator=self.source, dtype=torch.float64) * 2 - 1


@dataclass(frozen=True)
class Encoded:
    """An encoding: its class by name, what its constructor was given, and its parameters in float64.

    Options that are encodings or scalings themselves are `Encoded` with their own parameters, also in lists.
    """

    kind: str
    options: Mapping[str, object] = field(default_factory=dict)
    parameters: Mapping[str, Tensor] = field(default_factory=dict)

    def option(self, name: str, default: object = None) -> object:
        return self.options.get(name, default)

    def number(self, name: str, default: float) -> float:
        inputs = self.options.get(name)
        return float(default if inputs is None else inputs)  # type: ignore[arg-type]

    def count(self, name: str, default: int = 0) -> int:
        inputs = self.options.get(name)
        return int(default if inputs is None else inputs)  # type: ignore[call-overload]


@dataclass
class Call:
    """One call, in float64: what `define` is given, brought to one form.

    Positions are ``(batch, tokens)``, or ``(batch, tokens, axes)``; int64 or float64. ``sees`` is who may see whom,
    ``(batch, heads, queries, keys)``; ``hides`` is what mask and segments alone allow, without an order of tokens.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_pos: Tensor
    k_pos: Tensor
    x: Tensor | None
    sees: Tensor
    known: Tensor  # (batch, keys) bool: keys that mask lets anybody see
    used: Tensor  # (batch, keys) bool: keys that some query sees, or would without a window
    of_queries: Tensor  # documents, (batch, queries)
    of_keys: Tensor  # (batch, keys)
    scale: float
    length: int | None
    rounding: Rounding
    q_content: Tensor | None = None  # before any rotation
    k_content: Tensor | None = None
    softcap: float | None = None
    by_position: bool = False  # causal="positions"

    @property
    def key_index(self) -> Tensor:
        """The index of each query among the keys, ``(queries,)``: queries are the last of them."""
        return torch.arange(self.q.shape[2]) + (self.k.shape[2] - self.q.shape[2])

    def capped(self, products: Tensor) -> Tensor:
        """Products of queries and keys, times the scale, kept within ± softcap."""
        if self.softcap is None:
            return products
        bounded = self.rounding.near(self.softcap * (products / self.softcap).tanh(), self.softcap)
        return self.rounding.bent(products, bounded, 1.0 + self._steeper(products.detach()))

    def _steeper(self, products: Tensor) -> Tensor | float:
        """How much steeper the cap may be where rounding takes a product to, in units: random moves hit that rarely."""
        if self.softcap is None or not self.rounding.inner:
            return 0.0
        unit = self.rounding.inner if self.q_content is self.q else self.rounding.units
        sizes = self.q.detach().abs() @ self.for_queries(self.k).detach().abs().mT
        least = (products.abs() - 2 * unit * abs(self.scale) * sizes).clamp(min=0.0)
        return ((products / self.softcap).tanh() ** 2 - (least / self.softcap).tanh() ** 2) / self.rounding.inner

    def group(self) -> int:
        return self.q.shape[1] // self.k.shape[1]

    def for_queries(self, of_key_heads: Tensor) -> Tensor:
        """What key heads have, once for each query head that reads it: head h reads key head h // group."""
        return of_key_heads[:, [head // self.group() for head in range(self.q.shape[1])]]


def products(a: Tensor, b: Tensor, rounding: Rounding) -> Tensor:
    """a · bᵀ over the last axis, ``(…, m, n)``, rounded relative to the sum of absolute products."""
    return rounding.near(a @ b.mT, a.detach().abs() @ b.detach().abs().mT)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, rounding: Rounding) -> Tensor:
    """x · weightᵀ + bias, rounded relative to the sum of absolute terms."""
    out = x @ weight.mT
    size = x.detach().abs() @ weight.detach().abs().mT
    if bias is not None:
        out, size = out + bias, size + bias.detach().abs()
    return rounding.near(out, size)


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), without a bound above which it is taken for x."""
    return torch.logaddexp(x, torch.zeros_like(x))
