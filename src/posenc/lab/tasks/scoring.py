"""From right and wrong answers to records: accuracy by sequence, and by how far back lies what an answer needs."""

from __future__ import annotations

from torch import Tensor

from posenc.lab.metrics import Curve, Values

BY_DISTANCE = Curve("accuracy_by_distance", axis="distance in tokens", of="accuracy")


def by_sequence(metric: str, right: Tensor, counted: Tensor, *, whole: bool) -> Values:
    """The share of right answers of each sequence; items are the numbers of those that have an answer that counts.

    Args:
        metric: its name.
        right: ``(count, length)`` of bool, where the right answer was given.
        counted: as ``right``, which answers count.
        whole: whether a sequence has 1 if all of them are right, and otherwise 0.
    """
    asked, said = counted.sum(1), (right & counted).sum(1)
    items = asked.nonzero()[:, 0]
    shares = (said == asked).double() if whole else said / asked.clamp(min=1).double()
    return Values(metric, shares[items].tolist(), items=items.tolist())


def by_distance(right: Tensor, asked: Tensor, distances: Tensor) -> Values:
    """The share of right answers in bins of distance; items are the bins' upper edges: 1, 2, 4, 8 … tokens."""
    known = asked & (distances > 0)
    edges = 2 ** distances[known].double().log2().ceil().long()
    bins = sorted(set(edges.tolist()))
    means = [right[known][edges == edge].double().mean().item() for edge in bins]
    return Values(BY_DISTANCE.name, means, items=bins)
