"""Which backend is tried first: by what a call adds to its logits, its length, whether it is trained, and the device.

The order is measured: ``benchmarks/preference.py`` writes `measured`.
"""

from __future__ import annotations

from posenc.backends import ranged, sdpa
from posenc.backends.inputs.attention_call import AttentionCall
from posenc.backends.measured import TABLE
from posenc.tracing import tracing

TILES_FIRST = ("triton", "flex", "tiled", "sdpa", "rows", "dense")
KERNEL_FIRST = ("sdpa", "triton", "flex", "tiled", "rows", "dense")
DENSE_FIRST = ("triton", "flex", "dense", "tiled", "sdpa", "rows")
FEW = 16  # queries for which the whole of their scores is a small matrix
SHORT = 90  # tokens of a picture up to which its order is that of any bias
FEW_KEYS = 1024  # up to which one pass over it is quicker than tiles


def preferred(call: AttentionCall) -> tuple[str, ...]:
    """The names of all backends, best first; backends of other devices refuse."""
    if sdpa.bare(call):  # what all others are measured against
        return KERNEL_FIRST
    if tracing():  # one choice for all lengths
        return TILES_FIRST
    if call.q.is_cpu and sdpa.sliding(call) and not call.bias and sdpa.refuses(call) is None:
        return KERNEL_FIRST
    if call.q.shape[2] <= FEW and call.q.is_cpu and ranged.ranges_of(call) is None:
        return _of_few(call)
    if ranged.refuses(call) is None:
        return ("ranged", "rows", "dense")
    keys = call.k.shape[2]
    ranges = TABLE.get((call.q.device.type, "training" if call.training else "inference", kind_of(call)))
    if ranges is None:
        return TILES_FIRST
    order = next(backends for most, backends in ranges if keys <= most)
    if call.axes > 1 and call.bias and not call.score and keys > SHORT:  # as in benchmarks/grids.py
        first = "tiled" if call.training else "sdpa"
        return first, *(backend for backend in order if backend != first)
    return order


def _of_few(call: AttentionCall) -> tuple[str, ...]:
    """The same for a decoding step, which consists of overhead where keys are few, and of reading them where not."""
    if sdpa.refuses(call) is None:
        return KERNEL_FIRST
    return DENSE_FIRST if call.k.shape[2] <= FEW_KEYS else TILES_FIRST


def kind_of(call: AttentionCall) -> str:
    """What kind of call this is, in the words of the table."""
    if call.replaces_softmax:  # a sink costs next to nothing
        return "weights"
    if call.score or call.softcap is not None:
        return "scores"
    if call.segments is not None or call.causal == "positions":
        return "packed"
    if call.bias:
        return "bias"
    return "masked" if call.masked else "bare"
