"""The right-hand side of CLEX's differential equation, one step of its solver, and the derivative of a step.

    dw/dt = act((w + offset + slope · ln a) up) down + slope · 2/a,   a = 2t − 1
    slope_j = −j / (pairs − 1)

w_j(t) = ln(theta_j(t) / theta_j) is what scale t adds to a log frequency. A step is Kutta's 3/8 rule. What depends on
time alone is made for many steps at once, so that a stage is two small products and an activation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.frequencies.spectrum import host_float64

ACTIVATIONS = ("tanh", "silu")
_NODES = (0.0, 1 / 3, 2 / 3, 1.0)  # where in a step its four stages lie


class Terms(NamedTuple):
    """What time alone adds in the four stages of steps, ``(4, steps, …)``."""

    shift: Tensor  # slope · ln a, to a log frequency
    hidden: Tensor  # (offset + shift) up, before the activation
    drift: Tensor  # slope · 2/a, to dw/dt

    def of_each_step(self) -> list[Terms]:
        return [Terms(*parts) for parts in zip(*(torch.split(t, 1, 1) for t in self), strict=True)]


class Dynamics(NamedTuple):
    """All that a solution depends on, on the host in float64."""

    offset: Tensor  # (pairs,)
    up: Tensor  # (pairs, hidden)
    down: Tensor  # (hidden, pairs)
    step: float
    activation: str

    @classmethod
    def of(cls, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str) -> Dynamics:
        # copies, whatever the dtype and device: no optimizer may reach into the memory of a kept solution
        offset, up, down = (t.detach().to("cpu").to(torch.float64, copy=True) for t in (offset, up, down))
        return cls(offset, up, down, step, activation)

    def equals(self, other: Dynamics) -> bool:
        if (self.step, self.activation) != (other.step, other.activation):
            return False
        return all(torch.equal(a, b) for a, b in zip(self[:3], other[:3], strict=True))

    def terms(self, starts: list[float], size: float) -> Terms:
        """Of steps of one size from ``starts``."""
        a = [[2 * (start + node * size) - 1 for start in starts] for node in _NODES]
        log_a = _host([[math.log(x) for x in row] for row in a])
        speed = _host([[2 / x for x in row] for row in a])
        pairs = self.offset.shape[0]
        slope = host_float64([-j / (pairs - 1) for j in range(pairs)])
        return Terms(slope * log_a, self.offset @ self.up + (slope @ self.up) * log_a, slope * speed)

    def act(self, x: Tensor) -> Tensor:
        return x.tanh() if self.activation == "tanh" else F.silu(x)

    def act_slope(self, x: Tensor) -> Tensor:
        if self.activation == "tanh":
            return 1 - x.tanh().square()
        gate = x.sigmoid()
        return gate * (1 + x * (1 - gate))

    def advance(self, w: Tensor, size: float, terms: Terms) -> tuple[list[Tensor], Tensor]:
        """w before each of the four stages, and after the step. Rows of w are steps of their own."""

        def rate(stage: int, at: Tensor) -> Tensor:
            active = self.act(torch.addmm(terms.hidden[stage], at, self.up))
            return torch.addmm(terms.drift[stage], active, self.down)

        k1 = rate(0, w)
        w2 = w + size / 3 * k1
        k2 = rate(1, w2)
        w3 = w + size * (k2 - k1 / 3)
        k3 = rate(2, w3)
        w4 = w + size * (k1 - k2 + k3)
        k4 = rate(3, w4)
        return [w, w2, w3, w4], w + size / 8 * (k1 + 3 * (k2 + k3) + k4)

    def retreat(self, d_w: Tensor, size: float, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The derivative of `advance`: from the gradient of w after the step, ``(1, pairs)``, the one before it.

        Args:
            d_w: gradient after the step.
            size: of the step.
            slopes: of the activation in the four stages, ``(4, 1, hidden)``.

        Returns:
            The gradients of the state before the step, of the four rates and of the four stages' pre-activations.
        """

        def through(stage: int, of_rate: Tensor) -> tuple[Tensor, Tensor]:
            of_hidden = (of_rate @ self.down.T) * slopes[stage]
            return of_hidden, of_hidden @ self.up.T

        b4 = size / 8 * d_w
        h4, a4 = through(3, b4)
        b3 = 3 * b4 + size * a4
        h3, a3 = through(2, b3)
        b2 = 3 * b4 + size * (a3 - a4)
        h2, a2 = through(1, b2)
        b1 = b4 + size * (a4 + (a2 - a3) / 3)
        h1, a1 = through(0, b1)
        return d_w + a1 + a2 + a3 + a4, torch.cat([b1, b2, b3, b4]), torch.cat([h1, h2, h3, h4])


def _host(rows: list[list[float]]) -> Tensor:
    """``(rows, columns, 1)`` on the host."""
    return torch.tensor(rows, dtype=torch.float64, device="cpu").unsqueeze(-1)
