"""The loop over tiles as one operator with a backward pass of its own: compilers see one node, whatever the length.

First derivatives only: second ones are refused, and calls under torch.func's transforms never come here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.backends.tiled import fused_row
from posenc.backends.tiled.gradients import Gradients, Known
from posenc.backends.tiled.spec import SpecWriter, TileSpec, tiled_call
from posenc.backends.tiled.tiled_call import LOG2_E, TiledCall, blocks, parts
from posenc.visibility import VisibilityMask


def run(writer: SpecWriter) -> Tensor:
    """Attention, ``(batch, heads, queries, value_dim)``."""
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in writer.tensors)
    of_terms = [t for at, t in enumerate(writer.tensors) if at > 2 and at != writer.sink_index]
    spec = writer.text(learned=trained and any(t.requires_grad for t in of_terms))
    tensors, fixed, numbers = writer.tensors, writer.fixed, writer.numbers
    if trained or torch.compiler.is_compiling():
        out: Tensor = _operator(tensors, fixed, numbers, spec)[0]
        return out
    return _forward(tiled_call(TileSpec.read(spec), tensors, fixed, numbers))[0]


def _forward(call: TiledCall) -> tuple[Tensor, Tensor]:
    """Results, and what the weights of each row were divided by, in the form that the backward pass reads."""
    out, norm = _by_keys(call)
    if call.sink is None:
        return out, norm
    joined = torch.logaddexp2(norm, (call.sink * LOG2_E).view(-1, 1, 1)).masked_fill_(norm == math.inf, math.inf)
    return out.mul_(torch.exp2(norm - joined).nan_to_num_(0.0)), joined


def _sink_gradient(call: TiledCall, grad: Tensor, out: Tensor, norm: Tensor) -> Tensor:
    """The gradient of the sink's logits, ``(heads,)``: its weight of each row, which reads nothing, less the mean."""
    assert call.sink is not None
    weight = torch.exp2((call.sink * LOG2_E).view(-1, 1, 1) - norm)
    delta = (grad.to(call.wide) * out.to(call.wide)).sum(-1, keepdim=True)
    return -(weight * delta).sum((0, 2, 3))


def _by_keys(call: TiledCall) -> tuple[Tensor, Tensor]:
    """The same without a sink."""
    if fused_row.serves(call):
        return fused_row.forward(call)
    out = call.q.new_zeros(*call.q.shape[:3], call.v.shape[3])
    norm = call.q.new_full((*call.q.shape[:3], 1), math.inf, dtype=call.wide)
    for part in parts(call):
        for tile in blocks(call, part):
            where = (tile.batch, tile.heads, slice(tile.start, tile.stop))
            out[where], norm[where] = call.weights.forward(call, part, tile)
    return out, norm


def _backward(call: TiledCall, grad: Tensor, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    gradients = Gradients(call)
    for part in parts(call, backward=True):
        of_part = gradients.of_part(part)
        for tile in blocks(call, part):
            where = (tile.batch, tile.heads, slice(tile.start, tile.stop))
            known = Known(grad[where].to(call.wide), out[where].to(call.wide), norm[where])
            call.weights.backward(call, part, tile, known, gradients, of_part)
        gradients.close(part, *of_part)
    return gradients.q, gradients.k, gradients.v


@torch.library.custom_op("posenc::attend_tiled", mutates_args=())
def _operator(
    tensors: Sequence[Tensor], fixed: Sequence[Tensor], numbers: Sequence[int], recipe: str
) -> tuple[Tensor, Tensor]:
    return _forward(tiled_call(TileSpec.read(recipe), tensors, fixed, numbers))


@_operator.register_fake
def _(tensors: Sequence[Tensor], fixed: Sequence[Tensor], numbers: Sequence[int], recipe: str) -> tuple[Tensor, Tensor]:
    q, v = tensors[0], tensors[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(*q.shape[:3], 1, dtype=wide)


@torch.library.custom_op(
    "posenc::attend_tiled_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor out, Tensor norm, Tensor[] tensors, Tensor[] fixed, SymInt[] numbers, str recipe) "
    "-> Tensor[]",  # torch 2.6 reads no such list from the annotations
)
def _backward_operator(
    grad: Tensor,
    out: Tensor,
    norm: Tensor,
    tensors: Sequence[Tensor],
    fixed: Sequence[Tensor],
    numbers: Sequence[int],
    recipe: str,
) -> list[Tensor]:
    spec = TileSpec.read(recipe)
    call = tiled_call(spec, tensors, fixed, numbers)
    if fused_row.serves_backward(call):
        of_tensors = [*fused_row.backward(call, grad, out, norm), *(t.new_empty(0) for t in tensors[3:])]
        if spec.sink is not None and spec.learns_sink:
            of_tensors[spec.sink] = _sink_gradient(call, grad, out, norm).to(tensors[spec.sink].dtype)
        return of_tensors
    for term in call.terms:
        term.start_backward(call.wide)
    call.weights.start_backward(call.wide)
    gradients: list[Tensor] = [*_backward(call, grad, out, norm), *tensors[3:]]
    for term, term_spec in zip(call.terms, spec.terms, strict=True):
        for (name, at), gradient in zip(term_spec.tensors, term.finish_backward(), strict=True):
            if at in spec.frozen:
                continue
            ordered = _in_order(term_spec.kind, name, gradient, call.visibility)
            gradients[at] = ordered.sum(0, keepdim=True) if ordered.shape[0] > tensors[at].shape[0] else ordered
    if spec.sink is not None and spec.learns_sink:
        gradients[spec.sink] = _sink_gradient(call, grad, out, norm)
    of_weights = [] if spec.sticks is None or spec.sticks.vector is None else [spec.sticks.vector]
    for at, gradient in zip(of_weights, call.weights.finish_backward(), strict=True):
        gradients[at] = gradient
    return [
        t.new_empty(0) if at in spec.frozen else g.to(t.dtype).contiguous()
        for at, (g, t) in enumerate(zip(gradients, tensors, strict=True))
    ]


def _in_order(kind: str, name: str, gradient: Tensor, visibility: VisibilityMask) -> Tensor:
    """A gradient along keys back in the order of the sequence."""
    if (kind, name) == ("counts", "keys"):
        return gradient.flip(2)
    if kind in ("column", "decay"):
        gradient = gradient.flip(-1)
    if kind == "decay" and visibility.mask is not None and visibility.per_key:
        gradient = gradient * visibility.mask[:, :, 0]
    return gradient


@_backward_operator.register_fake
def _(
    grad: Tensor,
    out: Tensor,
    norm: Tensor,
    tensors: Sequence[Tensor],
    fixed: Sequence[Tensor],
    numbers: Sequence[int],
    recipe: str,
) -> list[Tensor]:
    frozen = TileSpec.read(recipe).frozen
    return [t.new_empty(0 if at in frozen else t.shape) for at, t in enumerate(tensors)]


def _refuse(ctx, *grads: object):  # type: ignore[no-untyped-def]
    raise RuntimeError(
        "backend 'tiled' has first derivatives alone; for second ones call attention(..., backend='dense')"
    )


_backward_operator.register_autograd(_refuse)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    tensors, fixed, ctx.numbers, ctx.recipe = inputs
    ctx.count = len(tensors)
    ctx.save_for_backward(*output, *tensors, *fixed)


def _differentiate(ctx, grad: Tensor, of_norm: Tensor):  # type: ignore[no-untyped-def]
    out, norm, *saved = ctx.saved_tensors
    tensors, fixed = saved[: ctx.count], saved[ctx.count :]
    gradients = _backward_operator(grad, out, norm, tensors, fixed, ctx.numbers, ctx.recipe)
    frozen = TileSpec.read(ctx.recipe).frozen
    gradients = [None if at in frozen else gradient for at, gradient in enumerate(gradients)]
    return gradients, [None] * len(fixed), None, None


_operator.register_autograd(_differentiate, setup_context=_setup)
