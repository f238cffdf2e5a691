"""What is done with a random call: every backend, gradients, transforms and the compiler, against the definition."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from posenc import attention
from posenc.attention.call import PATHS
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.terms import Rounding
from tests.fuzz.draw import Draw
from tests.fuzz.oracle import Results, judge
from tests.fuzz.random_call import Situation

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


def served(situation: Situation, path: str = "auto", **more: object) -> Tensor:
    """The library's result."""
    given = {"x": situation.x, "causal": True, **situation.options, **more}
    return attention(situation.q, situation.k, situation.v, situation.encodings, path=path, **given)  # type: ignore[arg-type]


def plain(situation: Situation, draw: Draw) -> float:
    """The result of the path that the library takes by itself, with or without a backward pass in sight."""
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
    """All paths by name: each gives the definition's result, or says that it cannot serve the call."""
    leaves, worst = leaves_of(situation), 0.0
    grad = draw.chance(0.3)
    for path in PATHS:
        try:
            with torch.set_grad_enabled(grad):
                got = served(situation, path)
        except ValueError as error:
            if "cannot serve this call" not in str(error):
                raise
            continue
        situation.notes.append(f"path {path}")
        worst = max(worst, judge({"result": got}, lambda r: {"result": defined(situation, leaves, r)}, situation.dtype))
        situation.notes.pop()
    return worst


def backward(situation: Situation, draw: Draw, path: str = "auto") -> float:
    """Gradients of queries, keys, values, tokens and parameters."""
    for name in "qkvx":
        setattr(situation, name, getattr(situation, name).detach().requires_grad_())
    out = served(situation, path)
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


def forward_derivative(situation: Situation, draw: Draw) -> float:
    """The tangent of the result for tangents of queries, keys and values, seen along one random direction."""
    tangents = {n: draw.normal(*getattr(situation, n).shape).to(situation.dtype) for n in "qkv"}
    given = {n: getattr(situation, n).detach().clone(memory_format=torch.contiguous_format) for n in "qkv"}
    with_func = draw.chance(0.5)
    situation.notes.append("torch.func.jvp" if with_func else "forward AD")

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, situation.encodings, x=situation.x, **{"causal": True, **situation.options})  # type: ignore[arg-type]

    if with_func:
        _, tangent = torch.func.jvp(call, tuple(given.values()), tuple(tangents.values()))
    else:
        with forward_ad.dual_level():
            out = call(*[forward_ad.make_dual(given[n], tangents[n]) for n in "qkv"])
            found = forward_ad.unpack_dual(out).tangent
            tangent = torch.zeros_like(out.detach()) if found is None else found
    direction = draw.normal(*tangent.shape).to(situation.dtype)

    def definition(rounding: Rounding) -> Results:
        leaves = leaves_of(situation, gradients=True)
        out = defined(situation, leaves, rounding)
        gradients = torch.autograd.grad(out, [leaves[n] for n in "qkv"], direction.double(), allow_unused=True)
        parts = [g * t.double() for g, t in zip(gradients, tangents.values(), strict=True) if g is not None]
        return {"tangent": torch.stack([rounding.stored(p.detach()).sum() for p in parts]).sum().view(1)}

    return judge({"tangent": (tangent.double() * direction.double()).sum().view(1)}, definition, situation.dtype)


def function_gradient(situation: Situation, draw: Draw) -> float:
    """`torch.func.grad` of queries, keys and values."""
    shape = (*situation.q.shape[:3], situation.v.shape[3])
    upstream = scaled(situation, draw.normal(*shape)).to(situation.dtype)

    def total(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attention(q, k, v, situation.encodings, x=situation.x, **{"causal": True, **situation.options})  # type: ignore[arg-type]
        return (out * upstream).sum()

    given = [getattr(situation, n).detach() for n in "qkv"]
    found = torch.func.grad(total, argnums=(0, 1, 2))(*given)
    got = {f"gradient of {n}": g for n, g in zip("qkv", found, strict=True)}

    def definition(rounding: Rounding) -> Results:
        leaves = leaves_of(situation, gradients=True)
        out = defined(situation, leaves, rounding)
        wanted = torch.autograd.grad(out, [leaves[n] for n in "qkv"], upstream.double(), materialize_grads=True)
        return {f"gradient of {n}": g for n, g in zip("qkv", wanted, strict=True)}

    return judge(got, definition, situation.dtype)


def mapped(situation: Situation, draw: Draw) -> float:
    """`torch.func.vmap` over one more leading axis of queries, keys and values."""
    count = draw.whole(1, 3)
    more = {n: torch.stack([getattr(situation, n)] * count) for n in "qkv"}
    for n in "qkv":
        more[n] = (more[n].double() * (1 + 0.1 * torch.arange(count).view(-1, 1, 1, 1, 1))).to(situation.dtype)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, situation.encodings, x=situation.x, **{"causal": True, **situation.options})  # type: ignore[arg-type]

    got = torch.func.vmap(call)(*more.values())
    leaves = leaves_of(situation)

    def definition(rounding: Rounding) -> Results:
        rows = [
            defined(situation, {**leaves, **{n: more[n][i].double() for n in "qkv"}}, rounding) for i in range(count)
        ]
        return {"result": torch.stack(rows)}

    return judge({"result": got}, definition, situation.dtype)


def compiled(situation: Situation, draw: Draw) -> float:
    """`torch.compile` with a backend that only traces, in one graph."""
    backend, dynamic = draw.one(["eager", "aot_eager"]), draw.one([None, None, True, False])
    situation.notes.append(f"compiled by {backend}, dynamic={dynamic}")
    tensors = {n: v for n, v in situation.options.items() if isinstance(v, Tensor)}
    others = {n: v for n, v in situation.options.items() if n not in tensors}

    def call(q: Tensor, k: Tensor, v: Tensor, x: Tensor, given: dict[str, Tensor]) -> Tensor:
        return attention(q, k, v, situation.encodings, x=x, **{"causal": True, **given, **others})  # type: ignore[arg-type]

    torch._dynamo.reset()
    function: Callable[..., Tensor] = torch.compile(call, backend=backend, fullgraph=True, dynamic=dynamic)
    got = function(situation.q, situation.k, situation.v, situation.x, tensors)
    torch._dynamo.reset()
    leaves = leaves_of(situation)
    return judge({"result": got}, lambda r: {"result": defined(situation, leaves, r)}, situation.dtype)
