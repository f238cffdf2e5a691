"""Arguments that no call can take: wrong kinds, shapes and numbers, each refused by a ValueError that names it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

import posenc
from posenc import attention, explain
from tests.fuzz.draw import Draw
from tests.fuzz.kinds import Fault, call_with, named
from tests.fuzz.oracle import DisagreementError
from tests.fuzz.refusals import legitimate
from tests.fuzz.situation import Situation

NOT_TENSORS: Mapping[str, object] = {
    "list": [[1.0, 2.0]], "string": "abc", "dict": {}, "number": 3.0, "numpy": np.zeros((2, 3)), "object": object()
}  # fmt: skip
NAN, INF = float("nan"), float("inf")
WRONG_VALUES: Mapping[str, list[object]] = {
    "scale": ["1", "auto", [1.0], {}, NAN, INF, -INF, 1j, torch.tensor([1.0, 2.0]), object()],
    "length": [0, -1, 2.5, "8", NAN, INF, [8], True, object(), torch.tensor([1, 2])],
    "window": [0, -3, 2.5, "8", NAN, INF, [8], True, object(), torch.tensor([1, 2])],
    "tolerance": [-0.1, 1, 1.5, "0", None, NAN, [0.0], object(), 1j],
    "softcap": [0, -1.0, "50", NAN, INF, [50.0], True, object(), 1j, torch.tensor([1.0, 2.0])],
    "dropout": [-0.1, 1.5, "0.1", None, NAN, INF, [0.1], True, object(), 1j],
    "backend": ["best", "", None, 3, ["dense"], object(), "Dense"],
    "causal": [
        "yes", None, 2, -1, "position", [True], (True,), {}, 0.5, torch.tensor([True, False]), torch.tensor(2), object()
    ],
}  # fmt: skip


def refused(situation: Situation, draw: Draw) -> float:
    """A value that no call can take: a ValueError that names the argument, from `attention` and from `explain`."""
    fault = draw.one(draw.one([_tensors, _encodings, _positions, _visible, _numbers, _remembered])(situation))
    situation.notes.append(f"{fault.argument}: {fault.what}")
    function = draw.one([attention, attention, explain])
    try:
        call_with(situation, fault, function)
    except ValueError as error:
        if named(error, fault.argument) or legitimate(error, situation):  # the call itself may be one to refuse
            return 0.0
        raise DisagreementError(f"the message does not name {fault.argument}: {error}") from error
    raise DisagreementError(f"{function.__name__} takes {fault.argument} = {fault.what}")


def _all(argument: str, values: Mapping[str, object]) -> list[Fault]:
    return [Fault(argument, value, what) for what, value in values.items()]


def _tensors(situation: Situation) -> list[Fault]:
    """q, k and v of wrong kinds, or that do not fit each other."""
    found = []
    q, k, v = situation.q, situation.k, situation.v
    for name, given in (("q", q), ("k", k), ("v", v)):
        other = torch.float32 if given.dtype != torch.float32 else torch.float64
        found += _all(name, {**NOT_TENSORS, "None": None})
        found += _all(
            name,
            {
                "three axes": given[0],
                "five axes": given[None],
                "a number's tensor": torch.tensor(1.0),
                "integers": given.long(),
                "bool": given.bool(),
                "complex": given.to(torch.complex64),
                "another dtype": given.to(other),
                "another batch": torch.cat([given] * 2),
            },
        )
    found += _all(
        "q", {"a wider head": torch.cat([q, q[..., :1]], -1), "no channels": q[..., :0], "no heads": q[:, :0]}
    )
    found += _all("k", {"no keys": k[:, :, :0], "no heads": k[:, :0], "more keys": torch.cat([k, k[:, :, :1]], 2)})
    found += _all("v", {"more heads": torch.cat([v, v[:, :1]], 1), "fewer keys": v[:, :, 1:]})
    if q.shape[1] > 1:
        found.append(Fault("k", torch.cat([k] * (q.shape[1] + 1), 1)[:, : q.shape[1] + 1], "more heads than q"))
    return found


def _encodings(situation: Situation) -> list[Fault]:
    """Lists of encodings that are none, or hold what is none, or what does not fit."""
    heads, width = situation.q.shape[1], situation.q.shape[3]
    if situation.axes > 1:  # which the encodings in their place do not read
        situation.options = {n: v for n, v in situation.options.items() if n not in ("q_pos", "k_pos")}
    own = posenc.ALiBi(heads)
    kinds = {what: value for what, value in NOT_TENSORS.items() if what not in ("dict", "numpy")}
    return _all(
        "encodings",
        {
            **kinds,
            "None": None,
            "[None]": [None],
            "a name": ["rope"],
            "a class": [posenc.ALiBi],
            "one encoding": own,
            "a dict of them": {"rope": own},
            "a list in a list": [[own]],
            "a layer": [nn.Linear(2, 2)],
            "other heads": [posenc.ALiBi(heads + 1)],
            "a wider rotation": [posenc.RoPE(2 * width + 2)],
            "an embedding": [posenc.Sinusoidal(8)],
            "two in the place of softmax": [posenc.StickBreaking(), posenc.StickBreaking()],
        },
    )


def _positions(situation: Situation) -> list[Fault]:
    """Positions that cannot count, or are not one a token; beside an encoding that reads them."""
    (batch, heads, queries, _), keys, axes = situation.q.shape, situation.k.shape[2], situation.axes
    situation.options = {n: v for n, v in situation.options.items() if n not in ("q_pos", "k_pos")}
    if axes == 1:
        situation.encodings = [*situation.encodings, posenc.ALiBi(heads)]
    found = []
    for name, tokens in (("q_pos", queries), ("k_pos", keys)):
        at = torch.arange(tokens) if axes == 1 else torch.zeros(tokens, axes, dtype=torch.long)
        situation.options[name] = at
        found += _all(name, NOT_TENSORS)
        found += _all(
            name,
            {
                "bool": at.bool(),
                "bfloat16": at.bfloat16(),
                "float16": at.half(),
                "complex": at.to(torch.complex64),
                "a token more": torch.cat([at, at[:1]]),
                "no token": at[:0],
                "a row more": torch.stack([at] * (batch + 1)),
                "one number": torch.tensor(3),
                "axes in front": at.view(1, 1, 1, *at.shape),
            },
        )
    return found


def _visible(situation: Situation) -> list[Fault]:
    """Masks and documents."""
    (batch, heads, queries, _), keys = situation.q.shape, situation.k.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    documents, of_queries = torch.zeros(keys, dtype=torch.long), torch.zeros(queries, dtype=torch.long)
    found = _all("mask", NOT_TENSORS) + _all("segments", NOT_TENSORS)
    found += _all(
        "mask",
        {
            "float": seen.float(),
            "integers": seen.long(),
            "no keys": seen[:, :0],
            "more keys": torch.cat([seen, seen], 1),
            "more queries": torch.cat([seen, seen, seen[:1]]),
            "a row more": seen.expand(batch + 1, 1, queries, keys),
            "a head more": seen.expand(batch, heads + 1, queries, keys),
            "one axis": seen[0],
            "one value": torch.tensor(True),
            "five axes": seen[None, None, None],
        },
    )
    return found + _all(
        "segments",
        {
            "a key more": torch.zeros(keys + 1, dtype=torch.long),
            "a row more": documents.expand(batch + 1, keys),
            "a number's tensor": torch.tensor(1),
            "four axes": documents.view(1, 1, 1, keys),
            "one of two": (of_queries,),
            "three": (of_queries,) * 3,
            "a pair with None": (None, documents),
            "a pair of lists": ([0] * queries, [0] * keys),
        },
    )


def _numbers(situation: Situation) -> list[Fault]:
    return [Fault(name, value, repr(value)) for name, values in WRONG_VALUES.items() for value in values]


def _remembered(situation: Situation) -> list[Fault]:
    """Tokens and what was kept of them, beside an encoding that reads these."""
    (batch, heads, _, _), keys, x = situation.q.shape, situation.k.shape[2], situation.x
    situation.encodings = [posenc.ForgetGate(situation.sizes.dim, heads).to(situation.dtype)]
    if situation.axes > 1:
        situation.options = {n: v for n, v in situation.options.items() if n not in ("q_pos", "k_pos")}
    gates = torch.zeros(batch, heads, keys)
    found = _all("x", {**NOT_TENSORS, "None": None}) + _all("features", NOT_TENSORS)
    found += _all(
        "x",
        {
            "two axes": x[0],
            "no tokens": x[:, :0],
            "a token more": torch.cat([x, x[:, :1]], 1),
            "wider": torch.cat([x, x[..., :1]], -1),
            "more rows": torch.cat([x] * 2),
        },
    )
    return found + _all(
        "features",
        {
            "none": [],
            "two": [gates, gates],
            "[None]": [None],
            "a string": ["gates"],
            "lists": [[0.0]],
            "no keys": [gates[..., :0]],
            "four axes": [gates[:, :, None]],
            "a head more": [torch.zeros(batch, heads + 1, keys)],
        },
    )
