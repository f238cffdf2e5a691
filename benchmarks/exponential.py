"""What rotations by learned generators cost: the exponential of skew matrices, and rotations that do without one.

    python benchmarks/exponential.py --write exponential

First table: R = exp(p_1 A_1 + p_2 A_2) for the 14 × 14 tokens of a picture and 12 heads of 64 channels, in blocks,
generators as LieRE starts them; against torch.matrix_exp, and against an eigenproblem a matrix (eigh of −iA, gradient
after Daleckii and Krein). Second table: queries and keys of 8 pictures, from parameters to rotated q and k, against a
matrix exponential for each token, and against plain RoPE. Errors are against float64, of matrices and of gradients.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measuring import header, interleaved, ratios, store
from torch import Tensor, nn

from posenc import RoPE, RotaryEncoding
from posenc.positions import centred, grid
from posenc.rotary import ComRoPEAP, ComRoPELD, LieRE, skew_exponential
from posenc.rotary._blocks import from_upper, rotate_blocks

SIDE, HEADS, WIDTH, BATCH = 14, 12, 64, 8
BLOCKS = (2, 4, 8, 16, 32, 64)
BASE, POSENC, EIGEN = "torch.matrix_exp", "posenc", "eigenproblem"
Exponential = Callable[[Tensor], Tensor]
Pair = tuple[Tensor, Tensor]


class Eigen(torch.autograd.Function):
    """exp(A) by the eigenvectors of −iA."""

    @staticmethod
    def forward(ctx: Any, generators: Tensor) -> Any:
        values, vectors = torch.linalg.eigh(torch.complex(torch.zeros_like(generators), -generators))
        ctx.save_for_backward(values, vectors)
        rotation = torch.complex(values.cos(), values.sin()).unsqueeze(-2)
        return ((vectors * rotation) @ vectors.mH).real.contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        values, vectors = ctx.saved_tensors
        half = values / 2
        gap, middle = half.unsqueeze(-1) - half.unsqueeze(-2), half.unsqueeze(-1) + half.unsqueeze(-2)
        share = torch.sinc(gap / math.pi)
        quotients = torch.complex(middle.cos() * share, -middle.sin() * share)
        inside = (vectors.mH @ grad.to(vectors.dtype) @ vectors) * quotients
        gradient = (vectors @ inside @ vectors.mH).real
        return (gradient - gradient.mT) / 2


CANDIDATES: dict[str, Exponential] = {BASE: torch.matrix_exp, POSENC: skew_exponential, EIGEN: Eigen.apply}


def exponents(block: int) -> Tensor:
    """A skew matrix for each token, head and block, ``(tokens, heads · blocks, block, block)``."""
    angles = torch.rand(2, HEADS * WIDTH // block, block * (block - 1) // 2) * 2 * math.pi
    positions = grid(SIDE, SIDE) / (SIDE - 1)
    return torch.einsum("ta,ahij->thij", positions, from_upper(angles, block)).contiguous()


def errors(run: Exponential, generators: Tensor, grad: Tensor) -> tuple[float, float, float]:
    """Largest lack of orthogonality, error of a rotation, and error of a gradient relative to the largest."""
    some = slice(None, None, max(1, len(generators) // 20))
    few, of_few = generators[some].contiguous(), grad[some]
    exact, rounded = few.double().requires_grad_(), few.clone().requires_grad_()
    expected, got = torch.matrix_exp(exact), run(rounded)
    of_wanted, of_got = (
        torch.autograd.grad(out, at, of_few.to(out))[0] for out, at in ((expected, exact), (got, rounded))
    )
    of_wanted, of_got = ((g - g.mT) / 2 for g in (of_wanted, of_got.double()))
    wide = got.detach().double()
    orthogonal = float((wide.mT @ wide - torch.eye(wide.shape[-1])).abs().max())
    error = float((wide - expected.detach()).abs().max())
    return orthogonal, error, float((of_got - of_wanted).abs().max() / of_wanted.abs().max())


def of_matrices(rounds: int) -> str:
    lines = [
        f"\n## {SIDE * SIDE} tokens × {HEADS} heads × {WIDTH} channels, float32: matrices\n",
        "| block | largest angle | | forward, ms | faster × | forward + backward, ms | faster × | not orthogonal by "
        "| error | error of gradients |",
        "|---" * 10 + "|",
    ]
    for block in BLOCKS:
        generators = exponents(block)
        grad, wants = torch.randn_like(generators), generators.clone().requires_grad_()

        def trained(run: Exponential, wants: Tensor = wants, grad: Tensor = grad) -> Callable[[], object]:
            return lambda: torch.autograd.grad(run(wants), wants, grad)

        forward = interleaved({n: partial(run, generators) for n, run in CANDIDATES.items()}, rounds)
        both = interleaved({n: trained(run) for n, run in CANDIDATES.items()}, rounds)
        largest = float(torch.linalg.matrix_norm(generators[-1].double(), 2).max())
        for name, run in CANDIDATES.items():
            row = f"| {block} | {largest:.0f} rad | {name} | " + " | ".join(
                f"{1000 * statistics.median(seconds[name]):.1f} | {1 / ratios(seconds, BASE)[name]:.1f}"
                for seconds in (forward, both)
            )
            lines.append(row + " | " + " | ".join(f"{e:.1e}" for e in errors(run, generators, grad)) + " |")
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


class PerToken(nn.Module):
    """A rotation of the library, by a matrix exponential for each token."""

    def __init__(self, rotary: RotaryEncoding) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> Pair:
        rotary = self.rotary
        if isinstance(rotary, LieRE):
            full = from_upper(rotary.generators, rotary.block)
            exponent = torch.einsum("ta,ahkij->htkij", positions, full)
        else:
            assert isinstance(rotary, ComRoPEAP | ComRoPELD)
            generators = rotary.generators - rotary.generators.mT
            times = positions @ rotary._times(generators)
            exponent = times[..., None, None] * generators.unsqueeze(1)
        rotations = torch.matrix_exp(exponent.contiguous())
        return rotate_blocks(q, rotations), rotate_blocks(k, rotations)


def of_layers(rounds: int) -> str:
    positions, counted = centred(grid(SIDE, SIDE), (SIDE, SIDE)), torch.arange(SIDE * SIDE)
    q, k, of_q, of_k = torch.randn(4, BATCH, HEADS, SIDE * SIDE, WIDTH).unbind()
    wants = [q.requires_grad_(), k.requires_grad_()]
    rope = RoPE(WIDTH, layout="interleaved")
    encodings: dict[str, RotaryEncoding] = {
        "ComRoPE-AP, block 8": ComRoPEAP(WIDTH, num_heads=HEADS),
        "ComRoPE-LD, block 8": ComRoPELD(WIDTH, num_heads=HEADS),
        "LieRE, block 2": LieRE(WIDTH, num_heads=HEADS, block=2),
        "LieRE, block 8": LieRE(WIDTH, num_heads=HEADS, block=8),
        "LieRE, block 64": LieRE(WIDTH, num_heads=HEADS),
    }
    lines = [
        f"\n## {BATCH} pictures × {SIDE * SIDE} tokens × {HEADS} heads × {WIDTH} channels, float32: "
        "from parameters to rotated q and k\n",
        "| | forward, ms | faster × | RoPE's × | forward + backward, ms | faster × | RoPE's × | error |",
        "|---" * 8 + "|",
    ]
    for name, rotary in encodings.items():
        per_token = PerToken(rotary)
        calls: dict[str, Callable[[], Pair]] = {
            "RoPE": lambda: rope(q, k, counted, counted),
            f"{name}, a matrix exponential for each token": lambda m=per_token: m(q, k, positions),  # type: ignore[misc]
            name: lambda r=rotary: r(q, k, positions, positions),  # type: ignore[misc]
        }
        parameters = list(rotary.parameters())

        def trained(call: Callable[[], Pair], parameters: list[nn.Parameter] = parameters) -> Callable[[], object]:
            return lambda: torch.autograd.grad(call(), [*wants, *parameters], (of_q, of_k), allow_unused=True)

        with torch.no_grad():
            exact = rotary(q.double(), q.double(), positions, positions)[0]
            forward = interleaved(calls, rounds)
        both = interleaved({n: trained(call) for n, call in calls.items()}, rounds)
        base = list(calls)[1]
        for what, call in list(calls.items())[1:]:
            row = f"| {what} | " + " | ".join(
                f"{1000 * statistics.median(seconds[what]):.1f} | {1 / ratios(seconds, base)[what]:.1f} "
                f"| {ratios(seconds, 'RoPE')[what]:.1f}"
                for seconds in (forward, both)
            )
            with torch.no_grad():
                lines.append(row + f" | {float((call()[0] - exact).abs().max()):.1e} |")
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    text = header("Rotations by learned generators, against matrix exponentials and plain RoPE")
    text += of_matrices(args.rounds) + of_layers(args.rounds)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
