"""A spectrum without torch: its frequencies as Python's floats, and the base class of the formulas that scale them.

    theta_j = base^(−2j / dim),  j = 0 … dim/2 − 1          radians per token

theta is the correctly rounded float64 of each frequency (decimal arithmetic of 50 digits), so that an
angle p·theta is off by at most p · 1.1e-16 · theta: 2e-7 rad at p = 2³¹.

A `Formula` is written once and computes with either kind of numbers: with tensors inside a model (`posenc.frequencies`
has each formula as a module), and with a `Vector` of floats where a configuration is read, explained or written, which
must not wait seconds for torch.

Source: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2; the same frequencies as Vaswani et al., arXiv
    1706.03762, section 3.5.
Checked against: mpmath; transformers, gpt-neox and llama-models' tables. tests/frequencies/test_host.py holds both
    kinds of numbers against each other.
"""

from __future__ import annotations

import decimal
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from posenc.arguments import LONGEST, check_number

Array = Any  # a float64 tensor, or a `Vector`: formulas use what both have
_TURN = decimal.Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563")


class Vector:
    """Numbers that add, multiply and compare like a float64 tensor of one axis, or of none; what formulas need."""

    __slots__ = ("_values", "ndim")

    def __init__(self, values: Sequence[float] | float) -> None:
        self.ndim = 0 if isinstance(values, int | float) else 1
        self._values = (float(values),) if isinstance(values, int | float) else tuple(map(float, values))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._values),) if self.ndim else ()

    def tolist(self) -> Any:
        """The numbers as a list, or as a float where there is no axis."""
        return list(self._values) if self.ndim else self._values[0]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)

    def __float__(self) -> float:
        (value,) = self._values
        return value

    def __bool__(self) -> bool:
        return bool(float(self))

    def __repr__(self) -> str:
        return f"Vector({self.tolist()})"

    def __getitem__(self, index: tuple[Any, slice]) -> Vector:
        return Vector(self._values[index[1]])  # of an ellipsis and a slice

    def new_tensor(self, values: Sequence[float] | float) -> Vector:
        return Vector(values)

    def new_ones(self, shape: tuple[int, ...]) -> Vector:
        return Vector([1.0] * shape[0]) if shape else Vector(1.0)

    def _each(self, function: Callable[..., float], *operands: Vector | float) -> Vector:
        """A function of each number and of the operands' numbers at the same index; a single number broadcasts."""
        vectors = (self, *(other if isinstance(other, Vector) else Vector(other) for other in operands))
        size = max(len(vector) for vector in vectors)
        columns = (vector._values * (size if len(vector) == 1 else 1) for vector in vectors)
        results = [function(*row) for row in zip(*columns, strict=True)]
        return Vector(results if any(vector.ndim for vector in vectors) else results[0])

    def __add__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a + b, other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a - b, other)

    def __rsub__(self, other: float) -> Vector:
        return self._each(lambda value: other - value)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a * b, other)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a / b, other)

    def __pow__(self, other: Vector | float) -> Vector:
        return self._each(math.pow, other)

    def __neg__(self) -> Vector:
        return self._each(lambda value: -value)

    def __abs__(self) -> Vector:
        return self._each(abs)

    def __gt__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a > b, other)

    def __ge__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a >= b, other)

    def __lt__(self, other: Vector | float) -> Vector:
        return self._each(lambda a, b: a < b, other)

    def __eq__(self, other: Vector | float) -> Vector:  # type: ignore[override]
        return self._each(lambda a, b: a == b, other)

    __hash__ = None  # type: ignore[assignment]
    __radd__, __rmul__ = __add__, __mul__

    def log(self) -> Vector:
        return self._each(math.log)

    def log2(self) -> Vector:
        return self._each(math.log2)

    def exp2(self) -> Vector:
        return self._each(lambda value: 2.0**value)

    def ceil(self) -> Vector:
        return self._each(math.ceil)

    def floor(self) -> Vector:
        return self._each(math.floor)

    def abs(self) -> Vector:
        return abs(self)

    def all(self) -> bool:
        return all(self._values)

    def double(self) -> Vector:
        return self

    def clamp(self, min: float = -math.inf, max: float = math.inf) -> Vector:  # noqa: A002
        return self._each(lambda value: max if value > max else min if value < min else value)

    def where(self, condition: Vector, other: Vector) -> Vector:
        """This vector's numbers where the condition holds, ``other``'s elsewhere."""
        return self._each(lambda value, holds, else_: value if holds else else_, condition, other)


class Start(NamedTuple):
    """Frequencies of the first tokens of a sequence, where a scaling leaves those alone (LongRoPE).

    Attributes:
        tokens: positions below it are rotated by ``theta``, all others by the spectrum's own.
        theta: float64, ``(pairs,)``.
        gain: factor on rotated q and k at those positions.
    """

    tokens: int
    theta: Array
    gain: float = 1.0


class HostSpectrum(NamedTuple):
    """Frequencies of the pairs of a rotation, as `posenc.frequencies.Spectrum`, in Python's floats.

    Attributes:
        theta: radians per token.
        length: tokens that the spectrum spans, or None for the length that the model was trained at.
        gain: factor on rotated q and k, without an axis.
        start: other frequencies for the first tokens, or None.
    """

    theta: Vector
    length: int | None = None
    gain: Vector = Vector(1.0)  # nothing changes a Vector
    start: Start | None = None

    def times_longer(self, original_length: int) -> Vector:
        """max(1, length / original_length)."""
        return Vector(max(1.0, (self.length or 0) / original_length))


class Constants:
    """What formulas and modules of scalings share: options are set once, and some follow from the training length."""

    length_dependent: bool = False  # whether the result depends on spectrum.length

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an option for the first time; a ValueError for the second, as rotations have made their tables of it."""
        if name in vars(self) and name != "training" and not name.startswith("_"):  # nn.Module's own switch and state
            kind = type(self).__name__
            raise ValueError(
                f"{name} of {kind} cannot be changed, as tables follow from it: make a new {kind}({name}=…) and a "
                "rotation with it, for RoPE rope.replace(scaling=…)"
            )
        super().__setattr__(name, value)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Options for a model trained at so many tokens: ``original_length``, where the constructor takes one."""
        return {"original_length": train_length} if "original_length" in inspect.signature(cls).parameters else {}


class Formula(Constants):
    """A scaling's formula: from a spectrum to a spectrum, in tensors or in Python's floats.

    Constants are Python numbers, which no cast of a module can round, and are set once. ``forward`` is arithmetic that
    broadcasts over leading axes of tensors and uses what a `Vector` has too.
    """

    def forward(self, spectrum: Any) -> Any:
        """The scaled spectrum."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The options in words."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class Chain(Formula):
    """Formulas that follow one another; as modules an ``nn.Sequential``, whose text it has."""

    def __init__(self, *steps: Formula) -> None:
        self.steps = steps
        self.length_dependent = any(step.length_dependent for step in steps)

    def __iter__(self) -> Iterator[Formula]:
        return iter(self.steps)

    def forward(self, spectrum: Any) -> Any:
        for step in self.steps:
            spectrum = step.forward(spectrum)
        return spectrum

    def __repr__(self) -> str:
        return "\n".join(["Sequential(", *(f"  ({number}): {step}" for number, step in enumerate(self.steps)), ")"])


def steps_of(scaling: Any) -> list[Any]:
    """The scalings that follow one another, of a formula, a module or None."""
    if scaling is None:
        return []
    return [step for part in scaling for step in steps_of(part)] if hasattr(scaling, "__iter__") else [scaling]


def geometric(dim: int, base: float, *, denominator: int | None = None) -> list[float]:
    """The geometric frequencies ``base^(−2j / denominator)``, j = 0 … ceil(dim / 2) − 1, correctly rounded.

    Args:
        dim: channels; an odd ``dim`` yields (dim + 1) / 2 frequencies.
        base: wavelengths run from 2π to about 2π · base tokens.
        denominator: default ``dim``.
    """
    with decimal.localcontext(prec=50):
        log_base = decimal.Decimal(base).ln()
        below = decimal.Decimal(dim if denominator is None else denominator)
        return [float((-2 * j * log_base / below).exp()) for j in range((dim + 1) // 2)]


def first_incomplete_pair(pairs: int, base: float, length: int, periods: float = 1.0) -> int:
    """The first pair of RoPE, from 0, that completes at most ``periods`` periods within ``length`` tokens.

    ceil(pairs · log_base(length / (2π · periods))), which lies outside 0 … pairs − 1 where every pair completes more or
    none does. Half the critical dimension of Liu et al., Scaling Laws of RoPE-based Extrapolation, arXiv 2310.05209.

    >>> first_incomplete_pair(48, 10_000.0, 2048), first_incomplete_pair(64, 500_000.0, 8192)
    (31, 35)
    """
    return math.ceil(pairs * math.log(length / (2 * math.pi * periods), base))


def turns(theta: list[float]) -> list[int]:
    """Each frequency as a fraction of a rotation in 64-bit fixed point, round(theta / 2π · 2⁶⁴) wrapped to int64."""
    with decimal.localcontext(prec=60):
        fractions = [int((decimal.Decimal(t) / _TURN * 2**64).to_integral_value()) for t in theta]
    return [(w + 2**63) % 2**64 - 2**63 for w in fractions]


def index_like(theta: Array) -> Array:
    """The number j of each pair, ``(pairs,)``, of the same kind as ``theta``."""
    return theta.new_tensor([float(j) for j in range(theta.shape[-1])])


def index_of(theta: Array, frequency: float, scaling: str) -> Array:
    """The fractional number j at which a geometric spectrum has ``frequency``, ``(..., 1)``.

    Args:
        theta: ``(..., pairs)``.
        frequency: radians per token.
        scaling: the scaling's name, for the error.

    Raises:
        ValueError: where theta is not geometric, or a single pair; values are not looked at under a compiler.
    """
    pairs = theta.shape[-1]
    if pairs < 2:
        raise ValueError(f"{scaling} places pairs on a geometric spectrum and needs at least two, got {pairs}")
    first, last = theta[..., :1].log(), theta[..., -1:].log()
    if not is_geometric(theta):
        raise ValueError(f"{scaling} needs a geometric spectrum: put it before scalings that bend it")
    return (pairs - 1) * (first - math.log(frequency)) / (first - last)


def is_geometric(theta: Array) -> bool:
    """Whether the frequencies ``(..., pairs)`` fall by one ratio; values are not looked at under a compiler."""
    fake = hasattr(theta, "fake_mode")  # a tensor without numbers
    if theta.shape[-1] < 2 or (
        not isinstance(theta, Vector) and (fake or sys.modules["torch"].compiler.is_compiling())
    ):
        return True
    first, last = theta[..., :1].log(), theta[..., -1:].log()
    line = first + (last - first) * index_like(theta) / (theta.shape[-1] - 1)
    return bool(((theta.log() - line).abs() < 1e-9).all())


def check_base(base: float, name: str = "base") -> None:
    """Raise a ValueError unless ``base`` is a finite number above 1."""
    check_number(name, base, above=1)


def check_factor(factor: float, name: str = "factor") -> None:
    """Raise a ValueError unless ``factor`` is a finite number of at least 1."""
    check_number(name, factor, least=1)


def check_length(length: int, name: str = "original_length") -> None:
    """Raise a ValueError unless ``length`` is a whole number of at least 1."""
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= LONGEST:
        raise ValueError(f"{name} must be an integer of at least 1, in tokens, got {length!r}")
