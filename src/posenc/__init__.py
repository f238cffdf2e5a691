"""posenc: positional encodings for transformers in PyTorch; exact, composable, fast, measured.

`posenc.encoding` shows the five places where an encoding acts; `attention` takes a list of any of them.
"""

from posenc import positions as positions
from posenc.attention import Explanation as Explanation
from posenc.attention import attention as attention
from posenc.attention import explain as explain
from posenc.attention.parallel import merged as merged
from posenc.attention.parallel import sharded_attention as sharded_attention
from posenc.bias.alibi import ALiBi as ALiBi
from posenc.bias.alibi import alibi_slopes as alibi_slopes
from posenc.bias.cpb import LogCPB as LogCPB
from posenc.bias.distance import DistanceBias as DistanceBias
from posenc.bias.fire import FIRE as FIRE
from posenc.bias.kerple import KERPLE as KERPLE
from posenc.bias.mlp import DistanceMLP as DistanceMLP
from posenc.bias.sandwich import Sandwich as Sandwich
from posenc.bias.t5 import T5Bias as T5Bias
from posenc.catalogue import Entry as Entry
from posenc.catalogue import build as build
from posenc.catalogue import create as create
from posenc.catalogue import info as info
from posenc.catalogue import list_encodings as list_encodings
from posenc.embedding.abacus import Abacus as Abacus
from posenc.embedding.learned import Learned as Learned
from posenc.embedding.learned import grow_table as grow_table
from posenc.embedding.sinusoidal import Sinusoidal as Sinusoidal
from posenc.encoding import BiasEncoding as BiasEncoding
from posenc.encoding import Context as Context
from posenc.encoding import EmbeddingEncoding as EmbeddingEncoding
from posenc.encoding import Encoding as Encoding
from posenc.encoding import RotaryEncoding as RotaryEncoding
from posenc.encoding import ScoreEncoding as ScoreEncoding
from posenc.encoding import WeightEncoding as WeightEncoding
from posenc.frequencies.by_parts import NTKByParts as NTKByParts
from posenc.frequencies.by_parts import PartNTK as PartNTK
from posenc.frequencies.clex import CLEX as CLEX
from posenc.frequencies.interpolation import DynamicPositionInterpolation as DynamicPositionInterpolation
from posenc.frequencies.interpolation import PositionInterpolation as PositionInterpolation
from posenc.frequencies.llama3 import Llama3 as Llama3
from posenc.frequencies.longrope import DynamicLongRoPE as DynamicLongRoPE
from posenc.frequencies.longrope import LongRoPE as LongRoPE
from posenc.frequencies.multiscale import MultiScale as MultiScale
from posenc.frequencies.ntk import DynamicNTK as DynamicNTK
from posenc.frequencies.ntk import NTKAware as NTKAware
from posenc.frequencies.proportional import Proportional as Proportional
from posenc.frequencies.resonance import Resonance as Resonance
from posenc.frequencies.spectrum import Scaling as Scaling
from posenc.frequencies.spectrum import Spectrum as Spectrum
from posenc.frequencies.yarn import DynamicYaRN as DynamicYaRN
from posenc.frequencies.yarn import YaRN as YaRN
from posenc.rotary._layout import permute_layout as permute_layout
from posenc.rotary.rope import RoPE as RoPE
from posenc.rotary.xpos import XPos as XPos
from posenc.score.cope import CoPE as CoPE
from posenc.score.dape import DAPE as DAPE
from posenc.score.data_alibi import DataDependentALiBi as DataDependentALiBi
from posenc.score.forget import ForgetGate as ForgetGate
from posenc.score.mixture import Mixture as Mixture
from posenc.score.path import PaTH as PaTH
from posenc.score.shaw import Shaw as Shaw
from posenc.score.transformer_xl import TransformerXL as TransformerXL
from posenc.weight.stick_breaking import StickBreaking as StickBreaking

__version__ = "0.1.0"
