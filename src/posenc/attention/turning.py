"""Encodings that act on the products of queries and keys through these alone, taken into them before a path runs."""

from __future__ import annotations

from posenc.attention.problem import Problem
from posenc.encoding import ScoreEncoding, WeightEncoding


def turned(problem: Problem) -> Problem:
    """The problem with queries and keys that its first score encodings turn, where nothing else reads these."""
    while problem.score:
        (encoding, features), *rest = problem.score
        if type(encoding).turned is ScoreEncoding.turned:  # asked first, as a context has wide copies of keys
            return problem
        others = [other for other, _ in rest] + ([] if problem.weight is None else [problem.weight])
        if any(other.reads_rotated or _reads_more(other) for other in others):
            return problem
        found = encoding.turned(problem.context(None, features))
        if found is None:
            return problem
        q, k = (t.to(problem.q.dtype) for t in found)
        problem = problem._replace(q=q, k=k, bias=(*problem.bias, *encoding.beside()), score=tuple(rest))
    return problem


def _reads_more(other: ScoreEncoding | WeightEncoding) -> bool:
    """Whether it sees queries and keys, or their products, as they were."""
    return isinstance(other, ScoreEncoding) and (other.looks_at_content or other.reads_products)
