"""How sure a mean over seeds and windows is, and the difference of two encodings.

What is measured of one encoding at one test length is a table y[s, w]: bits per byte, or shares of right answers, of
the model from seed s in window w. Both are samples, of trainings and of texts that might as well have been others, and
every seed meets every window. So their effects are crossed:

    y[s, w] = μ + a[s] + b[w] + e[s, w]                     S seeds, W windows, all effects random

and S·W values are far from S·W independent ones. With the mean squares of the two-way analysis of variance,

    MS_S = W · Σ_s (ȳ[s] − ȳ)² / (S − 1)                     MS_W = S · Σ_w (ȳ[w] − ȳ)² / (W − 1)
    MS_E = Σ (y[s, w] − ȳ[s] − ȳ[w] + ȳ)² / ((S − 1)(W − 1))

the variance of the mean is estimated by moments, but never below what one of the two factors gives alone, and its
degrees of freedom are Satterthwaite's:

    V = max(MS_S + MS_W − MS_E, MS_S, MS_W)                 error = √(V / (S·W))
    ν = V² / (MS_S²/(S − 1) + MS_W²/(W − 1) + MS_E²/((S − 1)(W − 1)))
    low, high = ȳ ∓ t(ν) · error

Two or three seeds may lie close together by chance. Then V is small and ν, which now counts windows, is large: taken
alone, this interval covers μ in 89 % of cases with two seeds and 93 % with three, where 95 % are promised (simulated
with seeds and windows of equal weight). Therefore the interval is the widest of three: the one above, that over seeds
alone (√(MS_S/(S·W)), S − 1 degrees) and that over windows alone (√(MS_W/(S·W)), W − 1 degrees). With one seed, or one
window, only one is there, and it is the ordinary t interval.

Sources: F. E. Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin 2
(1946) 110–114, for ν. S. R. Searle, G. Casella, C. E. McCulloch, Variance Components (1992), chapter 4, for V.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]  # (seeds, windows)


class Interval(NamedTuple):
    """A mean and where the true one lies, in the unit of the values.

    With ``seeds == 1`` only windows are sampled: it holds for these models, and says nothing of another training.
    With ``windows == 1`` it holds for that one window.
    """

    mean: float
    low: float
    high: float
    error: float  # standard error; low and high are t(freedom) of it away from the mean
    freedom: float  # degrees of freedom of the error
    seeds: int
    windows: int


class MeanSquare(NamedTuple):
    """A mean square and its degrees of freedom."""

    value: float
    freedom: float


class Squares(NamedTuple):
    """The analysis of variance of a table; None for a factor with one level."""

    mean: float
    cells: int  # S·W
    seeds: MeanSquare | None
    windows: MeanSquare | None
    rest: MeanSquare | None


def mean_interval(values: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The mean of a table (seeds, windows) and its interval.

    Where all seeds and windows agree, the interval is a point.

    Raises:
        ValueError: no table, a value that is not finite, one seed with one window, or a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: a number between 0 and 1 is needed, not {confidence:g}")
    table = table_of(values)
    squares = analyse(table)
    from scipy.special import stdtrit  # not before: a worker compares nothing

    choices = [(float(stdtrit(nu, 0.5 + confidence / 2)) * error, error, nu) for error, nu in errors(squares)]
    half, error, freedom = max(choices)
    seeds, windows = table.shape
    return Interval(squares.mean, squares.mean - half, squares.mean + half, error, freedom, seeds, windows)


def paired(a: npt.ArrayLike, b: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The mean of ``a − b`` and its interval; negative where ``a`` is smaller.

    Row s of both is the same seed, and so the same order of data and the same initial weights of shared parts; column
    w is the same window. What both share cancels.

    Raises:
        ValueError: as `mean_interval`, or shapes that differ.
    """
    first, second = table_of(a, "a"), table_of(b, "b")
    if first.shape != second.shape:
        raise ValueError(
            f"a and b: the same seeds and windows are needed, but a has shape {first.shape} and b {second.shape}; "
            "keep what both have"
        )
    return mean_interval(first - second, confidence=confidence)


def p_value(table: Table, at_least: MeanSquare | None = None) -> float:
    """The two-sided p-value of "the true mean is 0": the largest of the t tests that belong to the three intervals.

    So it is below 0.05 exactly where the 95 % interval of `mean_interval` leaves 0 out. ``at_least``: see `errors`.
    """
    squares = analyse(table)
    if squares.mean == 0:
        return 1.0
    return max(_tail(abs(squares.mean), error, freedom) for error, freedom in errors(squares, at_least))


def table_of(values: npt.ArrayLike, name: str = "values") -> Table:
    """Values as a table of finite numbers; a ValueError that calls it ``name`` if they are none."""
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: a table of numbers (seeds, windows) is needed: {error}") from error
    if table.ndim != 2 or not table.size:
        raise ValueError(f"{name}: a table (seeds, windows) is needed, not shape {table.shape}")
    if not np.isfinite(table).all():
        seed, window = np.argwhere(~np.isfinite(table))[0]
        raise ValueError(
            f"{name}: {table[seed, window]} at seed {seed}, window {window}; finite numbers are needed, so leave out "
            "what is undefined at this length"
        )
    return table


def analyse(table: Table) -> Squares:
    """The two-way analysis of variance, one value a cell."""
    s, w = table.shape
    if s * w == 1:
        raise ValueError("values: one seed and one window say nothing of chance; two seeds or two windows are needed")
    origin = table[0, 0]  # subtracted first, so that equal values have no spread by rounding
    shifted = table - origin
    mean = shifted.mean()
    of_seeds, of_windows = shifted.mean(axis=1) - mean, shifted.mean(axis=0) - mean
    rest = shifted - mean - of_seeds[:, None] - of_windows[None, :]
    return Squares(
        mean=float(origin + mean),
        cells=s * w,
        seeds=_mean_square(w * (of_seeds**2).sum(), s - 1),
        windows=_mean_square(s * (of_windows**2).sum(), w - 1),
        rest=_mean_square((rest**2).sum(), (s - 1) * (w - 1)),
    )


def errors(squares: Squares, at_least: MeanSquare | None = None) -> list[tuple[float, float]]:
    """Standard errors of the mean with their degrees of freedom: over seeds, over windows, over both.

    Args:
        squares: of the table.
        at_least: a mean square of seeds that is known better, from more tables than this one. The table's own counts
            only where it is larger.
    """
    seeds, windows, rest = squares.seeds, squares.windows, squares.rest
    if seeds and at_least:
        seeds = MeanSquare(max(seeds.value, at_least.value), at_least.freedom)
    found = [factor for factor in (seeds, windows) if factor]
    if seeds and windows and rest and max(seeds.value, windows.value) > 0:
        found.append(_crossed(seeds, windows, rest))
    return [(math.sqrt(value / squares.cells), freedom) for value, freedom in found]


def _crossed(seeds: MeanSquare, windows: MeanSquare, rest: MeanSquare) -> MeanSquare:
    """V and ν."""
    value = max(seeds.value + windows.value - rest.value, seeds.value, windows.value)
    # shares of the whole, since squares of small numbers might vanish
    freedom = 1 / math.fsum((part.value / value) ** 2 / part.freedom for part in (seeds, windows, rest))
    return MeanSquare(value, freedom)


def _mean_square(total: float, freedom: int) -> MeanSquare | None:
    return MeanSquare(float(total) / freedom, freedom) if freedom else None


def _tail(distance: float, error: float, freedom: float) -> float:
    """The chance of a t at least as far from 0 on either side; ``distance`` is above 0."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -distance / error)) if error else 0.0
