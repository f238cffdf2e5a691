"""What the backends of attention save `posenc compare`: a profile by dense matrices, and as it is.

    python benchmarks/lab.py --write lab

Per encoding: seconds for the profile's training steps and for its evaluation at all lengths, each from a few steps and
one batch a length, by backend="dense" and by backend="auto", alternating. The last row is their sum over all encodings.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
from measuring import header, interleaved, store
from torch.nn import functional as F

from posenc.lab.config import Config
from posenc.lab.data.batching import batches_within
from posenc.lab.models.decoder import VOCABULARY, Decoder
from posenc.lab.specs import ends_at_table
from posenc.lab.tasks import task_named

TASK = task_named("text")


def build(spec: str, c: Config, backend: str) -> Decoder:
    model = Decoder(spec, TASK.shape(c), hidden=c.model.hidden, seed=0)
    for block in model.blocks:
        block.attention.backend = backend
    return model


def step(model: Decoder, tokens: torch.Tensor) -> None:
    """One training step, without the optimizer."""
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    torch.autograd.grad(loss, [*model.parameters()], allow_unused=True)


def seconds(spec: str, c: Config, rounds: int) -> dict[str, float]:
    """Seconds of a whole job, by backend: each part's median times how often it is done."""
    t, windows = c.training, c.evaluation.windows
    lengths = [
        length for k, length in zip(c.evaluation.lengths, c.tested, strict=True) if k == 1 or not ends_at_table(spec)
    ]
    totals = {"dense": 0.0, "auto": 0.0}
    models = {backend: build(spec, c, backend) for backend in totals}
    batch = torch.randint(VOCABULARY, (t.batch_size, t.train_length + 1))
    parts = [(t.steps, {backend: partial(step, model, batch) for backend, model in models.items()})]
    for length in lengths:  # batches as the lab makes them
        size = len(batches_within(range(windows), length, c.model.heads)[0])
        tokens = torch.randint(VOCABULARY, (size, length))
        parts.append(
            (windows / size, {backend: partial(torch.no_grad()(model), tokens) for backend, model in models.items()})
        )
    for times, calls in parts:
        for backend, taken in interleaved(calls, rounds).items():
            totals[backend] += times * statistics.median(taken)
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encodings", nargs="+", help="default: the profile's")
    parser.add_argument("--profile", default="standard", choices=["quick", "standard"])
    parser.add_argument("--write", metavar="NAME", help="store the table as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = TASK.profile(args.profile)
    lines = [header(f"One seed of the {args.profile} profile, by dense matrices and by the chosen paths")]
    lines.append("| encoding | dense, s | auto, s | dense / auto |\n|---|---|---|---|")
    total = {"dense": 0.0, "auto": 0.0}
    for spec in args.encodings or chosen.encodings:
        took = seconds(spec, chosen.config, args.rounds)
        total = {backend: total[backend] + took[backend] for backend in total}
        lines.append(f"| {spec} | {took['dense']:.0f} | {took['auto']:.0f} | {took['dense'] / took['auto']:.2f} |")
        print(lines[-1], flush=True)
    lines.append(f"| all | {total['dense']:.0f} | {total['auto']:.0f} | {total['dense'] / total['auto']:.2f} |")
    print(lines[-1])
    if args.write:
        store("\n".join(lines) + "\n", args.write)


if __name__ == "__main__":
    main()
