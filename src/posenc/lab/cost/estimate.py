"""What a cell will need, from what the same encoding and pass needed at a smaller length; and whether that is there."""

from __future__ import annotations

from typing import NamedTuple

import torch

from posenc.lab.cost.conditions import Conditions
from posenc.lab.cost.memory import free_memory

SHARE = 0.8  # of the free memory may be used
PATIENCE, LEAST = 20, 5.0  # a call may take this many times the seconds of a cell, and this many seconds in any case
RECORD = 1_000_000  # events of the profiler, about a gigabyte
MATRICES = 4  # full matrices of scores that the dense path holds at least
GIB = 2**30


class Known(NamedTuple):
    """What one call was seen to need."""

    length: int
    seconds: float
    memory: int | None  # bytes
    events: int  # of the profiler


def refusal(known: Known | None, work: str, path: str, length: int, conditions: Conditions) -> str | None:
    """Why a cell cannot be measured, or None.

    Args:
        known: of a smaller length, if there was one.
        work: a key of `posenc.lab.cost.results.PASSES`.
        path: of attention.
        length: tokens.
        conditions: of the measuring.
    """
    seconds = 0.0 if known is None else known.seconds * _growth(known, length, square=_takes_a_square(work, path))
    if seconds > max(LEAST, PATIENCE * conditions.seconds):
        return f"a call would take about {seconds:.0f} s; with more --seconds it is measured"
    needed, free = _memory(known, work, path, length, conditions), free_memory(torch.device(conditions.device))
    if free is not None and needed > SHARE * free:
        return f"it would need about {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
    return None


def too_long_a_record(known: Known | None, work: str, path: str, length: int) -> str | None:
    """Why memory cannot be recorded, or None: the profiler notes each operation, and there are more with more tiles."""
    tiles = work != "decode" and path != "dense"
    events = 0.0 if known is None else known.events * (_growth(known, length, square=True) if tiles else 1.0)
    return f"memory: its record would have about {events / 1e6:.0f} million events" if events > RECORD else None


def _memory(known: Known | None, work: str, path: str, length: int, conditions: Conditions) -> float:
    c, dense = conditions, path == "dense"
    batch = c.batch_size if work in ("model", "model-forward") else 1
    least = MATRICES * 4 * batch * c.heads * length**2 if dense and work != "decode" else 0
    seen = 0.0 if known is None or known.memory is None else known.memory * _growth(known, length, square=dense)
    return max(seen, float(least))


def _takes_a_square(work: str, path: str) -> bool:
    """Whether time may grow with the square of the length; a step of PaTH, for one, looks at all pairs of keys."""
    return work != "decode" or path == "dense"


def _growth(known: Known, length: int, *, square: bool) -> float:
    return (length / known.length) ** (2 if square else 1)
