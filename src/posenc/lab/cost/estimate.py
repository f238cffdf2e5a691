"""What a cell will need, from what the same encoding and pass needed at a smaller length; and whether that is there."""

from __future__ import annotations

from typing import NamedTuple

import torch

from posenc.lab.cost.costs import MODEL_PASSES
from posenc.lab.cost.memory import free_memory
from posenc.lab.cost.passes import Conditions

SHARE = 0.8  # of the free memory may be used
PATIENCE, LEAST = 20, 5.0  # a call may take this many times the seconds of a cell, and this many seconds in any case
RECORD = 1_000_000  # events of the profiler, about a gigabyte
MATRICES = 4  # full matrices of scores that the dense path holds at least
GIB = 2**30


class Known(NamedTuple):
    """What one call was seen to need."""

    length: int = 1
    seconds: float = 0.0
    memory: int | None = None  # bytes
    events: int = 0  # of the profiler


def refusal(known: Known, work: str, path: str, length: int, conditions: Conditions) -> str | None:
    """Why a cell cannot be measured, or None.

    Args:
        known: of a smaller length, if there was one.
        work: a key of `posenc.lab.cost.costs.PASSES`.
        path: of attention.
        length: tokens.
        conditions: of the measuring.
    """
    c, longer, dense = conditions, length / known.length, path == "dense"
    # A decoding step is linear, but for paths by the definition: one of PaTH, for one, looks at all pairs of keys.
    seconds = known.seconds * (longer if work == "decode" and not dense else longer**2)
    if seconds > max(LEAST, PATIENCE * c.seconds):
        return f"a call would take about {seconds:.0f} s; with more --seconds it is measured"
    scores = (c.config.training.batch_size if work in MODEL_PASSES else 1) * c.config.model.heads * length**2
    least = 4 * MATRICES * scores if dense and work != "decode" else 0
    needed, free = max(least, (known.memory or 0) * longer ** (1 + dense)), free_memory(torch.device(c.device))
    if free is not None and needed > SHARE * free:
        return f"it would need about {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
    return None


def too_long_a_record(known: Known, work: str, path: str, length: int) -> str | None:
    """Why memory cannot be recorded, or None: the profiler notes each operation, and there are more with more tiles."""
    events = known.events * (1 if work == "decode" or path == "dense" else (length / known.length) ** 2)
    return f"memory: its record would have about {events / 1e6:.0f} million events" if events > RECORD else None
