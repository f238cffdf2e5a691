"""Tracks the speed of a small fixed set of calls from revision to revision.

    python benchmarks/history.py

appends one row for each call to results/history.csv and writes results/history.md anew from all of them. A figure is
the median over rounds of a call's time over its base's around it, in one process, so that rows of one machine compare;
rows of different machines do not, and each names its own. Times of another day's machine say nothing: only ratios
are kept. A revision ends in + if files were changed since.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from measuring import Row, encoding_rows, paired, processor, random_qkv
from timing import Run
from torch import Tensor
from torch.nn import functional as F

from posenc import RoPE, attention

RESULTS = Path(__file__).parent / "results"
HEADS, WIDTH, DIM = 8, 64, 512
FORWARD = ("RoPE", "ALiBi", "T5", "FIRE", "FoX, gates near 0.5", "CoPE", "stick-breaking")
BACKWARD = ("RoPE", "ALiBi", "T5")
DECODED = ("RoPE", "ALiBi")
ROUNDS = 9
TOKENS = 1024

# What identifies a row; the rest is the name of the call and its ratio.
Key = tuple[str, str, str, str, str]


class Entry(NamedTuple):
    """One call's ratio, as history.csv has it."""

    date: str  # of UTC, YYYY-MM-DD
    revision: str
    torch: str
    machine: str
    threads: str
    call: str
    ratio: float


def rotation(tokens: int) -> tuple[dict[str, Run], Run]:
    """Rotating queries and keys, compared with copying them."""
    q, k, _ = random_qkv((1, HEADS, tokens, WIDTH), (1, HEADS, tokens, WIDTH))
    rope, where = RoPE(WIDTH), torch.arange(tokens)
    return {"rotate": lambda: rope(q, k, where, where)}, lambda: (q.clone(), k.clone())


def calls(names: Iterable[str], queries: int, keys: int, backward: bool) -> tuple[dict[str, Run], Run]:
    """Attention under each encoding, compared with plain attention."""
    q, k, v = random_qkv((1, HEADS, queries, WIDTH), (1, HEADS, keys, WIDTH))
    x = torch.randn(1, keys, DIM, generator=torch.Generator().manual_seed(1))
    rows = encoding_rows(HEADS, WIDTH, DIM)
    for leaf in (q, k, v):
        leaf.requires_grad_(backward)

    def once(call: partial[Tensor]) -> object:
        with torch.set_grad_enabled(backward):
            out = call()
            return torch.autograd.grad(out, (q, k, v), out) if backward else out

    def under(row: Row) -> Run:
        options = {"token_states": row.token_states(x)} if row.reads_x else {}
        return partial(once, partial(attention, q, k, v, row.encodings, **options))

    sdpa = partial(F.scaled_dot_product_attention, q, k, v, is_causal=queries > 1)
    kind = "decode" if queries == 1 else "train" if backward else "forward"
    return {f"{kind} {name}": under(rows[name]) for name in names}, partial(once, sdpa)


def measured(tokens: int, rounds: int) -> dict[str, float]:
    """The ratio of each call of the set."""
    ratios: dict[str, float] = {}
    for candidates, base in (
        rotation(tokens),
        calls(FORWARD, tokens, tokens, backward=False),
        calls(BACKWARD, tokens, tokens, backward=True),
        calls(DECODED, 1, 4 * tokens, backward=False),
    ):
        ratios.update((name, timed.ratio) for name, timed in paired(candidates, base, rounds).items())
    return ratios


def append(path: Path, ratios: Mapping[str, float], revision: str) -> None:
    """Add a row for each ratio, with the date, the revision and the machine."""
    known = (f"{datetime.now(UTC):%Y-%m-%d}", revision, torch.__version__, processor(), str(torch.get_num_threads()))
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(Entry._fields)
        writer.writerows([*known, name, f"{ratio:.3f}"] for name, ratio in ratios.items())


def read(path: Path) -> list[Entry]:
    """All entries, oldest first."""
    with path.open(newline="") as file:
        return [Entry(**{**row, "ratio": float(row["ratio"])}) for row in csv.DictReader(file)]


def rendered(entries: Iterable[Entry]) -> str:
    """A table for each machine: a line for each call, a column for each measurement, oldest first."""
    machines: dict[str, dict[Key, dict[str, float]]] = {}
    for entry in entries:
        machines.setdefault(entry.machine, {}).setdefault(entry[:5], {})[entry.call] = entry.ratio
    parts = [_TITLE]
    for machine, columns in machines.items():
        names = list(dict.fromkeys(name for ratios in columns.values() for name in ratios))
        heads = [
            f"{date}, {revision}, torch {version}, {threads} thr." for date, revision, version, _, threads in columns
        ]
        cells = [[f"{ratios[name]:.2f}" if name in ratios else "" for ratios in columns.values()] for name in names]
        lines = [f"| call | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        lines += [f"| {name} | {' | '.join(row)} |" for name, row in zip(names, cells, strict=True)]
        parts += [f"## {machine}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


_TITLE = """# Speed from revision to revision

- command: `python benchmarks/history.py`; the numbers are in [history.csv](history.csv)
- × the time of the base, median over rounds: copying queries and keys for `rotate`, for the others plain
  `scaled_dot_product_attention`; float32, 8 heads of width 64, 1024 tokens, decoding one query over 4096 keys"""


def revision() -> str:
    """The checkout's revision, with + if files were changed since."""
    described = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(described, cwd=RESULTS, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table = RESULTS / "history.csv"
    append(table, measured(TOKENS, args.rounds), revision())
    text = rendered(read(table))
    (RESULTS / "history.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
