"""Which backend is tried first: by what a call adds to its logits, its length, whether it is trained, and the device.

Plain attention is the fused kernel's. On a GPU all else is for kernels of its own. On a CPU what must see the logits
goes by tiles, and a bias too, whose view of a row beats a mask from some hundred keys on; masks alone pay from more.
Small matrices are quickest as a whole: below `SHORT` keys, and for few queries as in decode steps, where a kernel still
comes first.
"""

from __future__ import annotations

from posenc.backends import ranged, sdpa
from posenc.call import AttentionCall
from posenc.tracing import tracing

TILES_FIRST = ("triton", "flex", "tiled", "sdpa", "rows", "dense")
KERNEL_FIRST = ("sdpa", "triton", "flex", "tiled", "rows", "dense")
DENSE_FIRST = ("triton", "flex", "dense", "tiled", "sdpa", "rows")
WHOLE = ("sdpa", "dense")
FEW = 4  # queries for which the whole of their scores is a small matrix
SHORT = 90  # keys of a text
MASKED = 362  # keys up to which blocks of masks are quicker than tiles


def preferred(call: AttentionCall) -> tuple[str, ...]:
    """The names of all backends, best first; backends of other devices refuse."""
    if sdpa.bare(call):  # what all others are measured against
        return KERNEL_FIRST
    if tracing():  # one choice for all lengths
        return TILES_FIRST
    queries, keys = call.q.shape[2], call.k.shape[2]
    if call.q.is_cpu and sdpa.sliding(call) and not call.bias and sdpa.refuses(call) is None:
        return KERNEL_FIRST
    if call.q.is_cpu and queries <= sdpa.FEW and ranged.ranges_of(call) is None:
        return WHOLE if queries <= FEW or keys <= SHORT else KERNEL_FIRST
    if ranged.refuses(call) is None:
        return ("ranged", "rows", "dense")
    if not call.q.is_cpu:
        return TILES_FIRST
    if call.score or call.softcap is not None or call.replaces_softmax:
        return DENSE_FIRST if keys <= SHORT and call.training else TILES_FIRST
    if call.bias:
        if keys <= SHORT:
            return DENSE_FIRST if call.training else KERNEL_FIRST
        return KERNEL_FIRST if call.axes > 1 and not call.training else TILES_FIRST  # as in benchmarks/grids.py
    return KERNEL_FIRST if keys <= MASKED else TILES_FIRST
