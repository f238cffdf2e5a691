"""When does a result disagree with the definition? When it lies farther off than rounding can take it.

Error model. The definition is evaluated in float64, once as it is and then again with every intermediate number moved
at random by a few units of the rounding that the library's own precision makes: products by the unit times the sum of
absolute terms, cos and sin by three units, what is kept in the dtype of the call (rotated queries and keys, weights,
results) by a unit of that. How far a row of the result moves is how far rounding may take it: ill-conditioned rows
(large scores that nearly tie) move far, others hardly. A row of the library may be off by `MARGIN` times the largest
move of that row, and by a few units of the last place.

So nothing is tuned to an encoding, and a wrong distance, mask or scale shows wherever it is larger than rounding.
`test_oracle` proves that on perturbed calls. Whoever fails against one move is judged again by `MORE` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tests.fuzz.definition.terms import TINY, Rounding

MARGIN, MORE = 4.0, 30
_HALF = 6 * torch.finfo(torch.float32).eps
UNITS = {  # of numbers on the way, and of those kept in the dtype
    torch.float64: (24 * torch.finfo(torch.float64).eps,) * 2,
    torch.float32: (_HALF, _HALF),
    torch.bfloat16: (_HALF, torch.finfo(torch.bfloat16).eps),
    torch.float16: (_HALF, torch.finfo(torch.float16).eps),
}

Results = Mapping[str, Tensor]


class DisagreementError(AssertionError):
    """The library gave something that rounding does not explain, or failed without saying why."""


def rounding_of(dtype: torch.dtype, seed: int) -> Rounding:
    """What one random rounding in calls of a dtype looks like."""
    inner, stored = UNITS[dtype]
    return Rounding(inner, stored, TINY[dtype], seed, least=_least(dtype))


def _least(dtype: torch.dtype) -> float:
    """The unit of scores, which are float32 or better."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps


def judge(got: Results, define: Callable[[Rounding], Results], dtype: torch.dtype) -> float:
    """The largest error in units of what is allowed; a `DisagreementError` above 1.

    Args:
        got: results by name.
        define: the definition of all of them, under given roundings.
        dtype: of the call.
    """
    expected = define(Rounding(least=_least(dtype)))
    spread = {name: torch.zeros_like(t) for name, t in expected.items()}
    for seed in range(MORE):
        for name, moved in define(rounding_of(dtype, seed + 1)).items():
            spread[name] = torch.maximum(spread[name], _finite((moved.detach() - expected[name].detach()).abs()))
        worst = {name: _excess(got[name], expected[name].detach(), spread[name], dtype) for name in expected}
        if all(excess <= 1 for excess, _ in worst.values()):
            return max((excess for excess, _ in worst.values()), default=0.0)
    raise DisagreementError("; ".join(f"{name} {text}" for name, (excess, text) in worst.items() if excess > 1))


def _finite(x: Tensor) -> Tensor:
    return torch.nan_to_num(x, nan=torch.inf, posinf=torch.inf)


def _excess(got: Tensor, expected: Tensor, spread: Tensor, dtype: torch.dtype) -> tuple[float, str]:
    """How many times the allowed error a result is off, and that in words."""
    if got.shape != expected.shape:
        return torch.inf, f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
    if not got.numel():
        return 0.0, ""
    got = got.detach().double()
    by_row = (lambda t: t.amax(-1, keepdim=True)) if expected.ndim else (lambda t: t)
    unit = torch.finfo(dtype).eps
    nothing = UNITS[dtype][0] ** 2 * (expected.abs().amax() if expected.numel() else 0.0)  # beside the largest number
    allowed = MARGIN * by_row(spread) + 4 * unit * by_row(expected.abs()) + 4 * TINY[dtype] + nothing
    error = _finite((got - expected).abs())
    outside = (expected.abs() > 0.9 * torch.finfo(dtype).max) | ~expected.isfinite()  # what the dtype cannot hold
    excess = torch.where(outside, 0.0, torch.nan_to_num(error / allowed, nan=0.0, posinf=torch.inf))
    at = int(excess.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), expected.shape))
    actual, right = got.flatten()[at].item(), expected.flatten()[at].item()
    room = allowed.expand_as(expected).flatten()[at].item()
    return float(
        excess.flatten()[at]
    ), f"at {place} {actual:.9g} instead of {right:.9g}, off by {abs(actual - right):.3g} where {room:.3g} is allowed"
