"""What a bias between tokens of an image costs in attention: time and memory, against PyTorch's without any bias.

    python benchmarks/grids.py --write grids

Every query sees every key. Each row is a process of its own: its time is the median ratio to the base, run before and
after it; its memory the growth of the process's peak over one call, after a call on a small image. On twice the side
linear growth quadruples, and a matrix of queries × keys grows 16 times. Rows called "each pair" are LogCPB without its
search for equal differences: its network is evaluated for every query and key, by blocks of queries as the rest, or at
once ("dense"). What needs more memory than --most is left out, by the size of the largest tensor that it would make.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from measuring import header, paired, peak_growth, random_qkv, store
from torch import Tensor
from torch.nn import functional as F

from posenc import Encoding, attention
from posenc.bias import ALiBi2D, LogCPB, SwinBias, offset
from posenc.positions import grid
from posenc.score import DecomposedRelative

BASE = "SDPA, no bias"
BLOCK = 512  # queries that share one bias
ROWS = ("Swin", "2D ALiBi", "LogCPB", "SAM's decomposed tables", "LogCPB, each pair", "LogCPB, each pair, dense")
GOALS = {32: 2.0, 64: 2.5}  # most times of the base, by the side of the image
PASSES = {"inference": "forward", "training": "forward + backward"}


class RunSpec(NamedTuple):
    """What one process measures."""

    row: str
    side: int
    one_pass: str
    heads: int
    width: int
    hidden: int
    rounds: int


def encodings(spec: RunSpec) -> list[Encoding]:
    """The encodings of a row."""
    if spec.row == BASE:
        return []
    if spec.row == "Swin":
        return [SwinBias(spec.heads, window=(spec.side, spec.side))]
    if spec.row == "2D ALiBi":
        return [ALiBi2D(spec.heads)]
    if spec.row.startswith("SAM"):
        return [DecomposedRelative(spec.width, window=(spec.side, spec.side))]
    return [LogCPB(spec.heads, axes=2, hidden=spec.hidden, window=spec.side)]


def call(spec: RunSpec, side: int) -> Callable[[], object]:
    """One call on an image of this side, with its inputs made."""
    tokens = side * side
    shape = (1, spec.heads, tokens, spec.width)
    q, k, v = (t.requires_grad_() for t in random_qkv(shape, shape))
    grad, image, biases = torch.randn(shape), grid(side, side), encodings(spec)
    leaves = [q, k, v, *(p for bias in biases for p in bias.parameters())]
    backend = "dense" if "dense" in spec.row else "auto"
    if "each pair" in spec.row:
        offset.MANY = 1 << 60

    def attend() -> Tensor:
        if not biases:
            return F.scaled_dot_product_attention(q, k, v)
        return attention(q, k, v, biases, q_pos=image, k_pos=image, causal=False, backend=backend)

    def forward() -> object:
        with torch.no_grad():
            return attend()

    return forward if spec.one_pass == "inference" else lambda: torch.autograd.grad(attend(), leaves, grad)


def measure(spec: RunSpec) -> None:
    """In the process of its own: print MiB, the ratio to the base and milliseconds."""
    memory = peak_growth(call(spec, spec.side), warm=call(spec, 12))
    base = call(spec._replace(row=BASE), spec.side)
    time = paired({spec.row: call(spec, spec.side)}, base, spec.rounds)[spec.row]
    print(memory, time.ratio, time.seconds * 1000)


def largest(spec: RunSpec) -> float:
    """GiB of the largest tensor of a row that evaluates a network for each pair."""
    if "each pair" not in spec.row:
        return 0.0
    tokens = spec.side**2
    queries = tokens if "dense" in spec.row else min(BLOCK, tokens)
    return queries * tokens * spec.hidden * 4 / 2**30


def line(spec: RunSpec, most: float, threads: int) -> str:
    """One line of a table, measured in a process of its own."""
    needed = largest(spec) * (3 if spec.one_pass == "training" else 2)  # the units before and after their ReLU
    if needed > most:
        return f"| posenc {spec.row} | about {needed:.0f} GiB: left out | | |"
    command = [sys.executable, __file__, "--one", *map(str, spec), "--threads", str(threads)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    memory, ratio, milliseconds = map(float, ran)
    name = spec.row if spec.row == BASE else f"posenc {spec.row}"
    goal = GOALS.get(spec.side, math.inf) if spec.hidden == 512 and "each pair" not in spec.row else math.inf
    missed = f" (goal {goal:g})" if ratio > goal else ""
    return f"| {name} | {memory:.0f} | {ratio:.2f}{missed} | {milliseconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 64], help="tokens along each side of an image")
    parser.add_argument("--rows", nargs="+", default=[BASE, *ROWS])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512, help="units of LogCPB's network")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most", type=float, default=8.0, help="GiB that a row may need")
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    parser.add_argument("--one", nargs=len(RunSpec._fields), help=argparse.SUPPRESS)  # of the process of its own
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.one:
        row, side, one_pass, *sizes = args.one
        measure(RunSpec(row, int(side), one_pass, *map(int, sizes)))
        return
    text = header("Biases between tokens of an image: time and memory of attention")
    for side in args.sides:
        for one_pass, words in PASSES.items():
            text += f"\n## {side} × {side} tokens, {words}, float32, {args.heads} heads of width {args.width}\n\n"
            text += "| | MiB | time / base | ms |\n|---|---|---|---|\n"
            for row in args.rows:
                spec = RunSpec(row, side, one_pass, args.heads, args.width, args.hidden, args.rounds)
                text += line(spec, args.most, args.threads) + "\n"
                print(text.splitlines()[-1], flush=True)
    print(text)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
