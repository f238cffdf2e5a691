"""Attaching posenc's tables of positions to a transformer of diffusers, and detaching them.

A module of `AttachedPositions` stands where the model's own module stood, keeps it for `detach`, and calls it wherever
nothing is scaled, so that pictures of the trained size stay the same bit for bit. Hooks before each call of the
transformer note what the tables need and the module is not told: the noise level, and the sizes where the module is
called several times for one call of the transformer.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from posenc.arguments import check_number, shown
from posenc.diffusion.generic import GenericModule
from posenc.diffusion.models import MODELS, TRANSFORMERS, Model, Noise, Transformer
from posenc.diffusion.modules import BY_RECORD, MODULES, PositionModule, Tokens, by_record, numbered, rotation_of
from posenc.diffusion.scalings import (
    AnyScaling,
    ByAxis,
    Fixed,
    by_axis,
    check,
    follows_call,
    in_tokens,
    reads_noise,
    suits,
)
from posenc.encoding import RotaryEncoding, Table
from posenc.frequencies.phase import TensorFrequencies
from posenc.frequencies.spectrum import Spectrum
from posenc.rotary._axes import table_of_sums
from posenc.rotary._conventions import AxisSpectrum, spectra_of


class AttachedPositions(nn.Module):
    """The tables of a model's positions, in the form in which the model takes them: its own, or scaled by posenc.

    Args:
        replaced: the model's own module, or its transformer where it has none.
        scaling: as for `attach`.
        place: the transformer's attribute that held the module, "" where the pipeline makes the tables.
        transformer: the model itself, whose class and config are read.
        generic: what the user said of a class that posenc does not know.

    Attributes:
        follows_call: whether the scaling is a function of the call, rather than the same for every call.
        reads_timestep: whether it is a function of the noise level too.
    """

    def __init__(
        self, replaced: Any, scaling: AnyScaling, *, place: str, transformer: Any, generic: GenericModule | None = None
    ) -> None:
        super().__init__()
        self._replaced = (replaced,)  # in a tuple: no part of the model while it is replaced
        self.place = place
        self._generic = generic
        self._config = getattr(transformer, "config", None)
        self._class = "" if generic is not None else next(_names_of(replaced, place))
        # looked up by name, not kept: a record holds functions that no file can save
        self._model = "" if generic is not None else (self.kind.variant or _of(self.kind))(self._config)
        self.title = type(transformer).__name__
        self.noise: Noise | None = _noise_of(transformer, self.model)
        self.scaling = scaling
        self.follows_call, self.reads_timestep = follows_call(scaling), reads_noise(scaling)
        self.timestep: float | None = None
        self.sizes: tuple[int, ...] | None = None
        self.handles: list[RemovableHandle] = []
        self._warned = False
        check(scaling, self.model, self.title)
        self._divisors: tuple[float, ...] | None = None
        fixed: ByAxis = (None,) * len(self.model.axes)
        if not self.follows_call:
            fixed = by_axis(cast(Fixed, scaling), self.model, self.title)
        if self.model.scales == "positions":
            if self.follows_call:
                raise ValueError(f"scaling must be fixed for {self.title}: {suits(self.model)}")
            self._divisors = tuple(1.0 if each is None else float(cast(Any, each).factor) for each in fixed)
        self._steps = tuple(axis.step for axis in self.model.axes)
        self._sizes: dict[str, Any] = {}
        if self.kind.rotation == BY_RECORD:
            known = _transformer_of(transformer)
            if known is None:
                raise ValueError(_unknown(transformer))
            self._sizes = by_record(known, self._config)
        self._plain = self._rotation(None)
        self._fixed = self._scaled_by(fixed, self._steps)
        self._by_axis: ByAxis = fixed

    @property
    def replaced(self) -> Any:
        """The model's own module."""
        return self._replaced[0]

    @property
    def kind(self) -> PositionModule | GenericModule:
        """What is known of the model's own module."""
        return MODULES[self._class, self.place] if self._generic is None else self._generic

    @property
    def model(self) -> Model:
        """The record of the model."""
        return MODELS[self._model] if self._generic is None else self._generic.record  # type: ignore[index]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AttachedPositions:
        """What moves or casts the model does so with its own module too, as if it were still in its place."""
        if isinstance(self.replaced, nn.Module) and self.place and not self.kind.method:
            self.replaced._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return cast(AttachedPositions, super()._apply(fn, recurse))  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        """What else is asked of the model's own module, such as LTX-2's ``prepare_video_coords``."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_replaced" not in self.__dict__:  # while the module is being built or unpickled
                raise
            return getattr(self.replaced, name)

    def _rotation(self, scaling: Any) -> RotaryEncoding | None:
        kind = self.kind.rotation
        if kind == BY_RECORD:
            return rotation_of(self.model, self._sizes, scaling)
        return None if kind is None else cast(Any, kind)(self.replaced, self._config, scaling)

    def _scaled_by(self, scalings: ByAxis, steps: Sequence[float]) -> RotaryEncoding | None:
        """The rotation under these scalings, which count tokens; None where they change nothing.

        Raises:
            ValueError: for a scaling that does not fit its axis, or has a gain where the table has no room for it.
        """
        plain: Any = self._plain
        if plain is None or self._divisors is not None or all(each is None for each in scalings):
            return None
        if self.model.scales == "pairs":
            scaled: Any = self._rotation(scalings[0])
            spectra, own = ([AxisSpectrum(*_numbers(rope.spectrum()))] for rope in (scaled, plain))
        else:
            by_token = tuple(in_tokens(each, step) for each, step in zip(scalings, steps, strict=True))
            scaled = self._rotation(by_token)
            # of a convention whose axes are alike, widths are not kept
            widths = plain.axes_dims or (plain.head_dim // len(by_token),) * len(by_token)
            spectra, own = (spectra_of(widths, plain.base, each, plain.convention) for each in (by_token, None))
        if not self.model.takes_gain and any(spectrum.gain != 1 for spectrum in spectra):
            raise ValueError(
                f"scaling must have no gain for {self.title}, which takes angles; got {shown(scalings)}; "
                + suits(self.model)
            )
        return cast(RotaryEncoding, scaled) if _changed(spectra, own) else None

    def _scalings_of(self, tokens: Tokens) -> ByAxis:
        if not self.follows_call:
            return self._by_axis
        sizes = self.sizes or tokens.sizes
        steps = tokens.steps or self._steps
        if sizes is None:  # read off positions only for a scaling that asks, as a GPU is waited for
            largest = tokens.positions.flatten(0, -2).amax(0).tolist()
            sizes = tuple(round(number / step) + 1 for number, step in zip(largest, steps, strict=True))
        by_name = {axis.name: size for axis, size in zip(self.model.axes, sizes, strict=True)}
        follow = cast(Callable[..., Fixed], self.scaling)
        if not self.reads_timestep:
            return by_axis(follow(by_name), self.model, self.title)
        if self.timestep is None:
            raise ValueError("scaling is a function of the timestep: call the transformer, with timestep=…")
        return by_axis(follow(by_name, self.timestep), self.model, self.title)

    def _scaled_rotation(self, tokens: Tokens) -> RotaryEncoding | None:
        steps = tokens.steps or self._steps
        if not self.follows_call and (steps == self._steps or all(each is None for each in self._by_axis)):
            return self._fixed
        return cast(RotaryEncoding | None, self._build(tokens, steps))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _build(self, tokens: Tokens, steps: Sequence[float]) -> RotaryEncoding | None:
        return self._scaled_by(self._scalings_of(tokens), steps)

    def _table(self, tokens: Tokens, scaled: RotaryEncoding | None) -> Table:
        if tokens.frequencies is not None:
            each = [TensorFrequencies(theta.double().unsqueeze(-2)) for theta in tokens.frequencies]
            return table_of_sums(tokens.positions, each, torch.float32)
        assert self._plain is not None
        if scaled is None:
            return self._plain.table(tokens.positions)
        cos, sin = scaled.table(tokens.positions)
        if tokens.scaled is None:
            return cos, sin
        unscaled = self._plain.table(tokens.positions)
        here = tokens.scaled.to(cos.device).unsqueeze(-1)
        return torch.where(here, cos, unscaled[0]), torch.where(here, sin, unscaled[1])

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The tables for a call of the model's own module."""
        if self.kind.tokens is numbered and not torch.compiler.is_compiling():
            self._warn_of_coarse(inputs, options)
        return (self._tables_of_call if self.follows_call else self._tables)(*inputs, **options)

    def own(self, *inputs: Any, **options: Any) -> Any:
        """What the model's own module, or method, gives; None where the pipeline made its tables already."""
        if not self.place:
            return None
        if self.kind.method:
            return getattr(type(self.replaced), self.place)(self.replaced, *inputs, **options)
        return self.replaced(*inputs, **options)

    def _tables(self, *inputs: Any, **options: Any) -> Any:
        kind, divided = self.kind, self._divisors is not None and any(factor != 1 for factor in self._divisors)
        may_scale = self.follows_call or divided or any(each is not None for each in self._by_axis)
        if not may_scale and kind.beyond is None and self._generic is None:
            return self.own(*inputs, **options)
        of_divided = {} if self._divisors is None else {"divisors": self._divisors}
        tokens = kind.tokens(self.replaced, *inputs, **options, **of_divided)
        scaled = self._scaled_rotation(tokens)
        if scaled is None and not divided and not (kind.beyond is not None and kind.beyond(self.replaced, tokens)):
            return self.own(*inputs, **options)
        cos, sin = self._table(tokens, scaled)
        return kind.table(cos, sin, tokens, self.replaced)

    # torch.compile would compile the whole model anew for each timestep and size
    _tables_of_call = torch.compiler.disable(_tables)  # type: ignore[no-untyped-call]

    def _warn_of_coarse(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Warn once of ids in a dtype that cannot tell neighbours apart."""
        for ids in (*inputs, *options.values()):
            if self._warned or not isinstance(ids, Tensor) or ids.dtype not in (torch.bfloat16, torch.float16):
                continue
            exact = 2 / torch.finfo(ids.dtype).eps  # whole numbers up to here
            limits = torch.tensor([step * exact for step in self._steps], device=ids.device)
            if bool((ids.detach().abs().flatten(0, -2).float().amax(0) > limits).any()):
                self._warned = True
                warnings.warn(
                    f"{self.title}: ids of positions are {ids.dtype}, which holds whole numbers up to {exact:.0f}, so "
                    "that tokens beyond share a position; give them in float32",
                    stacklevel=2,
                )


def attach(
    transformer: nn.Module,
    scaling: AnyScaling = None,
    *,
    place: str | None = None,
    axes: Mapping[str, int] | None = None,
    base: float | Sequence[float] = 10_000.0,
    noise: Noise | None = None,
) -> nn.Module:
    """Let posenc make a model's tables of positions where a scaling changes them; the model is changed in place.

    Args:
        transformer: a transformer or a ControlNet of diffusers whose class is known, wrapped by PEFT or not; of any
            other class with ``place`` and ``axes``.
        scaling: scalings of axes by their names, such as ``{"rows": YaRN(…), "columns": YaRN(…)}``; or one or None for
            each axis; or one for all, where all may be scaled; or what `dype` and `riflex` make; or a function of the
            sizes by name, or of the sizes and the noise level (1 is pure noise), that returns one of these. Scalings
            count patches and latent frames. None: the model stays as it is.
        place: of a class that is not known: the attribute with the module that makes the tables, called with
            ``(…, tokens, axes)`` of coordinates or with the latent. Its first table is compared with posenc's.
        axes: of that module: channels by the name of the axis, in order.
        base: of its frequencies, or one for each axis.
        noise: the noise level of its timestep, for scalings that follow it.

    Returns:
        What was given, for chains of calls.

    Raises:
        ValueError: for a model that is not known, and for a scaling that does not suit it; the error says what does.
    """
    model = _unwrapped(transformer)
    generic = None
    if place is not None or axes is not None:
        if place is None or axes is None:
            raise ValueError(f"give place and axes, both or neither; got place={place!r}, axes={axes!r}")
        generic = GenericModule(axes, base, noise)
        modules: Sequence[tuple[str, Any]] = [(place, _own_at(model, place))]
    else:
        modules = _modules_of(model)
    attached = [
        AttachedPositions(module, scaling, place=where, transformer=model, generic=generic) for where, module in modules
    ]
    _take_out(model)
    for positions in attached:
        _put(model, positions)
    first = attached[0]
    if not first.place:
        first.handles.append(model.register_forward_pre_hook(_with_tables, with_kwargs=True))
    if first.reads_timestep or (first.follows_call and first.kind.sizes is not None):
        first.handles.append(model.register_forward_pre_hook(_note_the_call, with_kwargs=True, prepend=True))
    return transformer


def detach(transformer: nn.Module) -> nn.Module:
    """Put the model's own modules back; nothing changes where posenc's are not attached."""
    model = _unwrapped(transformer)
    if not _take_out(model):
        _modules_of(model)  # refuses what is no model of these
    return transformer


_ADDED = "posenc_positions"  # where posenc's module is put if the model has none
_PLACES = (*sorted({place for _, place in MODULES} - {""}), _ADDED)
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")


def _unwrapped(transformer: Any) -> nn.Module:
    """The transformer itself, under PEFT, torch.compile and wrappers of training.

    Raises:
        ValueError: for what is no module, such as a pipeline, with the names of its transformers.
    """
    if not isinstance(transformer, nn.Module):
        parts = [
            name for name, part in vars(transformer).items() if isinstance(part, nn.Module) and _has_positions(part)
        ] if hasattr(transformer, "__dict__") else []  # fmt: skip
        if parts:
            calls = "; ".join(f"attach(pipeline.{name}, …)" for name in parts)
            raise ValueError(f"transformer must be a module, got the pipeline {type(transformer).__name__}: {calls}")
        raise ValueError(f"transformer must be a module, got {shown(transformer)}")
    while True:
        if callable(getattr(type(transformer), "get_base_model", None)):  # PEFT
            transformer = cast(Any, transformer).get_base_model()
        elif isinstance(transformer._modules.get("_orig_mod"), nn.Module):  # torch.compile
            transformer = transformer._modules["_orig_mod"]
        elif type(transformer).__name__ in _WRAPPERS:
            transformer = cast(Any, transformer).module
        else:
            return cast(nn.Module, transformer)


def _has_positions(part: nn.Module) -> bool:
    try:
        return bool(_modules_of(_unwrapped(part)))
    except ValueError:
        return False


def _names_of(module: Any, place: str) -> Any:
    """The names under which a class of diffusers is known: its own, or one from which it derives."""
    for cls in type(module).__mro__:
        if (cls.__name__, place) in MODULES and "diffusers" in cls.__module__:
            yield cls.__name__


def _of(kind: PositionModule | GenericModule) -> Callable[[Any], Any]:
    return lambda config: cast(PositionModule, kind).model


def _transformer_of(model: Any) -> Transformer | None:
    """What is known of the class of a transformer."""
    for cls in type(model).__mro__:
        if cls.__name__ in TRANSFORMERS and "diffusers" in cls.__module__:
            return MODELS[TRANSFORMERS[cls.__name__]].transformers[cls.__name__]
    return None


def _noise_of(transformer: Any, model: Model) -> Noise | None:
    known = _transformer_of(transformer)
    return model.noise if known is None or known.noise is None else known.noise


def _modules_of(transformer: nn.Module) -> Sequence[tuple[str, Any]]:
    """The model's own modules of positions with their places, whether posenc's are attached or not."""
    known = _transformer_of(transformer)
    if known is not None:
        if known.refused:
            raise ValueError(
                f"transformer must have tables of its own, got {type(transformer).__name__}: {known.refused}"
            )
        config = known.filled(dict(cast(Any, getattr(transformer, "config", {}))))
        if reason := known.adds(config):
            raise ValueError(f"transformer must rotate, but this {type(transformer).__name__} {reason}")
    modules = []
    for place in _PLACES:
        module = getattr(transformer, place, None)
        if isinstance(module, AttachedPositions):
            if place != _ADDED or not module.place:
                modules.append(("" if place == _ADDED else place, module.replaced))
        elif any(_names_of(module, place)):
            modules.append((place, module))
        elif callable(module) and any(_names_of(transformer, place)):  # a method of its class
            modules.append((place, transformer))
    if not modules and any(_names_of(transformer, "")):
        modules.append(("", transformer))
    if not modules and isinstance(nets := getattr(transformer, "nets", None), nn.ModuleList):
        calls = "; ".join(f"attach(controlnet.nets[{number}], …)" for number in range(len(nets)))
        raise ValueError(f"transformer must be one ControlNet, got {type(transformer).__name__} of several: {calls}")
    if not modules:
        raise ValueError(_unknown(transformer))
    return modules


def _unknown(transformer: nn.Module) -> str:
    text = f"transformer: {type(transformer).__name__} is not known; attach(transformer, place=…, axes=…) takes any "
    return text + f"whose module at place makes tables of cos and sin; known are {', '.join(sorted(TRANSFORMERS))}"


def _own_at(transformer: nn.Module, place: str) -> Any:
    module = getattr(transformer, place, None)
    if isinstance(module, AttachedPositions):
        return module.replaced
    if not callable(module):
        names = ", ".join(name for name, part in transformer.named_children() if "rop" in name or "pos" in name)
        raise ValueError(
            f"place must be an attribute that makes tables, got {place!r}" + (f"; try {names}" * bool(names))
        )
    return module


def _put(transformer: nn.Module, positions: AttachedPositions) -> None:
    """Posenc's module in its place: of a method, which a class has, in the instance's own dictionary as well."""
    place = positions.place or _ADDED
    if positions.kind.method:
        setattr(transformer, _ADDED, positions)
        transformer.__dict__[place] = positions
        return
    if hasattr(transformer, place):
        delattr(transformer, place)  # torch refuses to put what is no module in the place of one
    setattr(transformer, place, positions)


def _take_out(transformer: nn.Module) -> bool:
    """Put the model's own modules back in place of posenc's; whether there were any."""
    attached = _attached_to(transformer)
    for positions in attached:
        for handle in positions.handles:
            handle.remove()
        if positions.kind.method:
            del transformer.__dict__[positions.place]
            delattr(transformer, _ADDED)
        elif not positions.place:
            delattr(transformer, _ADDED)
        else:
            delattr(transformer, positions.place)
            setattr(transformer, positions.place, positions.replaced)
    return bool(attached)


def _attached_to(transformer: nn.Module) -> list[AttachedPositions]:
    return [module for module in transformer.children() if isinstance(module, AttachedPositions)]


def _numbers(spectrum: Spectrum) -> tuple[list[float], float]:
    return spectrum.theta.tolist(), float(spectrum.gain)


def _changed(scaled: Sequence[AxisSpectrum], plain: Sequence[AxisSpectrum]) -> bool:
    """Whether frequencies differ by more than float64's rounding, or a gain is not 1."""
    return any(
        abs(spectrum.gain - 1) > 1e-12
        or any(abs(ours_t - own_t) > 1e-12 * own_t for ours_t, own_t in zip(spectrum.theta, own.theta, strict=True))
        for spectrum, own in zip(scaled, plain, strict=True)
    )


# hooks look up what is attached to the model that is called, since that model may be a copy


def _with_tables(
    transformer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The call with posenc's tables in the place of the pipeline's, where a scaling changes them."""
    call = inspect.signature(transformer.forward).bind_partial(*inputs, **options)
    (attached,) = _attached_to(transformer)
    tables = attached(call.arguments["hidden_states"])
    if tables is None:
        return None
    call.arguments["image_rotary_emb"] = tables
    return call.args, call.kwargs


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _note_the_call(transformer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
    """The noise level and the sizes of a call are noted for a scaling that follows them."""
    arguments = inspect.signature(transformer.forward).bind_partial(*inputs, **options).arguments
    for attached in _attached_to(transformer):
        kind = attached.kind
        if attached.reads_timestep:
            assert attached.noise is not None
            attached.timestep = _noise_level(attached.noise, arguments.get(attached.model.timestep))
        if kind.sizes is not None:
            attached.sizes = kind.sizes(attached.replaced, arguments)


def _noise_level(noise: Noise, timestep: Tensor | float | None) -> float:
    """The noise level of a call: of timesteps for each token or frame the largest, as the others are given as clean."""
    levels = noise(torch.as_tensor(timestep).float())
    by_row = set((levels.flatten(1).amax(1) if levels.ndim > 1 else levels.flatten()).tolist())
    if len(by_row) != 1:
        raise ValueError(f"timestep must be the same for all rows where the scaling follows it, got {shown(by_row)}")
    level = float(by_row.pop())
    check_number("timestep", level, least=-1e-3, most=1 + 1e-3)  # bfloat16 rounds
    return min(max(level, 0.0), 1.0)
