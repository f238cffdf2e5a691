"""Scalings of a diffusion transformer's axes, asked for by name; those that follow each call; refusals.

A scaling for `attach` is one of

    {"rows": YaRN(…), "columns": YaRN(…)}    scalings of the named axes
    (None, YaRN(…), YaRN(…))                 one, or None, for each axis in the model's order
    PositionInterpolation(2.0)               one for all axes, where all may be scaled
    dype(), riflex(6, repeats_at=51)         made anew for each call
    a function of the sizes, or of the sizes and the noise level, that returns one of the first three

Sizes are tokens along each axis by its name, and scalings count tokens too: patches and latent frames, whatever the
model's coordinates count.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from posenc.arguments import check_several, check_whole, shown
from posenc.diffusion.models import AxisName, Model
from posenc.frequencies import DyPE, PositionInterpolation, RIFLEx
from posenc.frequencies.dype import Method
from posenc.frequencies.host import Formula
from posenc.frequencies.modules import module_of
from posenc.frequencies.spectrum import Scaling, Spectrum

Sizes = Mapping[str, int]
ByAxis = tuple[nn.Module | None, ...]
Fixed = nn.Module | Mapping[AxisName, nn.Module | None] | Sequence[nn.Module | None] | None
AnyScaling = Fixed | Callable[..., Fixed]


@dataclass(frozen=True)
class _DyPEByCall:
    """See `dype`."""

    original_length: int
    method: Method
    dynamic: bool
    needs = ("rows", "columns")

    def __str__(self) -> str:
        return f"dype({self.original_length}, method={self.method!r})"

    def __call__(self, sizes: Sizes, timestep: float) -> dict[str, nn.Module]:
        steps: dict[str, Any] = {"original_length": self.original_length, "timestep": timestep, "method": self.method}
        return {name: cast(nn.Module, DyPE(sizes[name], **steps, dynamic=self.dynamic)) for name in self.needs}


@dataclass(frozen=True)
class _RIFLExByCall:
    """See `riflex`."""

    k: int
    repeats_at: int
    share: float
    needs = ("frames",)

    def __str__(self) -> str:
        return f"riflex({self.k}, repeats_at={self.repeats_at})"

    def __call__(self, sizes: Sizes) -> dict[str, nn.Module]:
        if sizes["frames"] <= self.repeats_at:
            return {}
        return {"frames": cast(nn.Module, RIFLEx(self.k, length=sizes["frames"], share=self.share))}


def dype(original_length: int = 64, *, method: Method = "yarn", dynamic: bool = True) -> _DyPEByCall:
    """DyPE on rows and columns, by the size of the picture and the timestep: a scaling for `attach`.

    Args:
        original_length: patches along the side of a picture of training: FLUX 64, Qwen-Image 83.
        method, dynamic: see `DyPE`.

    >>> dype()({"rows": 128, "columns": 64}, 0.5)["rows"]
    DyPE(128, original_length=64, timestep=0.5)
    """
    DyPE(original_length, original_length=original_length, method=method, dynamic=dynamic)  # refuses what it must
    return _DyPEByCall(original_length, method, dynamic)


def riflex(k: int, *, repeats_at: int, share: float = 0.9) -> _RIFLExByCall:
    """RIFLEx on the frames, by the length of the video: a scaling for `attach`; shorter videos keep their frequencies.

    Args:
        k: the pair that is slowed down, from 1: HunyuanVideo 4, CogVideoX-5B 2, Wan 2.1 6.
        repeats_at: its period in latent frames, up to which nothing changes: HunyuanVideo 50, CogVideoX-5B 20, Wan 51;
            `identify_k` has them.
        share: see `RIFLEx`.

    >>> riflex(6, repeats_at=51)({"frames": 66, "rows": 30, "columns": 52})
    {'frames': RIFLEx(6, length=66)}
    >>> riflex(6, repeats_at=51)({"frames": 21, "rows": 30, "columns": 52})
    {}
    """
    RIFLEx(k, length=1, share=share)  # refuses what it must
    check_whole("repeats_at", repeats_at)
    return _RIFLExByCall(k, repeats_at, share)


def follows_call(scaling: AnyScaling) -> bool:
    """Whether a scaling is a function of the call, rather than the same for every call."""
    return callable(scaling) and not isinstance(scaling, nn.Module)


def reads_noise(scaling: AnyScaling) -> bool:
    """Whether a scaling is a function of the noise level too."""
    return follows_call(scaling) and len(inspect.signature(cast(Callable[..., Any], scaling)).parameters) > 1


def check(scaling: AnyScaling, model: Model, title: str) -> None:
    """Raise a ValueError for a scaling that does not suit a model, whatever the call.

    Args:
        title: of the model, for the error.
    """
    if scaling is dype or scaling is riflex:
        example = "dype()" if scaling is dype else "riflex(k, repeats_at=…)"
        raise ValueError(f"scaling must be what {scaling.__name__} makes, got the function itself: call it, {example}")
    if isinstance(scaling, type):
        raise ValueError(f"scaling must be an instance, got the class {scaling.__name__} itself: give its arguments")
    if reads_noise(scaling) and model.noise is None:
        raise ValueError(
            f"scaling must be a function of the sizes alone for {title}: its timestep is no noise level; {suits(model)}"
        )
    if not follows_call(scaling):
        by_axis(cast(Fixed, scaling), model, title)
        return
    if isinstance(scaling, _DyPEByCall) and scaling.method == "yarn" and not model.takes_gain:
        raise ValueError(f"scaling must have no gain for {title}, which takes angles; {suits(model)}")
    for name in getattr(scaling, "needs", ()):
        _check_axis(name, model, title)
    if isinstance(scaling, _DyPEByCall | _RIFLExByCall) and model.scales != "axes":
        raise ValueError(f"scaling must not be {scaling} for {title}; {suits(model)}")


def by_axis(scaling: Fixed, model: Model, title: str) -> ByAxis:
    """The scaling, or None, of each axis of a model in its order; of one list of pairs for all axes the one scaling.

    Raises:
        ValueError: for axes that the model has not, or that must not be scaled, and for what is no scaling.
    """
    count = len(model.axes)
    if scaling is None:
        chosen: Sequence[object] = [None] * count
    elif isinstance(scaling, Mapping):
        for name in scaling:
            if name not in [axis.name for axis in model.axes]:
                _check_axis(name, model, title)
        chosen = [scaling.get(axis.name) for axis in model.axes]
    elif isinstance(scaling, nn.Module | Formula):
        unscaled = [axis for axis in model.axes if axis.kept]
        if unscaled and model.scales != "pairs":
            raise ValueError(
                f"scaling must name its axes for {title}: one for all would scale its axis {unscaled[0].name!r}, and "
                f"{unscaled[0].kept}; {suits(model)}"
            )
        chosen = [scaling] * count
    else:
        chosen = check_several("scaling", scaling)
        if len(chosen) != count:
            names = ", ".join(axis.name for axis in model.axes)
            raise ValueError(f"scaling must be one or None for each of {count} axes ({names}), got {len(chosen)}")
    checked = tuple(_checked(each) for each in chosen)
    if model.scales == "pairs":
        if any(each is not checked[0] for each in checked):
            raise ValueError(f"scaling must be one Scaling for {title}, whose axes share their frequencies")
        return checked
    for axis, each in zip(model.axes, checked, strict=True):
        if each is not None:
            _check_axis(axis.name, model, title)
            if model.scales == "positions" and not isinstance(each, PositionInterpolation):
                raise ValueError(
                    f"scaling must be PositionInterpolation or None for each axis of {title}, whose frequencies are "
                    f"learned or grow; got {shown(each)}"
                )
    return checked


def _checked(scaling: object) -> nn.Module | None:
    if scaling is None:
        return None
    if not isinstance(scaling, nn.Module | Formula):
        raise ValueError(f"scaling must be a Scaling, several in nn.Sequential, or None, got {shown(scaling)}")
    return module_of(scaling)


def _check_axis(name: object, model: Model, title: str) -> None:
    """Raise a ValueError unless a scaling may act on the axis of this name."""
    axis = next((each for each in model.axes if each.name == name), None)
    if axis is None:
        names = ", ".join(each.name for each in model.axes)
        raise ValueError(f"scaling: {title} has no axis {name!r}, but {names}; {suits(model)}")
    if axis.kept:
        raise ValueError(f"scaling must not act on axis {name!r} of {title}: {axis.kept}; {suits(model)}")


def suits(model: Model) -> str:
    """Which scalings suit a model, in words."""
    calls = model.suitable()
    return f"what suits it: {'; '.join(calls)}" if calls else "no scaling suits it"


class InTokens(Scaling):
    """A scaling that counts tokens, on an axis whose coordinate moves by ``step`` from one token to the next.

    The frequencies are those of a token while the scaling sees them, theta · step.
    """

    def __init__(self, scaling: nn.Module, step: float) -> None:
        super().__init__()
        self.scaling, self.step = scaling, step

    def forward(self, spectrum: Spectrum) -> Spectrum:
        scaled: Spectrum = self.scaling(spectrum._replace(theta=spectrum.theta * self.step))
        return scaled._replace(theta=scaled.theta / self.step)

    def extra_repr(self) -> str:
        return f"step={self.step:g}"


def in_tokens(scaling: nn.Module | None, step: float) -> nn.Module | None:
    """The scaling for an axis with this step; itself where the step is 1."""
    return scaling if scaling is None or step == 1 else InTokens(scaling, step)
