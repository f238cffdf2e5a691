"""Options of equal values in other kinds: they give what the plain ones give, or a ValueError that names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from posenc import attention
from tests.fuzz.draw import Draw
from tests.fuzz.modes import defined, leaves_of
from tests.fuzz.oracle import DisagreementError, judge
from tests.fuzz.situation import Situation

ALSO = {  # other words by which a message may name an argument
    "q": ["k", "v", "heads", "batch"],
    "k": ["q", "v", "heads", "batch"],
    "v": ["q", "k", "heads", "value_dim", "batch"],
    "segments": ["queries", "keys"],
    "x": ["dim", "features"],
    "features": ["x", "kv_heads"],
    "encodings": ["num_heads", "head_dim"],
    "q_pos": ["k_pos", "positions"],
    "k_pos": ["q_pos", "positions"],
}


@dataclass(frozen=True)
class Fault:
    """One argument with a value that must be refused, or that says the same as another."""

    argument: str
    value: object
    what: str


def call_with(situation: Situation, fault: Fault, function: Callable[..., object] = attention) -> object:
    """The situation's call with one argument replaced."""
    tensors: dict[str, object] = {n: getattr(situation, n) for n in "qkv"}
    given: dict[str, object] = {"encodings": situation.encodings, "x": situation.x, **situation.options}
    if fault.argument in tensors:
        tensors[fault.argument] = fault.value
    else:
        given[fault.argument] = fault.value
    if fault.argument == "features":
        given.pop("x")
    encodings = given.pop("encodings")
    return function(tensors["q"], tensors["k"], tensors["v"], encodings, **given)


def named(error: ValueError, argument: str) -> bool:
    """Whether a message names the argument, or a part of it by its own word."""
    return any(re.search(rf"\b{re.escape(word)}\b", str(error)) for word in [argument, *ALSO.get(argument, [])])


def same_otherwise(situation: Situation, draw: Draw) -> float:
    """An option of an equal value in another kind: taken by its value, or refused by name."""
    fault = draw.one(spellings(situation, draw))
    situation.notes.append(f"{fault.argument} as {fault.what}")
    try:
        got = call_with(situation, fault)
    except ValueError as error:
        if named(error, fault.argument):
            return 0.0
        raise DisagreementError(f"the message does not name {fault.argument}: {error}") from error
    assert isinstance(got, Tensor)
    leaves = leaves_of(situation)
    return judge({"result": got}, lambda r: {"result": defined(situation, leaves, r)}, situation.dtype)


def spellings(situation: Situation, draw: Draw) -> list[Fault]:
    """Other kinds of the values that the situation has."""
    options = situation.options
    causal = options.get("causal", True)
    found = [Fault("encodings", tuple(situation.encodings), "tuple")]
    found.append(Fault("encodings", nn.ModuleList(situation.encodings), "ModuleList"))
    found.append(Fault("encodings", iter(situation.encodings), "iterator"))
    found.append(Fault("tolerance", draw.one([0, np.float32(0), torch.tensor(0.0), False]), "zero of another kind"))
    found.append(Fault("backend", np.str_("auto"), "numpy string"))
    if isinstance(causal, bool):
        kinds = [int(causal), float(causal), np.bool_(causal), torch.tensor(causal), np.int64(causal), np.array(causal)]
        value = draw.one(kinds)
        found += [Fault("causal", value, f"{type(value).__name__} {value!r}")] * 3
    else:
        found.append(Fault("causal", np.str_(causal), "numpy string"))
    scale = options.get("scale")
    if scale is not None:
        number = float(scale)  # type: ignore[arg-type]
        value = draw.one([np.float64(number), torch.tensor(number, dtype=torch.float64), np.array(number)])
        found += [Fault("scale", value, type(value).__name__)] * 3
    for name in ("window", "length"):
        whole = options.get(name)
        if whole is not None:
            value = draw.one([np.int64(whole), float(whole), torch.tensor(whole), np.array(whole), str(whole)])  # type: ignore[call-overload, arg-type]
            found += [Fault(name, value, type(value).__name__)] * 2
    segments = options.get("segments")
    if isinstance(segments, tuple):
        found.append(Fault("segments", list(segments), "list of two"))
    mask = options.get("mask")
    if isinstance(mask, Tensor):
        found.append(Fault("mask", mask.clone().expand_as(mask), "copy"))
    return found
