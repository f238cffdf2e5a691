"""Which rotations depend on differences of positions alone, R(x)ᵀ R(y) = R(y − x), how exactly, and which keep norms.

    python benchmarks/exactness.py --write exactness

Largest absolute entries over random pairs of positions, all heads, encodings as their constructors leave them (seed 0).
Tokens of a grid have integer coordinates, coordinates of a picture 0 … 1 lie on multiples of 1/64, so that differences
are not rounded. "holds" is what `tests/rotary/test_exactness.py` demands: below 1e-12 in float64, or shown to fail.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from measuring import header, store
from torch import Tensor

from posenc import AxialRoPE, MRoPE, RoPE, RotaryEncoding
from posenc.rotary import ComRoPEAP, ComRoPELD, LieRE, MixedRoPE, VJEPARoPE
from posenc.testing import exactness

HEADS, WIDTH = 2, 64
Places = Callable[[int, int], Tensor]


def counted(most: int) -> Places:
    """Integer coordinates 0 … most."""
    return lambda pairs, axes: torch.randint(0, most + 1, (pairs, axes) if axes > 1 else (pairs,))


def unit(pairs: int, axes: int) -> Tensor:
    """Coordinates 0 … 1."""
    return torch.randint(0, 65, (pairs, axes) if axes > 1 else (pairs,)).double() / 64


CASES: dict[str, tuple[Callable[[], RotaryEncoding], str, Places]] = {
    "RoPE": (lambda: RoPE(WIDTH), "0 … 1,000,000", counted(10**6)),
    "AxialRoPE, rope-vit": (lambda: AxialRoPE(WIDTH), "0 … 63", counted(63)),
    "AxialRoPE, three axes": (lambda: AxialRoPE(60, axes=3), "0 … 63", counted(63)),
    "AxialRoPE, dinov3": (lambda: AxialRoPE(WIDTH, convention="dinov3"), "0 … 1", unit),
    "MixedRoPE": (lambda: MixedRoPE(WIDTH, num_heads=HEADS), "0 … 63", counted(63)),
    "MixedRoPE, golden directions": (
        lambda: MixedRoPE(WIDTH, num_heads=HEADS, directions="golden", learned=False), "0 … 63", counted(63),
    ),
    "MRoPE": (lambda: MRoPE(WIDTH, sections=(8, 12, 12)), "0 … 32,000", counted(32_000)),
    "VJEPARoPE": (lambda: VJEPARoPE(WIDTH), "0 … 15", counted(15)),
    "VJEPARoPE, as released": (lambda: VJEPARoPE(WIDTH, released=True), "0 … 15", counted(15)),
    "LieRE, one axis, whole head": (lambda: LieRE(WIDTH, num_heads=HEADS, axes=1), "0 … 1", unit),
    "LieRE, blocks of 2": (lambda: LieRE(WIDTH, num_heads=HEADS, block=2), "0 … 1", unit),
    "LieRE, blocks of 8": (lambda: LieRE(WIDTH, num_heads=HEADS, block=8), "0 … 1", unit),
    "LieRE, whole head": (lambda: LieRE(WIDTH, num_heads=HEADS), "0 … 1", unit),
    "LieRE, blocks of 8, generators 0.05 as large": (
        lambda: LieRE(WIDTH, num_heads=HEADS, block=8, init_scale=0.314), "0 … 1", unit,
    ),
    "ComRoPE-AP, blocks of 8": (lambda: ComRoPEAP(WIDTH, num_heads=HEADS), "0 … 1", unit),
    "ComRoPE-AP, three axes, blocks of 4": (lambda: ComRoPEAP(60, num_heads=HEADS, axes=3, block=4), "0 … 1", unit),
    "ComRoPE-LD, blocks of 8": (lambda: ComRoPELD(WIDTH, num_heads=HEADS), "0 … 1", unit),
    "ComRoPE-LD, three axes, blocks of 8": (lambda: ComRoPELD(WIDTH, num_heads=HEADS, axes=3), "0 … 1", unit),
}  # fmt: skip


def row(name: str, pairs: int) -> str:
    """One line of the table."""
    make, coordinate_range, places = CASES[name]
    torch.manual_seed(0)
    encoding = make()
    width = int(getattr(encoding, "head_dim", WIDTH))
    x, y = places(pairs, encoding.axes), places(pairs, encoding.axes)
    wide, narrow = (
        exactness(encoding, x, y, num_heads=HEADS, head_dim=width, dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    holds = "yes" if wide.relativity < 1e-12 else "**no**"
    cells = (wide.relativity, narrow.relativity, wide.orthogonality, narrow.orthogonality)
    return f"| {name} | {coordinate_range} | {holds} | {' | '.join(f'{cell:.1e}' for cell in cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--write", metavar="NAME", help="store the table as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        header("Rotations that see differences of positions alone"),
        "| rotation | coordinates | holds | R(x)ᵀ R(y) − R(y − x), float64 | float32 "
        "| R(x)ᵀ R(x) − 1, float64 | float32 |",
        "|---|---|---|---|---|---|---|",
        *(row(name, args.pairs) for name in CASES),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
