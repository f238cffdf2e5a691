"""The fused kernel on CPU with a sink: a logit a head that takes weight and has no value.

With the log-sum-exp L_i of a row's scores, o_i ← o_i · sigmoid(L_i − z); the weights that are left match the
same scores under log(e^L + e^z), so that the kernel's own backward pass, given that and the new o, is right as it
stands. The sink's weight has no value: dz = −Σ_i e^(z − L_i) · (o_i · do_i), with the new L and o.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends import fused_cpu


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, logits: Tensor, *, causal: bool, scale: float | None
) -> Tensor:
    """Attention with a sink, ``(batch, heads, queries, width)``; q, k and v of one width, key heads shared or not.

    Args:
        q, k, v: as in `attention`.
        mask: as PyTorch's own function takes it; without a gradient.
        logits: ``(heads,)``.
        causal: whether the kernel hides keys after the query, for as many queries as keys.
        scale: of the products.
    """
    if logits.shape[0] != q.shape[1]:
        raise ValueError(f"num_heads of the sink is {logits.shape[0]}, but q has {q.shape[1]} heads")
    if mask is not None and mask.dtype == torch.bool:
        mask = q.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    out: Tensor = _operator(q, k, v, mask, logits, causal, scale)[0]
    return out


@torch.library.custom_op("posenc::attend_sink", mutates_args=())
def _operator(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, logits: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    out, norm = fused_cpu.forward(q, k, v, mask, scale, causal=causal)
    return _given_away(out, norm, logits)


def _given_away(out: Tensor, norm: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Results and log-sum-exps ``(batch, heads, queries)`` with what the sink takes."""
    joined = torch.logaddexp(norm, logits.to(norm.dtype).unsqueeze(-1))
    return out.mul_((norm - joined).exp_().unsqueeze(-1)), joined


@_operator.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, logits: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    return torch.empty_like(q if q.stride(3) == 1 else q.contiguous()), _by_token(q[..., 0]).to(wide)


@torch.library.custom_op(
    "posenc::attend_sink_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor norm, Tensor? mask, Tensor logits, "
    "bool causal, float? scale) -> Tensor[]",  # torch 2.6 reads no such list from the annotations
)
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, mask: Tensor | None, logits: Tensor,
    causal: bool, scale: float | None,
) -> list[Tensor]:  # fmt: skip
    gradients = fused_cpu.backward(grad, q, k, v, out, norm, mask, scale, causal=causal)
    weight = (logits.to(norm.dtype).unsqueeze(-1) - norm).exp_()
    of_logits = -(weight * (grad.to(norm.dtype) * out.to(norm.dtype)).sum(-1)).sum((0, 2))
    return [*gradients, of_logits.to(logits.dtype)]


@_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, mask: Tensor | None, logits: Tensor,
    causal: bool, scale: float | None,
) -> list[Tensor]:  # fmt: skip
    return [*(_by_token(t) for t in (q, k, v)), torch.empty_like(logits)]


def _by_token(like: Tensor) -> Tensor:
    """Empty, ``(batch, heads, tokens, ...)``, with the heads of a token side by side as the kernel lays them."""
    return torch.empty_like(like.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)


def _refuse(ctx, *grads: object):  # type: ignore[no-untyped-def]
    raise RuntimeError("with a sink backend 'sdpa' has first derivatives alone; for second ones, backend='dense'")


_backward.register_autograd(_refuse)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(*output, *tensors)


def _differentiate(ctx, grad: Tensor, of_norm: Tensor):  # type: ignore[no-untyped-def]
    out, norm, q, k, v, mask, logits = ctx.saved_tensors
    gradients = _backward(grad, q, k, v, out, norm, mask, logits, ctx.causal, ctx.scale)
    return *gradients[:3], None, gradients[3], None, None


_operator.register_autograd(_differentiate, setup_context=_setup)
