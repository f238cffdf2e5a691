"""The solution of CLEX's differential equation by steps of one size, as one operator that compilers see as one node.

    dw/dt = act((w + offset + slope · ln a) up) down + slope · 2/a,   a = 2t − 1
    slope_j = −j / (pairs − 1)

w_j(t) = ln(theta_j(t) / theta_j) is what scale t adds to a log frequency. A step is Kutta's 3/8 rule; the grid is 1,
1 + step, 1 + 2 step, …, and a scale between two of its points gets a shorter last step. That is torchdiffeq's "rk4"
from 1 to that scale alone, and the grid does not depend on how far anybody asks.

The operator solves on the host in float64 wherever its inputs are: a step is far too small to be worth a launch. The
backward pass solves anew under autograd. First derivatives only.

Recent solutions are kept, and found again by the values of all that they depend on: a step of decoding costs a
comparison, and a changed parameter a new solution, however it was changed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.frequencies.spectrum import host_float64
from posenc.operators import operator_with_backward
from posenc.tracing import autograd_in_operator

_NODES = (0.0, 1 / 3, 2 / 3, 1.0)  # where in a step its four stages lie


def solve(scales: Tensor, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str) -> Tensor:
    """w at ``scales``, with w = 0 at 1: float64 ``(*scales.shape, pairs)``, on the device of ``offset``.

    Args:
        scales: any shape; what is below 1 counts as 1.
        offset: float64 ``(pairs,)``; differentiable.
        up, down: ``(pairs, hidden)`` and ``(hidden, pairs)``, of any floating dtype; differentiable.
        step: of the grid.
        activation: "tanh" or "silu".
    """
    w: Tensor = _operator(offset, up, down, scales, step, activation)
    return w


class Equation(NamedTuple):
    """All that a solution depends on, on the host in float64."""

    offset: Tensor  # (pairs,)
    up: Tensor  # (pairs, hidden)
    down: Tensor  # (hidden, pairs)
    step: float
    activation: str

    @classmethod
    def of(cls, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str) -> Equation:
        # copies, whatever the dtype and device: no optimizer may reach into the memory of a kept solution
        offset, up, down = (t.detach().to("cpu").to(torch.float64, copy=True) for t in (offset, up, down))
        return cls(offset, up, down, step, activation)

    def equals(self, other: Equation) -> bool:
        """Whether all numbers are the same."""
        if (self.step, self.activation) != (other.step, other.activation):
            return False
        return all(torch.equal(a, b) for a, b in zip(self[:3], other[:3], strict=True))

    def place(self, scale: float) -> tuple[int, float]:
        """The last point of the grid at or before ``scale``, and what is left to go from there."""
        # a scale that is a point of the grid up to rounding is that point: no step of 1e-16 is made
        index = math.floor((scale - 1) / self.step + 1e-9)
        rest = scale - (1 + index * self.step)
        return index, rest if rest > 1e-9 * self.step else 0.0

    def steps(self, w: Tensor, points: Sequence[int], size: float) -> Iterator[Tensor]:
        """w ``(1, pairs)`` after each of several steps of one size, which start at points of the grid.

        What depends on time alone is made for all steps at once, so that a stage is two small products.
        """
        a = [[2 * (1 + point * self.step + node * size) - 1 for point in points] for node in _NODES]
        log_a = host_float64([math.log(x) for row in a for x in row]).view(4, -1, 1)
        speed = host_float64([2 / x for row in a for x in row]).view(4, -1, 1)
        pairs = self.offset.shape[0]
        slope = host_float64([-j / (pairs - 1) for j in range(pairs)])
        # unbound at once: the derivative of an index would be a matrix of all steps, for each of them
        hidden = [stage.unbind() for stage in self.offset @ self.up + (slope @ self.up) * log_a]
        drift = [stage.unbind() for stage in slope * speed]
        act = torch.tanh if self.activation == "tanh" else F.silu

        def rate(at: Tensor, stage: int, number: int) -> Tensor:
            active = act(torch.addmm(hidden[stage][number], at, self.up))
            return torch.addmm(drift[stage][number], active, self.down)

        for number in range(len(points)):
            # Kutta's 3/8 rule
            k1 = rate(w, 0, number)
            k2 = rate(w + size / 3 * k1, 1, number)
            k3 = rate(w + size * (k2 - k1 / 3), 2, number)
            k4 = rate(w + size * (k1 - k2 + k3), 3, number)
            w = w + size / 8 * (k1 + 3 * (k2 + k3) + k4)
            yield w

    def reaching(self, scale: float, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """w on the grid as far as ``scale``, going on where ``states`` end."""
        first, last = len(states) - 1, self.place(scale)[0]
        return states if last <= first else (*states, *self.steps(states[-1], range(first, last), self.step))

    def at(self, scales: Sequence[float], states: tuple[Tensor, ...]) -> Tensor:
        """w ``(scales, pairs)`` from its values on the grid."""
        places = [self.place(scale) for scale in scales]
        return torch.cat([next(self.steps(states[n], [n], rest)) if rest else states[n] for n, rest in places])

    def start(self) -> tuple[Tensor, ...]:
        """w on the grid as far as 1."""
        return (torch.zeros_like(self.offset).unsqueeze(0),)


_recent: deque[tuple[Equation, tuple[Tensor, ...]]] = deque(maxlen=4)  # never changed, only replaced by longer ones


def _known(equation: Equation, scale: float) -> tuple[Tensor, ...]:
    """w on the grid as far as ``scale``: a recent solution of equal values, gone on with where it is too short."""
    # found by equal numbers, never by identity: an optimizer's step in place makes another equation
    known = next((states for other, states in reversed(tuple(_recent)) if other.equals(equation)), None)
    states = equation.reaching(scale, known or equation.start())
    if states is not known:
        _recent.append((equation, states))
    return states


@contextmanager
def _one_thread() -> Iterator[None]:
    """Products this small on one thread: on busy cores, threads of BLAS that wait for each other take minutes."""
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


def _distinct(scales: Tensor) -> tuple[list[float], list[int]]:
    """The different scales in rising order, and which of them each entry is."""
    numbers = [max(1.0, scale) for scale in scales.reshape(-1).tolist()]
    distinct = sorted(set(numbers))
    rows = {scale: row for row, scale in enumerate(distinct)}
    return distinct, [rows[scale] for scale in numbers]


def _solved(offset: Tensor, up: Tensor, down: Tensor, scales: Tensor, step: float, activation: str) -> Tensor:
    distinct, rows = _distinct(scales)
    if distinct in ([], [1.0]):  # within the training length there is nothing to solve, nor to copy to the host
        return offset.new_zeros(*scales.shape, offset.shape[0])
    equation = Equation.of(offset, up, down, step, activation)
    with _one_thread():
        w = equation.at(distinct, _known(equation, distinct[-1]))
    return w[rows].view(*scales.shape, -1).to(offset.device)


def _gradients(
    grad: Tensor, offset: Tensor, up: Tensor, down: Tensor, scales: Tensor, step: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    distinct, rows = _distinct(scales)
    if distinct in ([], [1.0]):
        return torch.zeros_like(offset), torch.zeros_like(up), torch.zeros_like(down)
    equation = Equation.of(offset, up, down, step, activation)
    leaves = [leaf.requires_grad_() for leaf in equation[:3]]
    with _one_thread(), autograd_in_operator():
        # solved anew, as kept states have no graph; scales carry no gradient: a length is no parameter
        w = equation.at(distinct, equation.reaching(distinct[-1], equation.start()))
        gradients = torch.autograd.grad(w[rows], leaves, grad.to("cpu", torch.float64).reshape(-1, grad.shape[-1]))
    d_offset, d_up, d_down = (g.to(like) for g, like in zip(gradients, (offset, up, down), strict=True))
    return d_offset, d_up, d_down


_operator = operator_with_backward(
    "clex_solve",
    _solved,
    _gradients,
    fake=lambda offset, up, down, scales, step, activation: offset.new_empty(*scales.shape, offset.shape[0]),
    fake_backward=lambda grad, offset, up, down, scales, step, activation: tuple(
        map(torch.empty_like, (offset, up, down))
    ),
    keep=lambda inputs, output: inputs,
)
