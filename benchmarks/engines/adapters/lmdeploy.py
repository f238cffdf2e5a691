"""LMDeploy: the rotary module that its PyTorch engine builds from a config, on a CPU.

LMDeploy's code reads the config object of transformers; the model classes that call this function are not built.
Source: LMDeploy 0.18.0, pytorch/nn/rotary_embedding.py (build_rotary_embedding_from_config).
"""

from __future__ import annotations

from benchmarks.engines.adapters import Adapter, Question, Rows, installed
from benchmarks.engines.adapters._configs import BLOCK_AS_IS, loaded, rows_of


def measure(question: Question) -> Rows:
    """cos and sin as its module returns them for the whole text."""
    import torch
    from lmdeploy.pytorch.nn.rotary_embedding import (  # type: ignore[import-not-found, unused-ignore]
        build_rotary_embedding_from_config,
    )

    rotary = build_rotary_embedding_from_config(loaded(question.config))
    cos, sin = rotary(torch.zeros(1), torch.arange(question.length)[None])
    at, pairs = list(question.positions), cos.shape[-1] // 2
    return rows_of(cos[0, at, :pairs], sin[0, at, :pairs])


ADAPTER = Adapter(
    "lmdeploy", "pip install --no-deps lmdeploy==0.18.0, and what its imports ask for", installed("lmdeploy"),
    "cos and sin", measure, "build_rotary_embedding_from_config of its PyTorch engine", BLOCK_AS_IS,
    route="cos and sin are what its rotary module returns, built from transformers' config object",
)  # fmt: skip
