"""Attaching posenc's tables of positions to a transformer of diffusers, and detaching them.

A module of `AttachedPositions` stands where the model's own module stood, and keeps it for `detach`. Hooks before each
call of the transformer note what the tables need and the module is not told: the noise level, and the sizes where the
module is called several times for one call of the transformer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from posenc.arguments import check_number, shown
from posenc.diffusers.classes import CLASSES, KNOWN, PositionClass, Tokens
from posenc.diffusers.scalings import Scaling, Scalings, divisors
from posenc.encoding import RotaryEncoding, Table
from posenc.frequencies.phase import TensorFrequencies
from posenc.rotary._axes import of_sums


class AttachedPositions(nn.Module):
    """The tables of a model's positions by posenc, in the form in which the model takes them.

    Args:
        replaced: the model's own module, or its transformer where it has none.
        scaling: as for `attach`.
        place: the transformer's attribute that held the module, "" where the pipeline makes the tables.
        config: the transformer's.
    """

    def __init__(self, replaced: Any, scaling: Scaling, *, place: str, config: Any) -> None:
        super().__init__()
        self._replaced = (replaced,)  # in a tuple: no part of the model while it is replaced
        self.place = place
        self.kind: PositionClass = CLASSES[type(replaced).__name__, place]
        self.scaling = scaling
        self.timestep: float | None = None
        self.sizes: tuple[int, ...] | None = None
        self.handles: list[RemovableHandle] = []
        self._config = config
        self._divisors = divisors(scaling) if self.kind.scales == "positions" else None
        if self.kind.scales == "pairs" and scaling is not None and not isinstance(scaling, nn.Module):
            raise ValueError(
                f"scaling must be one Scaling for {type(replaced).__name__}, whose axes share their frequencies; "
                f"got {shown(scaling)}"
            )
        self._plain = self._scaled_by(None)
        # a scaling that does not fit the axes is refused here, and a fixed one is built once
        self._fixed = None if self.follows_call else self._scaled_by(scaling)

    @property
    def replaced(self) -> Any:
        """The model's own module."""
        return self._replaced[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AttachedPositions:
        """What moves or casts the model does so with its own module too, as if it were still in its place."""
        if isinstance(self.replaced, nn.Module) and self.place:
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

    @property
    def follows_call(self) -> bool:
        """Whether the scaling is a function of the call, rather than the same for every call."""
        return callable(self.scaling) and not isinstance(self.scaling, nn.Module)

    @property
    def reads_timestep(self) -> bool:
        """Whether the scaling is a function of the timestep too."""
        return self.follows_call and len(inspect.signature(cast(Callable[..., Any], self.scaling)).parameters) > 1

    def _scaled_by(self, scaling: Scaling) -> RotaryEncoding | None:
        if self.kind.rotation is None:
            return None
        return self.kind.rotation(self.replaced, self._config, None if self._divisors is not None else scaling)

    def _rope_of(self, tokens: Tokens) -> RotaryEncoding | None:
        if not self.follows_call:
            return self._fixed
        sizes = self.sizes or tokens.sizes
        if sizes is None:  # read off positions only for a scaling that asks, as a GPU is waited for
            sizes = tuple(int(size) + 1 for size in tokens.positions.flatten(0, -2).amax(0).tolist())
        follow = cast(Callable[..., Scalings | None], self.scaling)
        if not self.reads_timestep:
            return self._scaled_by(follow(sizes))
        if self.timestep is None:
            raise ValueError("scaling is a function of the timestep: call the transformer, with timestep=…")
        return self._scaled_by(follow(sizes, self.timestep))

    def _table(self, tokens: Tokens) -> Table:
        if tokens.frequencies is not None:
            by_axis = [TensorFrequencies(theta.double().unsqueeze(-2)) for theta in tokens.frequencies]
            return of_sums(tokens.positions, by_axis, torch.float32)
        rope = self._rope_of(tokens)
        assert rope is not None
        cos, sin = rope.table(tokens.positions)
        if tokens.scaled is None or self.scaling is None:
            return cos, sin
        assert self._plain is not None
        unscaled = self._plain.table(tokens.positions)
        here = tokens.scaled.unsqueeze(-1)
        return torch.where(here, cos, unscaled[0]), torch.where(here, sin, unscaled[1])

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The tables for a call of the model's own module."""
        return (self._tables_of_call if self.follows_call else self._tables)(*inputs, **options)

    def _tables(self, *inputs: Any, **options: Any) -> Any:
        if self._divisors is not None:
            options["divisors"] = self._divisors
        tokens = self.kind.tokens(self.replaced, *inputs, **options)
        cos, sin = self._table(tokens)
        return self.kind.table(cos, sin, tokens, self.replaced)

    # torch.compile would compile the whole model anew for each timestep and size
    _tables_of_call = torch.compiler.disable(_tables)  # type: ignore[no-untyped-call]


def attach(transformer: nn.Module, scaling: Scaling = None) -> nn.Module:
    """Let posenc make a model's tables of positions; returns the model, which is changed in place.

    Args:
        transformer: a transformer of diffusers whose module of positions is one of `KNOWN`, or CogVideoX with rotation
            and HunyuanDiT.
        scaling: a `Scaling` for all axes, or one or None for each; or a function that gives them for each call, of the
            sizes along each axis, or of the sizes and the noise level (1 is pure noise), such as `riflex` and `dype`
            make; None: the model's own frequencies.

    Raises:
        ValueError: for a model whose positions are not known, and for a scaling that does not fit its axes.
    """
    config = getattr(transformer, "config", None)
    modules = _modules_of(transformer)
    attached = [AttachedPositions(module, scaling, place=place, config=config) for place, module in modules]
    first = attached[0]
    if first.reads_timestep and first.kind.noise is None:
        raise ValueError(
            f"scaling must be a function of the sizes alone for {type(first.replaced).__name__}: its timestep is no "
            "noise level"
        )
    detach(transformer)
    for (place, _), positions in zip(modules, attached, strict=True):
        _put(transformer, place or _ADDED, positions)
    if not modules[0][0]:
        first.handles.append(transformer.register_forward_pre_hook(_with_tables, with_kwargs=True))
    if first.reads_timestep or (first.follows_call and first.kind.sizes is not None):
        first.handles.append(transformer.register_forward_pre_hook(_note_the_call, with_kwargs=True, prepend=True))
    return transformer


def detach(transformer: nn.Module) -> nn.Module:
    """Put the model's own modules back; nothing changes where posenc's are not attached."""
    for place in _PLACES:
        attached = getattr(transformer, place, None)
        if isinstance(attached, AttachedPositions):
            for handle in attached.handles:
                handle.remove()
            delattr(transformer, place)
            if place != _ADDED:
                _put(transformer, place, attached.replaced)
    _modules_of(transformer)  # refuses what is no model of these
    return transformer


_ADDED = "posenc_positions"  # where posenc's module is put if the model has none
_PLACES = (*sorted({place for _, place in CLASSES} - {""}), _ADDED)


def _modules_of(transformer: nn.Module) -> Sequence[tuple[str, Any]]:
    """The model's own modules of positions with their places, whether posenc's are attached or not."""
    modules = []
    for place in _PLACES:
        module = getattr(transformer, place, None)
        if isinstance(module, AttachedPositions):
            modules.append(("" if place == _ADDED else place, module.replaced))
        elif _known(module, place):
            modules.append((place, module))
    if not modules and _known(transformer, ""):
        refusal = CLASSES[type(transformer).__name__, ""].refusal
        if refusal is not None and (reason := refusal(transformer)):
            raise ValueError(reason)
        modules.append(("", transformer))
    if not modules:
        raise ValueError(
            f"transformer must have one of {', '.join(KNOWN)} as its module of positions, "
            f"got {type(transformer).__name__}"
        )
    return modules


def _known(module: Any, place: str) -> bool:
    """Whether the class is diffusers' own: its name, its place and its file."""
    kind = CLASSES.get((type(module).__name__, place))
    return kind is not None and type(module).__module__.rpartition(".")[2] in kind.files


def _put(transformer: nn.Module, place: str, module: Any) -> None:
    if hasattr(transformer, place):
        delattr(transformer, place)  # torch refuses to put what is no module in the place of one
    setattr(transformer, place, module)


def _attached_to(transformer: nn.Module) -> list[AttachedPositions]:
    return [module for module in transformer.children() if isinstance(module, AttachedPositions)]


# hooks look up what is attached to the model that is called, since that model may be a copy


def _with_tables(
    transformer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with posenc's tables in the place of the pipeline's."""
    call = inspect.signature(transformer.forward).bind_partial(*inputs, **options)
    (attached,) = _attached_to(transformer)
    call.arguments["image_rotary_emb"] = attached(call.arguments["hidden_states"])
    return call.args, call.kwargs


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _note_the_call(transformer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
    """The noise level and the sizes of a call are noted for a scaling that follows them."""
    arguments = inspect.signature(transformer.forward).bind_partial(*inputs, **options).arguments
    for attached in _attached_to(transformer):
        kind = attached.kind
        if attached.reads_timestep:
            attached.timestep = _noise_level(kind, arguments.get(kind.timestep))
        if kind.sizes is not None:
            attached.sizes = kind.sizes(attached.replaced, arguments)


def _noise_level(kind: PositionClass, timestep: Tensor | float | None) -> float:
    steps = set(torch.as_tensor(timestep).flatten().tolist())
    if len(steps) != 1:
        raise ValueError(f"timestep must be the same for all rows where the scaling follows it, got {shown(steps)}")
    assert kind.noise is not None
    level = kind.noise(float(steps.pop()))
    check_number("timestep", level, least=-1e-3, most=1 + 1e-3)  # bfloat16 rounds
    return min(max(level, 0.0), 1.0)
