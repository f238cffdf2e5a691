"""Positions are data: wherever tokens say they are, in whatever order, row by row, far out, in grids or nowhere."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from posenc import positions as position
from posenc.encoding import RotaryEncoding
from posenc.testing.cases import EVERYWHERE, INSIDE, Case, Probe, applies_to, heads_of, tokens_of
from posenc.testing.compare import expect, expect_close, expect_different, expect_same
from posenc.testing.shapes import at_hook_point

TOKENS = 12
FAR = 2**20
SIZES = ((3, 4), (4, 3), (2, 6))  # of equal token counts
NO_PLACE = 2  # tokens without a place


def each_axis(case: Case) -> list[tuple[str, Tensor]]:
    """Which coordinates to change: all of them, then each alone where there are several."""
    alone = [(f" along axis {axis}", torch.arange(case.axes) == axis) for axis in range(case.axes)]
    return [("", torch.tensor(True)), *(alone if case.axes > 1 else [])]


@applies_to(*EVERYWHERE)
def explicit_positions(case: Case) -> None:
    """0 … n − 1, given in any integer dtype, is what is assumed where no positions are given."""
    x, probe = tokens_of(case, TOKENS, batch=2), Probe(case)
    counted = case.positions(torch.arange(TOKENS))
    expected = probe(x, counted) if case.axes > 1 else probe(x)
    expect_close("positions 0 … n − 1", probe(x, counted), expected)
    expect_close("int32 positions", probe(x, counted.int()), expected)


@applies_to("embedding", "rotary", "bias", "score", all_of_them=False)
def positions_matter(case: Case) -> None:
    """Scaled positions give another result, on any axis: an encoding that reads positions may not read indices."""
    x, probe = tokens_of(case, TOKENS), Probe(case)
    near, wide = (case.positions(torch.arange(TOKENS) * factor) for factor in (1, 3))
    for along, here in each_axis(case):
        scaled = torch.where(here, wide, near)
        expect_different(f"positions 0, 1, 2, … and 0, 3, 6, …{along}", probe(x, near), probe(x, scaled))


@applies_to(*EVERYWHERE)
def shuffled_positions(case: Case) -> None:
    """Tokens stored in another order, with their positions, give the same result in that order.

    Sharded sequences (ring and zigzag context parallelism) and caches with slots rely on it.
    """
    x, positions = tokens_of(case, TOKENS, batch=2), case.positions(torch.arange(TOKENS))
    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(0))
    probe = Probe(case, causal="positions" if case.axes == 1 else False)
    expect_close("shuffled", probe(x[:, order], positions[order]), probe(x, positions)[:, :, order])


@applies_to(*EVERYWHERE)
def offset_positions(case: Case) -> None:
    """Tokens at positions 5 … 11 of a row are treated alike with and without the hidden tokens before them."""
    x, positions = tokens_of(case, TOKENS, batch=2), case.positions(torch.arange(TOKENS))
    probe, seen = Probe(case), torch.arange(TOKENS)[None] >= 5
    longer = probe(x, positions, mask=seen.expand(TOKENS, TOKENS))[:, :, 5:]
    expect_close("the last tokens of a row, alone", probe(x[:, 5:], positions[5:]), longer)


@applies_to(*INSIDE)
def common_shift(case: Case) -> None:
    """Relative encodings depend on distances only: one number added to all positions changes nothing."""
    x, positions = tokens_of(case, TOKENS), case.positions(torch.arange(TOKENS))
    probe = Probe(case)
    expected = probe(x, positions)
    for shift in (3, 1000, FAR + 1):
        for along, here in each_axis(case):
            expect_close(f"all positions + {shift}{along}", probe(x, positions + shift * here), expected)


@applies_to(*EVERYWHERE)
def per_row_positions(case: Case) -> None:
    """Rows with positions of their own get what each would get alone."""
    index = torch.arange(TOKENS)
    rows = [case.positions(i) for i in (index, index + 7, 2 * index)]
    x, probe = tokens_of(case, TOKENS, batch=3), Probe(case)
    together = probe(x, torch.stack(rows))
    for row, positions in enumerate(rows):
        expect_close(f"row {row}", together[row : row + 1], probe(x[row : row + 1], positions))


@applies_to(*EVERYWHERE)
def fractional_positions(case: Case) -> None:
    """Positions between tokens: whole floats mean the integers, float32 and float64 agree, nothing is rounded away."""
    x, probe = tokens_of(case, TOKENS, batch=2), Probe(case)
    integers = case.positions(torch.arange(TOKENS))
    expect_close("whole numbers as float64", probe(x, integers.double()), probe(x, integers))
    half = integers.double() * 0.5
    expect_close("float32 against float64 positions", probe(x, half.float()), probe(x, half), tolerance=1e-5)
    for along, here in each_axis(case) if case.hook_points & {"embedding", "rotary", "bias"} else []:
        below, above = torch.where(here, half.floor(), half), torch.where(here, half.ceil(), half)
        expect_different(f"positions p/2 and their whole parts{along}", probe(x, half), probe(x, below))
        expect_different(f"positions p/2 and the next whole numbers{along}", probe(x, half), probe(x, above))


@applies_to(*EVERYWHERE)
def far_positions(case: Case) -> None:
    """At a million tokens, and across a million tokens, float32 is right: a float32 p · theta is off by 0.1 there."""
    index = torch.arange(6)
    exact, rounded = Probe(case), Probe(case, dtype=torch.float32)
    for what, far in (("at", index + FAR), ("across", torch.cat([index, index + FAR]))):
        x, positions = tokens_of(case, len(far)), case.positions(far)
        got, expected = rounded(x.float(), positions), exact(x, positions)
        expect_close(f"float32 against float64 {what} 2^20 tokens", got, expected)


@applies_to(*EVERYWHERE)
def inputs_unharmed(case: Case) -> None:
    """A call leaves the tensors that it was given as they were."""
    x, positions = tokens_of(case, TOKENS, dtype=torch.float32), case.positions(torch.arange(TOKENS))
    kept_x, kept_positions = x.clone(), positions.clone()
    Probe(case, dtype=torch.float32)(x, positions)
    expect_same("x after the call", x, kept_x)
    expect_same("positions after the call", positions, kept_positions)


@applies_to("embedding", "rotary", "bias", "score", all_of_them=False, several_axes=True)
def grids_of_any_shape(case: Case) -> None:
    """Grids with equal token counts differ, and any part of a grid, in any order, gets what it gets in the whole."""
    shapes = [(*[1] * (case.axes - 2), *size) for size in SIZES]
    grids = [position.grid(*shape) for shape in shapes]
    x, probe = tokens_of(case, TOKENS), Probe(case, causal=False)
    alone = [probe(x, grid) for grid in grids]
    for (shape, first), (other_shape, other) in combinations(zip(shapes, alone, strict=True), 2):
        expect_different(f"the same tokens as grids of {shape} and of {other_shape}", first, other)
    together = probe(x.expand(len(grids), -1, -1), torch.stack(grids))
    for row, (shape, expected) in enumerate(zip(shapes, alone, strict=True)):
        expect_close(f"a grid of {shape} in a batch with others", together[row : row + 1], expected)
    part = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(0))[: TOKENS - 3]
    seen = torch.isin(torch.arange(TOKENS), part).expand(TOKENS, -1)
    for shape, grid in zip(shapes, grids, strict=True):
        in_grid = probe(x, grid, mask=seen)[:, :, part]
        expect_close(f"a shuffled part of a grid of {shape}", probe(x[:, part], grid[part]), in_grid)


@applies_to(*EVERYWHERE, several_axes=True)
def tokens_without_a_place(case: Case) -> None:
    """Tokens at `NO_POSITION` (class token, registers) give finite numbers, unrotated, and read no other's place."""
    index = torch.arange(TOKENS - NO_PLACE)
    placed, moved = (position.with_prefix(case.positions(index + shift), NO_PLACE) for shift in (0, 3))
    for what, here, there in (("integer", placed, moved), ("float32", placed.float(), moved.float())):
        stand_apart(case, f"{what} positions", here, there)
        stand_still(case, f"{what} positions", here)


def stand_apart(case: Case, what: str, here: Tensor, there: Tensor) -> None:
    """Finite results and gradients; among themselves, tokens without a place are as if there were no others."""
    x, probe = tokens_of(case, TOKENS), Probe(case, causal=False)
    out = probe(x, here)
    expect(bool(out.isfinite().all()), f"{what}: results are not finite")
    parameters = {name: p for name, p in probe.named_parameters() if p.requires_grad}
    if parameters:
        gradients = torch.autograd.grad(out.sum(), list(parameters.values()), materialize_grads=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            expect(bool(gradient.isfinite().all()), f"{what}: the gradient of {name} is not finite")
    seen, expected = (torch.arange(TOKENS) < NO_PLACE).expand(TOKENS, -1), probe(x[:, :NO_PLACE], here[:NO_PLACE])
    for how, positions in (("with others", here), ("with others elsewhere", there)):
        got = probe(x, positions, mask=seen)[:, :, :NO_PLACE]
        expect_close(f"{what}: tokens without a place, {how}, which are hidden", got, expected)


def stand_still(case: Case, what: str, here: Tensor) -> None:
    """Rotations leave tokens without a place exactly as they are."""
    for dtype in (torch.float64, torch.bfloat16):
        q, k, _ = heads_of(case, TOKENS, TOKENS, dtype=dtype)
        for encoding in at_hook_point(case.make(), RotaryEncoding):
            for name, before, after in zip("qk", (q, k), encoding(q, k, here, here), strict=True):
                same = f"{what}, {dtype}: {name} of tokens without a place after their rotation"
                expect_same(same, after[:, :, :NO_PLACE], before[:, :, :NO_PLACE])
