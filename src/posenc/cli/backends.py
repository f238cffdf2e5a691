"""Which structure an encoding declares for its scores, and which backend of attention a call then uses."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from posenc.attend import explain_backend
from posenc.call import AttentionCall, prepare_call, with_structures
from posenc.catalogue import Entry
from posenc.encoding import Encoding
from posenc.structure import Structure
from posenc.testing.cases import Case, heads_of, tokens_of

TOKENS = 512
_ROTATES = "rotates queries and keys before their dot product, so every backend supports it"
_DISTANCE = "a function of the distance alone"
_UNSTRUCTURED = "none stated: scores follow the definition, all at once or by blocks"


def backends_of(entry: Entry) -> dict[str, Any]:
    """``structure`` in words, and under ``backends`` what `attention` chooses for a sequence on a CPU."""
    if entry.hook_point == "embedding":
        return {"structure": "acts before attention, so every backend supports it", "backends": {}}
    case = Case.from_catalogue(entry.name)
    encodings = case.fresh()
    q, k, v = (part.float() for part in heads_of(case, TOKENS, TOKENS, batch=1))
    x = tokens_of(case, TOKENS, dtype=torch.float32)
    where = case.positions(torch.arange(TOKENS)) if case.axes > 1 else None
    causal = case.axes == 1
    explained = partial(explain_backend, encodings=encodings, q_pos=where, k_pos=where, x=x, causal=causal)
    with torch.no_grad():
        call = prepare_call(q, k, v, encodings, q_pos=where, k_pos=where, x=x, causal=causal)
        structure = _structure(encodings, with_structures(call)) if encodings else "no encoding: plain scores"
        inference = explained(q, k, v)
    training = explained(q.requires_grad_(), k, v)
    how = {"inference": f"{inference.backend}, {inference.how}", "training": f"{training.backend}, {training.how}"}
    return {"structure": structure, "backends": how}


def _structure(encodings: Sequence[Encoding], call: AttentionCall) -> str:
    """What the backend of attention is told, in words; for a structure, the first words of its docstring."""
    kinds: list[Structure | None]
    if call.weight is not None:
        kinds = [call.weight.structure()]
    elif call.score:
        kinds = [kind for structures in call.structures for kind in ([None] if structures is None else structures)]
    elif call.bias:
        bias, tokens = call.bias[0], call.q.shape[2]
        if bias.of_distance(torch.arange(-2, 1)) is not None:
            return _DISTANCE
        kinds = [bias.network(tokens, tokens, like=call.q)]
    else:
        return _ROTATES
    return "; ".join(_UNSTRUCTURED if kind is None else _summary(type(kind)) for kind in kinds)


def _summary(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()).rstrip(".")
