"""What an encoding costs in attention: time, error and memory against plain causal scaled_dot_product_attention.

    python benchmarks/attention.py --write attention

Rows: posenc's own choice of backend, and what users do today: a dense bias for the fused kernel, built per call or
beforehand, the attention of x-transformers and of transformers (extra `reference`), the definition. float32, causal, 8
heads of width 64 unless options say otherwise. Gradients go to q, k, v, all parameters, and x where gates are computed
from it: then projecting x to gates is inside the timing, on both sides. What builds length × length matrices and needs
more than --dense-limit GiB, judged by its peak at 512 tokens, is left out with a dash.

"gates near 0" and "long sticks" have scores of mean −6 and −8, so that counts do not fill up and no stick is used up
early: there nothing can be left out. "FoX, gates near 0.5" forgets so fast that most keys are left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from measuring import Row, encoding_rows, header, paired, peak_growth, random_qkv, store
from torch import Tensor
from torch.nn import functional as F

from posenc import BiasEncoding, attention

GOALS = {  # most times of the base, forward and forward + backward; the other rows are listed without a goal
    "posenc CoPE": (2.0, 2.0),
    "posenc FIRE": (1.5, 1.7),
    "posenc Transformer-XL": (2.0, 2.0),
    "posenc PaTH": (2.5, 2.5),
    "posenc PaTH-FoX": (2.5, 2.5),
    "posenc DAPE": (3.0, 4.0),
    "posenc DAPE over FIRE": (4.0, 5.0),
    "posenc mixture of RoPE, ALiBi and NoPE": (1.5, 1.5),
}
BASE = "SDPA, causal, no encoding"
SMALL = 512  # tokens at which the memory of dense candidates is measured first
Call = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Candidate(NamedTuple):
    make: Callable[[int], Call]  # for a length
    row: Row  # the encodings that it stands for: they serve the float64 reference
    parameters: list[Tensor]
    dense: bool = True  # builds length × length matrices
    trains: bool = True


def posenc_candidate(row: Row, backend: str = "auto") -> Candidate:
    def call(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        seen = x if row.reads_x else None
        return attention(q, k, v, row.encodings, x=seen, backend=backend, tolerance=row.tolerance)  # type: ignore[arg-type]

    return Candidate(lambda _: call, row, list(row.parameters), dense=backend == "dense")


def dense_bias(row: Row, *, prebuilt: bool) -> Candidate:
    """A length × length bias given to the fused kernel as a mask, as most code does today."""
    encoding = row.encodings[0]
    assert isinstance(encoding, BiasEncoding)

    def build(length: int) -> Tensor:
        positions = torch.arange(length)
        bias: Tensor = encoding(positions, positions)
        return bias.masked_fill(future(length), float("-inf"))[None]

    def make(length: int) -> Call:
        ready = build(length).detach() if prebuilt else None
        return lambda q, k, v, x: F.scaled_dot_product_attention(
            q, k, v, attn_mask=(build(length) if ready is None else ready).to(q.dtype)
        )

    return Candidate(make, row, list(row.parameters), trains=not (prebuilt and row.parameters))


def future(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def x_transformers(rows: dict[str, Row], heads: int, dtype: torch.dtype) -> dict[str, Candidate]:
    """Its attention after the projections, with our parameters, in its eager and in its fused form."""
    try:
        from x_transformers.attend import Attend
        from x_transformers.x_transformers import AlibiPositionalBias, CoPE, DataDependentAlibi
    except ImportError:
        return {}
    alibi, cope, gates = (rows[name] for name in ("ALiBi", "CoPE", "FoX, gates near 0.5"))
    table, forget = cope.parameters[0], gates.encodings[0]
    counting = CoPE(dim=table.shape[0], heads=heads, max_pos=table.shape[1]).to(dtype)
    forgetting = DataDependentAlibi(dim=forget.dim, heads=heads).to(dtype)
    linear = forgetting.to_forget_gates[0]
    with torch.no_grad():
        counting.pos_emb.copy_(table.T)
        linear.weight.copy_(forget.weight)
        linear.bias.copy_(forget.bias)

    def attend(bias: Callable[[int], Callable[[Tensor], Tensor | None]], **options: Any) -> Callable[[int], Call]:
        def make(length: int) -> Call:
            module, added = Attend(heads=heads, causal=True, **options), bias(length)
            return lambda q, k, v, x: module(q, k, v, attn_bias=added(x))[0]

        return make

    def fixed(length: int) -> Callable[[Tensor], Tensor]:
        module = AlibiPositionalBias(heads).to(dtype)
        return lambda x: module(length, length)  # kept between calls

    peers = {
        "x-transformers CoPE": Candidate(attend(lambda _: lambda x: None, cope=counting), cope, [counting.pos_emb])
    }
    for name, flash in (("eager", False), ("fused", True)):
        peers[f"x-transformers ALiBi, {name}"] = Candidate(attend(fixed, flash=flash), alibi, [])
        forgets = attend(lambda _: forgetting, flash=flash)
        peers[f"x-transformers data-dependent ALiBi (FoX), {name}"] = Candidate(forgets, gates, [*linear.parameters()])
    return peers


def transformers(rows: dict[str, Row], dtype: torch.dtype) -> dict[str, Candidate]:
    """Its eager attention with a causal mask made beforehand, which models with an encoding of their own use."""
    try:
        from transformers.models.llama import modeling_llama as llama
    except ImportError:
        return {}

    def make(length: int) -> Call:
        module: Any = SimpleNamespace(num_key_value_groups=1, training=False)
        mask = torch.zeros(length, length, dtype=dtype).masked_fill(future(length), float("-inf"))

        def call(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
            out: Tensor = llama.eager_attention_forward(module, q, k, v, mask, q.shape[-1] ** -0.5)[0]
            return out.transpose(1, 2)

        return call

    return {"transformers eager, no encoding": Candidate(make, rows["NoPE"], [])}


def candidates(args: argparse.Namespace, dtype: torch.dtype) -> dict[str, Candidate]:
    rows = encoding_rows(args.heads, args.width, args.heads * args.width)
    sdpa: Call = lambda q, k, v, x: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    by_name = {BASE: Candidate(lambda _: sdpa, rows["NoPE"], [], dense=False)}
    by_name |= {f"posenc {name}": posenc_candidate(row) for name, row in rows.items()}
    for name in ("ALiBi", "T5", "FIRE"):
        by_name[f"dense {name} into SDPA, prebuilt"] = dense_bias(rows[name], prebuilt=True)
        by_name[f"dense {name} into SDPA, per call"] = dense_bias(rows[name], prebuilt=False)
    by_name |= x_transformers(rows, args.heads, dtype) | transformers(rows, dtype)
    by_name["definition (backend='dense'), ALiBi"] = posenc_candidate(rows["ALiBi"], backend="dense")
    words = [word.lower() for word in args.encodings]
    return {n: c for n, c in by_name.items() if n == BASE or not words or any(w in n.lower() for w in words)}


def inputs(args: argparse.Namespace, dtype: torch.dtype, length: int, level: float) -> tuple[Tensor, ...]:
    """q, k, v and the layer's input x."""
    shape = (1, args.heads, length, args.width)
    qkv = random_qkv(shape, shape, args.score_std, level)
    x = torch.randn(1, length, args.heads * args.width, generator=torch.Generator().manual_seed(1))
    return tuple(t.to(dtype).requires_grad_() for t in (*qkv, x))


class Ready(NamedTuple):
    """A candidate made for a length, with its inputs."""

    candidate: Candidate
    call: Call
    inputs: tuple[Tensor, ...]

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.call(*self.inputs)

    def both(self) -> object:
        leaves = [*self.inputs[: 4 if self.candidate.row.reads_x else 3], *self.candidate.parameters]
        out = self.call(*self.inputs)
        return torch.autograd.grad(out, leaves, self.inputs[2].detach())

    def heaviest(self) -> object:
        return self.both() if self.candidate.trains else self.forward()

    def error(self, known: dict[int, Tensor]) -> float:
        """Largest absolute error of the output against the definition in float64, by blocks where that is possible."""
        row = self.candidate.row
        if id(row) not in known:
            q, k, v, x = (t.detach().double() for t in self.inputs)
            by_rows = q.shape[2] > 64 and all(
                getattr(e, "by_rows", True) or getattr(e, "reads_text", False) for e in row.encodings
            )
            backend = "rows" if by_rows else "dense"
            with torch.no_grad():
                known[id(row)] = attention(q, k, v, row.encodings, x=x if row.reads_x else None, backend=backend)  # type: ignore[arg-type]
        return float((self.forward().double() - known[id(row)]).abs().max())


def table(args: argparse.Namespace, length: int, dtype: torch.dtype) -> str:
    by_name = candidates(args, dtype)
    drawn_inputs = cache(partial(inputs, args, dtype))

    def ready(candidate: Candidate, length: int) -> Ready:
        return Ready(candidate, candidate.make(length), drawn_inputs(length, candidate.row.level))

    def fits(candidate: Candidate) -> bool:
        if not candidate.dense:
            return True
        grown = peak_growth(lambda: ready(candidate, SMALL).heaviest())
        return bool(grown * (length / SMALL) ** 2 <= args.dense_limit * 1024)

    able = {name: ready(candidate, length) for name, candidate in by_name.items() if fits(candidate)}
    forward = paired({n: r.forward for n, r in able.items()}, able[BASE].forward, args.rounds)
    trained = {n: r.both for n, r in able.items() if r.candidate.trains}
    both = paired(trained, able[BASE].both, args.rounds)
    shape = f"{args.heads} heads of width {args.width}, length {length}, causal"
    lines = [
        f"\n## {str(dtype).removeprefix('torch.')}, {shape}, scores of standard deviation {args.score_std:g}\n",
        "| candidate | forward, × base | forward + backward, × base | forward, ms | max error vs float64 "
        "| peak memory fwd+bwd, MiB | at half the length |",
        "|---|---|---|---|---|---|---|",
    ]
    known: dict[int, Tensor] = {}
    for name, candidate in by_name.items():
        cells = ["–"] * 6
        if name in able:
            cells[0], cells[2] = against_goal(name, 0, forward[name].ratio), f"{forward[name].seconds * 1000:.0f}"
            cells[3] = f"{able[name].error(known):.1e}"
        if name in both:
            peaks = (peak_growth(r.both) for r in (able[name], ready(candidate, length // 2)))
            cells[1], cells[4:] = against_goal(name, 1, both[name].ratio), [f"{peak:.0f}" for peak in peaks]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def against_goal(name: str, which: int, ratio: float) -> str:
    """A ratio, and the goal that it misses."""
    goal = GOALS[name][which] if name in GOALS else math.inf
    return f"{ratio:.2f}" if ratio <= goal else f"{ratio:.2f} (goal {goal:g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--encodings", nargs="+", default=[], help="only rows whose name has one of these words in it")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--score-std", type=float, default=1.0, help="standard deviation of the scores q·k · scale")
    parser.add_argument("--dense-limit", type=float, default=4.0, help="GiB that a dense candidate may need")
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = header("Attention under an encoding, against plain causal SDPA", ("transformers", "x-transformers"))
    for dtype in args.dtypes:
        for length in args.lengths:
            text += table(args, length, getattr(torch, dtype))
    print(text)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
