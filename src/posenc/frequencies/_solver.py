"""The solution of CLEX's differential equation as one operator: thousands of tiny steps, and their exact derivative.

The grid is 1, 1 + step, 1 + 2 step, …; a scale between two of its points gets a shorter last step. That is
torchdiffeq's "rk4" from 1 to that scale alone, and the grid does not depend on how far anybody asks.

The operator solves on the host in float64 wherever its inputs are: a step is far too small to be worth a launch.
Compilers see one node. The backward pass redoes the stages of many steps at a time from the states on the grid, and
runs the derivatives of the steps from the last to the first. First derivatives only.

Recent solutions are kept, and found again by the values of all that they depend on: a step of decoding costs a
comparison, and a changed parameter a new solution, however it was changed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.frequencies._dynamics import Dynamics

_BLOCK = 256  # steps whose stages exist at a time in the backward pass


def solve(scales: Tensor, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str) -> Tensor:
    """w of `Dynamics` at ``scales``, with w = 0 at 1: float64 ``(*scales.shape, pairs)``, on the device of ``offset``.

    Args:
        scales: any shape; what is below 1 counts as 1.
        offset: float64 ``(pairs,)``; differentiable.
        up, down: ``(pairs, hidden)`` and ``(hidden, pairs)``, of any floating dtype; differentiable.
        step: of the grid.
        activation: "tanh" or "silu".
    """
    w: Tensor = _operator(scales, offset, up, down, step, activation)
    return w


class Solution(NamedTuple):
    """w ``(1, pairs)`` on the grid, as far as it was asked for. Never changed, only replaced by a longer one."""

    dynamics: Dynamics
    states: tuple[Tensor, ...]

    def time(self, index: int) -> float:
        return 1 + index * self.dynamics.step

    def place(self, scale: float) -> tuple[int, float]:
        """The last point of the grid at or before ``scale``, and what is left to go from there."""
        index = math.floor((scale - 1) / self.dynamics.step + 1e-9)
        rest = scale - self.time(index)
        return index, rest if rest > 1e-9 * self.dynamics.step else 0.0

    def reaching(self, scale: float) -> Solution:
        have, want, states = len(self.states), self.place(scale)[0] + 1, list(self.states)
        if want <= have:
            return self
        terms = self.dynamics.terms([self.time(index) for index in range(have - 1, want - 1)], self.dynamics.step)
        for of_step in terms.of_each_step():
            states.append(self.dynamics.advance(states[-1], self.dynamics.step, of_step)[1])
        return self._replace(states=tuple(states))

    def at(self, scale: float) -> Tensor:
        index, rest = self.place(scale)
        if not rest:
            return self.states[index]
        return self.dynamics.advance(self.states[index], rest, self.dynamics.terms([self.time(index)], rest))[1]


_recent: deque[Solution] = deque(maxlen=4)


def _solution(dynamics: Dynamics, scale: float) -> Solution:
    """As far as ``scale``: a recent one of equal values, gone on with where it is too short, or a new one."""
    with_same_dynamics = (solution for solution in reversed(tuple(_recent)) if solution.dynamics.equals(dynamics))
    solution = next(with_same_dynamics, None) or Solution(dynamics, (torch.zeros_like(dynamics.offset).unsqueeze(0),))
    longer = solution.reaching(scale)
    if longer is not solution:
        _recent.append(longer)
    return longer


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


@torch.library.custom_op("posenc::clex_solve", mutates_args=())
def _operator(scales: Tensor, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str) -> Tensor:
    distinct, rows = _distinct(scales)
    if distinct in ([], [1.0]):  # within the training length there is nothing to solve, nor to copy to the host
        return offset.new_zeros(*scales.shape, offset.shape[0])
    with _one_thread():
        solution = _solution(Dynamics.of(offset, up, down, step, activation), distinct[-1])
        w = torch.cat([solution.at(scale) for scale in distinct])
    return w[rows].view(*scales.shape, -1).to(offset.device)


@_operator.register_fake
def _(scales: Tensor, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str) -> Tensor:
    return offset.new_empty(*scales.shape, offset.shape[0])


@torch.library.custom_op("posenc::clex_solve_backward", mutates_args=())
def _backward_operator(
    grad: Tensor, scales: Tensor, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    distinct, rows = _distinct(scales)
    if distinct in ([], [1.0]):
        return torch.zeros_like(offset), torch.zeros_like(up), torch.zeros_like(down)
    with _one_thread():
        dynamics = Dynamics.of(offset, up, down, step, activation)
        per_entry = grad.to("cpu").reshape(-1, grad.shape[-1])
        per_scale = per_entry.new_zeros(len(distinct), grad.shape[-1])
        per_scale.index_add_(0, torch.tensor(rows, device="cpu"), per_entry)
        sums = _Sweep(_solution(dynamics, distinct[-1])).run(distinct, torch.split(per_scale, 1))
    inputs = zip(sums, (offset, up, down), strict=True)
    d_offset, d_up, d_down = (gradient.to(like.dtype).to(like.device) for gradient, like in inputs)
    return d_offset, d_up, d_down


@_backward_operator.register_fake
def _(
    grad: Tensor, scales: Tensor, offset: Tensor, up: Tensor, down: Tensor, step: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    return offset.new_empty(offset.shape), up.new_empty(up.shape), down.new_empty(down.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.step, ctx.activation = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
    return None, *_backward_operator(grad, *ctx.saved_tensors, ctx.step, ctx.activation), None, None


_operator.register_autograd(_differentiate, setup_context=_setup)


class _Sweep:
    """The gradient of w on its way from the last scale back to 1, leaving sums for offset, up and down."""

    def __init__(self, solution: Solution) -> None:
        self.solution, self.dynamics = solution, solution.dynamics
        self.sums = tuple(torch.zeros_like(t) for t in self.dynamics[:3])

    def run(self, scales: list[float], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The sums, for the gradients ``(1, pairs)`` of w at ``scales``, which rise."""
        step = self.dynamics.step
        index, _ = self.solution.place(scales[-1])
        d_w = torch.zeros_like(gradients[0])
        for scale, gradient in zip(reversed(scales), reversed(gradients), strict=True):
            below, rest = self.solution.place(scale)
            d_w = self.back(d_w, below, index, step)
            d_w = d_w + (self.back(gradient, below, below + 1, rest) if rest else gradient)
            index = below
        self.back(d_w, 0, index, step)
        return self.sums

    def back(self, d_w: Tensor, first: int, last: int, size: float) -> Tensor:
        """Through the steps that start at the grid's points first … last − 1, block by block."""
        for stop in range(last, first, -_BLOCK):
            d_w = self.back_block(d_w, range(max(first, stop - _BLOCK), stop), size)
        return d_w

    def back_block(self, d_w: Tensor, points: range, size: float) -> Tensor:
        offset, up, _ = self.dynamics[:3]
        terms = self.dynamics.terms([self.solution.time(point) for point in points], size)
        w, _ = self.dynamics.advance(torch.cat(self.solution.states[points.start : points.stop]), size, terms)
        inputs = torch.stack(w)
        hidden = inputs @ up + terms.hidden
        of_rates, of_hidden = [], []
        for slopes in reversed(torch.split(self.dynamics.act_slope(hidden), 1, 1)):
            d_w, of_rate, of_pre = self.dynamics.retreat(d_w, size, slopes)
            of_rates.append(of_rate)
            of_hidden.append(of_pre)
        d_rates, d_hidden = (torch.stack(stages[::-1], 1).flatten(0, 1) for stages in (of_rates, of_hidden))
        d_offset, d_up, d_down = self.sums
        d_down += self.dynamics.act(hidden).flatten(0, 1).T @ d_rates
        d_up += (inputs + offset + terms.shift).flatten(0, 1).T @ d_hidden
        d_offset += d_hidden.sum(0) @ up.T
        return d_w
