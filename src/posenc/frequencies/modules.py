"""The formulas of scalings as modules of torch, each under its formula's name: what `posenc.frequencies` exports.

A class here is its formula, with ``forward``, options and checks, and an ``nn.Module``, so that scalings stand in
models and in ``nn.Sequential``. The formula without torch has the same name in the file of its own.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from posenc.entry import Entry
from posenc.frequencies import by_parts, dype, interpolation, llama3, longrope, ntk, proportional, riflex, yarn
from posenc.frequencies._defaults import (
    NO_SHIFT,
    a_quarter,
    factor,
    factors_of_the_search,
    factors_of_the_theory,
    length_of_the_axis,
    pair_that_repeats,
)
from posenc.frequencies.host import Chain, Formula
from posenc.frequencies.spectrum import Scaling


class PositionInterpolation(interpolation.PositionInterpolation, Scaling):
    __doc__ = interpolation.PositionInterpolation.__doc__


class DynamicPositionInterpolation(interpolation.DynamicPositionInterpolation, Scaling):
    __doc__ = interpolation.DynamicPositionInterpolation.__doc__


class NTKAware(ntk.NTKAware, Scaling):
    __doc__ = ntk.NTKAware.__doc__


class DynamicNTK(ntk.DynamicNTK, Scaling):
    __doc__ = ntk.DynamicNTK.__doc__


class NTKByParts(by_parts.NTKByParts, Scaling):
    __doc__ = by_parts.NTKByParts.__doc__


class PartNTK(by_parts.PartNTK, Scaling):
    __doc__ = by_parts.PartNTK.__doc__


class YaRN(yarn.YaRN, Scaling):
    __doc__ = yarn.YaRN.__doc__


class DynamicYaRN(yarn.DynamicYaRN, Scaling):
    __doc__ = yarn.DynamicYaRN.__doc__


class Llama3(llama3.Llama3, Scaling):
    __doc__ = llama3.Llama3.__doc__


class LongRoPE(longrope.LongRoPE, Scaling):
    __doc__ = longrope.LongRoPE.__doc__


class DynamicLongRoPE(longrope.DynamicLongRoPE, Scaling):
    __doc__ = longrope.DynamicLongRoPE.__doc__


class DyPE(dype.DyPE, Scaling):
    __doc__ = dype.DyPE.__doc__


class RIFLEx(riflex.RIFLEx, Scaling):
    __doc__ = riflex.RIFLEx.__doc__


class Proportional(proportional.Proportional, Scaling):
    __doc__ = proportional.Proportional.__doc__


_MODULES: dict[type, type[Scaling]] = {
    base: cls for cls in Scaling.__subclasses__() for base in cls.__bases__ if issubclass(base, Formula)
}


def module_of(scaling: Formula | nn.Module) -> nn.Module:
    """A formula as a module; a module as it is."""
    if isinstance(scaling, nn.Module):
        return scaling
    if isinstance(scaling, Chain):
        return nn.Sequential(*map(module_of, scaling.steps))
    cls = _MODULES[type(scaling)]
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    module.__dict__.update(vars(scaling))  # checked numbers: a formula holds nothing else
    return module


def home_of(cls: type) -> str:
    """The module in which a scaling's formula and its description stand."""
    return next(base.__module__ for base in cls.__mro__ if base.__module__ != __name__)


_by_a_factor = partial(
    Entry,
    parameters="none",
    cost="none",
    reads="distances",
    extension="is itself an extension: another factor, and a short training at the new length",
    extends_context=True,
    defaults=factor,
)

ENTRIES = (
    _by_a_factor(
        name="pi",
        scaling=PositionInterpolation,
        title="Position interpolation: RoPE with all frequencies divided by one factor",
        formula="theta_j ← theta_j / factor",
        source="Chen et al., arXiv 2306.15595, eq. 4",
        past_training="up to factor × the training length every angle occurred in training, but in smaller steps",
        used_in="Gemma 3's global layers (arXiv 2503.19786)",
        avoid="for large factors without fine-tuning: neighbours then differ by smaller angles than in training",
    ),
    Entry(
        name="dynamic_pi",
        scaling=DynamicPositionInterpolation,
        title="Dynamic position interpolation: RoPE with all frequencies divided by length over training length",
        formula="theta_j ← theta_j / max(1, length / original_length)",
        source="Peng et al., arXiv 2309.00071, section 3.3",
        parameters="none",
        cost="a table per sequence length",
        past_training="every angle occurred in training, but in ever smaller steps",
        reads="distances and lengths",
        extension="is itself an extension: the factor follows the length",
        used_in="none known to be trained with it; serves checkpoints that were trained with RoPE",
        avoid="where a cache holds rotated keys: all frequencies change as the sequence grows",
        extends_context=True,
        exempt={"common_shift": NO_SHIFT},
    ),
    _by_a_factor(
        name="ntk",
        scaling=NTKAware,
        title="NTK-aware scaling: RoPE with a larger base",
        formula="theta_j ← theta_j · factor^(−2j/(d−2))",
        source="bloc97 (2023), in Peng et al., arXiv 2309.00071, section 3.1",
        past_training="the slowest pair is interpolated, the fastest is not; pairs between reach new angles",
        used_in="Hunyuan 7B (as in transformers 5.23); serves checkpoints that were trained with RoPE",
        avoid="for large factors without fine-tuning: the middle pairs reach new angles",
    ),
    Entry(
        name="dynamic_ntk",
        scaling=DynamicNTK,
        title="Dynamic NTK scaling: RoPE with a base that grows with the length of a row",
        formula="theta_j ← theta_j · a^(−2j/(d−2)),  a = factor·length/original_length − (factor − 1)",
        source="emozilla (2023), in Peng et al., arXiv 2309.00071, section 3.3",
        parameters="none",
        cost="a table per sequence length",
        past_training="as NTK-aware scaling, for the current length; plain RoPE up to the training length",
        reads="distances and lengths",
        extension="is itself an extension: the base follows the length",
        used_in="rope type dynamic of transformers; Qwen-1 has the schedule of powers (arXiv 2309.16609)",
        avoid="where a cache holds rotated keys: all frequencies change as the sequence grows",
        extends_context=True,
        exempt={"common_shift": NO_SHIFT},
    ),
    _by_a_factor(
        name="ntk_by_parts",
        scaling=NTKByParts,
        title="NTK-by-parts: RoPE with slow pairs interpolated and fast pairs left alone",
        formula="theta_j ← (1−g) theta_j/factor + g theta_j,  g = clip((turns_j − alpha)/(beta − alpha))",
        source="Peng et al., arXiv 2309.00071, eq. 17 to 20",
        past_training="pairs that never complete a rotation in training meet no new angles; fast pairs keep theirs",
        used_in="as part of YaRN",
        avoid="where YaRN is available: it is the same with sharper attention",
    ),
    _by_a_factor(
        name="part_ntk",
        scaling=PartNTK,
        title="Part-NTK: the first released NTK-by-parts, a blend of linear, NTK-aware and plain frequencies",
        formula="theta_j ← blend of theta_j/factor, theta_j·factor^(−2j/(d−2)) and theta_j by ramps over j",
        source="LlamaPartNTKScaledRotaryEmbedding, of Peng et al., arXiv 2309.00071, section 3.2",
        past_training="as NTK-by-parts",
        used_in="the first release of YaRN's code",
        avoid="except for checkpoints made with the first release of YaRN's code, and inside DyPE",
    ),
    _by_a_factor(
        name="yarn",
        scaling=YaRN,
        title="YaRN: NTK-by-parts with a ramp over pairs, and sharper attention",
        formula="theta_j ← theta_j (ramp_j/factor + 1 − ramp_j),  gain = 0.1 ln factor + 1",
        source="Peng et al., arXiv 2309.00071, section 3.4 and eq. 22",
        past_training="as NTK-by-parts; the gain counters the flattening of softmax over more keys",
        used_in="DeepSeek-V2, V3 (arXiv 2412.19437); Qwen2.5 (arXiv 2412.15115); gpt-oss (arXiv 2508.10925)",
        avoid="for short prompts: a static factor changes their angles too, as Qwen3's model card warns",
    ),
    Entry(
        name="dynamic_yarn",
        scaling=DynamicYaRN,
        title="Dynamic YaRN: YaRN with the factor that the current sequence length needs",
        formula="as YaRN, factor = max(1, length / original_length)",
        source="Peng et al., arXiv 2309.00071, section 3.3 and 3.4",
        parameters="none",
        cost="a table per sequence length",
        past_training="as YaRN, for the current length; plain RoPE up to the training length",
        reads="distances and lengths",
        extension="is itself an extension: the factor follows the length",
        used_in="none known to be trained with it; serves checkpoints that were trained with RoPE",
        avoid="where a cache holds rotated keys: all frequencies change as the sequence grows",
        extends_context=True,
        exempt={"common_shift": NO_SHIFT},
    ),
    _by_a_factor(
        name="llama3",
        scaling=Llama3,
        title="Llama-3 scaling: RoPE with long wavelengths interpolated and short ones left alone",
        formula="theta_j ← (1−g) theta_j/factor + g theta_j,  g = clip((L/wavelength_j − low)/(high − low))",
        source="Grattafiori et al., arXiv 2407.21783; llama-models apply_scaling",
        past_training="as NTK-by-parts, with no gain",
        used_in="Llama 3.1 (arXiv 2407.21783)",
        avoid="where short prompts must not change: its factor acts at every length, as YaRN's does",
    ),
    Entry(
        name="longrope",
        scaling=LongRoPE,
        title="LongRoPE: RoPE with one searched factor per pair, in a short and a long set",
        formula="theta_j ← theta_j / lambda_j,  gain = sqrt(1 + ln factor / ln original_length)",
        source="Ding et al., arXiv 2402.13753, section 3 and algorithm 1",
        parameters="none (factors come from a search)",
        cost="a table per sequence length",
        past_training="the long factors beyond the training length; the short factors or plain RoPE up to it",
        reads="distances and lengths",
        extension="is itself an extension: another search at a longer length",
        used_in="Phi-3 mini 128K (arXiv 2404.14219)",
        avoid="with another model's factors: each list is searched for one model",
        extends_context=True,
        defaults=factors_of_the_search,
    ),
    Entry(
        name="longrope2",
        scaling=LongRoPE,
        title="LongRoPE2: RoPE with searched factors from a searched critical pair on, and the NTK rule below it",
        formula="theta_j ← theta_j / lambda_j,  lambda_j = lambda_r^(j/r) for j < r;  no gain, lambda = 1 up to L",
        source="Shang et al., arXiv 2502.20082, sections 3.2 and 3.3, algorithms 1 and 2",
        parameters="none (factors come from a search)",
        cost="a table per sequence length",
        past_training="the long factors beyond the training length; plain RoPE up to it",
        reads="distances and lengths",
        extension="is itself an extension: another search at a longer length",
        used_in="Phi-4-mini-instruct: its long factors follow this rule with critical pair 31 of 48 (config.json)",
        avoid="without training: its paper trains on 10 billion tokens after the search (arXiv 2502.20082)",
        extends_context=True,
        defaults=factors_of_the_theory,
    ),
    Entry(
        name="dynamic_longrope",
        scaling=DynamicLongRoPE,
        title="Dynamic LongRoPE: searched factors that grow with the length of a row",
        formula="theta_j ← theta_j / (1 + (lambda_j − 1)(length/original_length − 1)/(factor − 1))",
        source="Ding et al., arXiv 2402.13753, section 3; DynamicLongRoPEScaledRotaryEmbedding of its code",
        parameters="none (factors come from a search)",
        cost="a table per sequence length",
        past_training="between plain RoPE and the searched factors, by length",
        reads="distances and lengths",
        extension="is itself an extension: the searched factors follow the length",
        used_in="its authors' code",
        avoid="where a cache holds rotated keys: all frequencies change as the sequence grows",
        extends_context=True,
        defaults=factors_of_the_search,
        exempt={"common_shift": NO_SHIFT},
    ),
    Entry(
        name="riflex",
        scaling=RIFLEx,
        title="RIFLEx: the pair that comes round within a longer video is slowed down until it does not",
        formula="theta_k ← share · 2π / length, all other frequencies as they are",
        source="Zhao et al., arXiv 2502.15894, eq. 8",
        parameters="none",
        cost="none",
        past_training="for the time axis of videos, which repeat past a period; slower pairs meet new angles",
        reads="distances",
        extension="is itself an extension: another length",
        used_in="none known to be trained with it; serves HunyuanVideo, CogVideoX and Wan (arXiv 2502.15894)",
        avoid="for text, rows and columns, or a video that does not repeat: it slows one pair of the time axis",
        extends_context=True,
        defaults=pair_that_repeats,
    ),
    Entry(
        name="dype",
        scaling=DyPE,
        title="DyPE: frequencies of a larger picture, interpolated at the start of denoising and plain at its end",
        formula="theta ← PartNTK(factor) with its thresholds times timestep², factor = length / original_length",
        source="Issachar et al., arXiv 2510.20766, section 3",
        parameters="none",
        cost="a table per step of the denoising",
        past_training="for the spatial axes of image models; the ends of the spectrum as under YaRN",
        reads="distances",
        extension="is itself an extension: another length",
        used_in="none known to be trained with it; serves FLUX.1 and Qwen-Image (arXiv 2510.20766)",
        avoid="where tables or keys are kept from one denoising step to the next",
        extends_context=True,
        defaults=length_of_the_axis,
    ),
    Entry(
        name="proportional",
        scaling=Proportional,
        title="p-RoPE: the slowest pairs are not rotated",
        formula="theta_j ← theta_j for the fastest share of the pairs, 0 for the others",
        source="Barbero et al., arXiv 2410.06205",
        parameters="none",
        cost="none",
        past_training="rotated pairs meet new angles, but slow ones, which carry content, are never rotated",
        reads="distances",
        extension="a scaling of the remaining frequencies",
        used_in="Gemma 4's full attention (as in transformers 5.23)",
        avoid="on a checkpoint trained with all pairs rotated",
        defaults=a_quarter,
    ),
)
