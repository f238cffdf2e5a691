"""What the paths of attention save `posenc compare`: a profile by dense matrices, and as it is.

    python benchmarks/lab.py --write lab

Per encoding: seconds for the profile's training steps and for its evaluation at all lengths, each from a few steps and
one batch a length, by path="dense" and by path="auto", in turns. The last row is their sum over all encodings.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from measuring import header
from torch.nn import functional as F

from posenc.lab.model import VOCABULARY, Decoder
from posenc.lab.specs import Shape, ends_at_table, is_control
from posenc.lab.text.measure import SCORES_A_FORWARD, TOKENS_A_FORWARD
from posenc.lab.text.profiles import Settings, profile


def build(spec: str, s: Settings, path: str) -> Decoder:
    model = Decoder(spec, Shape(s.dim, s.heads, s.layers, s.train_length), hidden=s.hidden, seed=0)
    for block in model.blocks:
        block.attention.path = path
    return model


def step(model: Decoder, s: Settings) -> float:
    """Seconds of one training step, without the optimizer."""
    tokens = torch.randint(VOCABULARY, (s.batch_size, s.train_length + 1))
    start = time.perf_counter()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return time.perf_counter() - start


@torch.no_grad()
def evaluation(model: Decoder, s: Settings, length: int) -> float:
    """Seconds for all windows at one length, from one batch as the lab makes it."""
    size = max(1, min(TOKENS_A_FORWARD // length, SCORES_A_FORWARD // (s.heads * length * length), s.windows))
    tokens = torch.randint(VOCABULARY, (size, length))
    start = time.perf_counter()
    model(tokens)
    return (time.perf_counter() - start) * s.windows / size


def seconds(spec: str, s: Settings, rounds: int) -> dict[str, float]:
    """Seconds of a whole job, by path."""
    models = {path: build(spec, s, path) for path in ("dense", "auto")}
    lengths = [s.train_length * k for k in s.lengths if k == 1 or not ends_at_table(spec)]
    found: dict[str, list[float]] = {path: [] for path in models}
    for turn in range(rounds + 1):
        for path, model in models.items():
            total = s.steps * step(model, s) + sum(evaluation(model.eval(), s, length) for length in lengths)
            if turn:
                found[path].append(total)
    return {path: statistics.median(times) for path, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encodings", nargs="+", help="default: those of the profile")
    parser.add_argument("--profile", default="standard", choices=["quick", "standard"])
    parser.add_argument("--write", metavar="NAME", help="store the table as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = profile(args.profile)
    specs = args.encodings or [spec for spec in chosen.encodings if not is_control(spec)]
    lines = [header(f"One seed of the {args.profile} profile, by dense matrices and by the chosen paths")]
    lines.append("| encoding | dense, s | auto, s | dense / auto |\n|---|---|---|---|")
    total = {"dense": 0.0, "auto": 0.0}
    for spec in specs:
        took = seconds(spec, chosen.settings, args.rounds)
        total = {path: total[path] + took[path] for path in total}
        lines.append(f"| {spec} | {took['dense']:.0f} | {took['auto']:.0f} | {took['dense'] / took['auto']:.2f} |")
        print(lines[-1], flush=True)
    lines.append(f"| all | {total['dense']:.0f} | {total['auto']:.0f} | {total['dense'] / total['auto']:.2f} |")
    print(lines[-1])
    if args.write:
        (Path(__file__).parent / "results" / f"{args.write}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
