"""Which backend of attention is fastest on CPU, for each kind of call and length: what `attention` chooses by.

    python benchmarks/preference.py --write

Causal, float32, 8 heads of width 64; batch · length is --tokens. The base is the backend "tiled", which serves every
kind. Backends within 5% of each other count as equally fast: the one of less memory goes first. What was measured
at a length serves lengths up to √2 times it, the last one all beyond, where "dense" comes last for its memory.
`--write` stores results/preference.md and the module src/posenc/backends/measured.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from measuring import Measured, header, paired, store
from torch import Tensor, nn

from posenc import CoPE, Encoding, StickBreaking, T5Bias, attention

HEADS, WIDTH = 8, 64
LEAN = ("tiled", "sdpa", "rows", "dense")  # from little memory to much
BARE = ("sdpa", "tiled", "rows", "dense")  # where the kernel needs no mask
ELSEWHERE = ("triton", "flex")  # for other devices; they refuse on CPU
ON_GPU = ("triton", "flex", "tiled", "sdpa", "rows", "dense")  # not measured
ON_GPU_BARE = ("sdpa", "triton", "flex", "tiled", "rows", "dense")
KINDS = {
    "bare": "nothing added to the scores",
    "bias": "a bias (T5)",
    "masked": "a padding mask",
    "packed": "packed documents (segments)",
    "scores": "an encoding that sees the scores (CoPE)",
    "weights": "weights instead of softmax (stick-breaking)",
}
PASSES = ("inference", "training")
EQUAL = 1.05
Times = dict[str, Measured]  # backend → time and ratio to the base


class Kind(NamedTuple):
    encodings: list[Encoding]
    options: dict[str, Tensor]


def kind_of(name: str, batch: int, length: int) -> Kind:
    torch.manual_seed(0)
    cope = CoPE(WIDTH, max_position=64)
    nn.init.normal_(cope.table, std=WIDTH**-0.5)
    encodings: dict[str, list[Encoding]] = {"bias": [T5Bias(HEADS)], "scores": [cope], "weights": [StickBreaking()]}
    visible = torch.arange(length) < torch.randint(length // 2, length + 1, (batch, 1))
    options = {
        "masked": {"mask": visible[:, None, :]},
        "packed": {"segments": torch.arange(length) // max(1, length // 4)},
    }
    return Kind(encodings.get(name, []), options.get(name, {}))


def measure(kind: str, which: str, length: int, args: argparse.Namespace) -> Times:
    """The times of every backend that serves this kind of call."""
    batch = max(1, args.tokens // length)
    case = kind_of(kind, batch, length)
    q, k, v, grad = torch.randn(4, batch, HEADS, length, WIDTH).unbind()
    leaves = [t.requires_grad_() for t in (q, k, v)] + [p for e in case.encodings for p in e.parameters()]

    def run_of(backend: str) -> Callable[[], object]:
        def forward() -> Tensor:
            return attention(q, k, v, case.encodings, backend=backend, **case.options)  # type: ignore[arg-type]

        def inference() -> object:
            with torch.no_grad():
                return forward()

        return inference if which == "inference" else lambda: torch.autograd.grad(forward(), leaves, grad)

    runs = {backend: run_of(backend) for backend in LEAN if serves(run_of(backend))}
    return paired(runs, runs["tiled"], args.rounds)


def serves(run: Callable[[], object]) -> bool:
    try:
        run()
    except ValueError as refused:
        if "cannot serve this call" not in str(refused):
            raise
        return False
    return True


def ranked(kind: str, times: Times) -> tuple[str, ...]:
    """All backends, best first; refusing ones and other devices' last."""
    lean, left, order = BARE if kind == "bare" else LEAN, dict(times), []
    while left:
        best = min(t.ratio for t in left.values())
        order.append(next(p for p in lean if p in left and left[p].ratio <= EQUAL * best))
        del left[order[-1]]
    return (*order, *(p for p in lean if p not in times), *ELSEWHERE)


def ranges(orders: dict[int, tuple[str, ...]]) -> list[tuple[int | None, tuple[str, ...]]]:
    """(keys up to this many, backends), neighbours that agree as one; None is no limit."""
    merged: list[tuple[int | None, tuple[str, ...]]] = []
    lengths = sorted(orders)
    for length in lengths:
        backends, last = orders[length], length == lengths[-1]
        if last:
            backends = (*(p for p in backends if p not in ("dense", *ELSEWHERE)), "dense", *ELSEWHERE)
        if merged and merged[-1][1] == backends:
            merged.pop()
        merged.append((None if last else int(length * 2**0.5), backends))
    return merged


def tables(results: dict[tuple[str, str], dict[int, Times]]) -> str:
    lines = []
    for which in PASSES:
        lines += [f'\n## {which.capitalize()}: time of each backend relative to "tiled"\n']
        lines += [f"| call | length | {' | '.join(LEAN)} | tiled, ms | order |", "|---" * (len(LEAN) + 4) + "|"]
        for kind, words in KINDS.items():
            for length, times in results[which, kind].items():
                cells = [f"{times[p].ratio:.2f}" if p in times else "–" for p in LEAN]
                order = ", ".join(p for p in ranked(kind, times) if p in times)
                milliseconds = f"{times['tiled'].seconds * 1e3:.1f}"
                lines.append(f"| {words} | {length} | {' | '.join(cells)} | {milliseconds} | {order} |")
    return "\n".join(lines) + "\n"


def module(results: dict[tuple[str, str], dict[int, Times]], head: str) -> str:
    """The source of the table."""
    lines = [
        '"""Which backend is tried first, as measured: written by benchmarks/preference.py, not by hand.\n',
        "(device type, pass, kind of call) → ((keys up to this many, paths from best to last), ...). Kinds:\n",
        *(f"    {kind:8} {words}" for kind, words in KINDS.items()),
        '\nThe rows of "cuda" are not measured.\n',
        *(line.removeprefix("- ") for line in head.splitlines()[2:]),
        '"""\n',
        "from __future__ import annotations\n",
        "ANY = 1 << 60  # no limit\n",
        "TABLE: dict[tuple[str, str, str], tuple[tuple[int, tuple[str, ...]], ...]] = {",
    ]
    for which in PASSES:
        for kind in KINDS:
            merged = ranges({n: ranked(kind, times) for n, times in results[which, kind].items()})
            cells = "".join(f"({'ANY' if keys is None else keys}, {backends!r})," for keys, backends in merged)
            lines.append(f'("cpu", "{which}", "{kind}"): ({cells}),')
    for which in PASSES:
        for kind in KINDS:
            backends = ON_GPU_BARE if kind == "bare" else ON_GPU
            lines.append(f'("cuda", "{which}", "{kind}"): ((ANY, {backends!r}),),')
    return "\n".join([*lines, "}\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).parent.parent
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--tokens", type=int, default=2048, help="batch × length")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="store the tables and the module")
    parser.add_argument("--result", default="preference", metavar="NAME", help="the tables are results/NAME.md")
    parser.add_argument("--module", type=Path, default=root / "src/posenc/backends/measured.py", metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results: dict[tuple[str, str], dict[int, Times]] = {}
    for which in PASSES:
        for kind in KINDS:
            results[which, kind] = {length: measure(kind, which, length, args) for length in sorted(args.lengths)}
            print(which, kind, {n: ranked(kind, t)[:2] for n, t in results[which, kind].items()}, flush=True)
    head = header("Which backend of attention is fastest, by kind of call and length")
    text = (
        f"{head}\nfloat32, causal, {HEADS} heads of width {WIDTH}, batch × length = {args.tokens}.\n{tables(results)}"
    )
    print(text)
    if args.write:
        store(text, args.result)
        args.module.write_text(module(results, head))
        formatter = [sys.executable, "-m", "ruff", "format", "--line-length", "120", str(args.module)]
        subprocess.run(formatter, check=True)


if __name__ == "__main__":
    main()
