"""Which path is tried first: by what a call adds to its scores, how long it is, and where it runs."""

from __future__ import annotations

import torch

from posenc.attention import sdpa
from posenc.attention.problem import Problem

TILES_FIRST = ("triton", "flex", "tiled", "sdpa", "rows", "dense")
KERNEL_FIRST = ("sdpa", "triton", "flex", "tiled", "rows", "dense")
FEW = 16  # queries that are served without a copy of the keys
SHORT = 160  # tokens up to which one kernel call beats tiles, where no encoding must see the scores


def preferred(problem: Problem) -> tuple[str, ...]:
    """The names of all paths, best first; those of other devices refuse."""
    queries, keys = problem.q.shape[2], problem.k.shape[2]
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():  # one choice for all lengths
        few, short = queries == 1, False
    else:
        few, short = queries <= FEW, queries * keys <= SHORT * SHORT
    shared = few and problem.q.shape[1] != problem.k.shape[1]  # query heads that can share what they read
    return KERNEL_FIRST if not shared and (short or sdpa.bare(problem)) else TILES_FIRST
