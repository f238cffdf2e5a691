"""Export to ONNX: what posenc adds to `torch.onnx.export`, which writes every encoding by itself.

Rotations compute their angles in 64-bit integers there too, so that they are exact at any position. `rotary_operator`
makes each of them one operator, RotaryEmbedding, for runtimes that have a kernel for it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from posenc.rotary._exported import request_operator

OPSET = 23  # the first with RotaryEmbedding


def rotary_operator() -> AbstractContextManager[None]:
    """Within it, exported rotations become the operator RotaryEmbedding; export with ``opset_version=23`` or more.

    Rotations whose shape does not fit stay plain operators: a table for each head, blocks wider than pairs, tensors
    without four axes, tables that are float64.

    Raises:
        ValueError: with a torch that has no such operator.

    >>> with rotary_operator():
    ...     pass  # torch.onnx.export(model, inputs, "model.onnx", dynamo=True, opset_version=OPSET)
    """
    if not hasattr(torch.onnx, "ops"):
        raise ValueError(f"rotary_operator needs torch 2.8 or newer, this is {torch.__version__}; export without it")
    return request_operator()
