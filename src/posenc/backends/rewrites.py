"""Rewrites of a call before a backend is chosen: what can be moved into queries and keys, moves there.

A backend sees fewer kinds of terms that way. `absorb_into_qk` takes in score encodings that act through dot products
alone; `fold_temperature` takes in factors on all logits of a query.
"""

from __future__ import annotations

from posenc.call import AttentionCall, with_structures
from posenc.dtypes import widened
from posenc.encoding import BiasEncoding, ScoreEncoding, WeightEncoding


def rewritten(call: AttentionCall) -> AttentionCall:
    """The call as all backends but the definition receive it, with the structures of the encodings that are left."""
    return fold_temperature(with_structures(absorb_into_qk(call)))


def absorb_into_qk(call: AttentionCall) -> AttentionCall:
    """The call with its first score encodings taken into queries and keys, where no other encoding reads these."""
    while call.score:
        encoding, *rest = call.score
        if type(encoding).absorb_into_qk is ScoreEncoding.absorb_into_qk:
            return call  # asked first, as a context has wide copies of keys
        remaining: list[ScoreEncoding | WeightEncoding] = [*rest, *([] if call.weight is None else [call.weight])]
        if any(other.reads.rotated or _reads_more(other) for other in remaining):
            return call
        # v as it came tells in which dtype the new queries and keys will be stored
        context = call.widened().replace(v=call.v).context(None, call.score_states[0])
        absorbed = encoding.absorb_into_qk(context)
        if absorbed is None:
            return call
        q, k, *left = absorbed
        bias = [encoding for encoding in left if isinstance(encoding, BiasEncoding)]
        score = [encoding for encoding in left if isinstance(encoding, ScoreEncoding)]
        call = call.replace(
            q=q.to(call.q.dtype), k=k.to(call.q.dtype), bias=(*call.bias, *bias), score=(*score, *rest),
            score_states=(*call.score_states[:1] * len(score), *call.score_states[1:]),
        )  # fmt: skip
    return call


def _reads_more(other: ScoreEncoding | WeightEncoding) -> bool:
    """Whether an encoding reads queries and keys, or their dot products, before any rewrite."""
    return isinstance(other, ScoreEncoding) and (other.reads.unrotated or other.reads.products)


def fold_temperature(call: AttentionCall) -> AttentionCall:
    """The call with factors on its logits taken into the queries, where that is the same; else as it is.

    It is the same where nothing is added to the dot products before the factors act, and nothing after them reads a
    query. A softcap bends the products before the factors.
    """
    factors = 0
    for parts in call.structures:
        if not parts or any(part.row_factor() is None for part in parts):
            break
        factors += 1
    if not factors or call.bias or call.softcap is not None:
        return call
    later, structures = call.score[factors:], call.structures[factors:]
    for encoding, parts in zip(later, structures, strict=True):
        reads = encoding.reads.rotated or encoding.reads.unrotated
        if parts is None or reads or not all(part.adds_only for part in parts):
            return call
    q = widened(call.q)
    for parts in call.structures[:factors]:
        for part in parts or ():
            factor = part.row_factor()
            assert factor is not None
            q = q * factor.to(q.dtype).unsqueeze(-1)
    q = q.to(call.q.dtype)
    return call.replace(q=q, score=later, score_states=call.score_states[factors:], structures=structures)
