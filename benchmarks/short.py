"""What short calls cost: `attention` vs scaled_dot_product_attention, a layer vs transformers' Llama attention.

    python benchmarks/short.py --write short

Up to some hundred tokens a call consists of overhead: checks, choosing a path, making positions. Candidates run in one
process, round-robin, the base before and after each; each sample is the mean of several calls. "µs above" is the median
difference to the base of the same round. Encodings other than NoPE do something besides attending; what they add to
SDPA is shown as it is.

Layers: 512 wide, 8 heads, batch 1, `SelfAttention` with RoPE and a `KVCache` against `LlamaAttention` with its rotary
module and a `DynamicCache` (extra `reference`), both computing their table anew in each call. A step is timed on a
cache of about that many tokens; training is forward and backward of a whole text, without a cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from measuring import encoding_rows, header, random_qkv, store
from torch import Tensor, nn
from torch.nn import functional as F

from posenc import RoPE, attention
from posenc.layers import KVCache, SelfAttention

HEADS, WIDTH, DIM = 8, 64, 512
ENCODINGS = ("NoPE", "RoPE", "ALiBi", "T5", "FIRE", "FoX, gates near 0.5", "stick-breaking", "Shaw", "CoPE")
Run = Callable[[], object]


def rounds(candidates: Mapping[str, Run], base: Run, count: int, calls: int) -> dict[str, tuple[float, float, float]]:
    """Each candidate's median time, difference to the base and ratio to it, in µs; the base runs around each."""
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in candidates}
    for repetition in range(count + 1):
        before = sample(base, calls)
        for name, run in candidates.items():
            time, after = sample(run, calls), sample(base, calls)
            near = (before + after) / 2
            if repetition:
                samples[name].append((time, time - near, time / near))
            before = after
    return {name: tuple(statistics.median(part) for part in zip(*rows, strict=True)) for name, rows in samples.items()}


def sample(run: Run, calls: int) -> float:
    """µs of one call, the mean of several in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls * 1e6


def table(title: str, first: str, rows: Mapping[str, tuple[float, float, float]]) -> str:
    lines = [f"\n## {title}\n", f"| {first} | µs | µs above the base | × base |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {median:.0f} | {above:+.0f} | {ratio:.2f} |" for name, (median, above, ratio) in rows.items()
    ]
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    return text


def calls_of(args: argparse.Namespace, tokens: int, kind: str) -> str:
    """`attention` under some encodings: one query, a whole text, a training step of one."""
    queries = 1 if kind == "one query" else tokens
    q, k, v = random_qkv((1, HEADS, queries, WIDTH), (1, HEADS, tokens, WIDTH))
    x = torch.randn(1, tokens, DIM, generator=torch.Generator().manual_seed(1))
    rows = encoding_rows(HEADS, WIDTH, DIM)
    trained = kind == "training"
    for leaf in (q, k, v):
        leaf.requires_grad_(trained)

    def sdpa() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=queries > 1)

    def once(call: Callable[[], Tensor]) -> object:
        out = call()
        return torch.autograd.grad(out, (q, k, v), out) if trained else out

    candidates: dict[str, Run] = {"SDPA (base), no encoding": partial(once, sdpa)}
    for name in ENCODINGS:
        row = rows[name]
        options = {"features": row.features(x)} if row.reads_x else {}
        candidates[f"posenc {name}"] = partial(once, partial(attention, q, k, v, row.encodings, **options))
    if queries > 1:
        cos, sin = (torch.cat([t, t], -1) for t in RoPE(WIDTH).table(torch.arange(queries)))
        candidates["RoPE by hand, tables made before"] = partial(
            once, lambda: F.scaled_dot_product_attention(by_hand(q, cos, sin), by_hand(k, cos, sin), v, is_causal=True)
        )
    with torch.set_grad_enabled(trained):
        timed = rounds(candidates, partial(once, sdpa), args.rounds, calls_for(tokens))
    return table(f"`attention`, {kind}, {tokens} tokens, 8 heads of width 64", "call", timed)


def by_hand(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rotation as people write it."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def calls_for(tokens: int) -> int:
    return max(2, 50 // max(1, tokens // 16))


def llama(layer: SelfAttention) -> tuple[nn.Module, nn.Module, object]:
    """transformers' attention of the same weights, its rotary module and its configuration."""
    from transformers.models.llama import modeling_llama
    from transformers.models.llama.configuration_llama import LlamaConfig

    config = LlamaConfig(hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, num_hidden_layers=1)
    config._attn_implementation = "sdpa"
    peer = modeling_llama.LlamaAttention(config, 0).eval()
    peer.load_state_dict(layer.state_dict(), strict=False)
    return peer, modeling_llama.LlamaRotaryEmbedding(config), config


def layers(args: argparse.Namespace, tokens: int) -> str:
    """A decoding step with a cache, and a training step."""
    from transformers.cache_utils import DynamicCache

    layer = SelfAttention(DIM, HEADS, encodings=[RoPE(WIDTH)])
    peer, rotary, config = llama(layer)
    x = torch.randn(1, tokens, DIM, generator=torch.Generator().manual_seed(1))
    new, causal = x[:, :1], None
    kv_cache, peer_cache = KVCache(), DynamicCache(config=config)

    def peer_step(inputs: Tensor, cache: object, at: Tensor) -> Tensor:
        return peer(inputs, rotary(inputs, at), causal, past_key_values=cache)[0]

    def step_of_llama() -> Tensor:
        past = peer_cache.get_seq_length()
        return peer_step(new, peer_cache, torch.arange(past, past + 1)[None])

    def train(call: Callable[[Tensor], Tensor]) -> object:
        leaf = x.clone().requires_grad_()
        out = call(leaf)
        return torch.autograd.grad(out, [leaf], out)

    with torch.no_grad():
        layer(x, cache=kv_cache)
        peer_step(x, peer_cache, torch.arange(tokens)[None])
        gap = float((layer(new, cache=kv_cache) - step_of_llama()).abs().max())
        assert gap < 1e-4, f"the two layers differ by {gap}"
        steps = {"transformers (base)": step_of_llama, "posenc SelfAttention": lambda: layer(new, cache=kv_cache)}
        text = table(
            f"Layer with RoPE, one step, cache from {tokens} tokens",
            "layer",
            rounds(steps, step_of_llama, args.rounds, min(8, calls_for(tokens))),
        )
    at = torch.arange(tokens)[None]
    trainings = {
        "transformers (base)": partial(train, lambda leaf: peer_step(leaf, None, at)),
        "posenc SelfAttention": partial(train, layer),
    }
    timed = rounds(trainings, trainings["transformers (base)"], args.rounds, min(8, calls_for(tokens)))
    return text + table(f"Layer with RoPE, training step of {tokens} tokens", "layer", timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 4, 16, 64, 128, 256, 512])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = header("Short calls, against plain SDPA and transformers' Llama attention", ("transformers",))
    for kind in ("one query", "whole text", "training"):
        for tokens in args.lengths:
            text += calls_of(args, tokens, kind)
    for tokens in args.lengths:
        text += layers(args, tokens)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
