"""How far off are the angles of RoPE at large positions: posenc, transformers, x-transformers, rotary-embedding-torch?

    python benchmarks/far_angles.py --write far_angles      # needs the extra `reference`

The largest error in radians over the 64 pairs of a head of 128 channels, base 10,000, and the last 64 positions before
each power of two, against 50 decimal digits of mpmath. Each library's own module, in float32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import mpmath
import torch
from measuring import header, store
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from x_transformers import x_transformers

from posenc import RoPE

DIM, BASE, COUNT = 128, 10_000.0, 64
POWERS = (13, 17, 20, 31)
Table = tuple[Tensor, Tensor]


def with_posenc(positions: Tensor) -> Table:
    """The table that `RoPE.rotate` takes, after a cast of the module to bfloat16, which must change nothing."""
    cos, sin = RoPE(DIM, base=BASE).to(torch.bfloat16).table(positions)
    return cos, sin


def with_transformers(positions: Tensor) -> Table:
    """The module of Llama."""
    rope = {"rope_type": "default", "rope_theta": BASE}
    config = LlamaConfig(hidden_size=4 * DIM, num_attention_heads=4, rope_parameters=rope)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    return cos[0, :, : DIM // 2], sin[0, :, : DIM // 2]


def with_x_transformers(positions: Tensor) -> Table:
    """Its RotaryEmbedding, which returns angles."""
    angles, _ = x_transformers.RotaryEmbedding(DIM, base=BASE)(positions)
    return angles.cos()[0, :, ::2], angles.sin()[0, :, ::2]


def with_rotary_embedding_torch(positions: Tensor) -> Table:
    """Its RotaryEmbedding, which returns angles."""
    angles = RotaryEmbedding(DIM, theta=BASE, cache_if_possible=False)(positions).detach()
    return angles.cos()[:, ::2], angles.sin()[:, ::2]


LIBRARIES: dict[str, Callable[[Tensor], Table]] = {
    "posenc, in bfloat16": with_posenc, "transformers": with_transformers, "x-transformers": with_x_transformers,
    "rotary-embedding-torch": with_rotary_embedding_torch,
}  # fmt: skip


def exact(positions: Tensor) -> Tensor:
    """Angles modulo 2π, in float64 after 50 decimal digits."""
    with mpmath.workdps(50):
        theta = [mpmath.mpf(BASE) ** (mpmath.mpf(-2 * j) / DIM) for j in range(DIM // 2)]
        rows = [[float(mpmath.fmod(p * t, 2 * mpmath.pi)) for t in theta] for p in positions.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def error(table: Table, angles: Tensor) -> float:
    """The largest distance on the circle between a table's angles and the exact ones."""
    measured = torch.atan2(table[1].double(), table[0].double())
    gaps = torch.remainder(measured - angles + torch.pi, 2 * torch.pi) - torch.pi
    return float(gaps.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="NAME", help="store the table as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    heads = " | ".join(f"below 2^{power}" for power in POWERS)
    packages = ("transformers", "x-transformers", "rotary-embedding-torch")
    lines = [
        header("Angles of RoPE at large positions", packages), "## largest error of an angle, radians", "",
        f"| library | {heads} |", f"|---|{'---|' * len(POWERS)}",
    ]  # fmt: skip
    positions = {power: torch.arange(2**power - COUNT, 2**power) for power in POWERS}
    angles = {power: exact(values) for power, values in positions.items()}
    for name, table in LIBRARIES.items():
        errors = [error(table(positions[power]), angles[power]) for power in POWERS]
        lines.append(f"| {name} | {' | '.join(f'{value:.2g}' for value in errors)} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
