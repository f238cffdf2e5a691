"""Which dtype numbers are computed in, whatever dtype the caller's tensors have and whatever autocast is on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.tracing import tracing


def precision(*tensors: Tensor | None) -> torch.dtype:
    """float64 if any of these tensors, positions or parameters, has it; else float32.

    Integer positions have no precision of their own: with them, the parameters' precision counts.
    """
    for tensor in tensors:
        if tensor is not None and tensor.dtype == torch.float64:
            return torch.float64
    return torch.float32


def float32_or_better(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scores, weights and sums for inputs of ``dtype``: float64 stays, all else becomes float32."""
    return torch.promote_types(dtype, torch.float32)


def widened(x: Tensor) -> Tensor:
    """``x`` in float32 or better."""
    return x.to(float32_or_better(x.dtype))


def float64_if_supported(device: torch.device) -> torch.dtype:
    """float64 where a device has it, else float32."""
    return torch.float32 if device.type == "mps" else torch.float64


def no_autocast(device: str) -> AbstractContextManager[None]:
    """No autocast on a type of device: what is computed in which precision is not the surroundings' to decide."""
    compiling = tracing()
    if not compiling and device != "meta" and not torch.is_autocast_enabled(device):
        return nullcontext()  # which takes a tenth of the time
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x) to the last digit of float64, where PyTorch's own has x for it from 20 on, by 2e-9 too little."""
    return F.softplus(x, threshold=40.0)
