"""How much memory an encoding adds to attention: the peak of one call, less the peak of plain causal SDPA.

    python benchmarks/memory.py --write memory

Each row comes from a process of its own. "Tensors" is the most that tensors made in the call hold at one time, found by
PyTorch's profiler; forward alone, at lengths where its record of all tiles would take gigabytes, it is left out.
"Resident" is the growth of the process's peak over the call, after a call with 512 tokens has brought code and thread
pools: it has in it what the C library's allocator keeps of memory that was freed. float32, causal, 8 heads of width 64
unless options say otherwise. With the backward pass the gradients of q, k, v and the parameters are part of both, and
of x where gates are computed from it (at 16,384 tokens 32 MiB that plain SDPA has no part in). Linear growth doubles
from half the length, a matrix quadruples.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

import torch
from measuring import Row, encoding_rows, header, peak_growth, random_qkv, store, tensors_peak
from torch import Tensor
from torch.nn import functional as F

from posenc import attention

BASE = "SDPA, causal, no encoding"
WARM = 512  # tokens of the call before
PASSES = {"training": "forward + backward", "inference": "forward"}


def call(args: argparse.Namespace, row: Row | None, length: int) -> Callable[[], object]:
    """One call at this length, with its inputs made."""
    shape = (1, args.heads, length, args.width)
    qkv = [t.to(getattr(torch, args.dtype)) for t in random_qkv(shape, shape, level=row.level if row else 0.0)]
    reads_x = row is not None and row.reads_x
    x = torch.randn(1, length, args.heads * args.width).to(qkv[0].dtype) if reads_x else None
    leaves = [*qkv, *([] if x is None else [x])]
    if args.one_pass == "training":
        leaves = [t.requires_grad_() for t in leaves] + (list(row.parameters) if row else [])
    grad = torch.randn(shape).to(qkv[0].dtype)

    def attend() -> Tensor:
        q, k, v = qkv
        if row is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return attention(q, k, v, row.encodings, x=x, tolerance=row.tolerance)

    def forward() -> object:
        with torch.no_grad():
            return attend()

    return forward if args.one_pass == "inference" else lambda: torch.autograd.grad(attend(), leaves, grad)


def measure_one(args: argparse.Namespace) -> None:
    """In the process of its own: print what tensors of one row hold, in training, and its growth, MiB."""
    rows = encoding_rows(args.heads, args.width, args.heads * args.width)
    row = None if args.one_row == BASE else rows[args.one_row]
    run = call(args, row, args.one_length)
    grew = peak_growth(run, warm=call(args, row, min(WARM, args.one_length)))
    print(*([tensors_peak(run)] if args.one_pass == "training" else []), grew)


def grown(args: argparse.Namespace, row: str, length: int, which: str) -> list[float]:
    """MiB that the tensors of one call hold, in training, and that it grows the peak of a fresh process."""
    command = [sys.executable, __file__, "--one-row", row, "--one-length", str(length), "--one-pass", which]
    for name in ("heads", "width", "threads", "dtype"):
        command += [f"--{name}", str(getattr(args, name))]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in printed.split()]


def table(args: argparse.Namespace, names: list[str], length: int, which: str) -> str:
    kinds = ("tensors", "resident") if which == "training" else ("resident",)
    heads = [f"{kind}, {n} tokens | over SDPA's" for n in (length, length // 2) for kind in kinds]
    lines = [
        f"\n## {PASSES[which]}, {args.dtype}, {args.heads} heads of width {args.width}, causal\n",
        f"| MiB | {' | '.join(heads)} |",
        "|---" * (1 + 2 * len(heads)) + "|",
    ]
    base: list[float] = []
    for name in (BASE, *names):
        peaks = [peak for n in (length, length // 2) for peak in grown(args, name, n, which)]
        base = base or peaks
        cells = [f"{peak:.0f} | {round(peak - sdpa)}" for peak, sdpa in zip(peaks, base, strict=True)]
        lines.append(f"| {name if name == BASE else f'posenc {name}'} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=16384, help="tokens, forward and backward; 0: leave it out")
    parser.add_argument("--forward-length", type=int, default=65536, help="tokens, forward alone; 0: leave it out")
    parser.add_argument("--encodings", nargs="+", default=[], help="only rows whose name has one of these words in it")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    for name, kind in (("row", str), ("length", int), ("pass", str)):  # of the process of its own
        parser.add_argument(f"--one-{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.one_row:
        measure_one(args)
        return
    words = [word.lower() for word in args.encodings]
    names = list(encoding_rows(args.heads, args.width, args.heads * args.width))
    names = [n for n in names if not words or any(word in n.lower() for word in words)]
    text = header("Memory of attention under an encoding, beyond plain causal SDPA's")
    for length, which in ((args.length, "training"), (args.forward_length, "inference")):
        text += table(args, names, length, which) if length else ""
    print(text)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
