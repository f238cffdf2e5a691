"""What is done with a random call: the result of every backend, gradients, against the definition."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc import attention
from posenc.backends.call import BACKENDS
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.terms import Rounding
from tests.fuzz.draw import Draw
from tests.fuzz.oracle import Results, judge
from tests.fuzz.situation import Situation

DEFINED = ("q_pos", "k_pos", "mask", "segments", "causal", "scale", "length", "window", "softcap")


def leaves_of(situation: Situation, *, gradients: bool = False) -> dict[str, Tensor]:
    """q, k, v, x and all parameters in float64."""
    found = {"q": situation.q, "k": situation.k, "v": situation.v, "x": situation.x, **situation.parameters}
    return {name: t.detach().double().clone().requires_grad_(gradients) for name, t in found.items()}


def defined(situation: Situation, leaves: dict[str, Tensor], rounding: Rounding) -> Tensor:
    """The definition's result for the situation, on given tensors."""
    options = {name: value for name, value in situation.options.items() if name in DEFINED}
    return define(
        leaves["q"], leaves["k"], leaves["v"], situation.encoded(leaves), x=leaves["x"], axes=situation.axes,
        rounding=rounding, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def served(situation: Situation, backend: str = "auto", **more: object) -> Tensor:
    """The library's result."""
    given = {"x": situation.x, "causal": True, **situation.options, **more}
    return attention(situation.q, situation.k, situation.v, situation.encodings, backend=backend, **given)  # type: ignore[arg-type]


def plain(situation: Situation, draw: Draw) -> float:
    """The result of the backend that the library takes by itself, with or without a backward pass in sight."""
    if draw.chance(0.35):
        situation.notes.append("requires_grad")
        for name in "qkv":
            setattr(situation, name, getattr(situation, name).detach().requires_grad_())
    more = {}
    if draw.chance(0.15):
        situation.notes.append("features")
        remember = [getattr(e, "remember", lambda x: None)(situation.x) for e in situation.encodings]
        more = {"features": remember, "x": None}
    leaves = leaves_of(situation)
    return judge(
        {"result": served(situation, **more)}, lambda r: {"result": defined(situation, leaves, r)}, situation.dtype
    )


def every_path(situation: Situation, draw: Draw) -> float:
    """All backends by name: each gives the definition's result, or says that it cannot serve the call."""
    leaves, worst = leaves_of(situation), 0.0
    grad = draw.chance(0.3)
    for backend in BACKENDS:
        try:
            with torch.set_grad_enabled(grad):
                got = served(situation, backend)
        except ValueError as error:
            if "cannot serve this call" not in str(error):
                raise
            continue
        situation.notes.append(f"backend {backend}")
        worst = max(worst, judge({"result": got}, lambda r: {"result": defined(situation, leaves, r)}, situation.dtype))
        situation.notes.pop()
    return worst


def backward(situation: Situation, draw: Draw, backend: str = "auto") -> float:
    """Gradients of queries, keys, values, tokens and parameters."""
    for name in "qkvx":
        setattr(situation, name, getattr(situation, name).detach().requires_grad_())
    out = served(situation, backend)
    upstream = scaled(situation, draw.normal(*out.shape)).to(situation.dtype)
    inputs = {"q": situation.q, "k": situation.k, "v": situation.v, "x": situation.x, **situation.parameters}
    inputs = {name: t for name, t in inputs.items() if t.requires_grad}
    given = torch.autograd.grad(out, list(inputs.values()), upstream, materialize_grads=True, allow_unused=True)
    got = {f"gradient of {n}": g for n, g in zip(inputs, given, strict=True)}
    bare = leaves_of(situation)
    worst = judge({"result": out}, lambda r: {"result": defined(situation, bare, r)}, situation.dtype)

    def definition(rounding: Rounding) -> Results:
        leaves = leaves_of(situation, gradients=True)
        learned = defined(situation, leaves, rounding)
        gradients = torch.autograd.grad(
            learned, [leaves[n] for n in inputs], upstream.double(), materialize_grads=True, allow_unused=True
        )
        return {f"gradient of {n}": g for n, g in zip(inputs, gradients, strict=True)}

    return max(worst, judge(got, definition, situation.dtype))


def scaled(situation: Situation, upstream: Tensor) -> Tensor:
    """The gradient of the result, in float16 as small as a training in float16 scales it.

    Queries and keys each give a gradient to a rotation's parameters, rounded to float16 before they are added: two that
    it cannot hold make NaN of a sum that it could, in any module that is used twice.
    """
    if situation.dtype != torch.float16:
        return upstream
    leaves = leaves_of(situation, gradients=True)
    learned = defined(situation, leaves, Rounding())
    gradients = torch.autograd.grad(learned, list(leaves.values()), upstream, materialize_grads=True, allow_unused=True)
    most = max((g.abs().max().item() for g in gradients if g.numel()), default=0.0)
    return upstream * 2.0 ** -max(0, math.ceil(math.log2(most / 256))) if most > 256 else upstream
