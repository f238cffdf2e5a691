"""Which backend is tried first: by what a call adds to its logits, its length, whether it is trained, and the device.

The order is measured (`measured`, made by ``benchmarks/preference.py``), not believed.
"""

from __future__ import annotations

from posenc.backends import ranged, sdpa
from posenc.backends.inputs.attention_call import Problem
from posenc.backends.measured import TABLE
from posenc.structure import Sink
from posenc.tracing import tracing

TILES_FIRST = ("triton", "flex", "tiled", "sdpa", "rows", "dense")
KERNEL_FIRST = ("sdpa", "triton", "flex", "tiled", "rows", "dense")
DENSE_FIRST = ("triton", "flex", "dense", "tiled", "sdpa", "rows")
FEW = 16  # queries for which the whole of their scores is a small matrix
SHORT = 90  # tokens of a picture up to which its order is that of any bias
FEW_KEYS, FEW_SHARED_KEYS = 1024, 128  # up to which one pass over it is quicker than tiles; where heads share keys


def preferred(problem: Problem) -> tuple[str, ...]:
    """The names of all backends, best first; those of other devices refuse."""
    if sdpa.bare(problem):  # what all others are measured against
        return KERNEL_FIRST
    if tracing():  # one choice for all lengths
        return TILES_FIRST
    if problem.q.is_cpu and sdpa.sliding(problem) and not problem.bias and sdpa.refuses(problem) is None:
        return KERNEL_FIRST
    if problem.q.shape[2] <= FEW and problem.q.is_cpu and ranged.ranges_of(problem) is None:
        return _of_few(problem)
    if ranged.refuses(problem) is None:
        return ("ranged", "rows", "dense")
    keys = problem.k.shape[2]
    found = TABLE.get((problem.q.device.type, "training" if problem.training else "inference", kind_of(problem)))
    if found is None:
        return TILES_FIRST
    order = next(backends for most, backends in found if keys <= most)
    if problem.axes > 1 and problem.bias and not problem.score and keys > SHORT:  # as in benchmarks/grids.py
        first = "tiled" if problem.training else "sdpa"
        return first, *(backend for backend in order if backend != first)
    return order


def _of_few(problem: Problem) -> tuple[str, ...]:
    """The same for a decoding step, which consists of overhead where keys are few, and of reading them where not."""
    if sdpa.refuses(problem) is None:
        return KERNEL_FIRST
    shared = problem.q.shape[1] != problem.k.shape[1]
    return DENSE_FIRST if problem.k.shape[2] <= (FEW_SHARED_KEYS if shared else FEW_KEYS) else TILES_FIRST


def kind_of(problem: Problem) -> str:
    """What kind of call this is, in the words of the table."""
    if problem.weight is not None and not isinstance(problem.weight.structure(), Sink):  # which costs next to nothing
        return "weights"
    if problem.score or problem.softcap is not None:
        return "scores"
    if problem.segments is not None or problem.causal == "positions":
        return "packed"
    if problem.bias:
        return "bias"
    return "masked" if problem.masked else "bare"
