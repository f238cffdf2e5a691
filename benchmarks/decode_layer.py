"""One decoding step of a whole attention layer through its cache, compared with transformers'; for decode.py.

``SelfAttention(512, 8, encodings=[RoPE(64)])`` in float32, batch 1, one new token, without gradients. After each step
the cache forgets that token (`KVCache.crop`, DynamicCache.crop), outside of the time taken, so that all rounds see as
many. "Attention alone" are calls over keys and values that lie ready, the new one among them. transformers' layer
(extra `reference`) is LlamaAttention with its rotary embedding and SDPA, weights of the same sizes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc import RoPE, attention
from posenc.layers import KVCache, SelfAttention
from posenc.layers.cache.keys import NewTokens

DIM, HEADS, WIDTH, WINDOW, PIECE = 512, 8, 64, 64, 4096
BASE = "SDPA alone, over ready tensors"


class Step(NamedTuple):
    """What is timed, and what puts everything back behind it."""

    run: Callable[[], object]
    back: Callable[[], object] = lambda: None


def layer_table(tokens: int, rounds: int) -> str:
    """A step at this many cached tokens."""
    steps = candidates(tokens)
    few = max(11, rounds // 4) if tokens > 8192 else max(rounds, 101)
    seconds = medians(steps, few)
    peer = next((name for name in steps if "DynamicCache" in name), None)
    lines = [f"\n## A layer's step at {tokens} cached tokens, {DIM} wide, {HEADS} heads, RoPE, float32\n"]
    lines += ["| | µs per step | × SDPA alone | × transformers with DynamicCache |", "|---|---|---|---|"]
    for name in steps:
        relative = "–" if peer is None else f"{ratio(seconds[name], seconds[peer]):.3f}"
        taken = statistics.median(seconds[name]) * 1e6
        lines.append(f"| {name} | {taken:.0f} | {ratio(seconds[name], seconds[BASE]):.3f} | {relative} |")
    print("\n".join(lines), flush=True)
    return "\n".join(lines) + "\n"


def window_table(lengths: list[int], rounds: int) -> str:
    """A step under a window, however many tokens came: caches of all lengths, alternating."""
    layer = make_layer()
    seen = sorted({WINDOW, *(n for n in lengths if n > WINDOW)})
    x = torch.randn(1, 1, DIM)
    caches = {n: filled(layer, n, window=WINDOW) for n in seen}
    steps = {f"{n} tokens seen": Step(lambda cache=cache: layer(x, cache=cache)) for n, cache in caches.items()}
    seconds = medians(steps, max(rounds, 201))
    first = f"{WINDOW} tokens seen"
    lines = [f"\n## A layer's step under a window of {WINDOW}\n", "| | µs per step | × the first |", "|---|---|---|"]
    for name in steps:
        taken = statistics.median(seconds[name]) * 1e6
        lines.append(f"| {name} | {taken:.0f} | {ratio(seconds[name], seconds[first]):.3f} |")
    print("\n".join(lines), flush=True)
    return "\n".join(lines) + "\n"


def candidates(tokens: int) -> dict[str, Step]:
    """All that is compared, on caches of their own."""
    layer, x = make_layer(), torch.randn(1, 1, DIM)
    cache, static = filled(layer, tokens), layer.static_cache(1, tokens + 1)
    q, k, v = (torch.randn(1, HEADS, n, WIDTH) for n in (1, tokens + 1, tokens + 1))
    with torch.no_grad():
        static.k[:, :, :tokens], static.v[:, :, :tokens] = k[:, :, 1:], v[:, :, 1:]
        static.real[:, :tokens] = True
        static.positions[:, :tokens] = torch.arange(tokens)
        static.seen.fill_(tokens)
        static.count.fill_(tokens)
    return {
        BASE: Step(lambda: F.scaled_dot_product_attention(q, k, v)),
        "attention alone, over ready tensors": Step(lambda: attention(q, k, v)),
        "posenc SelfAttention, KVCache": Step(lambda: layer(x, cache=cache), lambda: cache.crop(1)),
        "posenc SelfAttention, StaticKVCache": Step(lambda: layer(x, cache=static), lambda: static.crop(1)),
        **transformers_layers(tokens, x),
    }


def transformers_layers(tokens: int, x: Tensor) -> dict[str, Step]:
    """LlamaAttention with its rotary embedding, through both kinds of cache."""
    try:
        from transformers import DynamicCache, LlamaConfig, StaticCache
        from transformers.models.llama import modeling_llama as llama
    except ImportError:
        return {}
    config = LlamaConfig(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=WIDTH, num_hidden_layers=1,
        attn_implementation="sdpa", max_position_embeddings=2 * tokens + 2,
    )  # fmt: skip
    module, rotary = llama.LlamaAttention(config, 0).eval(), llama.LlamaRotaryEmbedding(config)
    here, k = torch.tensor([[tokens]]), torch.randn(1, HEADS, tokens, WIDTH)
    dynamic, static = DynamicCache(), StaticCache(config, max_cache_len=tokens + 1)
    dynamic.update(k, k.clone(), 0)
    static.update(k, k.clone(), 0)
    keys_and_values = dynamic.layers[0].keys, dynamic.layers[0].values
    seen: Any = static.layers[0].cumulative_length
    mask = (torch.arange(tokens + 1) <= tokens)[None, None, None]

    def back() -> None:  # what a crop would leave, without its copy
        dynamic.layers[0].keys, dynamic.layers[0].values = keys_and_values

    def static_back() -> None:
        if isinstance(seen, Tensor):
            seen.fill_(tokens)

    return {
        "transformers LlamaAttention, DynamicCache": Step(
            lambda: module(x, rotary(x, here), None, past_key_values=dynamic), back
        ),
        "transformers LlamaAttention, StaticCache": Step(
            lambda: module(x, rotary(x, here), mask, past_key_values=static), static_back
        ),
    }


def make_layer() -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, HEADS, encodings=[RoPE(WIDTH)]).eval()


def filled(layer: SelfAttention, tokens: int, **options: int) -> KVCache:
    """A cache of so many tokens, in pieces that do not look at one another, as only their number matters here."""
    cache = KVCache(**options)
    with torch.no_grad():
        for start in range(0, tokens, PIECE):
            count = min(PIECE, tokens - start)
            k, v = torch.randn(2, 1, HEADS, count, WIDTH).unbind(0)
            cache._take(cache._extended(NewTokens(k, v, [None])))
    return cache


def medians(steps: Mapping[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step in each round; the first round, which warms up, is not counted.

    Each round has an order of its own: what a step finds in the caches is what ran before it, which shall favour none.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order, shuffled = list(steps.items()), random.Random(0)
    with torch.no_grad():
        for repetition in range(rounds + 1):
            shuffled.shuffle(order)
            for name, step in order:
                start = time.perf_counter()
                step.run()
                taken = time.perf_counter() - start
                step.back()
                if repetition:
                    seconds[name].append(taken)
    return seconds


def ratio(times: list[float], other: list[float]) -> float:
    """The median over rounds."""
    return statistics.median(a / b for a, b in zip(times, other, strict=True))
