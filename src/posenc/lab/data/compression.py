"""Compression baselines: the bits per byte of zlib and lzma on the same text, which any useful model must beat.

Two of them read training text first, as a model does, and are scored on exactly the bytes that models are scored on.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posenc.lab.metrics import PRIMED_ZLIB

UNPRIMED, PRIMING = 2**20, 2**23  # bytes of held-out text packed alone, and of training text that lzma reads first
_REACH = 2**15  # bytes that zlib can look back


def compression_baselines(
    train: bytes, held_out: bytes, windows: Sequence[bytes], scored: int | Sequence[int]
) -> dict[str, float]:
    """Bits per byte, by what reached them. More text than is read here would take a minute.

    Args:
        train: the training text, its documents in random order.
        held_out: the held-out text, likewise.
        windows: those of its pieces that models are judged on, in the order of their ends.
        scored: bytes at the end of each that are scored, one number for all or one for each.
    """
    sample = held_out[:UNPRIMED]
    of, after = _megabytes(sample), _megabytes(train[:PRIMING])
    counts = np.bincount(np.frombuffer(held_out, np.uint8))
    shares = counts[counts > 0] / len(held_out)
    return {
        "entropy of single bytes": float(
            -(shares * np.log2(shares, where=shares > 0, out=np.zeros_like(shares))).sum()
        ),
        f"zlib -9 of {of} held out": 8 * len(zlib.compress(sample, 9)) / len(sample),
        f"lzma of {of} held out": 8 * len(lzma.compress(sample)) / len(sample),
        PRIMED_ZLIB: primed_zlib(train, windows, scored),
        f"lzma of the scored bytes, after {after} of training text": primed_lzma(train[:PRIMING], windows, scored),
    }


def primed_zlib(train: bytes, windows: Sequence[bytes], scored: int | Sequence[int]) -> float:
    """Bits per scored byte: a window packed, less the window without them, after as much text as zlib can look back."""

    def packed(text: bytes) -> int:
        packer = zlib.compressobj(9, zdict=train[-_REACH:])
        return len(packer.compress(text) + packer.flush())

    ends = _each(scored, windows)
    costs = [packed(window) - packed(window[:-end]) for window, end in zip(windows, ends, strict=True)]
    return 8 * sum(costs) / int(ends.sum())


def primed_lzma(train: bytes, windows: Sequence[bytes], scored: int | Sequence[int]) -> float:
    """Bits per scored byte, in one stream of training text and windows.

    The cost of a piece of the stream is read off while it is unpacked: fed byte after byte, an unpacker gives all
    text that the bytes so far determine. Errors are below a byte for each window, and of either sign.
    """
    stream = train + b"".join(windows)
    reach = 2 ** max(16, len(stream).bit_length())  # all of it can be looked back at
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": reach}]
    packed = lzma.compress(stream, format=lzma.FORMAT_RAW, filters=filters)
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=filters)
    lengths = (len(unpacker.decompress(packed[i : i + 1])) for i in range(len(packed)))
    reached, cost = np.unique(np.cumsum(np.fromiter(lengths, np.int64, len(packed))), return_index=True)
    ends = len(train) + np.cumsum([len(window) for window in windows])
    taken = np.interp(ends, reached, cost) - np.interp(ends - _each(scored, windows), reached, cost)
    return float(8 * taken.sum() / _each(scored, windows).sum())


def _each(scored: int | Sequence[int], windows: Sequence[bytes]) -> NDArray[np.int64]:
    return np.broadcast_to(np.asarray(scored, np.int64), (len(windows),))


def _megabytes(text: bytes) -> str:
    return f"{len(text) / 1e6:.1f} MB"
