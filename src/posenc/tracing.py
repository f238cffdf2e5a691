"""Whether a call is only traced, by a compiler or an exporter: what then holds for one size must hold for all."""

from __future__ import annotations

from collections.abc import Callable

import torch

# torch 2.6 does not tell exports from compilers
exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def tracing() -> bool:
    """Whether torch.compile or torch.export is looking on."""
    return torch.compiler.is_compiling() or exporting()
