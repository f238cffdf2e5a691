"""posenc: positional encodings for transformers in PyTorch, checked against their authors' code.

`attention` takes a list of encodings, each acting at one of the five hook points that `posenc.encoding` shows. Here are
the names that a model builder types in a week. Every other encoding is imported from its hook point's package
(`posenc.embedding`, `posenc.rotary`, `posenc.bias`, `posenc.score`, `posenc.weight`; scalings of RoPE are in
`posenc.frequencies`) or built by name with `create_encoding`.

``import posenc`` loads neither torch nor any module below: each is imported when its name is first used, because torch
takes seconds to load and a configuration is read in a tenth of one. A process that loads an exported graph of posenc
imports `posenc.backends`, which registers the operators that such graphs call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc import backends as backends
    from posenc import bias as bias
    from posenc import catalogue as catalogue
    from posenc import diffusion as diffusion
    from posenc import embedding as embedding
    from posenc import evaluation as evaluation
    from posenc import frequencies as frequencies
    from posenc import functional as functional
    from posenc import layers as layers
    from posenc import onnx as onnx
    from posenc import positions as positions
    from posenc import rotary as rotary
    from posenc import score as score
    from posenc import search as search
    from posenc import weight as weight
    from posenc.attend import Explanation, attention, explain_backend
    from posenc.attention_maps import attention_lse, read_attention
    from posenc.bias import FIRE, KERPLE, ALiBi, BEiTBias, LogCPB, SwinBias, T5Bias
    from posenc.catalogue import create_encoding, encoding_info, list_encodings, parse_encodings
    from posenc.distributed.parallel import sharded_attention
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
    from posenc.rotary import AxialRoPE, MixedRoPE, MRoPE, RoPE
    from posenc.schedule import Schedule
    from posenc.score import CoPE, ForgetGate, LogN, PaTH, Shaw, TransformerXL, XPos
    from posenc.weight import AttentionSink, StickBreaking

    FoX = ForgetGate

__version__ = "0.1.0"

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "posenc.attend": "Explanation attention explain_backend",
        "posenc.distributed.parallel": "sharded_attention",
        "posenc.attention_maps": "attention_lse read_attention",
        "posenc.bias": "FIRE KERPLE ALiBi BEiTBias LogCPB SwinBias T5Bias",
        "posenc.catalogue": "create_encoding encoding_info list_encodings parse_encodings",
        "posenc.embedding": "Learned LearnedGrid Sinusoidal",
        "posenc.encoding": "BiasEncoding Context EmbeddingEncoding "
        "Encoding RotaryEncoding ScoreEncoding WeightEncoding",
        "posenc.frequencies": "DynamicNTK Llama3 LongRoPE NTKAware PositionInterpolation Proportional YaRN",
        "posenc.rotary": "AxialRoPE MixedRoPE MRoPE RoPE",
        "posenc.schedule": "Schedule",
        "posenc.score": "CoPE ForgetGate LogN PaTH Shaw TransformerXL XPos",
        "posenc.weight": "AttentionSink StickBreaking",
    },
    aliases={"FoX": "ForgetGate"},  # the name of its paper's model
    submodules="backends bias catalogue diffusion distributed embedding engines evaluation explorer figures "
    "frequencies functional hf lab layers onnx positions recommend rotary score search testing weight",
)

__all__ = [
    "attention", "explain_backend", "Explanation", "attention_lse", "read_attention", "sharded_attention", "positions",
    "create_encoding", "parse_encodings", "encoding_info", "list_encodings", "Schedule",
    "Encoding", "EmbeddingEncoding", "RotaryEncoding", "BiasEncoding", "ScoreEncoding", "WeightEncoding", "Context",
    "Sinusoidal", "Learned", "LearnedGrid",
    "RoPE", "XPos", "AxialRoPE", "MixedRoPE", "MRoPE",
    "PositionInterpolation", "NTKAware", "DynamicNTK", "YaRN", "Llama3", "LongRoPE", "Proportional",
    "ALiBi", "T5Bias", "KERPLE", "FIRE", "SwinBias", "BEiTBias", "LogCPB",
    "Shaw", "TransformerXL", "CoPE", "ForgetGate", "FoX", "PaTH", "LogN",
    "StickBreaking", "AttentionSink",
]  # fmt: skip
