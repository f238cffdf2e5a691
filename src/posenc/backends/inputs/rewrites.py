"""Rewrites of a call before a backend is chosen: what can be moved into queries and keys, moves there.

A backend sees fewer kinds of terms that way. `absorb_into_qk` takes in score encodings that act through dot products
alone; `fold_temperature` takes in factors on all logits of a query.
"""

from __future__ import annotations

from posenc.backends.inputs.attention_call import Problem, widen
from posenc.encoding import ScoreEncoding, WeightEncoding
from posenc.structure import Column, Decay, Factor


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


def folded(problem: Problem) -> Problem:
    """The problem with factors on its scores taken into the queries, where that is the same; else as it is.

    It is, where nothing is added to the products of queries and keys before the factors act, and nothing after them
    reads a query. A softcap bends the products before.
    """
    factors = 0
    for found in problem.structures:
        if not found or not all(isinstance(part, Factor) for part in found):
            break
        factors += 1
    if not factors or problem.bias or problem.softcap is not None:
        return problem
    rest, parts = problem.score[factors:], problem.structures[factors:]
    for (encoding, _), found in zip(rest, parts, strict=True):
        reads = encoding.reads_rotated or encoding.looks_at_content
        if found is None or reads or not all(isinstance(part, Column | Decay) for part in found):
            return problem
    q = widen(problem.q)
    for found in problem.structures[:factors]:
        for part in found or ():
            assert isinstance(part, Factor)
            q = q * part.values.to(q.dtype).unsqueeze(-1)
    return problem._replace(q=q.to(problem.q.dtype), score=rest, structures=parts)
