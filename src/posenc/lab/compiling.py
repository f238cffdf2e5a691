"""torch.compile for the blocks of a model: once for all layers, since they share their code.

Only the training is compiled. An evaluation has a forward or two of each length, and each length would be another
compilation; attention, which is most of the work there, has kernels of its own.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from posenc.lab.model import Block


@cache
def check_compiler(device: str) -> None:
    """Raise a ValueError unless something small compiles and runs on the device; takes seconds."""
    try:
        found: float = torch.compile(_something)(torch.ones(8, device=device)).sum().item()
    except Exception as error:  # whatever a compiler that is missing or broken raises
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(
            f"--compile: torch.compile does not work on {device} here ({reason}): "
            "install the compiler it needs (C++ for processors, Triton and C for GPUs), or give --no-compile"
        ) from error
    if found != 16.0:
        raise ValueError(f"--compile: torch.compile computes wrongly on {device} here; give --no-compile")


def compile_blocks(model: nn.Module) -> None:
    """Compile each block's forward in place, so that no parameter gets another name; it happens at the first call."""
    # A block is one graph. Cutting it for DDP gains nothing, and some versions cannot where FlexAttention is in it.
    torch._dynamo.config.optimize_ddp = False
    torch.compiler.reset()  # what jobs before it have compiled in this process, of which there may be a few only
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        setattr(block, "forward", torch.compile(block.forward))  # noqa: B010  (mypy: a method is no attribute)


def _something(x: torch.Tensor) -> torch.Tensor:
    return x * 2
