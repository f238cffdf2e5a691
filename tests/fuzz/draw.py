"""Random choices that one whole number brings back, and an encoding by its name and options."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

import posenc
from posenc import bias, embedding, frequencies, rotary, score, weight
from posenc.encoding import Encoding
from tests.fuzz.definition.terms import Encoded

Item = TypeVar("Item")

_PACKAGES = (embedding, rotary, bias, score, weight, frequencies, posenc)
NAMES: dict[str, Any] = {name: getattr(package, name) for package in _PACKAGES for name in package.__all__}


def _data_dependent_alibi(dim: int, form: str = "causal", bias_init: float = 5.0, **options: Any) -> nn.Module:
    """x-transformers' words for some kinds of forget gate."""
    return posenc.ForgetGate(dim, kind={"causal": "data"}.get(form, form), bias_init=bias_init, **options)


NAMES.setdefault("DataDependentALiBi", _data_dependent_alibi)


class Draw:
    """A stream of choices.

    Args:
        seed: equal seeds give equal choices.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self.source = torch.Generator().manual_seed(seed)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def choice(self, items: Sequence[Item]) -> Item:
        return self._random.choice(items)

    def weighted(self, items: Mapping[Item, float]) -> Item:
        return self._random.choices(list(items), list(items.values()))[0]

    def integer(self, low: int, high: int) -> int:
        """low … high."""
        return self._random.randint(low, high)

    def number(self, low: float, high: float) -> float:
        return round(self._random.uniform(low, high), 4)

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        return self._random.sample(list(items), count)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.source, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.source, dtype=torch.float64)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """low … high, int64."""
        return torch.randint(low, high + 1, shape, generator=self.source)

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.source)


@dataclass(frozen=True)
class Sizes:
    """Of one call."""

    heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    dim: int  # of x
    content: int | None = None  # head_dim before rotations, where one has changed it

    @property
    def content_dim(self) -> int:
        return self.head_dim if self.content is None else self.content


@dataclass(frozen=True)
class Spec:
    """A class by name and the options of its constructor; options may hold specs themselves."""

    kind: str
    options: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={_shown(value)}' for name, value in self.options.items())})"

    def build(self) -> nn.Module:
        return cast("nn.Module", NAMES[self.kind](**{name: _built(v) for name, v in self.options.items()}))

    def encoded(self, parameters: dict[str, Tensor]) -> Encoded:
        """As the definition takes it, with parameters under the names that the module gives them."""
        options = {}
        for name, value in self.options.items():
            inner = f"rope.{name}" if self.kind in ("MRoPE", "RoPEpp") else name
            options[name] = _encoded(value, parameters, inner)
        return Encoded(self.kind, options, parameters)


def _shown(value: object) -> str:
    if isinstance(value, list) and _holds_specs(value):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value) if isinstance(value, Spec) else repr(value)


def _holds_specs(value: list[object]) -> bool:
    return any(
        isinstance(item, Spec) or (isinstance(item, list) and (not item or _holds_specs(item))) for item in value
    )


def _built(value: object) -> object:
    if isinstance(value, Spec):
        return value.build()
    if isinstance(value, list) and _holds_specs(value):
        if all(isinstance(item, Spec) for item in value):  # a chain of scalings
            return nn.Sequential(*[item.build() for item in value if isinstance(item, Spec)])
        return [[member.build() for member in item] for item in value]
    return value


def _encoded(value: object, parameters: dict[str, Tensor], prefix: str) -> object:
    if isinstance(value, Spec):
        return value.encoded(_below(parameters, prefix))
    if isinstance(value, list) and _holds_specs(value):
        return [_encoded(item, parameters, f"{prefix}.{at}") for at, item in enumerate(value)]
    return [] if value == [] else value


def _below(parameters: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: t for name, t in parameters.items() if name.startswith(prefix + ".")}


def make(spec: Spec, draw: Draw, *, strength: float = 0.5) -> Encoding:
    """The module, with every parameter moved, so that what starts at zero matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.integer(0, 2**31))
        module = spec.build()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_((draw.uniform(*parameter.shape) * strength).to(parameter.dtype))
    return cast("Encoding", module.eval())


def without_scaling(spec: Spec) -> Spec:
    """Without a scaling, of which a mixture takes none that depends on the length."""
    return Spec(spec.kind, {name: value for name, value in spec.options.items() if name != "scaling"})
