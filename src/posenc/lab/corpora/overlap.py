"""Which parts of held-out text occur elsewhere: every run of 64 bytes has a hash, and an eighth of the hashes is kept.

A run is kept or not by its own hash, so the same text leaves the same traces wherever it stands, and a share of traces
estimates a share of text: of a window of 1,000 bytes about 120 are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH, EVERY = 64, 8  # bytes of a run, a power of 2; one of so many is kept
_BLOCK = 2**20
_BASE, _MIX = 0x9E3779B97F4A7C15, np.uint64(0xBF58476D1CE4E5B9)  # odd numbers without a pattern

Bytes = NDArray[np.uint8]


def traces(text: Bytes) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Where the kept runs of a text start, growing, and their hashes."""
    places, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for start in range(0, max(0, len(text) - WIDTH + 1), _BLOCK):
        h = text[start : start + _BLOCK + WIDTH - 1].astype(np.uint64) + np.uint64(1)
        width, power = 1, _BASE
        while width < WIDTH:  # of two neighbouring runs one of twice the width
            h = h[:-width] * np.uint64(power) + h[width:]
            width, power = 2 * width, power * power % 2**64
        h *= _MIX
        kept = np.flatnonzero(h >> np.uint64(32) & np.uint64(EVERY - 1) == 0)
        places.append(kept + start)
        hashes.append(h[kept])
    return np.concatenate(places), np.concatenate(hashes)


class Overlap:
    """Which traces of held-out documents occur in the training text or in a held-out document before.

    Args:
        train: the training text.
        held_out: the held-out text.
        starts: where its documents begin, growing.
    """

    def __init__(self, train: Bytes, held_out: Bytes, starts: Sequence[int]) -> None:
        self._places, hashes = traces(held_out)
        owners = np.searchsorted(np.asarray(starts), self._places, side="right")
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        learnt = np.append(np.sort(traces(train)[1]), np.uint64(0))  # never empty; the last one is never found
        in_train = learnt[np.searchsorted(learnt[:-1], hashes)] == hashes
        seen = in_train | (owners[first][inverse] < owners)
        self._seen = np.concatenate([[0], np.cumsum(seen)])

    def shares(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each stretch of held-out text, from a start to a stop, the share of its traces that occur elsewhere."""
        low = np.searchsorted(self._places, starts)
        high = np.maximum(low, np.searchsorted(self._places, stops - WIDTH, side="right"))
        found: NDArray[np.float64] = (self._seen[high] - self._seen[low]) / np.maximum(1, high - low)
        return found
