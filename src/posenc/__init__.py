"""posenc: positional encodings for transformers in PyTorch, checked against their authors' code.

`attention` takes a list of encodings, each acting at one of the five hook points that `posenc.encoding` shows. Here are
the names that a model builder types in a week. Every other encoding is imported from its hook point's package
(`posenc.embedding`, `posenc.rotary`, `posenc.bias`, `posenc.score`, `posenc.weight`; scalings of RoPE are in
`posenc.frequencies`) or built by name with `create_encoding`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from posenc import positions
from posenc.backends.call import Explanation, attention, explain
from posenc.backends.distributed.parallel import sharded_attention
from posenc.backends.inspect import attention_lse, read_attention
from posenc.bias import FIRE, KERPLE, ALiBi, BEiTBias, LogCPB, SwinBias, T5Bias
from posenc.catalogue import create_encoding, encoding_info, list_encodings, parse_encodings
from posenc.embedding import Learned, LearnedGrid, Sinusoidal
from posenc.encoding import (
    BiasEncoding,
    Context,
    EmbeddingEncoding,
    Encoding,
    RotaryEncoding,
    ScoreEncoding,
    WeightEncoding,
)
from posenc.frequencies import DynamicNTK, Llama3, LongRoPE, NTKAware, PositionInterpolation, Proportional, YaRN
from posenc.rotary import AxialRoPE, MixedRoPE, MRoPE, RoPE, XPos
from posenc.schedule import Schedule
from posenc.score import CoPE, ForgetGate, LogN, PaTH, Shaw, TransformerXL
from posenc.weight import AttentionSink, StickBreaking

__version__ = "0.1.0"

FoX = ForgetGate  # the name of its paper's model

__all__ = [
    "attention", "explain", "Explanation", "attention_lse", "read_attention", "sharded_attention", "positions",
    "create_encoding", "parse_encodings", "encoding_info", "list_encodings", "Schedule",
    "Encoding", "EmbeddingEncoding", "RotaryEncoding", "BiasEncoding", "ScoreEncoding", "WeightEncoding", "Context",
    "Sinusoidal", "Learned", "LearnedGrid",
    "RoPE", "XPos", "AxialRoPE", "MixedRoPE", "MRoPE",
    "PositionInterpolation", "NTKAware", "DynamicNTK", "YaRN", "Llama3", "LongRoPE", "Proportional",
    "ALiBi", "T5Bias", "KERPLE", "FIRE", "SwinBias", "BEiTBias", "LogCPB",
    "Shaw", "TransformerXL", "CoPE", "ForgetGate", "FoX", "PaTH", "LogN",
    "StickBreaking", "AttentionSink",
]  # fmt: skip

_LAZY = ("hf", "layers", "search", "testing", "functional", "onnx")  # packages that `import posenc` does not load


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"posenc.{name}")
    raise AttributeError(f"module 'posenc' has no attribute {name!r}")
