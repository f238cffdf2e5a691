"""What data and tasks share: random numbers by purpose, splits by name, and forwards that fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

TOKENS_A_FORWARD = 16_384
SCORES_A_FORWARD = 2**25  # entries of one layer's scores, all heads: 128 MiB in float32, if all exist at once
LOGITS_A_FORWARD = 2**26  # 256 MiB in float32


def counter_seed(purpose: str, seed: int, step: int) -> int:
    """A 63-bit seed that depends on all three and that no neighbouring counter comes near."""
    digest = hashlib.sha256(f"{purpose}:{seed}:{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def share_of(name: str) -> float:
    """Where a name falls in [0, 1): the first eight bytes of its SHA-256, as a fraction."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def batches_within(items: Sequence[int], length: int, heads: int, vocabulary: int = 256) -> list[list[int]]:
    """As many at once as a forward of ``length`` tokens has memory for, even by the definition of attention.

    From some length on that is one. Then the faster paths, which hold blocks of the scores and no matrix of them, are
    what makes it possible: 32,768 bytes and 16 heads would be 64 GiB of scores.
    """
    scores, logits = SCORES_A_FORWARD // (heads * length * length), LOGITS_A_FORWARD // (vocabulary * length)
    size = max(1, min(TOKENS_A_FORWARD // length, scores, logits))
    return [list(items[i : i + size]) for i in range(0, len(items), size)]
