"""Which path is tried first: by what a call adds to its scores, its length, whether it is trained, and where it runs.

The order is measured (`measured`, made by ``benchmarks/preference.py``), not believed.
"""

from __future__ import annotations

import torch

from posenc.attention import sdpa
from posenc.attention.measured import TABLE
from posenc.attention.problem import Problem

TILES_FIRST = ("triton", "flex", "tiled", "sdpa", "rows", "dense")
KERNEL_FIRST = ("sdpa", "triton", "flex", "tiled", "rows", "dense")
FEW = 16  # queries that are served without a copy of the keys


def preferred(problem: Problem) -> tuple[str, ...]:
    """The names of all paths, best first; those of other devices refuse."""
    queries, keys = problem.q.shape[2], problem.k.shape[2]
    shared = problem.q.shape[1] != problem.k.shape[1]  # query heads that can share what they read
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():  # one choice for all lengths
        return KERNEL_FIRST if sdpa.bare(problem) and not (shared and queries == 1) else TILES_FIRST
    if shared and queries <= FEW:
        return TILES_FIRST
    found = TABLE.get((problem.q.device.type, "training" if problem.training else "inference", kind_of(problem)))
    if found is None:
        return KERNEL_FIRST if sdpa.bare(problem) else TILES_FIRST
    best = next(paths for most, paths in found if keys <= most)
    return (*best, *(path for path in TILES_FIRST if path not in best))


def kind_of(problem: Problem) -> str:
    """What kind of call this is, in the words of the table."""
    if problem.weight is not None:
        return "weights"
    if problem.score or problem.softcap is not None:
        return "scores"
    if problem.segments is not None or problem.causal == "positions":
        return "packed"
    if problem.bias:
        return "bias"
    return "masked" if problem.masked else "bare"
