"""Figures of rotations: pairs in the plane, scores by distance, the grid, and frequencies under context extension."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.catalogue import find
from posenc.figures.drawn import Bars, Curves, Plane
from posenc.positions import grid
from posenc.rotary.axial import AxialRoPE
from posenc.rotary.rope import RoPE

ORIGINAL, FACTOR, WIDTH = 2048, 4, 64  # tokens of training, times as many afterwards, channels of a head
FAST, SLOW, SHOWN = 2, 5, 8  # two pairs, and how many positions of them are drawn
ROWS, COLUMNS, AXIAL_WIDTH = 3, 4, 16
SCALINGS = {"PI": "pi", "NTK-aware": "ntk", "YaRN": "yarn"}


def rotation() -> Plane:
    """One vector of a fast and of a slow pair at successive positions."""
    rope = RoPE(WIDTH)
    theta = rope.spectrum().theta
    circles = {}
    for pair in (FAST, SLOW):
        rotated = rope.rotate(_unit(pair).expand(1, 1, SHOWN, WIDTH), rope.table(torch.arange(SHOWN)))[0, 0]
        title = f"pair {pair}: {float(theta[pair]):.3g} rad a token"
        circles[title] = {str(p): _point(rotated[p], pair) for p in range(SHOWN)}
    return Plane(
        circles,
        "first channel of the pair",
        "second channel",
        f"a vector at positions 0 to {SHOWN - 1} in two circles: spread out in the fast pair, close in the slow one",
        (
            f"RoPE rotates each pair of channels by its own angle a token. The same vector (1, 0) at positions 0 … "
            f"{SHOWN - 1}, in pair {FAST} and pair {SLOW} of a head of {WIDTH} channels, base 10,000."
        ),
        trail=True,
    )


def rotation_offset() -> Plane:
    """A query and a key at two pairs of positions with equal offset."""
    rope = RoPE(WIDTH)
    q, k = _unit(FAST), _unit(FAST, angle=math.pi / 5)
    circles = {}
    for i, j in ((5, 2), (9, 6)):
        rotated_q, rotated_k = rope(q, k, torch.tensor([i]), torch.tensor([j]))
        product = float((rotated_q * rotated_k).sum())
        points = {"query": _point(rotated_q[0, 0, 0], FAST), "key": _point(rotated_k[0, 0, 0], FAST)}
        circles[f"at {i} and {j}: q · k = {product:.3f}".replace("-", "−")] = points
    return Plane(
        circles,
        "first channel of the pair",
        "second channel",
        "a query and a key in two circles: both rotate from the left circle to the right, the angle between them stays",
        (
            "The same query and key, three tokens apart, at positions 5 and 2 and at 9 and 6. Both rotate; the angle "
            "between them, and so their dot product, depends on the offset alone."
        ),
    )


def rotation_decay() -> Curves:
    """The score of a vector of ones with itself by distance."""
    rope = RoPE(WIDTH)
    positions = torch.arange(129)
    with torch.no_grad():
        rotated = rope.rotate(torch.ones(1, 1, 129, WIDTH), rope.table(positions))[0, 0]
    scores = (rotated @ rotated[0]) / WIDTH
    return Curves(
        {"score": [(float(d), float(s)) for d, s in enumerate(scores)]},
        "distance (tokens)",
        "dot product / channels",
        "a curve that falls from 1 within 20 tokens and then goes up and down around lower values",
        "The dot product of a vector of ones with itself under RoPE, by distance: a mean of cosines, one a pair.",
    )


def axial_grid() -> Plane:
    """One pair of each axis at every token of a grid."""
    rope = AxialRoPE(AXIAL_WIDTH)
    places = grid(ROWS, COLUMNS)
    row_pair, column_pair = (_pairs_of_axis(rope, axis)[1] for axis in (0, 1))
    table = rope.table(places)
    circles = {}
    for token, (row, column) in enumerate(places.tolist()):
        vectors = {}
        for name, pair in (("a pair that reads the row", row_pair), ("a pair that reads the column", column_pair)):
            vectors[name] = (float(table[0][token, pair]), float(table[1][token, pair]))
        circles[f"({row:.0f}, {column:.0f})"] = vectors
    return Plane(
        circles,
        "column",
        "row, the first on top",
        f"a grid of {ROWS} × {COLUMNS} circles: one hand rotates from row to row, the other from column to column",
        (
            f"Axial RoPE on a grid of {ROWS} × {COLUMNS} patches at (row, column): one hand is the same along a row, "
            f"the other along a column. Pairs {row_pair} and {column_pair} of a head of {AXIAL_WIDTH} channels."
        ),
    )


def axial_channels() -> Bars:
    """How far each pair rotates by one row and by one column."""
    rope = AxialRoPE(AXIAL_WIDTH)
    names = [f"{2 * pair}, {2 * pair + 1}" for pair in range(AXIAL_WIDTH // 2)]
    by_row, by_column = (_angles_of_a_step(rope, axis).tolist() for axis in (0, 1))
    return Bars(
        names,
        {"radians a row": by_row, "radians a column": by_column},
        "channels of the pair",
        "two columns of bars: half of the pairs have a bar for rows only, the others for columns only",
        (
            f"Which channels of a head of {AXIAL_WIDTH} read the row and which the column in axial RoPE (convention "
            f'"{rope.convention}", layout "{rope.layout}"): the angle by which one step along each axis rotates a pair.'
        ),
    )


def context_extension() -> Curves:
    """Wavelengths of each pair before and after three scalings."""
    series = {name: [(j, 2 * math.pi / t) for j, t in row] for name, row in _frequencies().items()}
    return Curves(
        series,
        "pair",
        "wavelength (tokens)",
        (
            "wavelengths that rise with the pair: scalings start with or above the unscaled line and end four times "
            "higher; the slow pairs lie above the training length"
        ),
        (
            f"Wavelength of each pair of a head of {WIDTH} channels, trained at {ORIGINAL:,} tokens and extended to "
            f"{FACTOR} times that. Pairs above the training length never complete a rotation in training. Position "
            "interpolation (PI) slows every pair, NTK-aware scaling a slower pair more, YaRN only slow pairs."
        ),
        log=True,
        levels={"training length": float(ORIGINAL), "extended": float(FACTOR * ORIGINAL)},
    )


def slowdown() -> Curves:
    """By which factor each scaling slows each pair."""
    frequencies = _frequencies()
    unscaled = dict(frequencies.pop("unscaled"))
    series = {name: [(j, unscaled[j] / t) for j, t in row] for name, row in frequencies.items()}
    return Curves(
        series,
        "pair",
        "unscaled / scaled frequency",
        (
            "three curves from 1 to 4: flat at 4 for position interpolation, exponential for NTK-aware scaling, 1 then "
            "a ramp then 4 for YaRN"
        ),
        (
            f"By which factor each scaling slows each pair, for {FACTOR} times the training length of {ORIGINAL:,} "
            "tokens: 1 leaves a pair alone, and at 4 the longest context has no angle that is new to it."
        ),
    )


def unseen_angles() -> Curves:
    """The share of its circle that each pair covers in training."""
    theta = RoPE(WIDTH).spectrum().theta
    seen = [(float(j), min(1.0, float(t) * 128 / (2 * math.pi))) for j, t in enumerate(theta)]
    return Curves(
        {"share of a full rotation": seen},
        "pair",
        "share of a rotation",
        "a curve that is 1 for the fast pairs and falls to nearly 0 for the slow ones",
        (
            f"How much of its circle each pair of a {WIDTH}-channel head has covered after 128 tokens. "
            "Pairs below 1 meet new angles at token 129."
        ),
    )


def _frequencies() -> dict[str, list[tuple[float, float]]]:
    """Frequencies by pair, unscaled and under each scaling, for the same model."""
    shape = {"dim": 8 * WIDTH, "num_heads": 8, "train_length": ORIGINAL, "max_length": FACTOR * ORIGINAL}
    rotations = {"unscaled": RoPE(WIDTH)}
    for title, name in SCALINGS.items():
        scaled = find(name).create(**shape)
        assert isinstance(scaled, RoPE)
        rotations[title] = scaled
    return {
        title: [(float(j), float(t)) for j, t in enumerate(rope.spectrum(FACTOR * ORIGINAL).theta)]
        for title, rope in rotations.items()
    }


def _unit(pair: int, angle: float = 0.0) -> Tensor:
    """A query ``(1, 1, 1, WIDTH)`` that is a unit vector in the plane of one pair of the half layout."""
    x = torch.zeros(1, 1, 1, WIDTH)
    x[..., pair], x[..., pair + WIDTH // 2] = math.cos(angle), math.sin(angle)
    return x


def _point(x: Tensor, pair: int) -> tuple[float, float]:
    return float(x[pair]), float(x[pair + WIDTH // 2])


def _angles_of_a_step(rope: AxialRoPE, axis: int) -> Tensor:
    """By how much each pair ``(pairs,)`` rotates from the origin to its neighbour along an axis."""
    step = torch.zeros(1, 2, dtype=torch.long)
    step[0, axis] = 1
    cos, sin = rope.table(step)[:2]
    return torch.atan2(sin[0], cos[0]).abs()


def _pairs_of_axis(rope: AxialRoPE, axis: int) -> list[int]:
    """The pairs that rotate along an axis, from the fastest."""
    angles = _angles_of_a_step(rope, axis)
    return [int(pair) for pair in angles.argsort(descending=True) if angles[pair] > 0]
