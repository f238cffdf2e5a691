"""Positions with several coordinates: grids of any shape, parts of them, and tokens that have no place in one."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from posenc import positions as position
from posenc.encoding import RotaryEncoding
from posenc.testing.cases import EVERYWHERE, Case, Probe, applies_to, heads_of, tokens_of
from posenc.testing.compare import expect, expect_close, expect_different, expect_same
from posenc.testing.shapes import at_hook_point

SIZES = ((3, 4), (4, 3), (2, 6))  # of equal token counts
TOKENS = 12
NO_PLACE = 2  # tokens without a place


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
