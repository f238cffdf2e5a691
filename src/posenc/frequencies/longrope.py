"""LongRoPE: a factor for each pair, found by a search, one set for short texts and one for long ones.

    theta_j ← theta_j / lambda_j,    lambda = short up to original_length, long past it
    gain = sqrt(1 + ln(factor) / ln(original_length))                                        gain="su"
    gain = 0.1 ln(factor) + 1                                                                gain="yarn"
    lambda_j(length) = 1 + (lambda_j − 1) · (length/original_length − 1) / (factor − 1)      DynamicLongRoPE

Positions below ``start_tokens`` are rotated by unscaled frequencies and have no gain; relativity towards them is lost.
The gain holds for both sets. The factors come from `posenc.search.longrope`; a search wants them not to fall with j.
``length`` = tokens that a row spans, found or declared; undeclared it is no causal model, as earlier tokens turn
differently once later ones have come. Checkpoints: Phi-3 and Phi-3.5 (128k), Phi-4-mini, MiniCPM; rope types "longrope"
and "su".

Source: Ding et al., LongRoPE, arXiv 2402.13753, section 3 (algorithm 1 for the search); gain "su": Phi-3's code.
Checked against: transformers' longrope type; microsoft/LongRoPE, start tokens as its tables have them.
Departs from the source: the dynamic form is clamped, as lengths below original_length gave factors below 1 and factor 1
    a division by zero; the released class for start tokens cannot run. Serving engines choose a set once, by the
    longest length (declare it for that).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Self

from posenc.arguments import LONGEST, check_number, check_whole
from posenc.frequencies.host import Array, Formula, Start, check_factor, check_length

Policy = Literal["su", "yarn"]
STOPPED = 1e30
"""A factor that stops a pair: within 2³¹ positions its angle stays below 2³¹ · 10⁻³⁰ = 2 · 10⁻²¹, whose cosine is 1 and
whose sine is below the last digit of queries and keys, in float64 too. In float32 every base that models have leaves
the frequency a normal number or 0."""


class LongRoPE(Formula):
    """Divide each pair's frequency by its own factor: by a short set up to the training length, by a long one beyond.

    Args:
        short, long: factors above 0, one a pair.
        original_length: tokens that the model was trained at.
        factor: context length over training length for which the long factors hold, at least 1; it only sets the gain.
        start_tokens: positions below it rotate as in plain RoPE.
        gain: ``"su"``, ``"yarn"`` or a number.
        short_gain, long_gain: gains of one set, instead of ``gain``.

    >>> from posenc import RoPE
    >>> rope = RoPE(8, scaling=LongRoPE([1, 1, 1, 1], [1, 2, 3, 4], original_length=4096, factor=4.0))
    >>> (RoPE(8).spectrum().theta / rope.spectrum(8192).theta).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """

    def __init__(
        self,
        short: Sequence[float],
        long: Sequence[float],
        *,
        original_length: int,
        factor: float,
        start_tokens: int = 0,
        gain: Policy | float = "su",
        short_gain: float | None = None,
        long_gain: float | None = None,
    ) -> None:
        super().__init__()
        check_length(original_length)
        check_factor(factor)
        check_start(start_tokens)
        self.short, self.long = check_factors("short", short), check_factors("long", long)
        if len(self.short) != len(self.long):
            raise ValueError(f"short and long must have one factor a pair, got {len(self.short)} and {len(self.long)}")
        self.original_length, self.factor, self.start_tokens = original_length, float(factor), start_tokens
        both = gain_of(gain, float(factor), original_length)
        self.short_gain = both if short_gain is None else check_gain("short_gain", short_gain)
        self.long_gain = both if long_gain is None else check_gain("long_gain", long_gain)
        self.length_dependent = (self.short, self.short_gain) != (self.long, self.long_gain)

    def forward(self, spectrum: Any) -> Any:
        theta = spectrum.theta
        check_pairs("short and long", len(self.short), theta)
        short, long = theta.new_tensor(self.short), theta.new_tensor(self.long)
        past = spectrum.times_longer(self.original_length) > 1
        gain = theta.new_tensor(self.long_gain).where(past, theta.new_tensor(self.short_gain))
        start = start_of(spectrum, self.start_tokens)
        return spectrum._replace(theta=theta / long.where(past, short), gain=spectrum.gain * gain, start=start)

    @classmethod
    def of_layers(
        cls,
        short: Sequence[Sequence[float]],
        long: Sequence[Sequence[float]],
        *,
        original_length: int,
        factor: float,
        start_tokens: int = 0,
        gain: Policy | float = "su",
    ) -> list[Self]:
        """One scaling a layer, from factors ``(layers, pairs)`` as the authors publish them."""
        if len(short) != len(long):
            raise ValueError(f"short and long must have one row a layer, got {len(short)} and {len(long)}")
        options = {"original_length": original_length}
        return [
            cls(s, t, **options, factor=factor, start_tokens=start_tokens, gain=gain)
            for s, t in zip(short, long, strict=True)
        ]

    def extra_repr(self) -> str:
        start = f", start_tokens={self.start_tokens}" if self.start_tokens else ""
        ends = f"short={shown(self.short)}, long={shown(self.long)}"
        return f"{ends}, original_length={self.original_length}, factor={self.factor:g}{start}"


class DynamicLongRoPE(Formula):
    """Factors that grow with the length of a row, from 1 at the training length to ``factors`` at ``factor`` times it.

    Args:
        factors: above 0, one a pair, for the longest length.
        original_length: tokens that the model was trained at.
        factor: context length over training length for which the factors hold, at least 1; where it is 1 they hold at
            once.
        start_tokens: positions below it rotate as in plain RoPE.
        gain: ``"su"``, ``"yarn"`` or a number.

    >>> from posenc import RoPE
    >>> rope = RoPE(8, scaling=DynamicLongRoPE([1, 2, 3, 4], original_length=4096, factor=4.0))
    >>> (RoPE(8).spectrum().theta / rope.spectrum(4 * 4096).theta).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """

    length_dependent = True

    def __init__(
        self,
        factors: Sequence[float],
        *,
        original_length: int,
        factor: float,
        start_tokens: int = 0,
        gain: Policy | float = "su",
    ) -> None:
        super().__init__()
        check_length(original_length)
        check_factor(factor)
        check_start(start_tokens)
        self.factors = check_factors("factors", factors)
        self.original_length, self.factor, self.start_tokens = original_length, float(factor), start_tokens
        self.gain = gain_of(gain, float(factor), original_length)

    def forward(self, spectrum: Any) -> Any:
        theta = spectrum.theta
        check_pairs("factors", len(self.factors), theta)
        longer = spectrum.times_longer(self.original_length).clamp(max=self.factor)
        share = (longer - 1) / (self.factor - 1) if self.factor > 1 else longer.new_ones(longer.shape)
        factors = 1 + (theta.new_tensor(self.factors) - 1) * share
        start = start_of(spectrum, self.start_tokens)
        return spectrum._replace(theta=theta / factors, gain=spectrum.gain * self.gain, start=start)

    def extra_repr(self) -> str:
        start = f", start_tokens={self.start_tokens}" if self.start_tokens else ""
        return f"{shown(self.factors)}, original_length={self.original_length}, factor={self.factor:g}{start}"


def below_critical(factor: float, critical: int) -> list[float]:
    """LongRoPE2's factors of the pairs below a critical one, as a larger base gives them.

    The base that slows the critical pair by ``factor`` slows pair j by factor^(j / critical).
    Source: Shang et al., LongRoPE2, arXiv 2502.20082, algorithm 2, lines 7 and 8.

    >>> below_critical(4.0, 2)
    [1.0, 2.0]
    """
    return [factor ** (pair / critical) for pair in range(critical)]


def gain_of(gain: Policy | float, factor: float, original_length: int) -> float:
    """The factor on rotated q and k under a policy."""
    if gain == "su":
        return math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 else 1.0
    if gain == "yarn":
        return 0.1 * math.log(factor) + 1
    return check_gain("gain", gain)


def check_gain(name: str, gain: float | str) -> float:
    """The gain as a number, or a ValueError."""
    if isinstance(gain, str):
        raise ValueError(f"{name} must be a finite number above 0 (gain also 'su' or 'yarn'), got {gain!r}")
    check_number(name, gain, above=0)
    return float(gain)


def check_factors(name: str, factors: Sequence[float]) -> tuple[float, ...]:
    """The factors as numbers, or a ValueError."""
    if not isinstance(factors, Sequence) or isinstance(factors, str) or len(factors) == 0:
        raise ValueError(f"{name} must be finite factors above 0, one a pair, got {factors!r}")
    for factor in factors:
        check_number(name, factor, above=0)
    return tuple(float(f) for f in factors)


def check_pairs(name: str, count: int, theta: Array) -> None:
    """Raise a ValueError unless there is one factor a pair."""
    if count != theta.shape[-1]:
        raise ValueError(f"{name} must have one factor for each of {theta.shape[-1]} pairs, got {count}")


def check_start(start_tokens: int) -> None:
    """Raise a ValueError unless ``start_tokens`` counts tokens."""
    check_whole("start_tokens", start_tokens, least=0, most=LONGEST)


def start_of(spectrum: Any, start_tokens: int) -> Start | None:
    """The first tokens, at the frequencies before this scaling."""
    return Start(start_tokens, spectrum.theta) if start_tokens else spectrum.start


def shown(factors: Sequence[float]) -> str:
    """The ends of a list of factors."""
    listed = [f"{f:g}" for f in factors]
    return f"[{', '.join(listed if len(listed) <= 4 else [*listed[:2], '…', listed[-1]])}]"
