"""What posenc costs under torch.compile on the CPU, against lines of the same model that are written by hand.

    python benchmarks/compile.py --write compile

Rotation: q and k (1, 16, 2048, 128), angles, cos and sin included, against the six lines of most model files, which
round cos and sin to the dtype of the model; forward, with backward, and where eight layers share one table. Step: one
token of a layer of 16 heads of 64 after a cache of fixed size, against a layer of four projections, the six lines and
SDPA. Guards: what torch.compile compares before each call of four layers. Both sides are compiled with fullgraph=True
and alternate in one process; times are `time.thread_time`, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from measuring import header
from torch import Tensor, nn
from torch.nn import functional as F

from posenc import RoPE
from posenc.layers import SelfAttention

Call = Callable[[], object]
HEADS, TOKENS, WIDTH, LAYERS = 16, 2048, 128, 8
DIM, HEAD, CAPACITY = 1024, 64, 512


def six_lines(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Layout half, as in most model files: cos and sin of all channels, in the dtype of q."""

    def half_rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)

    return q * cos + half_rotated(q) * sin, k * cos + half_rotated(k) * sin


def table(positions: Tensor, theta: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin by float32 products."""
    angle = positions[..., None] * theta
    both = torch.cat([angle, angle], -1)
    return both.cos().to(dtype), both.sin().to(dtype)


def frequencies(width: int) -> Tensor:
    return 10_000.0 ** (-torch.arange(0, width, 2) / width)


class ByHand(nn.Module):
    """A layer of attention under RoPE."""

    theta: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.register_buffer("theta", frequencies(HEAD))

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, at: Tensor | None = None) -> Tensor:
        heads = (*x.shape[:2], DIM // HEAD, HEAD)
        q, k, v = (part(x).view(heads).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        positions = torch.arange(x.shape[1]) if at is None else at
        q, k = six_lines(q, k, *table(positions, self.theta, x.dtype))
        if cache is None or at is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys, values = cache[0].index_copy_(2, at, k), cache[1].index_copy_(2, at, v)
            visible = torch.arange(CAPACITY) <= at
            out = F.scaled_dot_product_attention(q, keys, values, visible[None, None, None])
        merged: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return merged


class Stack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def compiled(run: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(run, fullgraph=True, **options)
    return result


def medians(library: Call, by_hand: Call, rounds: int) -> tuple[float, float]:
    """Seconds of both, timed alternately."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for run in (library, by_hand):
        run()
        run()
    for _ in range(rounds):
        for run, times in zip((library, by_hand), seconds, strict=True):
            started = time.thread_time()
            run()
            times.append(time.thread_time() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def rotations(dtype: torch.dtype, rounds: int) -> Iterator[tuple[str, float, float]]:
    rope, theta, positions = RoPE(WIDTH), frequencies(WIDTH), torch.arange(TOKENS)
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, HEADS, TOKENS, WIDTH, generator=generator).to(dtype) for _ in "qk")
    target = torch.randn(q.shape, generator=generator).to(dtype)

    def library(q: Tensor, k: Tensor, positions: Tensor, layers: int) -> tuple[Tensor, Tensor]:
        for _ in range(layers):
            q, k = rope(q, k, positions, positions)
            q, k = k, q
        return q, k

    def by_hand(q: Tensor, k: Tensor, positions: Tensor, layers: int) -> tuple[Tensor, Tensor]:
        cos, sin = table(positions, theta, q.dtype)
        for _ in range(layers):
            q, k = six_lines(q, k, cos, sin)
            q, k = k, q
        return q, k

    pair = [compiled(run) for run in (library, by_hand)]

    def forward(run: Callable[..., Any], layers: int) -> Call:
        def call() -> object:
            with torch.no_grad():
                return run(q, k, positions, layers)

        return call

    def training(run: Callable[..., Any], layers: int) -> Call:
        leaves = [q.clone().requires_grad_(), k.clone().requires_grad_()]
        return lambda: torch.autograd.grad(run(*leaves, positions, layers), leaves, [target, target])

    for name, kind, layers in (
        ("forward", forward, 1), ("forward + backward", training, 1), (f"forward, {LAYERS} layers", forward, LAYERS),
        (f"forward + backward, {LAYERS} layers", training, LAYERS),
    ):  # fmt: skip
        torch._dynamo.reset()
        yield name, *medians(*(kind(run, layers) for run in pair), rounds)


def steps(rounds: int) -> tuple[float, float]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    library, hand, x = SelfAttention(DIM, DIM // HEAD, encodings=[RoPE(HEAD)]), ByHand(), torch.randn(1, 1, DIM)
    library.load_state_dict(hand.state_dict(), strict=False)
    held = library.static_cache(1, CAPACITY)
    keys, values, at = *torch.zeros(2, 1, DIM // HEAD, CAPACITY, HEAD), torch.zeros(1, dtype=torch.int64)
    run_ours, run_hand = compiled(library), compiled(hand)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = run_ours(x, cache=held)
            return result

    def step_by_hand() -> Tensor:
        with torch.no_grad():
            result: Tensor = run_hand(x, (keys, values), at)
            at.add_(1)
            return result

    if not torch.allclose(step(), step_by_hand(), atol=1e-5):
        raise SystemExit("the two layers differ: no timing")
    return medians(step, step_by_hand, min(rounds * 20, CAPACITY - 8))


def guards() -> tuple[int, int]:
    """Of four layers that share one rotation, and of four by hand."""
    rope, counts = RoPE(HEAD), []
    for layers in (
        [SelfAttention(DIM, DIM // HEAD, encodings=[rope]) for _ in range(4)],
        [ByHand() for _ in range(4)],
    ):
        torch._dynamo.reset()
        seen: list[int] = []

        def keep_all(entries: Any, seen: list[int] = seen) -> list[bool]:
            seen.append(len(entries))
            return [True] * len(entries)

        run = compiled(Stack(list(layers)), backend="eager", options={"guard_filter_fn": keep_all})
        run(torch.randn(1, 64, DIM))
        counts.append(seen[-1])
    return counts[0], counts[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", metavar="NAME", help="store the table as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = header("Compiled on a CPU, against lines written by hand")
    text += "\n| | posenc, ms | by hand, ms | ratio |\n|---|---|---|---|\n"
    for dtype in (torch.bfloat16, torch.float32):
        for name, library, hand in rotations(dtype, args.rounds):
            short = str(dtype).removeprefix("torch.")
            text += f"| rotation, {short}, {name} | {library * 1e3:.1f} | {hand * 1e3:.1f} | {library / hand:.2f} |\n"
    library, hand = steps(args.rounds)
    text += f"| step of a layer | {library * 1e3:.2f} | {hand * 1e3:.2f} | {library / hand:.2f} |\n"
    count, by_hand = guards()
    text += f"\nGuards of four layers: {count}, by hand {by_hand}, ratio {count / by_hand:.2f}.\n"
    print(text)
    if args.write:
        (Path(__file__).parent / "results" / f"{args.write}.md").write_text(text)


if __name__ == "__main__":
    main()
