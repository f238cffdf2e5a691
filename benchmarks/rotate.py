"""What rotating queries and keys costs, against other libraries' own functions and against copying the same bytes.

    python benchmarks/rotate.py --write rotate

q (1, 32, length, 128) and k (1, 8, length, 128). "clone" and "copy" are the limits: copying q and k into new memory,
and into memory that is ready. Peers: transformers' apply_rotary_pos_emb (half layout), rotary-embedding-torch's and
x-transformers' functions (interleaved), each with tables at hand. Every result is checked against float64 first.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import header, interleaved, ratios
from torch import Tensor

from posenc import RoPE

Pair = tuple[Tensor, Tensor]
Call = Callable[[Tensor, Tensor], Pair]
WIDTH, HEADS, KEY_HEADS = 128, 32, 8
PEERS = ("transformers", "rotary-embedding-torch", "x-transformers")
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.3}  # of the peers too: angles in float32, tables in bfloat16


def peers(length: int, dtype: torch.dtype) -> dict[str, tuple[str, Call]]:
    """Name → (layout, function), with tables made beforehand."""
    import rotary_embedding_torch
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama
    from x_transformers import x_transformers

    config = LlamaConfig(hidden_size=WIDTH * HEADS, num_attention_heads=HEADS, max_position_embeddings=length)
    cos, sin = llama.LlamaRotaryEmbedding(config)(torch.zeros((), dtype=dtype), torch.arange(length)[None])
    frequencies, _ = x_transformers.RotaryEmbedding(WIDTH)(torch.arange(length))
    lucid = rotary_embedding_torch.RotaryEmbedding(WIDTH)

    def rotary_embedding(q: Tensor, k: Tensor) -> Pair:
        return lucid.rotate_queries_or_keys(q), lucid.rotate_queries_or_keys(k)

    def x_transformer(q: Tensor, k: Tensor) -> Pair:
        return tuple(x_transformers.apply_rotary_pos_emb(t, frequencies) for t in (q, k))  # type: ignore[return-value]

    return {
        "transformers": ("half", lambda q, k: llama.apply_rotary_pos_emb(q, k, cos, sin)),
        "rotary-embedding-torch": ("interleaved", rotary_embedding),
        "x-transformers": ("interleaved", x_transformer),
    }


def posenc_calls(length: int) -> dict[str, tuple[str, Call]]:
    """Eager and compiled, both layouts; "growing" has seen other lengths before."""
    calls: dict[str, tuple[str, Call]] = {}
    for layout in ("half", "interleaved"):
        rope = RoPE(WIDTH, layout=layout)  # type: ignore[arg-type]
        table = rope.table(torch.arange(length))
        short = [rope.table(torch.arange(n)) for n in (length // 4, length // 2)]

        def call(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, rope: RoPE = rope) -> Pair:
            return rope.rotate(q, (cos, sin)), rope.rotate(k, (cos, sin))

        def in_place(q: Tensor, k: Tensor, rope: RoPE = rope, table: Pair = table) -> Pair:
            return rope.rotate_(q, table), rope.rotate_(k, table)

        calls[f"posenc, {layout}"] = (layout, lambda q, k, c=call, t=table: c(q, k, *t))
        for name in ("fixed", "growing"):
            compiled = torch.compile(call, fullgraph=True, dynamic=False if name == "fixed" else None)
            for n, small in zip((length // 4, length // 2), short, strict=True):
                if name == "growing":
                    compiled(*(torch.randn(1, h, n, WIDTH) for h in (HEADS, KEY_HEADS)), *small)
            full = f"posenc, {layout}, compiled, {name} lengths"
            calls[full] = (layout, lambda q, k, c=compiled, t=table: c(q, k, *t))
        calls[f"posenc, {layout}, in place"] = (layout, in_place)
    return calls


def exact(x: Tensor, layout: str) -> Tensor:
    rope = RoPE(WIDTH, layout=layout)  # type: ignore[arg-type]
    wide = x.double()
    return rope.rotate(wide, rope.table(torch.arange(x.shape[2]), like=wide))


def checked(name: str, layout: str, call: Call, q: Tensor, k: Tensor) -> float:
    """The largest error against float64; a benchmark of wrong results is none."""
    with torch.no_grad():
        got = call(q.clone(), k.clone())
    error = max(float((g.double() - exact(x, layout)).abs().max()) for g, x in zip(got, (q, k), strict=True))
    if error > TOLERANCE[q.dtype] and "rotary-embedding" not in name:  # whose bfloat16 positions end at 256
        raise SystemExit(f"{name} is wrong by {error}: no timing")
    return error


def kept_bytes(call: Call, q: Tensor, k: Tensor) -> int:
    """What autograd keeps for the backward pass, in bytes, each memory once."""
    bytes_of: dict[int, int] = {}
    hook = torch.autograd.graph.saved_tensors_hooks(
        lambda t: bytes_of.__setitem__(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) or t, lambda t: t
    )
    with hook:
        call(q, k)
    return sum(bytes_of.values())


def table(length: int, dtype: torch.dtype, rounds: int) -> str:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, h, length, WIDTH, generator=generator).to(dtype) for h in (HEADS, KEY_HEADS))
    ready = torch.empty_like(q), torch.empty_like(k)
    calls = {**peers(length, dtype), **posenc_calls(length)}
    errors = {name: checked(name, layout, call, q, k) for name, (layout, call) in calls.items()}
    limits: dict[str, Call] = {
        "copy": lambda q, k: (ready[0].copy_(q), ready[1].copy_(k)),
        "clone": lambda q, k: (q.clone(), k.clone()),
    }
    everything = {**limits, **{name: call for name, (_, call) in calls.items()}}
    with torch.no_grad():
        forward = interleaved({n: (lambda c=c: c(q, k)) for n, c in everything.items()}, rounds)  # type: ignore[misc]
    wants = [t.clone().requires_grad_() for t in (q, k)]
    trained = {n: c for n, c in everything.items() if "in place" not in n and n != "copy"}

    def both(call: Call) -> Callable[[], object]:
        return lambda: torch.autograd.grad(call(*wants), wants, [q, k])

    backward = interleaved({n: both(c) for n, c in trained.items()}, rounds)
    lines = [
        f"\n## {str(dtype).removeprefix('torch.')}, length {length}: forward, and forward + backward\n",
        "| | forward, × copy | × clone | " + " | ".join(f"{p} takes ×" for p in PEERS)
        + " | fwd+bwd, × clone's | " + " | ".join(f"{p} takes ×" for p in PEERS) + " | max error | kept, MiB |",
        "|---" * (7 + 2 * len(PEERS)) + "|",
    ]  # fmt: skip
    for name in everything:
        row = [f"{ratios(forward, base)[name]:.2f}" for base in ("copy", "clone")]
        row += [f"{1 / ratios(forward, p)[name]:.2f}" for p in PEERS]
        if name in trained:
            row += [f"{ratios(backward, 'clone')[name]:.2f}", *(f"{1 / ratios(backward, p)[name]:.2f}" for p in PEERS)]
            saved = f"{kept_bytes(everything[name], *wants) / 2**20:.1f}"
        else:
            row, saved = [*row, *["–"] * (1 + len(PEERS))], "–"
        error = f"{errors[name]:.1e}" if name in errors else "0"
        lines.append(f"| {name} | {' | '.join(row)} | {error} | {saved} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def steps(dtype: torch.dtype, rounds: int) -> str:
    """One new token at position 4000: microseconds, and how many times longer transformers' module with apply takes."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    module = llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=WIDTH * HEADS, num_attention_heads=HEADS))
    both = torch.randn(1, HEADS + KEY_HEADS, 1, WIDTH).to(dtype)  # as a fused projection leaves queries and keys
    q, k, at = both[:, :HEADS], both[:, HEADS:], torch.tensor([4000])
    ready = module(q, at[None])
    runs: dict[str, Callable[[], object]] = {
        "transformers, module and apply": lambda: llama.apply_rotary_pos_emb(q, k, *module(q, at[None])),
        "transformers, apply alone": lambda: llama.apply_rotary_pos_emb(q, k, *ready),
    }
    for layout in ("half", "interleaved"):
        rope = RoPE(WIDTH, layout=layout)  # type: ignore[arg-type]
        rows = rope.table(torch.arange(8192))

        def anew(rope: RoPE = rope) -> object:
            table = rope.table(at, like=q)
            return rope.rotate(q, table), rope.rotate(k, table)

        runs[f"posenc, {layout}, forward"] = lambda r=rope: r(q, k, at, at)
        runs[f"posenc, {layout}, table made anew"] = anew
        runs[f"posenc, {layout}, table made anew, q and k in one"] = lambda r=rope: r.rotate(both, r.table(at, like=q))
        runs[f"posenc, {layout}, row of a ready table, q and k in one"] = lambda r=rope, t=rows: r.rotate(
            both, (t[0][4000:4001], t[1][4000:4001])
        )
    with torch.no_grad():
        seconds = interleaved({n: (lambda run=run: [run() for _ in range(200)]) for n, run in runs.items()}, rounds)  # type: ignore[misc]
    relative = ratios(seconds, "transformers, module and apply")
    lines = [f"\n## {str(dtype).removeprefix('torch.')}, a decode step\n"]
    lines += ["| | µs | transformers takes × |", "|---|---|---|"]
    lines += [f"| {n} | {statistics.median(s) * 5000:.0f} | {1 / relative[n]:.2f} |" for n, s in seconds.items()]
    print("\n".join(lines), flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch._dynamo.config.recompile_limit = 256  # layouts, dtypes and lengths share one function here
    text = header("Rotating queries and keys, against other libraries and against copying")
    for name in args.dtypes:
        text += table(args.length, getattr(torch, name), args.rounds) + steps(getattr(torch, name), args.rounds)
    if args.write:
        target = Path(__file__).parent / "results" / f"{args.write}.md"
        target.write_text(text)


if __name__ == "__main__":
    main()
