"""What is done with a random call: every backend, gradients, transforms and the compiler, against the definition."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from posenc import attention, explain_backend
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.terms import Rounding
from tests.fuzz.draw import Draw
from tests.fuzz.oracle import Results, judge
from tests.fuzz.random_call import RandomCall

DEFINED = ("q_pos", "k_pos", "mask", "segments", "causal", "scale", "length", "window", "softcap")


def float64_leaves(call: RandomCall, *, gradients: bool = False) -> dict[str, Tensor]:
    """q, k, v, x and all parameters in float64."""
    tensors = {"q": call.q, "k": call.k, "v": call.v, "x": call.x, **call.parameters}
    return {name: t.detach().double().clone().requires_grad_(gradients) for name, t in tensors.items()}


def definition_result(call: RandomCall, leaves: dict[str, Tensor], rounding: Rounding) -> Tensor:
    """The definition's result for the call, on given tensors."""
    options = {name: value for name, value in call.options.items() if name in DEFINED}
    return define(
        leaves["q"], leaves["k"], leaves["v"], call.encoded(leaves), x=leaves["x"], axes=call.axes,
        rounding=rounding, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def library_result(call: RandomCall, backend: str = "auto", **more: object) -> Tensor:
    """The library's result."""
    options = {"x": call.x, "causal": True, **call.options, **more}
    return attention(call.q, call.k, call.v, call.encodings, backend=backend, **options)  # type: ignore[arg-type]


def by_default(call: RandomCall, draw: Draw) -> float:
    """The result of the backend that the library takes by itself, with or without a backward pass in sight."""
    if draw.chance(0.35):
        call.notes.append("requires_grad")
        for name in "qkv":
            setattr(call, name, getattr(call, name).detach().requires_grad_())
    more = {}
    if draw.chance(0.15):
        call.notes.append("token_states")
        kept = [getattr(e, "token_state", lambda x: None)(call.x) for e in call.encodings]
        more = {"token_states": kept, "x": None}
    leaves = float64_leaves(call)
    return judge(
        {"result": library_result(call, **more)}, lambda r: {"result": definition_result(call, leaves, r)}, call.dtype
    )


def every_backend(call: RandomCall, draw: Draw) -> float:
    """All backends by name: each gives the definition's result, or says that it cannot serve the call."""
    leaves, worst = float64_leaves(call), 0.0
    grad = draw.chance(0.3)
    options = {"x": call.x, "causal": True, **call.options}
    explained = explain_backend(call.q, call.k, call.v, call.encodings, **options)  # type: ignore[arg-type]
    for backend in sorted({explained.backend, *explained.refused}):
        try:
            with torch.set_grad_enabled(grad):
                got = library_result(call, backend)
        except ValueError as error:
            if "cannot serve this call" not in str(error):
                raise
            continue
        call.notes.append(f"backend {backend}")
        name = f"result of {backend}"
        worst = max(worst, judge({name: got}, lambda r, n=name: {n: definition_result(call, leaves, r)}, call.dtype))
        call.notes.pop()
    return worst


def backward(call: RandomCall, draw: Draw, backend: str = "auto") -> float:
    """Gradients of queries, keys, values, tokens and parameters."""
    for name in "qkvx":
        setattr(call, name, getattr(call, name).detach().requires_grad_())
    out = library_result(call, backend)
    upstream = scaled(call, draw.normal(*out.shape)).to(call.dtype)
    inputs = {"q": call.q, "k": call.k, "v": call.v, "x": call.x, **call.parameters}
    inputs = {name: t for name, t in inputs.items() if t.requires_grad}
    values = torch.autograd.grad(out, list(inputs.values()), upstream, materialize_grads=True, allow_unused=True)
    got = {f"gradient of {n}": g for n, g in zip(inputs, values, strict=True)}
    bare = float64_leaves(call)
    worst = judge({"result": out}, lambda r: {"result": definition_result(call, bare, r)}, call.dtype)

    def definition(rounding: Rounding) -> Results:
        leaves = float64_leaves(call, gradients=True)
        learned = definition_result(call, leaves, rounding)
        gradients = torch.autograd.grad(
            learned, [leaves[n] for n in inputs], upstream.double(), materialize_grads=True, allow_unused=True
        )
        return {f"gradient of {n}": g for n, g in zip(inputs, gradients, strict=True)}

    return max(worst, judge(got, definition, call.dtype))


def scaled(call: RandomCall, upstream: Tensor) -> Tensor:
    """The gradient of the result, in float16 as small as a training in float16 scales it.

    Queries and keys each give a gradient to a rotation's parameters, rounded to float16 before they are added: two that
    it cannot hold make NaN of a sum that it could, in any module that is used twice.
    """
    if call.dtype != torch.float16:
        return upstream
    leaves = float64_leaves(call, gradients=True)
    learned = definition_result(call, leaves, Rounding())
    gradients = torch.autograd.grad(learned, list(leaves.values()), upstream, materialize_grads=True, allow_unused=True)
    most = max((g.abs().max().item() for g in gradients if g.numel()), default=0.0)
    return upstream * 2.0 ** -max(0, math.ceil(math.log2(most / 256))) if most > 256 else upstream


def forward_derivative(call: RandomCall, draw: Draw) -> float:
    """The tangent of the result for tangents of queries, keys and values, seen along one random direction."""
    tangents = {n: draw.normal(*getattr(call, n).shape).to(call.dtype) for n in "qkv"}
    options = {n: getattr(call, n).detach().clone(memory_format=torch.contiguous_format) for n in "qkv"}
    with_func = draw.chance(0.5)
    call.notes.append("torch.func.jvp" if with_func else "forward AD")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, call.encodings, x=call.x, **{"causal": True, **call.options})  # type: ignore[arg-type]

    if with_func:
        _, tangent = torch.func.jvp(attend, tuple(options.values()), tuple(tangents.values()))
    else:
        with forward_ad.dual_level():
            out = attend(*[forward_ad.make_dual(options[n], tangents[n]) for n in "qkv"])
            forward = forward_ad.unpack_dual(out).tangent
            tangent = torch.zeros_like(out.detach()) if forward is None else forward
    direction = draw.normal(*tangent.shape).to(call.dtype)

    def definition(rounding: Rounding) -> Results:
        leaves = float64_leaves(call, gradients=True)
        out = definition_result(call, leaves, rounding)
        gradients = torch.autograd.grad(out, [leaves[n] for n in "qkv"], direction.double(), allow_unused=True)
        parts = [g * t.double() for g, t in zip(gradients, tangents.values(), strict=True) if g is not None]
        return {"tangent": torch.stack([rounding.stored(p.detach()).sum() for p in parts]).sum().view(1)}

    return judge({"tangent": (tangent.double() * direction.double()).sum().view(1)}, definition, call.dtype)


def function_gradient(call: RandomCall, draw: Draw) -> float:
    """`torch.func.grad` of queries, keys and values."""
    shape = (*call.q.shape[:3], call.v.shape[3])
    upstream = scaled(call, draw.normal(*shape)).to(call.dtype)

    def total(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attention(q, k, v, call.encodings, x=call.x, **{"causal": True, **call.options})  # type: ignore[arg-type]
        return (out * upstream).sum()

    inputs = [getattr(call, n).detach() for n in "qkv"]
    function_gradients = torch.func.grad(total, argnums=(0, 1, 2))(*inputs)
    got = {f"gradient of {n}": g for n, g in zip("qkv", function_gradients, strict=True)}

    def definition(rounding: Rounding) -> Results:
        leaves = float64_leaves(call, gradients=True)
        out = definition_result(call, leaves, rounding)
        expected = torch.autograd.grad(out, [leaves[n] for n in "qkv"], upstream.double(), materialize_grads=True)
        return {f"gradient of {n}": g for n, g in zip("qkv", expected, strict=True)}

    return judge(got, definition, call.dtype)


def mapped(call: RandomCall, draw: Draw) -> float:
    """`torch.func.vmap` over one more leading axis of queries, keys and values."""
    count = draw.integer(1, 3)
    more = {n: torch.stack([getattr(call, n)] * count) for n in "qkv"}
    for n in "qkv":
        more[n] = (more[n].double() * (1 + 0.1 * torch.arange(count).view(-1, 1, 1, 1, 1))).to(call.dtype)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, call.encodings, x=call.x, **{"causal": True, **call.options})  # type: ignore[arg-type]

    got = torch.func.vmap(attend)(*more.values())
    leaves = float64_leaves(call)

    def definition(rounding: Rounding) -> Results:
        rows = [
            definition_result(call, {**leaves, **{n: more[n][i].double() for n in "qkv"}}, rounding)
            for i in range(count)
        ]
        return {"result": torch.stack(rows)}

    return judge({"result": got}, definition, call.dtype)


def compiled(call: RandomCall, draw: Draw) -> float:
    """`torch.compile` with a backend that only traces, in one graph."""
    backend, dynamic = draw.choice(["eager", "aot_eager"]), draw.choice([None, None, True, False])
    call.notes.append(f"compiled by {backend}, dynamic={dynamic}")
    tensors = {n: v for n, v in call.options.items() if isinstance(v, Tensor)}
    rest = {n: v for n, v in call.options.items() if n not in tensors}

    def attend(q: Tensor, k: Tensor, v: Tensor, x: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        return attention(q, k, v, call.encodings, x=x, **{"causal": True, **inputs, **rest})  # type: ignore[arg-type]

    torch._dynamo.reset()
    function: Callable[..., Tensor] = torch.compile(attend, backend=backend, fullgraph=True, dynamic=dynamic)
    got = function(call.q, call.k, call.v, call.x, tensors)
    torch._dynamo.reset()
    leaves = float64_leaves(call)
    return judge({"result": got}, lambda r: {"result": definition_result(call, leaves, r)}, call.dtype)
