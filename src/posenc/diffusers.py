"""posenc's rotation in a transformer of diffusers: attached, scaled for larger pictures and longer videos, detached.

    from posenc.diffusers import attach, detach, dype, riflex
    attach(flux.transformer, dype())                                       # pictures above 1,024 pixels
    attach(wan.transformer, riflex(6, repeats_at=51))                      # videos longer than the trained ones
    attach(flux.transformer, (None, YaRN(2.0, original_length=64), YaRN(2.0, original_length=64)))
    detach(flux.transformer)

The module that makes the model's tables of cos and sin is replaced by one that makes them by `AxialRoPE`, in float32 of
exact angles; everything else of the model, its applying of the tables included, is its module. CogVideoX has no such
module: its pipeline makes the tables, and posenc's take their place on the way into the transformer. Models are known
by the class of the module, whatever its sizes: `KNOWN`.

Qwen-Image's text is not scaled, as in DyPE's code for it: it begins behind the picture, at unscaled coordinates. LTX
measures in fractions of a box and has no frequencies to scale: it takes `PositionInterpolation` alone, which divides
frames, rows or columns.

Source: diffusers 0.42, models/transformers: transformer_flux.py, transformer_flux2.py, transformer_krea2.py,
    transformer_qwenimage.py, transformer_wan.py, transformer_hunyuan_video.py, transformer_hunyuan_video15.py,
    transformer_hunyuanimage.py, transformer_z_image.py, transformer_cogview4.py, transformer_cosmos.py,
    transformer_ltx.py, cogvideox_transformer_3d.py; pipelines/cogvideo/pipeline_cogvideox.py.
Checked against: tiny models of these classes, whose outputs stay the same (tests/reference/test_diffusers_attach.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from posenc.arguments import check_number, check_whole, shown
from posenc.frequencies import DyPE, PositionInterpolation, RIFLEx
from posenc.frequencies.dype import Method
from posenc.positions import Image, Text, Video, grid, latents
from posenc.positions.grids import affine, floored
from posenc.positions.parts import Part
from posenc.rotary.axial import AxialRoPE

Scalings = Sequence[nn.Module | None]
Scaling = Scalings | Callable[..., Scalings | None] | None


def _of_thousand(timestep: float) -> float:
    return timestep / 1000


def _of_one(timestep: float) -> float:
    return timestep


def _backwards(timestep: float) -> float:
    return 1 - timestep


class _Call(NamedTuple):
    """Where the tokens of a call stand.

    Attributes:
        positions: ``(tokens, axes)``.
        sizes: tokens along each axis, which a scaling that follows the call is given; None: the largest coordinate + 1.
        scaled: of how many tokens, from the first, the scaling is; others keep the model's own frequencies.
    """

    positions: Tensor
    sizes: tuple[int, ...] | None
    scaled: int | None = None


class _Kind(NamedTuple):
    """How a class of diffusers makes its tables.

    Attributes:
        place: the transformer's attribute that holds the module; "" where a pipeline makes the tables.
        rotation: the arguments of `AxialRoPE`, given the module.
        call: where the tokens stand, given the module and the arguments of its call.
        table: cos and sin ``(tokens, pairs)`` in the form in which the model takes them.
        home: the files of diffusers whose class of this name it is.
        noise: the noise level from 0 to 1, given the timestep as the transformer is given it; None: not known.
        timestep: the name of that argument.
    """

    place: str
    rotation: Callable[[Any], dict[str, Any]]
    call: Callable[..., _Call]
    table: Callable[[Tensor, Tensor, _Call], Any]
    home: tuple[str, ...]
    noise: Callable[[float], float] | None = _of_thousand
    timestep: str = "timestep"


class AttachedPositions(nn.Module):
    """The tables of a model's positions by posenc, in the form in which the model takes them.

    Args:
        replaced: the model's own module, or its transformer where it has none.
        scaling: as for `attach`.
    """

    def __init__(self, replaced: Any, scaling: Scaling) -> None:
        super().__init__()
        self._replaced = (replaced,)  # in a tuple: no part of the model while it is replaced
        self.kind = type(replaced).__name__
        self.scaling = scaling
        self.timestep: float | None = None
        self.handles: list[RemovableHandle] = []
        self._rotation = KINDS[self.kind].rotation(replaced)
        self._plain = AxialRoPE(**self._rotation)
        self._divisors: tuple[float, ...] | None = None
        if self._plain.convention == "ltx":
            self._divisors = _divisors(scaling)
        # one that does not fit the axes is refused here, and one that follows no call is built once
        self._fixed = None if callable(scaling) else self._scaled_by(scaling)

    @property
    def replaced(self) -> Any:
        """The model's own module."""
        return self._replaced[0]

    @property
    def reads_timestep(self) -> bool:
        """Whether the scaling is a function of the timestep too."""
        return callable(self.scaling) and len(inspect.signature(self.scaling).parameters) > 1

    def _scaled_by(self, scaling: Scalings | None) -> AxialRoPE:
        if scaling is None or self._divisors is not None:
            return self._plain
        return AxialRoPE(**{**self._rotation, "scaling": scaling})

    def _rope_of(self, call: _Call) -> AxialRoPE:
        if self._fixed is not None:
            return self._fixed
        # read off positions only for a scaling that asks, as a GPU is waited for
        sizes = call.sizes or tuple(int(size) + 1 for size in call.positions.amax(0).tolist())
        follow = cast(Callable[..., Scalings | None], self.scaling)
        if not self.reads_timestep:
            return self._scaled_by(follow(sizes))
        if self.timestep is None:
            raise ValueError("scaling is a function of the timestep: call the transformer, with timestep=…")
        return self._scaled_by(follow(sizes, self.timestep))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The tables for a call of the model's own module."""
        kind = KINDS[self.kind]
        if self._divisors is not None:
            options["divisors"] = self._divisors
        call = kind.call(self.replaced, *inputs, **options)
        cos, sin = self._rope_of(call).table(call.positions)
        if call.scaled is not None and self.scaling is not None:
            rest = self._plain.table(call.positions[call.scaled :])
            cos, sin = (
                torch.cat([part[: call.scaled], unscaled]) for part, unscaled in zip((cos, sin), rest, strict=True)
            )
        return kind.table(cos, sin, call)


def attach(transformer: nn.Module, scaling: Scaling = None) -> nn.Module:
    """Let posenc make a model's tables of positions; returns the model, which is changed in place.

    Args:
        transformer: a transformer of diffusers whose module of positions is one of `KNOWN`, or CogVideoX with rotation.
        scaling: a `Scaling` or None for each axis; or a function that gives them for each call, of the sizes along
            each axis, or of the sizes and the timestep (1 is pure noise), such as `riflex` and `dype` make; None: the
            model's own frequencies.

    Raises:
        ValueError: for a model whose positions are not known, and for a scaling that does not fit its axes.
    """
    attached = AttachedPositions(_module_of(transformer), scaling)
    kind = KINDS[attached.kind]
    if attached.reads_timestep and kind.noise is None:
        raise ValueError(
            f"scaling must be a function of the sizes alone for {attached.kind}: its timestep is no noise level"
        )
    detach(transformer)
    _put(transformer, kind.place or _BESIDE, attached)
    if not kind.place:
        attached.handles.append(transformer.register_forward_pre_hook(_with_tables(attached), with_kwargs=True))
    if attached.reads_timestep:
        clock = _with_timestep(attached, kind)
        attached.handles.append(transformer.register_forward_pre_hook(clock, with_kwargs=True, prepend=True))
    return transformer


def detach(transformer: nn.Module) -> nn.Module:
    """Put the model's own module back; nothing changes where posenc's is not attached."""
    for place in _PLACES:
        attached = getattr(transformer, place, None)
        if isinstance(attached, AttachedPositions):
            for handle in attached.handles:
                handle.remove()
            delattr(transformer, place)
            if place != _BESIDE:
                _put(transformer, place, attached.replaced)
    _module_of(transformer)  # refuses what is no model of these
    return transformer


def dype(
    original_length: int = 64, *, method: Method = "yarn", dynamic: bool = True
) -> Callable[[tuple[int, ...], float], Scalings]:
    """DyPE on rows and columns, by the size of the picture and the timestep: a scaling for `attach`.

    Args:
        original_length: patches along the side of a picture of training: FLUX.1 64, Qwen-Image 83.
        method, dynamic: see `DyPE`.

    >>> dype()((1, 128, 64), 0.5)
    (None, DyPE(128, original_length=64, timestep=0.5), DyPE(64, original_length=64, timestep=0.5))
    """
    DyPE(original_length, original_length=original_length, method=method, dynamic=dynamic)  # refuses what it must

    def of_call(sizes: tuple[int, ...], timestep: float) -> Scalings:
        steps = {"original_length": original_length, "timestep": timestep, "method": method, "dynamic": dynamic}
        by_axis = [cast(nn.Module, DyPE(size, **cast(Any, steps))) for size in sizes[1:3]]
        return (None, *by_axis, *[None] * (len(sizes) - 3))

    return of_call


def riflex(k: int, *, repeats_at: int, share: float = 0.9) -> Callable[[tuple[int, ...]], Scalings | None]:
    """RIFLEx on the frames, by the length of the video: a scaling for `attach`; shorter videos keep their frequencies.

    Args:
        k: the pair that is slowed down, from 1: HunyuanVideo 4, CogVideoX-5B 2, Wan 2.1 6.
        repeats_at: its period in latent frames, up to which nothing changes: HunyuanVideo 50, CogVideoX-5B 20, Wan 51;
            `identify_k` has them.
        share: see `RIFLEx`.

    >>> riflex(6, repeats_at=51)((66, 30, 52))
    (RIFLEx(6, length=66), None, None)
    >>> riflex(6, repeats_at=51)((21, 30, 52)) is None
    True
    """
    RIFLEx(k, length=1, share=share)  # refuses what it must
    check_whole("repeats_at", repeats_at)

    def of_call(sizes: tuple[int, ...]) -> Scalings | None:
        if sizes[0] <= repeats_at:
            return None
        return (cast(nn.Module, RIFLEx(k, length=sizes[0], share=share)), *[None] * (len(sizes) - 1))

    return of_call


_BESIDE = "posenc_positions"  # where posenc's module is put if the model has none


def _module_of(transformer: nn.Module) -> Any:
    """The model's own module of positions, or its transformer, whether posenc's is attached or not."""
    for place in _PLACES:
        module = getattr(transformer, place, None)
        if isinstance(module, AttachedPositions):
            return module.replaced
        known = KINDS.get(type(module).__name__)
        if known is not None and known.place == place and type(module).__module__.rpartition(".")[2] in known.home:
            return module
    if type(transformer).__name__ == "CogVideoXTransformer3DModel":
        if cast(Any, transformer).config.use_rotary_positional_embeddings:
            return transformer
        raise ValueError("transformer must rotate: this CogVideoX adds a sinusoidal embedding instead (CogVideoX-2B)")
    raise ValueError(
        f"transformer must have one of {', '.join(KNOWN)} as its module of positions, got {type(transformer).__name__}"
    )


def _put(transformer: nn.Module, place: str, module: Any) -> None:
    if hasattr(transformer, place):
        delattr(transformer, place)  # torch refuses to put what is no module in the place of one
    setattr(transformer, place, module)


Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def _with_tables(attached: AttachedPositions) -> Hook:
    """The call with posenc's tables in the place of the pipeline's."""

    def hook(
        transformer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = inspect.signature(transformer.forward).bind_partial(*inputs, **options)
        call.arguments["image_rotary_emb"] = attached(call.arguments["hidden_states"])
        return call.args, call.kwargs

    return hook


def _with_timestep(attached: AttachedPositions, kind: _Kind) -> Hook:
    """The call, whose timestep is noted."""

    def hook(
        transformer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = inspect.signature(transformer.forward).bind_partial(*inputs, **options)
        steps = set(torch.as_tensor(call.arguments.get(kind.timestep)).flatten().tolist())
        if len(steps) != 1:
            raise ValueError(f"timestep must be the same for all rows where the scaling follows it, got {shown(steps)}")
        assert kind.noise is not None
        level = kind.noise(float(steps.pop()))
        check_number("timestep", level, least=-1e-3, most=1 + 1e-3)  # bfloat16 rounds
        attached.timestep = min(max(level, 0.0), 1.0)
        return inputs, options

    return hook


def _divisors(scaling: Scaling) -> tuple[float, ...]:
    """What frames, rows and columns of LTX are divided by."""
    by_axis = (None, None, None) if scaling is None else scaling
    if callable(by_axis) or len(by_axis) != 3:
        raise ValueError(f"scaling must be one PositionInterpolation or None for each of 3 axes, got {shown(scaling)}")
    factors = []
    for each in by_axis:
        if each is not None and not isinstance(each, PositionInterpolation):
            raise ValueError(
                f"scaling must be PositionInterpolation or None for LTX, whose frequencies grow, got {shown(each)}"
            )
        factors.append(1.0 if each is None else float(cast(Any, each).factor))
    return tuple(factors)


def _by_channels(cos: Tensor, sin: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    """Each pair's number for both of its channels, (2j, 2j + 1)."""
    return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)


def _by_halves(cos: Tensor, sin: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    """Each pair's number for both of its channels, (j, j + pairs)."""
    return torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)


def _of_wan(cos: Tensor, sin: Tensor, call: _Call) -> tuple[Tensor, ...]:
    return tuple(table[None, :, None] for table in _by_channels(cos, sin, call))


def _of_ltx(cos: Tensor, sin: Tensor, call: _Call) -> tuple[Tensor, ...]:
    return tuple(table[None] for table in _by_channels(cos, sin, call))


def _complex(cos: Tensor, sin: Tensor, call: _Call) -> Tensor:
    return torch.complex(cos, sin)


def _pictures_and_text(cos: Tensor, sin: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    waves = torch.complex(cos, sin)
    return waves[: call.scaled], waves[call.scaled :]


def _numbered(module: Any, ids: Tensor) -> _Call:
    """A call with the coordinates themselves, which pipelines may have in bfloat16."""
    return _Call(ids.float() if ids.is_floating_point() else ids, None)


def _counted(module: Any, latent: Tensor) -> _Call:
    """A call with the latent, whose last axes are frames, rows and columns, or rows and columns."""
    sizes = _sizes(module, latent)
    return _Call(grid(*sizes).to(latent.device), sizes)


def _sizes(module: Any, latent: Tensor) -> tuple[int, ...]:
    patches = _patches(module, latent.ndim - 2)
    return tuple(size // by for size, by in zip(latent.shape[2:], patches, strict=True))


def _patches(module: Any, axes: int) -> tuple[int, ...]:
    patch = module.patch_size
    if not isinstance(patch, int):
        return tuple(patch)
    return (getattr(module, "patch_size_t", 1), patch, patch)[-axes:]


def _onto_trained(module: Any, latent: Tensor) -> _Call:
    call = _counted(module, latent)
    return call._replace(positions=floored(call.positions, times=module.rope_axes_dim, over=_sizes(module, latent)))


def _by_seconds(module: Any, latent: Tensor, fps: float | None = None) -> _Call:
    call = _counted(module, latent)
    if fps is None:
        return call
    rate = module.base_fps / float(fps)
    return call._replace(positions=affine(_wide(call.positions), times=[rate, 1, 1], plus=[0] * 3, over=[1] * 3))


def _wide(positions: Tensor) -> Tensor:
    return positions.float() if positions.device.type == "mps" else positions.double()


def _measured(
    module: Any,
    latent: Tensor,
    num_frames: int | None = None,
    height: int | None = None,
    width: int | None = None,
    rope_interpolation_scale: Sequence[Any] | None = None,
    video_coords: Tensor | None = None,
    *,
    divisors: Sequence[float],
) -> _Call:
    """LTX: fractions of its box, from the sizes of the video or from the seconds and pixels of each token."""
    box = (module.base_num_frames, module.base_height, module.base_width)
    if video_coords is not None:
        if len(video_coords) > 1 and not bool((video_coords == video_coords[:1]).all()):
            raise ValueError("video_coords must be the same for all rows of a batch under posenc")
        positions, scale = _wide(video_coords[0].T), [1.0] * 3
    else:
        assert num_frames is not None
        assert height is not None
        assert width is not None
        positions = _wide(grid(num_frames, height, width).to(latent.device))
        by_token = (module.patch_size_t, module.patch_size, module.patch_size)
        if rope_interpolation_scale is None:
            raise ValueError("rope_interpolation_scale must be given under posenc: frames and pixels of a token")
        scale = [float(step) * patch for step, patch in zip(rope_interpolation_scale, by_token, strict=True)]
    over = [side * by for side, by in zip(box, divisors, strict=True)]
    fractions = affine(positions, times=scale, plus=[0] * 3, over=over)
    return _Call(2 * fractions - 1, (num_frames or 1, height or 1, width or 1))


def _of_pictures(
    module: Any, video_fhw: Any, device: torch.device | None = None, max_txt_seq_len: int | Tensor | None = None
) -> _Call:
    """Qwen-Image: pictures, then text; of a batch the first row's, as in the model's own module."""
    if max_txt_seq_len is None:
        raise ValueError("max_txt_seq_len must be given: the tokens of the text")
    pictures = video_fhw[0] if isinstance(video_fhw, list) else video_fhw
    pictures = pictures if isinstance(pictures, list) else [pictures]
    if any(frames != 1 for frames, _, _ in pictures):
        raise ValueError(f"video_fhw must be pictures of one frame, got {shown(video_fhw)}")
    parts: list[Part] = [Image(height, width) for _, height, width in pictures]
    positions = latents([*parts, Text(int(max_txt_seq_len))], model="qwen-image")
    sizes = (len(pictures), max(height for _, height, _ in pictures), max(width for _, _, width in pictures))
    scaled = len(positions) - int(max_txt_seq_len)
    return _Call(positions.to(device or torch.device("cpu")), sizes, scaled)


def _of_cogvideox(module: Any, latent: Tensor) -> _Call:
    """What the pipeline would compute for a latent ``(batch, frames, channels, rows, columns)``."""
    config = module.config
    _, frames, _, height, width = latent.shape
    patch, patch_t = config.patch_size, config.patch_size_t
    sizes = (frames if patch_t is None else -(-frames // patch_t), height // patch, width // patch)
    if patch_t is not None:  # CogVideoX 1.5
        positions = latents([Video(*sizes)], model="cogvideox-1.5")
    else:
        trained = (config.sample_height // patch, config.sample_width // patch)
        positions = latents([Video(*sizes)], model="cogvideox", trained=trained)
    return _Call((positions.float() if latent.device.type == "mps" else positions).to(latent.device), sizes)


def _axes(widths: Sequence[int], base: float, **options: Any) -> dict[str, Any]:
    return {"head_dim": sum(widths), "axes_dims": tuple(widths), "base": base, **options}


def _thirds(module: Any) -> dict[str, Any]:
    return _axes((module.t_dim, module.h_dim, module.w_dim), 10_000.0)


def _cosmos_axes(module: Any) -> dict[str, Any]:
    bases = tuple(10_000.0 * factor for factor in (module.t_ntk_factor, module.h_ntk_factor, module.w_ntk_factor))
    return {**_axes((module.dim_t, module.dim_h, module.dim_w), 10_000.0, layout="half"), "base": bases}


def _same_axes(module: Any) -> dict[str, Any]:
    return _axes((module.dim // 2, module.dim // 2), float(module.theta), layout="half")


def _listed(name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda module: _axes(getattr(module, name), float(module.theta))


def _ltx_axes(module: Any) -> dict[str, Any]:
    return {"head_dim": module.dim, "axes": 3, "base": float(module.theta), "convention": "ltx"}


def _cogvideox_axes(module: Any) -> dict[str, Any]:
    width = module.config.attention_head_dim
    return _axes((width // 4, width // 8 * 3, width // 8 * 3), 10_000.0)


KINDS: dict[str, _Kind] = {
    "FluxPosEmbed": _Kind(
        "pos_embed", _listed("axes_dim"), _numbered, _by_channels, ("transformer_flux",), _of_one
    ),  # FLUX.1, Kontext, Chroma
    "Flux2PosEmbed": _Kind("pos_embed", _listed("axes_dim"), _numbered, _by_channels, ("transformer_flux2",), _of_one),
    "Krea2RotaryPosEmbed": _Kind(
        "rotary_emb", _listed("axes_dim"), _numbered, _by_channels, ("transformer_krea2",), _of_one
    ),
    "QwenEmbedRope": _Kind(
        "pos_embed", _listed("axes_dim"), _of_pictures, _pictures_and_text, ("transformer_qwenimage",), _of_one
    ),
    "WanRotaryPosEmbed": _Kind("rope", _thirds, _counted, _of_wan, ("transformer_wan", "transformer_wan_animate")),
    "HunyuanVideoRotaryPosEmbed": _Kind(
        "rope", _listed("rope_dim"), _counted, _by_channels, ("transformer_hunyuan_video",)
    ),
    "HunyuanVideo15RotaryPosEmbed": _Kind(
        "rope", _listed("rope_dim"), _counted, _by_channels, ("transformer_hunyuan_video15",)
    ),
    "HunyuanImageRotaryPosEmbed": _Kind(
        "rope", _listed("rope_dim"), _counted, _by_channels, ("transformer_hunyuanimage",)
    ),
    "RopeEmbedder": _Kind(
        "rope_embedder", _listed("axes_dims"), _numbered, _complex, ("transformer_z_image",), _backwards, "t"
    ),  # Z-Image
    "CogView4RotaryPosEmbed": _Kind("rope", _same_axes, _onto_trained, _by_halves, ("transformer_cogview4",)),
    "CosmosRotaryPosEmbed": _Kind("rope", _cosmos_axes, _by_seconds, _by_halves, ("transformer_cosmos",), None),
    "LTXVideoRotaryPosEmbed": _Kind("rope", _ltx_axes, _measured, _of_ltx, ("transformer_ltx",)),
    "CogVideoXTransformer3DModel": _Kind(
        "", _cogvideox_axes, _of_cogvideox, _by_channels, ("cogvideox_transformer_3d",)
    ),
}
KNOWN = tuple(KINDS)
_PLACES = (*sorted({kind.place for kind in KINDS.values()} - {""}), _BESIDE)
