"""What an encoding costs in attention: time, error and memory against plain causal scaled_dot_product_attention.

    python benchmarks/attention.py --write attention

Rows: posenc's own choice of path, and what a user would do today (a dense bias handed to the fused kernel, built per
call or beforehand; the definition). float32, causal, 8 heads of width 64 unless options say otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import header, interleaved, peak_growth, ratios
from torch import Tensor
from torch.nn import functional as F

from posenc import ALiBi, Encoding, RoPE, T5Bias, attention

BASE = "SDPA, causal, no encoding"
Call = Callable[[Tensor, Tensor, Tensor], Tensor]


def dense_bias(encoding: ALiBi | T5Bias, prebuilt: int | None = None) -> Call:
    """A length × length bias given to the fused kernel as a mask, as most code does today."""

    def build(length: int) -> Tensor:
        positions = torch.arange(length)
        future = positions[None, :] > positions[:, None]
        return encoding(positions, positions).masked_fill(future, float("-inf"))[None]

    ready = None if prebuilt is None else build(prebuilt).detach()
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=build(q.shape[2]) if ready is None else ready
    )


def candidates(heads: int, width: int, length: int) -> dict[str, tuple[Call, list[Encoding]]]:
    """Name → (call, encodings); the encodings serve the float64 reference and the gradients."""
    alibi, rope, learned = ALiBi(heads), RoPE(width), T5Bias(heads)

    def ours(*encodings: Encoding, path: str = "auto") -> tuple[Call, list[Encoding]]:
        return (lambda q, k, v: attention(q, k, v, encodings, path=path)), list(encodings)  # type: ignore[arg-type]

    return {
        BASE: (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), []),
        "posenc, NoPE": ours(),
        "posenc, RoPE": ours(rope),
        "posenc, ALiBi": ours(alibi),
        "posenc, T5 (learned)": ours(learned),
        "posenc, RoPE + ALiBi": ours(rope, alibi),
        "dense ALiBi into SDPA, prebuilt": (dense_bias(alibi, length), [alibi]),
        "dense ALiBi into SDPA, per call": (dense_bias(alibi), [alibi]),
        "dense T5 into SDPA, per call": (dense_bias(learned), [learned]),
        "definition (path='dense'), ALiBi": ours(alibi, path="dense"),
    }


def inputs(args: argparse.Namespace, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Normal q, k and v; q and k scaled so that scores have the wanted standard deviation."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(1, args.heads, args.length, args.width, generator=generator) for _ in range(3)]
    spread = [args.score_std**0.5, args.score_std**0.5, 1.0]
    return tuple((t * s).to(dtype).requires_grad_() for t, s in zip(drawn, spread, strict=True))


def forward(call: Call, qkv: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with torch.no_grad():
            return call(*qkv)

    return run


def with_backward(call: Call, qkv: tuple[Tensor, ...], encodings: list[Encoding]) -> Callable[[], object]:
    wanted = [*qkv, *(p for e in encodings for p in e.parameters())]
    grad = torch.ones_like(qkv[0])
    return lambda: torch.autograd.grad(call(*qkv), wanted, grad)


def error(call: Call, qkv: tuple[Tensor, ...], encodings: list[Encoding]) -> float:
    """Largest absolute error of the output against the definition in float64."""
    with torch.no_grad():
        wide = [t.double() for t in qkv]
        exact = attention(*wide, encodings, path="dense")
        return float((call(*qkv).double() - exact).abs().max())


def table(args: argparse.Namespace, dtype: torch.dtype) -> str:
    made = candidates(args.heads, args.width, args.length)
    qkv = inputs(args, dtype)
    short = tuple(t[:, :, : args.length // 2].detach().requires_grad_() for t in qkv)
    times = {
        "forward": interleaved({n: forward(c, qkv) for n, (c, _) in made.items()}, args.rounds),
        "forward + backward": interleaved({n: with_backward(c, qkv, e) for n, (c, e) in made.items()}, args.rounds),
    }
    relative = {kind: ratios(seconds, BASE) for kind, seconds in times.items()}
    fixed = candidates(args.heads, args.width, args.length // 2)
    shape = f"{args.heads} heads of width {args.width}, length {args.length}, causal"
    lines = [
        f"\n## {str(dtype).removeprefix('torch.')}, {shape}, scores of standard deviation {args.score_std:g}\n",
        "| candidate | forward, × base | forward + backward, × base | forward, ms | max error vs float64 "
        "| peak memory fwd+bwd, MiB | at half the length |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (call, encodings) in made.items():
        milliseconds = 1000 * sorted(times["forward"][name])[args.rounds // 2]
        half_call, half_encodings = fixed[name]
        peaks = [
            peak_growth(with_backward(call, qkv, encodings)),
            peak_growth(with_backward(half_call, short, half_encodings)),
        ]
        lines.append(
            f"| {name} | {relative['forward'][name]:.2f} | {relative['forward + backward'][name]:.2f} "
            f"| {milliseconds:.0f} | {error(call, qkv, encodings):.1e} | {peaks[0]:.0f} | {peaks[1]:.0f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--score-std", type=float, default=1.0, help="standard deviation of the scores q·k · scale")
    parser.add_argument("--write", metavar="NAME", help="store the table as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = header("Attention under an encoding, against plain causal SDPA")
    for dtype in args.dtypes:
        text += table(args, getattr(torch, dtype))
    print(text)
    if args.write:
        target = Path(__file__).parent / "results" / f"{args.write}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)


if __name__ == "__main__":
    main()
