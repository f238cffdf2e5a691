"""A whole decoder: generating 128 tokens, and a training step, against the same decoder with attention by hand.

    python benchmarks/decoder.py --write decoder

12 layers, 512 wide, 8 heads, float32, batch 1, greedy. By hand: linear layers, a rotation by tables made beforehand,
`scaled_dot_product_attention` and a cache allocated beforehand, written in place; all else is the same modules, and all
decoders share their weights. posenc's decoders have `SelfAttention` with a `KVCache` a layer, made anew for every text.
Candidates run in one process and alternate token by token; ratios are medians over tokens. A training step is a round.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from measuring import header, store
from torch import Tensor, nn
from torch.nn import functional as F

from posenc import ALiBi, RoPE, T5Bias
from posenc.encoding import Encoding
from posenc.layers import KVCache, SelfAttention
from posenc.weight import StickBreaking

LAYERS, DIM, HEADS, WIDTH, VOCABULARY = 12, 512, 8, 64, 1024
GOALS = {"RoPE": 1.0, "ALiBi": 0.95, "T5": 0.95, "stick-breaking": 0.95}  # tokens a second, by hand being 1
TRAINING_GOAL = 1.03


class ByHand(nn.Module):
    """Attention with RoPE as people write it."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        angle = torch.arange(longest)[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        self.cos, self.sin = (torch.cat([t, t], -1) for t in (angle.cos(), angle.sin()))

    def forward(self, x: Tensor, cache: list[Tensor] | None, start: int) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            p(x).view(batch, tokens, HEADS, WIDTH).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        cos, sin = self.cos[start : start + tokens], self.sin[start : start + tokens]
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        if cache is not None:
            cache[0][:, :, start : start + tokens], cache[1][:, :, start : start + tokens] = k, v
            k, v = cache[0][:, :, : start + tokens], cache[1][:, :, : start + tokens]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1)
        projected: Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, tokens, DIM))
        return projected


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Decoder(nn.Module):
    """The same but for attention."""

    def __init__(self, attention: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.attention = nn.ModuleList(attention() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.RMSNorm(DIM) for _ in range(2 * LAYERS + 1))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM)) for _ in range(LAYERS)
        )
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, ids: Tensor, attend: Callable[[int, Tensor], Tensor]) -> Tensor:
        x = self.embedding(ids)
        for layer, mlp in enumerate(self.mlps):
            x = x + attend(layer, self.norms[2 * layer](x))
            x = x + mlp(self.norms[2 * layer + 1](x))
        logits: Tensor = self.head(self.norms[-1](x))
        return logits


def by_posenc(encodings: Sequence[Encoding]) -> Decoder:
    return Decoder(lambda: SelfAttention(DIM, HEADS, encodings=encodings))


def generated(model: Decoder, prompt: Tensor, tokens: int) -> Iterator[Tensor]:
    """New tokens, greedily, each computed when it is asked for; the first call reads the prompt."""
    hand = isinstance(model.attention[0], ByHand)
    total = prompt.shape[1] + tokens
    caches = [
        [torch.empty(1, HEADS, total, WIDTH) for _ in "kv"] if hand else KVCache(capacity=total) for _ in range(LAYERS)
    ]
    start, ids = 0, prompt

    def attend(layer: int, x: Tensor) -> Tensor:
        out: Tensor = (
            model.attention[layer](x, caches[layer], start) if hand else model.attention[layer](x, cache=caches[layer])
        )
        return out

    for _ in range(tokens):
        logits = model(ids, attend)[:, -1]
        start += ids.shape[1]
        ids = logits.argmax(-1, keepdim=True)
        yield ids


def seconds_of_tokens(models: dict[str, Decoder], prompt: Tensor, tokens: int, rounds: int) -> dict[str, list[float]]:
    """Times of every token but the first. Models alternate token by token in random order: slow moments hit all."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    shuffled = random.Random(0)
    for number in range(rounds + 1):
        texts = {name: generated(model, prompt, tokens) for name, model in models.items()}
        for text in texts.values():
            next(text)
        for _ in range(tokens - 1):
            for name in shuffled.sample(list(texts), len(texts)):
                begin = time.perf_counter()
                next(texts[name])
                if number:
                    taken[name].append(time.perf_counter() - begin)
    return taken


def train(model: Decoder, ids: Tensor) -> None:
    """Forward and backward of a whole text."""
    hand = isinstance(model.attention[0], ByHand)
    logits = model(ids, lambda layer, x: model.attention[layer](x, None, 0) if hand else model.attention[layer](x))
    F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    model.zero_grad()


def seconds_of(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Times of every round; who is first goes round."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for run in runs.values():
        run()
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            begin = time.perf_counter()
            runs[name]()
            taken[name].append(time.perf_counter() - begin)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=16, help="tokens")
    parser.add_argument("--tokens", type=int, default=128, help="to generate")
    parser.add_argument("--text", type=int, default=512, help="tokens of the training step")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", metavar="NAME", help="also write benchmarks/results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    hand = Decoder(lambda: ByHand(args.prompt + args.tokens + args.text)).eval()
    models = {"by hand": hand}
    for name, encoding in (
        ("RoPE", RoPE(WIDTH)),
        ("ALiBi", ALiBi(HEADS)),
        ("T5", T5Bias(HEADS)),
        ("stick-breaking", StickBreaking()),
    ):
        models[name] = by_posenc([encoding]).eval()
        parameters = dict(hand.named_parameters())  # shared, so that no model has better places in memory
        models[name].load_state_dict(parameters, strict=False, assign=True)
    prompt, text = (torch.randint(0, VOCABULARY, (1, n)) for n in (args.prompt, args.text))
    with torch.no_grad():
        texts = [torch.cat(list(generated(m, prompt, args.tokens))) for m in (hand, models["RoPE"])]
        assert torch.equal(*texts)
        taken = seconds_of_tokens(models, prompt, args.tokens, args.rounds)
    lines = [
        f"\n## Generating {args.tokens} tokens after {args.prompt}\n",
        "| | tokens a second | × by hand | goal |",
        "|---|---|---|---|",
    ]
    for name, times in taken.items():
        ratio = statistics.median(h / t for h, t in zip(taken["by hand"], times, strict=True))
        goal = GOALS.get(name)
        verdict = "" if goal is None else f"≥ {goal:g}: {'met' if ratio >= goal else 'missed'}"
        lines.append(f"| {name} | {1 / statistics.median(times):.0f} | {ratio:.3f} | {verdict} |")
    steps = {n: lambda m=m: train(m, text) for n, m in models.items() if n in ("by hand", "RoPE")}
    taken = seconds_of(steps, args.rounds)
    ratio = statistics.median(t / h for h, t in zip(taken["by hand"], taken["RoPE"], strict=True))
    lines += [f"\n## A training step of {args.text} tokens\n", "| | ms | × by hand | goal |", "|---|---|---|---|"]
    lines.append(f"| by hand | {statistics.median(taken['by hand']) * 1e3:.0f} | 1 | |")
    verdict = "met" if ratio <= TRAINING_GOAL else "missed"
    lines.append(
        f"| RoPE | {statistics.median(taken['RoPE']) * 1e3:.0f} | {ratio:.3f} | ≤ {TRAINING_GOAL}: {verdict} |"
    )
    table = "\n".join(lines) + "\n"
    print(table)
    if args.write:
        store(header("A whole decoder, against the same with attention by hand") + table, args.write)


if __name__ == "__main__":
    main()
