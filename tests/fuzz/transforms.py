"""The same call under transforms of PyTorch: forward-mode derivatives, `torch.func`, compilers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from posenc import attention
from tests.fuzz.definition.terms import Rounding
from tests.fuzz.draw import Draw
from tests.fuzz.modes import defined, leaves_of, scaled
from tests.fuzz.oracle import Results, judge
from tests.fuzz.situation import Situation


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
