"""N-gram language models as baselines: trained on exactly what a training reads, scored on what models are scored on.

A small model that was trained briefly may be no better than counting. An interpolated Witten-Bell n-gram tells: with
c(h, w) the count of token w after the context h of n − 1 tokens, c(h) = Σ_w c(h, w), T(h) the number of distinct tokens
seen after h, and h′ the context without its oldest token,

    P_n(w | h) = (c(h, w) + T(h) · P_{n−1}(w | h′)) / (c(h) + T(h))          P_0(w) = 1 / vocabulary

and P_n = P_{n−1} where h was never seen. All orders up to `ORDERS` follow from one pass.

Source: I. H. Witten and T. C. Bell, The zero-frequency problem, IEEE Transactions on Information Theory 37 (1991)
1085–1094, method C; interpolated as in S. F. Chen and J. Goodman, An empirical study of smoothing techniques for
language modeling, Harvard TR-10-98 (1998), section 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ORDERS = 6  # tokens of the longest n-gram: the largest of these models has five tokens of context
UNSEEN = -1  # id of an n-gram that training text does not hold

Tokens = NDArray[Any]  # of integers, (pieces, length)
Ids = NDArray[np.int64]


class NGrams:
    """Counts of all n-grams up to an order in pieces of text; an n-gram never crosses from one piece to the next.

    The ids of n-grams of one order are their ranks within the order, so a key (id of the context, token) fits
    into 64 bits at every order and vocabulary. Memory: about 50 bytes for each token of the training text.

    Args:
        pieces: the training text, (pieces, length) integers from 0 to ``vocabulary`` − 1.
        vocabulary: how many tokens there are.
        orders: the longest n-gram, in tokens.
    """

    def __init__(self, pieces: Tokens, vocabulary: int, orders: int = ORDERS) -> None:
        if pieces.ndim != 2 or not pieces.size:
            raise ValueError(f"pieces: (pieces, length) tokens are needed, not shape {pieces.shape}")
        if pieces.min() < 0 or pieces.max() >= vocabulary:
            raise ValueError(f"pieces: tokens from 0 to {vocabulary - 1} are needed")
        self.vocabulary = vocabulary
        self._keys: list[Ids] = []  # by order: sorted keys of its n-grams
        self._counts: list[Ids] = []
        self._context_counts: list[Ids] = []  # c(h), by the id of h among the n-grams of the order before
        self._continuations: list[Ids] = []  # T(h)
        tokens, contexts, known = pieces.astype(np.int64), np.zeros(pieces.shape, np.int64), 1
        for order in range(1, min(orders, pieces.shape[1]) + 1):
            keys = contexts * vocabulary + tokens[:, order - 1 :]
            unique_keys, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
            of_context = unique_keys // vocabulary
            self._keys.append(unique_keys)
            self._counts.append(counts)
            self._context_counts.append(np.bincount(of_context, counts, known).astype(np.int64))
            self._continuations.append(np.bincount(of_context, minlength=known))
            # The n-gram that ends one token earlier is the context of the next order's.
            contexts, known = inverse.reshape(keys.shape)[:, :-1], len(unique_keys)

    def bits(self, windows: Tokens, scored: int) -> list[NDArray[np.float64]]:
        """Bits of the last ``scored`` tokens of each window, ``(windows, scored)``, for each order from 1 on.

        A token's context lies inside its window; where the window begins later than a context, the order is lower.
        """
        tokens = windows.astype(np.int64)
        probability = np.full(tokens.shape, 1 / self.vocabulary)
        contexts, by_order = np.zeros(tokens.shape, np.int64), list[NDArray[np.float64]]()
        for keys, counts, context_counts, continuations in zip(
            self._keys, self._counts, self._context_counts, self._continuations, strict=True
        ):
            ids = _ids(np.where(contexts == UNSEEN, UNSEEN, contexts * self.vocabulary + tokens), keys)
            # A context is also unseen where training text has it at the ends of pieces alone: nothing follows there.
            seen = (contexts != UNSEEN) & (continuations[contexts] > 0)
            of_token = np.where(ids == UNSEEN, 0, counts[ids])
            of_context = np.where(seen, context_counts[contexts], 0)
            distinct = np.where(seen, continuations[contexts], 1)  # 1 leaves the order below as it is
            probability = (of_token + distinct * probability) / (of_context + distinct)
            by_order.append(-np.log2(probability[:, -scored:]))
            contexts = np.full(tokens.shape, UNSEEN)
            contexts[:, 1:] = ids[:, :-1]
        return by_order


def unigram_entropy(targets: Sequence[int] | Tokens) -> float:
    """Entropy in bits of single tokens, by their shares among ``targets``: what the best constant guess costs."""
    shares = np.unique(np.asarray(targets), return_counts=True)[1] / np.size(targets)
    return float(-(shares * np.log2(shares)).sum())


def _ids(keys: Ids, known: Ids) -> Ids:
    """The rank of each key among known ones, `UNSEEN` for others."""
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[places] == keys, places, UNSEEN)
