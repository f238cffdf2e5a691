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
    from posenc import attention_maps as attention_maps
    from posenc import backends as backends
    from posenc import bias as bias
    from posenc import catalogue as catalogue
    from posenc import diffusion as diffusion
    from posenc import distributed as distributed
    from posenc import embedding as embedding
    from posenc import evaluation as evaluation
    from posenc import frequencies as frequencies
    from posenc import functional as functional
    from posenc import layers as layers
    from posenc import onnx as onnx
    from posenc import positions as positions
    from posenc import rotary as rotary
    from posenc import schedule as schedule
    from posenc import score as score
    from posenc import search as search
    from posenc import weight as weight
    from posenc.attend import Explanation as Explanation
    from posenc.attend import attention as attention
    from posenc.attend import explain_backend as explain_backend
    from posenc.attention_maps import read_attention as read_attention
    from posenc.bias import ALiBi as ALiBi
    from posenc.bias import T5Bias as T5Bias
    from posenc.catalogue import create_encoding as create_encoding
    from posenc.catalogue import encoding_info as encoding_info
    from posenc.catalogue import list_encodings as list_encodings
    from posenc.catalogue import parse_encodings as parse_encodings
    from posenc.embedding import Learned as Learned
    from posenc.embedding import LearnedGrid as LearnedGrid
    from posenc.embedding import Sinusoidal as Sinusoidal
    from posenc.encoding import BiasEncoding as BiasEncoding
    from posenc.encoding import Context as Context
    from posenc.encoding import EmbeddingEncoding as EmbeddingEncoding
    from posenc.encoding import Encoding as Encoding
    from posenc.encoding import RotaryEncoding as RotaryEncoding
    from posenc.encoding import ScoreEncoding as ScoreEncoding
    from posenc.encoding import WeightEncoding as WeightEncoding
    from posenc.frequencies import DynamicNTK as DynamicNTK
    from posenc.frequencies import Llama3 as Llama3
    from posenc.frequencies import LongRoPE as LongRoPE
    from posenc.frequencies import NTKAware as NTKAware
    from posenc.frequencies import PositionInterpolation as PositionInterpolation
    from posenc.frequencies import YaRN as YaRN
    from posenc.parameter_groups import param_groups as param_groups
    from posenc.rotary import AxialRoPE as AxialRoPE
    from posenc.rotary import MRoPE as MRoPE
    from posenc.rotary import RoPE as RoPE
    from posenc.score import ForgetGate as ForgetGate
    from posenc.score import LogN as LogN
    from posenc.weight import AttentionSink as AttentionSink

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "posenc.attend": "attention explain_backend Explanation",
        "posenc.attention_maps": "read_attention",
        "posenc.catalogue": "create_encoding parse_encodings encoding_info list_encodings",
        "posenc.encoding": "Encoding EmbeddingEncoding RotaryEncoding BiasEncoding ScoreEncoding WeightEncoding "
        "Context",
        "posenc.embedding": "Sinusoidal Learned LearnedGrid",
        "posenc.rotary": "RoPE AxialRoPE MRoPE",
        "posenc.frequencies": "PositionInterpolation NTKAware DynamicNTK YaRN Llama3 LongRoPE",
        "posenc.bias": "ALiBi T5Bias",
        "posenc.parameter_groups": "param_groups",
        "posenc.score": "ForgetGate LogN",
        "posenc.weight": "AttentionSink",
    },
    submodules="attention_maps backends bias catalogue diffusion distributed embedding engines evaluation explorer "
    "figures frequencies functional hf lab layers onnx positions recommend rotary schedule score search testing weight",
)
