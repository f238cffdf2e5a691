"""What encodings compute by a kernel on a GPU, where one serves: logs of the gates of few tokens, a row of KERPLE."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends.triton import guard
from posenc.backends.triton.guard import Kind, Results, Run, Size
from posenc.tracing import exporting, tracing, transformed

FEW = 16  # tokens of each row
MOST_HEADS = 1024


def log_gates(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Logs of forget gates, ``(batch, heads, tokens)`` float32, or None; takes the arguments of `terms.log_gates`."""
    tensors = [x, weight, *([] if bias is None else [bias])]
    if x.shape[1] > FEW or not _plain(*tensors) or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return None
    kind = Kind("log gates", () if bias is None else ("bias",), x.dtype, weight.shape[1], weight.shape[0], False)
    return None if guard.refusal(kind, x.device, _log_gates, _right_gates) else _log_gates(x, weight, bias)


def kerple_row(
    p: Tensor, a: Tensor, mu: Tensor | None, distance: Tensor, kind: str, least: float, eps: float
) -> Tensor | None:
    """KERPLE at whole distances ``(entries,)``, or None; takes the arguments of `terms.kerple_row`."""
    tensors = [p, a, *([] if mu is None else [mu])]
    if distance.ndim != 1 or distance.dtype != torch.int64 or not distance.numel() or not _plain(*tensors):
        return None
    flags = (kind, *([] if mu is None else ["shift"]))
    checked = Kind("kerple row", flags, torch.float32, 1, 1, True)
    if guard.refusal(checked, p.device, _kerple_row, _right_row) is not None:
        return None
    return _kerple_row(p, a, mu, distance, kind, least, eps)


def _plain(*tensors: Tensor) -> bool:
    """Whether these are tensors of a GPU that has the kernels, of float32 or less, and nobody transforms the call."""
    plain = tracing() or all(type(t) in (Tensor, torch.nn.Parameter) for t in tensors)
    if not all(t.is_cuda and t.dtype in guard.TOLERANCES for t in tensors) or exporting() or transformed():
        return False
    return plain and guard.missing(tensors[0].device) is None


def _log_gates(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from posenc.backends.triton import terms

    return terms.log_gates(x, weight, bias)


def _kerple_row(
    p: Tensor, a: Tensor, mu: Tensor | None, distance: Tensor, kind: str, least: float, eps: float
) -> Tensor:
    from posenc.backends.triton import terms

    return terms.kerple_row(p, a, mu, distance, kind, least, eps)


def _right_gates(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """Gates of three tokens, in float64 on the CPU and by the kernel."""
    x = guard.drawn((size[0], 3, kind.width), seed=1).to(kind.dtype)
    weight = (guard.drawn((kind.value_width, kind.width), seed=2) / kind.width**0.5).to(kind.dtype)
    bias = guard.drawn((kind.value_width,), seed=3) if "bias" in kind.flags else None
    wide = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    right = torch.nn.functional.logsigmoid(wide).transpose(1, 2)
    came = run(x.to(device), weight.to(device), None if bias is None else bias.to(device))
    return {"result": right}, {"result": came.cpu().double()}


def _right_row(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """A row and the gradients of its parameters, by the definition in float64 on the CPU and by the kernel."""
    from posenc.bias import KERPLE

    encoding = KERPLE(size[1], kind=kind.flags[0], shift="shift" in kind.flags).double()  # type: ignore[arg-type]
    for seed, parameter in enumerate(encoding.parameters()):
        parameter.data = (1.0 + 0.3 * guard.drawn(parameter.shape, seed=seed)).double()
    distance = torch.arange(5, -size[4], -1)
    right = encoding.of_distance(distance.double())
    names, learned = zip(*encoding.named_parameters(), strict=True)
    near = {name: x.detach().to(device, torch.float32).requires_grad_() for name, x in encoding.named_parameters()}
    factor = near["log_a"] if kind.flags[0] == "bam" else near["a"]
    came = run(near["p"], factor, near.get("mu"), distance.to(device), kind.flags[0], 0.01, 1e-5)
    target = guard.drawn(right.shape, seed=9)
    gradients = torch.autograd.grad(right, learned, target.double())
    others = torch.autograd.grad(came, list(near.values()), target.to(device))
    exact = dict(zip(names, gradients, strict=True))
    return exact | {"result": right.detach()}, {
        name: x.detach().cpu().double() for name, x in zip(("result", *names), (came, *others), strict=True)
    }
