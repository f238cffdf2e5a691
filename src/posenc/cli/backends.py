"""Which structure an encoding states of its scores, and which backend of attention a call then takes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from posenc.backends.call import explain
from posenc.backends.inputs.attention_call import AttentionCall, prepare_call, with_structures
from posenc.catalogue import Entry
from posenc.encoding import Encoding
from posenc.structure import Structure
from posenc.testing.cases import Case, heads_of, tokens_of

TOKENS = 512
_TURNS = "turns queries and keys before their product, so that every path serves it"
_DISTANCE = "a function of the distance alone"
_WHOLE = "none stated: scores follow the definition, whole or by blocks"


def backends_of(entry: Entry) -> dict[str, Any]:
    """``structure`` in words, and under ``backends`` what `attention` chooses for a text on a processor."""
    if entry.hook_point == "embedding":
        return {"structure": "acts before attention, so that every path serves it", "backends": {}}
    case = Case.from_catalogue(entry.name)
    encodings = case.fresh()
    q, k, v = (part.float() for part in heads_of(case, TOKENS, TOKENS, batch=1))
    x = tokens_of(case, TOKENS, dtype=torch.float32)
    where = case.positions(torch.arange(TOKENS)) if case.axes > 1 else None
    causal = case.axes == 1
    asked = partial(explain, encodings=encodings, q_pos=where, k_pos=where, x=x, causal=causal)
    with torch.no_grad():
        call = prepare_call(q, k, v, encodings, q_pos=where, k_pos=where, x=x, causal=causal)
        structure = _structure(encodings, with_structures(call)) if encodings else "no encoding: plain scores"
        reading = asked(q, k, v)
    training = asked(q.requires_grad_(), k, v)
    how = {"inference": f"{reading.backend}, {reading.how}", "training": f"{training.backend}, {training.how}"}
    return {"structure": structure, "backends": how}


def _structure(encodings: Sequence[Encoding], call: AttentionCall) -> str:
    """In words what the backend of attention is told; of a structure, those of its own docstring."""
    kinds: list[Structure | None]
    if call.weight is not None:
        kinds = [call.weight.fast_form()]
    elif call.score:
        kinds = [kind for found in call.structures for kind in ([None] if found is None else found)]
    elif call.bias:
        bias, tokens = call.bias[0], call.q.shape[2]
        if bias.of_distance(torch.arange(-2, 1)) is not None:
            return _DISTANCE
        kinds = [bias.network(tokens, tokens, like=call.q)]
    else:
        return _TURNS
    return "; ".join(_WHOLE if kind is None else _said(type(kind)) for kind in kinds)


def _said(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()).rstrip(".")
