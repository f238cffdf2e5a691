"""What a decoding step costs under an encoding, against scaled_dot_product_attention(enable_gqa=True) without any.

    python benchmarks/decode.py --write decode

One new query, or a chunk of them, against a cache of keys and values: 32 query and 8 key heads of width 128 unless
options say otherwise. A chunk's queries are causal among themselves; plain SDPA and transformers' eager attention
(extra `reference`) then get the mask ready-made in the dtype of q, posenc makes its own. Forget gates come from the
cache, as ``token_states``. Errors contain the rounding of the result to its dtype, which grows with the result:
encodings that look at few keys have larger results. "Reading the cache" sums keys and values: no step is faster than
reading them once.

Before these come whole steps of one attention layer through its cache (decode_layer.py): ``--steps`` says at how many
cached tokens, none leaves them out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from decode_layer import layer_table, window_table
from measuring import encoding_rows, header, paired, random_qkv, store
from torch import Tensor
from torch.nn import functional as F

from posenc import Encoding, attention

BASE = "SDPA(enable_gqa=True), no encoding"
ENCODINGS = ("NoPE", "ALiBi", "T5", "KERPLE", "FIRE", "FoX, gates near 0.5", "Shaw", "CoPE", "stick-breaking")
DIM = 512  # of the layer's input, from which the cached gates were made
Step = Callable[[Tensor, Tensor, Tensor], Tensor]


def mask_of(queries: int, keys: int, dtype: torch.dtype) -> Tensor | None:
    """Queries are the last of the keys; None for a single query, which attends to all."""
    if queries == 1:
        return None
    hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    return torch.zeros(queries, keys, dtype=dtype).masked_fill(hidden, float("-inf"))


def eager(groups: int, mask: Tensor | None) -> dict[str, Step]:
    """transformers' attention: keys and values repeated for each query head."""
    try:
        from transformers.models.llama import modeling_llama as llama
    except ImportError:
        return {}
    module: Any = SimpleNamespace(num_key_value_groups=groups, training=False)

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = llama.eager_attention_forward(module, q, k, v, mask, q.shape[-1] ** -0.5)[0]
        return out.transpose(1, 2)

    return {"transformers eager (repeat_kv), no encoding": step}


def table(args: argparse.Namespace, queries: int, keys: int, dtype: torch.dtype) -> str:
    q, k, v = random_qkv((1, args.heads, queries, args.width), (1, args.num_kv_heads, keys, args.width))
    q, k, v = (t.to(dtype) for t in (q, k, v))
    x = torch.randn(1, keys, DIM, generator=torch.Generator().manual_seed(1))
    mask = mask_of(queries, keys, dtype)
    rows = encoding_rows(args.heads, args.width, DIM)

    def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    steps: dict[str, Step] = {BASE: sdpa, **eager(args.heads // args.num_kv_heads, mask)}
    of: dict[str, tuple[list[Encoding], list[Tensor | None] | None]] = dict.fromkeys(steps, ([], None))
    for name in ENCODINGS:
        row = rows[name]
        of[f"posenc {name}"] = row.encodings, row.token_states(x)
        steps[f"posenc {name}"] = partial(attention, encodings=row.encodings, token_states=row.token_states(x))
    with torch.no_grad():
        errors = {n: float((step(q, k, v).double() - exact(q, k, v, *of[n])).abs().max()) for n, step in steps.items()}
        runs: dict[str, Callable[[], object]] = {name: partial(step, q, k, v) for name, step in steps.items()}
        runs["reading the cache: k.sum(), v.sum()"] = lambda: (k.sum(), v.sum())
        times = paired(runs, runs[BASE], args.rounds)
    shape = f"{args.heads} query and {args.num_kv_heads} key heads of width {args.width}"
    what = "1 query" if queries == 1 else f"{queries} queries"
    lines = [f"\n## {str(dtype).removeprefix('torch.')}, {what} at {keys} cached tokens, {shape}\n"]
    lines += ["| | × base | µs per step | max error vs float64 |", "|---|---|---|---|"]
    for name, taken in times.items():
        error = f"{errors[name]:.1e}" if name in errors else "–"
        lines.append(f"| {name} | {taken.ratio:.3f} | {taken.seconds * 1e6:.0f} | {error} |")
    print("\n".join(lines), flush=True)
    return "\n".join(lines) + "\n"


def exact(
    q: Tensor, k: Tensor, v: Tensor, encodings: list[Encoding], token_states: list[Tensor | None] | None
) -> Tensor:
    """The definition in float64, from the gates as they are in the cache."""
    return attention(q.double(), k.double(), v.double(), encodings, token_states=token_states, backend="dense")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--caches", type=int, nargs="*", default=[4096, 32768], help="tokens, the new ones among them; of single calls"
    )
    parser.add_argument(
        "--steps", type=int, nargs="*", default=[1, 16, 128, 512, 4096, 16384, 65536], help="tokens in a layer's cache"
    )
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--num-kv-heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = header("A decoding step under an encoding, against plain SDPA with grouped heads", ("transformers",))
    for tokens in args.steps:
        text += layer_table(tokens, args.rounds)
    if args.steps:
        text += window_table(args.steps, args.rounds)
    for keys in args.caches:
        for queries in args.queries:
            for dtype in args.dtypes:
                text += table(args, queries, keys, getattr(torch, dtype))
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
