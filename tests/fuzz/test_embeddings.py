"""Random calls of embeddings of coordinates against a definition written apart from the library.

POSENC_FUZZ_SEED=31 pytest -m slow tests/fuzz/test_embeddings.py    other calls: 500 of each kind from there on
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from tests.fuzz.definition.grid_rotary import NO_POSITION, random_fourier, sinusoidal_grid
from tests.fuzz.definition.rotary import FRACTION
from tests.fuzz.draw import Draw, Spec, make

DEFINED = {"RandomFourier": random_fourier, "SinusoidalGrid": sinusoidal_grid}
DOUBLE = torch.finfo(torch.float64).eps
FAR = [9, 200, 100_000, 2**31 - 60]
SEED, CALLS, QUICK = int(os.environ.get("POSENC_FUZZ_SEED", "0")), 500, 25


def draw_spec(kind: str, draw: Draw, axes: int) -> Spec:
    if kind == "RandomFourier":
        return Spec(kind, {"dim": 2 * draw.integer(1, 8), "axes": axes, "scale": draw.choice([0.1, 1.0, 10.0])})
    family, pairs = draw.choice(["mae", "simplevit", "timm", "interleaved", "perceiver"]), draw.integer(2, 5)
    dim = draw.integer(1, 20) if family == "interleaved" else 2 * axes * pairs + axes * (family == "perceiver")
    options: dict[str, object] = {"dim": dim, "axes": axes, "family": family}
    if family == "perceiver":
        options["resolution"] = draw.choice([224, tuple(draw.integer(1, 50) for _ in range(axes))])
    elif draw.chance(0.5):
        options["base"] = draw.number(2, 1e5)
    return Spec(kind, options | ({"combine": "concat"} if draw.chance(0.3) else {}))


def draw_places(draw: Draw, rows: int, tokens: int, axes: int) -> Tensor:
    """Whole or fractional coordinates near and far, some tokens without a place."""
    positions = draw.integers(-8, 8, rows, tokens, axes) + draw.choice(FAR) * draw.chance(0.5)
    lost = draw.integers(0, 3, rows, tokens) == 0
    kind = draw.choice([torch.int64, torch.int64, torch.int32, torch.float64, torch.float32])
    if kind.is_floating_point:
        positions = draw.uniform(rows, tokens, axes) * 2 - 1 if draw.chance(0.5) else positions.clamp(-300, 300) * 0.1
    positions[..., 0] = torch.where(lost, NO_POSITION, positions[..., 0])
    positions = positions.to(kind)
    positions = positions[..., 0] if axes == 1 else positions
    return positions[0] if rows == 1 and draw.chance(0.5) else positions


def fastest(spec: Spec, parameters: dict[str, Tensor]) -> float:
    """Radians per unit of all axes together, at most: float64 rounds each frequency."""
    if "frequencies" in parameters:
        return float(parameters["frequencies"].abs().sum(0).amax()) * 7
    return 400.0 if spec.options["family"] == "perceiver" else 1.0


def try_call(kind: str, seed: int) -> None:
    draw = Draw(seed)
    axes, batch, tokens = draw.integer(1, 3), draw.integer(1, 3), draw.integer(1, 9)
    spec = draw_spec(kind, draw, axes)
    module = make(spec, draw)
    dtype = draw.choice([torch.float64, torch.float32, torch.bfloat16, torch.float16])
    if draw.chance(0.5) and dtype != torch.float16:
        module = module.to(dtype)
    places = draw_places(draw, draw.choice([1, batch]), tokens, axes)
    behind = spec.options.get("combine") == "concat"
    width = draw.integer(1, 6) if behind else int(str(spec.options["dim"]))
    x = draw.normal(batch, tokens, width).to(dtype)
    parameters = {name: p.detach().double() for name, p in module.named_parameters()}
    encoded = DEFINED[kind](spec.encoded(parameters), places.double() if places.is_floating_point() else places.long())
    wide = encoded.expand(batch, tokens, -1)
    expected = torch.cat([x.double(), wide], -1) if behind else x.double() + wide
    got = module(x, places)
    assert got.dtype == dtype, f"{kind} {seed}: {spec}"
    far = torch.where(places == NO_POSITION, 0, places).double().abs().amax()
    inner = (1e-12 if dtype == torch.float64 else 1e-6) + far * (FRACTION + fastest(spec, parameters)) * DOUBLE
    allowed = inner + torch.finfo(dtype).eps * expected.abs()
    held = expected.abs() < 0.9 * torch.finfo(dtype).max
    excess = torch.where(held, (got.double() - expected).abs() / allowed, 0.0).amax()
    assert excess <= 1, f"{kind} {seed}: {spec} {dtype} {places}: {float(excess):.3g} times what is allowed"


@pytest.mark.parametrize("kind", DEFINED)
def test_short_calls_agree(kind):
    for seed in range(QUICK):
        try_call(kind, 10_000_000 + seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEFINED)
def test_calls_agree(kind):
    for seed in range(SEED, SEED + CALLS):
        try_call(kind, seed)
