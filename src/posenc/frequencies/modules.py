"""The formulas of scalings as modules of torch, each under its formula's name: what `posenc.frequencies` exports.

A class here is its formula, with ``forward``, options and checks, and an ``nn.Module``, so that scalings stand in
models and in ``nn.Sequential``. The formula without torch has the same name in the file of its own.
"""

from __future__ import annotations

from torch import nn

from posenc.frequencies import by_parts, dype, interpolation, llama3, longrope, ntk, proportional, riflex, yarn
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
