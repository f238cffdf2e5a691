"""The evaluation windows of a corpus: at most two per document, and none whose text also occurs elsewhere.

Duplicates are found by hashing: every run of 64 bytes has a hash, and runs whose hash falls into one eighth of the
range are kept. Whether a run is kept depends on its own bytes alone, so that equal text leaves equal traces wherever it
stands, and a share of traces estimates a share of text: about 120 are compared for a window of 1,000 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.lab.data.tokens import Encoded

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
        sampled = np.flatnonzero(h >> np.uint64(32) & np.uint64(EVERY - 1) == 0)
        places.append(sampled + start)
        hashes.append(h[sampled])
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
        in_training = np.append(np.sort(traces(train)[1]), np.uint64(0))  # never empty; the last one is never found
        in_train = in_training[np.searchsorted(in_training[:-1], hashes)] == hashes
        seen = in_train | (owners[first][inverse] < owners)
        self._seen = np.concatenate([[0], np.cumsum(seen)])

    def shares(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.float64]:
        """The share of traces that occur elsewhere, for each piece of held-out text from a start to a stop."""
        low = np.searchsorted(self._places, starts)
        high = np.maximum(low, np.searchsorted(self._places, stops - WIDTH, side="right"))
        elsewhere: NDArray[np.float64] = (self._seen[high] - self._seen[low]) / np.maximum(1, high - low)

        return elsewhere


OF_A_DOCUMENT = 2
FOUND_ELSEWHERE = 0.2  # share of a window from which on it is not judged on


class Windows(NamedTuple):
    """Where windows end in the validation stream, growing, and the number of the document that each is from."""

    ends: tuple[int, ...]
    documents: tuple[int, ...]


@dataclass(frozen=True)
class WindowLayout:
    """What fits into a document.

    Attributes:
        window: tokens of a window, with the one before its first.
        scored: tokens at its end that are scored.
        piece: of so many tokens are the parts of a long document that stand for documents; None for whole documents.
    """

    window: int
    scored: int
    piece: int | None = None

    def of(self, length: int) -> int:
        """How many windows a document of so many tokens gives."""
        return sum(min(OF_A_DOCUMENT, len(self.ends(start, stop))) for start, stop in self.parts(0, length))

    def parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """A document from ``start`` to ``stop``, or its pieces; the last one takes what is left."""
        count = max(1, (stop - start) // self.piece) if self.piece else 1
        cuts = [start + k * (self.piece or 0) for k in range(count)]
        return list(zip(cuts, [*cuts[1:], stop], strict=True))

    def ends(self, start: int, stop: int) -> range:
        """Where windows may end, so that no token is scored twice."""
        return range(start + self.window, stop + 1, self.scored)


def choose_windows(
    train: bytes,
    held_out: bytes,
    names: Sequence[str],
    room: WindowLayout,
    windows: int,
    encoded: Encoded | None = None,
) -> tuple[Windows, str]:
    """Windows at random, one of each document before a second of any; and what was left out, in words.

    Args:
        train: training text.
        held_out: documents, separated by byte 0.
        names: of the documents: what is chosen of one goes by the hash of its name.
        room: what fits into one.
        windows: how many are needed; a ValueError where there are fewer.
        encoded: the same documents as tokens, in which then all of ``room`` and of the windows counts; None for bytes.
    """
    stream = np.frombuffer(held_out, np.uint8) if encoded is None else encoded.tokens
    stops = [*np.flatnonzero(stream == 0).tolist(), len(stream)]
    parts, start = list[tuple[int, int, str]](), 0
    for name, stop in zip(names, stops, strict=True):
        parts += [(a, b, f"{name}#{a - start}") for a, b in room.parts(start, stop)]
        start = stop + 1

    def byte_of(places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places if encoded is None else encoded.offsets[places]

    candidates = [np.arange(len(room.ends(a, b))) * room.scored + a + room.window for a, b, _ in parts]
    begins = byte_of(np.array([a for a, _, _ in parts])).tolist()
    overlap = Overlap(np.frombuffer(train, np.uint8), np.frombuffer(held_out, np.uint8), begins)
    shares = [overlap.shares(byte_of(ends - room.window), byte_of(ends)) for ends in candidates]
    remaining = [ends[share <= FOUND_ELSEWHERE] for ends, share in zip(candidates, shares, strict=True)]
    rounds = [_sampled_ends(ends, name) for ends, (_, _, name) in zip(remaining, parts, strict=True)]
    every = [(turn, number, ends[turn]) for number, ends in enumerate(rounds) for turn in range(len(ends))]
    before, gone = sum(map(len, candidates)), sum(map(len, candidates)) - sum(map(len, remaining))
    lost = sum(len(a) > 0 and len(b) == 0 for a, b in zip(candidates, remaining, strict=True))
    description = (
        f"{gone:,} of {before:,} possible windows, of which more than {FOUND_ELSEWHERE:.0%} also stands in the "
        f"training text or in another held-out document; {lost:,} of {len(parts):,} documents have no other"
    )
    if len(every) < windows:
        raise ValueError(f"data: {len(every)} of {windows} evaluation windows are left ({description}): give more text")
    chosen = sorted((int(end), number) for _, number, end in sorted(every)[:windows])
    return Windows(tuple(end for end, _ in chosen), tuple(number for _, number in chosen)), description


def _sampled_ends(ends: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """Two of the ends at random, or as many as there are."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).permutation(ends)[:OF_A_DOCUMENT]
