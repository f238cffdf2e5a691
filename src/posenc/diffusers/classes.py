"""How each class of diffusers computes its tables of positions.

A record of `CLASSES` has the facts of one module: the rotation that it computes, the positions of the tokens of a call,
and the form in which the model takes the table. CogVideoX and HunyuanDiT have no such module: their pipelines make the
tables, and posenc's take their place on the way into the transformer.

What is scaled differs by model:

    most models         each axis, all tokens
    Qwen-Image          the pictures; text keeps the model's own frequencies, as in DyPE's code for it, since it begins
                        behind the picture, at unscaled coordinates
    LTX, LTX-2, Mochi   coordinates are divided (`PositionInterpolation`), as their frequencies grow or are learned; of
                        LTX-2 the seconds of sound and of the video alike, so that the two stay in step
    Ovis-Image, LongCat-Image    all tokens; their text counts on rows and columns, and is scaled with the pictures
    Ideogram 4          one scaling for all axes, which share one list of frequencies

Not among them: SD3, PixArt and CogVideoX-2B, which add a sinusoidal embedding, and Lumina-Next, whose pipeline scales
the frequencies by itself at each step.

Source: diffusers 0.42, models/transformers/transformer_*.py, models/transformers/cogvideox_transformer_3d.py and
    hunyuan_transformer_2d.py; pipelines/cogvideo/pipeline_cogvideox.py and pipelines/hunyuandit/pipeline_hunyuandit.py.
    What a model is given as its timestep: the pipeline of each.
Checked against: tiny models of these classes, whose outputs stay the same (tests/reference/test_diffusers_attach.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from posenc.arguments import shown
from posenc.encoding import RotaryEncoding, Table
from posenc.positions import Image, Text, Video, grid, latents
from posenc.positions.diffusion import Model
from posenc.positions.grids import affine, floored
from posenc.positions.parts import Part
from posenc.rotary.axial import AxialRoPE
from posenc.rotary.mrope import MRoPE

Box = tuple[float, float, float]


class Tokens(NamedTuple):
    """Where the tokens of a call stand.

    Attributes:
        positions: ``(*batch, tokens, axes)``, or ``(batch, tokens)`` for one axis.
        sizes: tokens along each axis, which a scaling that follows the call is given; None: the largest coordinate + 1.
        scaled: which tokens the scaling is of, ``(tokens,)``; others keep the model's own frequencies. None: all.
        frequencies: learned ones, which come with the call, ``(axes, heads, pairs)``.
        call: what else the form of the table needs.
    """

    positions: Tensor
    sizes: tuple[int, ...] | None
    scaled: Tensor | None = None
    frequencies: Tensor | None = None
    call: Any = None


class PositionClass(NamedTuple):
    """The facts of one class of diffusers that makes tables of positions.

    Attributes:
        rotation: the encoding, given the module, the transformer's config and a scaling; None where learned frequencies
            come with each call.
        tokens: where the tokens stand, given the module and the arguments of its call.
        table: cos and sin ``(*batch, tokens, pairs)`` in the form in which the model takes them.
        files: the files of diffusers whose class of this name it is.
        noise: the noise level from 0 to 1, given the timestep as the transformer is given it; None: not known.
        timestep: the name of that argument.
        scales: what a scaling is of: "axes", one for each; "positions", which are divided; "pairs", one for all.
        sizes: tokens along each axis, given the module and the arguments of the transformer, where the module is called
            several times for one call of the transformer: all tables of one attention need the same frequencies.
        refusal: why this transformer cannot be attached to, or "".
    """

    rotation: Callable[[Any, Any, Any], RotaryEncoding] | None
    tokens: Callable[..., Tokens]
    table: Callable[[Tensor, Tensor, Tokens, Any], Any]
    files: tuple[str, ...]
    noise: Callable[[float], float] | None = None
    timestep: str = "timestep"
    scales: Literal["axes", "positions", "pairs"] = "axes"
    sizes: Callable[[Any, Mapping[str, Any]], tuple[int, ...]] | None = None
    refusal: Callable[[Any], str] | None = None


# ---------------------------------------------------------------- noise levels


def _of_thousand(timestep: float) -> float:
    return timestep / 1000


def _of_999(timestep: float) -> float:
    """GLM-Image counts from 0 to 999."""
    return (timestep + 1) / 1000


def _of_one(timestep: float) -> float:
    return timestep


def _backwards(timestep: float) -> float:
    return 1 - timestep


# ---------------------------------------------------------------- tables


def _by_channels(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Table:
    """Each pair's number for both of its channels, (2j, 2j + 1)."""
    return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)


def _by_halves(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Table:
    """Each pair's number for both of its channels, (j, j + pairs)."""
    return torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)


def _of_wan(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Tensor, ...]:
    return tuple(table[None, :, None] for table in _by_channels(cos, sin, tokens, module))


def _of_ltx(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Tensor, ...]:
    return tuple(table[None] for table in _by_channels(cos, sin, tokens, module))


def _of_ltx_2(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Tensor, ...]:
    """Interleaved over the width of all heads, or split: dealt out to the heads, half within each."""
    if module.rope_type == "interleaved":
        return _by_channels(cos, sin, tokens, module)
    return tuple(part.unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2) for part in (cos, sin))  # type: ignore[no-untyped-call]


def _of_mochi(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Table:
    return cos.transpose(0, 1), sin.transpose(0, 1)


def _matrices(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    """Kandinsky 5: rotations as matrices, ``(batch, frames, rows, columns, 1, pairs, 2, 2)``."""
    assert tokens.sizes is not None
    by_pair = torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2)).unflatten(0, tokens.sizes)  # type: ignore[no-untyped-call]
    matrices: Tensor = by_pair.unsqueeze(-4).repeat(tokens.call, *[1] * (by_pair.ndim + 1))
    return matrices


def _complex(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    return torch.complex(cos, sin)


def _pictures_and_text(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Tensor, Tensor]:
    waves = torch.complex(cos, sin)
    return waves[: tokens.call], waves[tokens.call :]


def _caption_and_picture(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Any, ...]:
    """Lumina 2: the patches, and tables of captions, pictures and both, zero where a caption is padded."""
    hidden_states, longest, captions = tokens.call
    waves = torch.complex(cos, sin)
    patches = _patchified(hidden_states, module.patch_size)
    picture = patches.shape[1]
    of_captions = waves.new_zeros(len(captions), longest, waves.shape[-1])
    for row, caption in enumerate(captions):
        of_captions[row, :caption] = waves[row, :caption]
    of_pictures = torch.stack([waves[row, caption : caption + picture] for row, caption in enumerate(captions)])
    return patches, of_captions, of_pictures, waves, captions, [caption + picture for caption in captions]


def _patchified(latent: Tensor, patch: int) -> Tensor:
    """``(batch, channels, rows, columns)`` as ``(batch, tokens, patch · patch · channels)``."""
    cut = latent.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # type: ignore[no-untyped-call]
    tokens: Tensor = cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    return tokens


# ---------------------------------------------------------------- where tokens stand


def _numbered(module: Any, ids: Tensor) -> Tokens:
    """A call with the coordinates themselves, which pipelines may have in bfloat16."""
    return Tokens(ids.float() if ids.is_floating_point() else ids, None)


def _counted(module: Any, latent: Tensor) -> Tokens:
    """A call with the latent, whose last axes are frames, rows and columns, or rows and columns."""
    sizes = _sizes(module, latent)
    return Tokens(grid(*sizes).to(latent.device), sizes)


def _sizes(module: Any, latent: Tensor) -> tuple[int, ...]:
    patches = _patches(module, latent.ndim - 2)
    return tuple(size // by for size, by in zip(latent.shape[2:], patches, strict=True))


def _patches(module: Any, axes: int) -> tuple[int, ...]:
    patch = module.patch_size
    if not isinstance(patch, int):
        return tuple(patch)
    return (getattr(module, "patch_size_t", 1), patch, patch)[-axes:]


def _ruled(model: Model, **options: Any) -> Callable[[Any, Tensor], Tokens]:
    """A call with the latent, whose tokens stand by the rule of a model of `latents`."""

    def tokens(module: Any, latent: Tensor) -> Tokens:
        sizes = _sizes(module, latent)
        by_module = {name: value(module) for name, value in options.items()}
        return Tokens(_placed(latents([Video(*sizes)], model=model, **by_module), latent.device), sizes)

    return tokens


def _onto_trained(module: Any, latent: Tensor) -> Tokens:
    tokens = _counted(module, latent)
    return tokens._replace(positions=floored(tokens.positions, times=module.rope_axes_dim, over=_sizes(module, latent)))


def _by_seconds(module: Any, latent: Tensor, fps: float | None = None) -> Tokens:
    tokens = _counted(module, latent)
    if fps is None:
        return tokens
    rate = module.base_fps / float(fps)
    return tokens._replace(positions=affine(_wide(tokens.positions), times=[rate, 1, 1], plus=[0] * 3, over=[1] * 3))


def _wide(positions: Tensor) -> Tensor:
    return positions.float() if positions.device.type == "mps" else positions.double()


def _placed(positions: Tensor, device: torch.device | None) -> Tensor:
    device = device or torch.device("cpu")
    if positions.is_floating_point() and device.type == "mps":
        positions = positions.float()
    return positions.to(device)


def _by_frame_numbers(module: Any, frame_indices: Tensor, height: int, width: int, device: torch.device) -> Tokens:
    """Framepack: the frames that the call numbers."""
    sizes = (len(frame_indices), height // module.patch_size, width // module.patch_size)
    counted = grid(*sizes).to(device)
    times = frame_indices.to(device=device, dtype=counted.dtype)[counted[:, :1]]
    # sizes by the largest number: what a call of the transformer without them would say as well
    return Tokens(torch.cat([times, counted[:, 1:]], -1), (int(frame_indices.max()) + 1, *sizes[1:]))


def _framepack_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Frames up to the largest number that the call mentions: its history is rotated like its own frames."""
    numbered = [arguments.get(f"indices_latents{of}") for of in ("", "_clean", "_history_2x", "_history_4x")]
    frames = max(int(indices.max()) for indices in numbered if indices is not None) + 1
    _, rows, columns = _sizes(module, arguments["hidden_states"])
    return frames, rows, columns


def _sizes_of_ids(*names: str) -> Callable[[Any, Mapping[str, Any]], tuple[int, ...]]:
    """The largest coordinate + 1 on each axis, of all ids that the transformer is given."""

    def sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        ids = [arguments[name].flatten(0, -2) for name in names if arguments.get(name) is not None]
        return tuple(int(largest) + 1 for largest in torch.cat(ids).amax(0).tolist())

    return sizes


def _extent_of_ids(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """From the first to the last coordinate of the pictures: their text counts on rows and columns as well."""
    ids = arguments["img_ids"].flatten(0, -2)
    return tuple(int(extent) + 1 for extent in (ids.amax(0) - ids.amin(0)).tolist())


def _z_image_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Captions, padded to a multiple of 32, with what stands behind them; rows and columns of the largest picture."""
    patch, frames = arguments.get("patch_size", 2), arguments.get("f_patch_size", 1)
    pictures = [latent.shape[1:] for latent in _flattened(arguments["x"])]
    captions = [-(-len(caption) // 32) * 32 for caption in _flattened(arguments["cap_feats"])]
    reached = 1 + sum(captions) + sum(size[0] // frames for size in pictures) if captions else 1
    return reached, max(size[1] // patch for size in pictures), max(size[2] // patch for size in pictures)


def _flattened(values: Iterable[Any]) -> list[Tensor]:
    """Tensors of nested lists, those that are missing left out."""
    flat: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            flat.append(value)
        elif value is not None:
            flat += _flattened(value)
    return flat


def _measured(
    module: Any,
    latent: Tensor,
    num_frames: int | None = None,
    height: int | None = None,
    width: int | None = None,
    rope_interpolation_scale: Sequence[Any] | None = None,
    video_coords: Tensor | None = None,
    *,
    divisors: Box,
) -> Tokens:
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
    return Tokens(2 * fractions - 1, (num_frames or 1, height or 1, width or 1))


def _middles(module: Any, coords: Tensor, device: Any = None, *, divisors: Box) -> Tokens:
    """LTX-2: fractions of its box, from the start and the end of each token in seconds and pixels."""
    coords = _wide(coords if device is None else coords.to(device))
    middles = coords.mean(-1) if coords.ndim == 4 else coords
    box = (module.base_num_frames, module.base_height, module.base_width)
    over = middles.new_tensor([side * by for side, by in zip(box, divisors, strict=True)])
    fractions = middles.mT / over[: middles.shape[1]]
    positions = 2 * fractions - 1
    return Tokens(positions if positions.shape[-1] > 1 else positions.squeeze(-1), None)


def _around_the_middle(
    module: Any,
    pos_frequencies: Tensor,
    num_frames: int,
    height: int,
    width: int,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    *,
    divisors: Box,
) -> Tokens:
    """Mochi: rows and columns from the middle of the picture, in steps that give every picture the same area."""
    sizes = (num_frames, height, width)
    side = math.isqrt(module.target_area)
    if side * side != module.target_area:
        raise ValueError(f"target_area of MochiRoPE must be a square number, got {module.target_area}")
    counted = latents([Video(*sizes)], model="mochi", trained=side)
    positions = _placed(counted / counted.new_tensor(divisors), device)
    return Tokens(positions, sizes, frequencies=pos_frequencies)


def _by_axis(
    module: Any, shape: Sequence[int], pos: Sequence[Tensor], scale_factor: Sequence[float] = (1.0, 1.0, 1.0)
) -> Tokens:
    """Kandinsky 5: the numbers along each axis, and by what the axis is divided."""
    counted = torch.stack(torch.meshgrid(*pos, indexing="ij"), -1).flatten(0, 2)
    scaled = affine(_wide(counted), times=[1] * 3, plus=[0] * 3, over=[float(factor) for factor in scale_factor])
    return Tokens(scaled, (int(shape[1]), int(shape[2]), int(shape[3])), call=int(shape[0]))


def _behind_captions(module: Any, hidden_states: Tensor, attention_mask: Tensor) -> Tokens:
    """Lumina 2: each row's caption, then its picture."""
    rows, columns = _sizes(module, hidden_states)
    captions: list[int] = attention_mask.sum(dim=1).tolist()
    joint = [latents([Text(caption), Image(rows, columns)], model="lumina-2") for caption in captions]
    positions = torch.nn.utils.rnn.pad_sequence(joint, batch_first=True)  # padding stands at 0, which is not rotated
    call = (hidden_states, attention_mask.shape[1], captions)
    return Tokens(positions.to(hidden_states.device), (max(captions) + 1, rows, columns), call=call)


def _of_pictures(
    module: Any, video_fhw: Any, device: torch.device | None = None, max_txt_seq_len: int | Tensor | None = None
) -> Tokens:
    """Qwen-Image: pictures, then text; of a batch the first row's, as in the model's own module."""
    return _pictures("qwen-image", video_fhw, device, max_txt_seq_len)


def _of_layers(
    module: Any, video_fhw: Any, max_txt_seq_len: int | Tensor, device: torch.device | None = None
) -> Tokens:
    """Qwen-Image-Layered: layers, the picture that they are of, text."""
    return _pictures("qwen-image-layered", video_fhw, device, max_txt_seq_len)


def _of_one_picture(
    module: Any, video_fhw: Any, device: torch.device | None = None, max_txt_seq_len: int | Tensor | None = None
) -> Tokens:
    """Nucleus-Image: as Qwen-Image, but text begins behind the last picture, so there may be only one."""
    tokens = _pictures("qwen-image", video_fhw, device, max_txt_seq_len)
    if tokens.sizes is not None and tokens.sizes[0] > 1:
        raise ValueError(f"video_fhw must be one picture for this model, got {shown(video_fhw)}")
    return tokens


def _pictures(
    model: Model, video_fhw: Any, device: torch.device | None, max_txt_seq_len: int | Tensor | None
) -> Tokens:
    if max_txt_seq_len is None:
        raise ValueError("max_txt_seq_len must be given: the tokens of the text")
    pictures = video_fhw[0] if isinstance(video_fhw, list) else video_fhw
    pictures = pictures if isinstance(pictures, list) else [pictures]
    if any(frames != 1 for frames, _, _ in pictures):
        raise ValueError(f"video_fhw must be pictures of one frame, got {shown(video_fhw)}")
    words = int(max_txt_seq_len)
    parts: list[Part] = [Image(height, width) for _, height, width in pictures]
    positions = _placed(latents([*parts, Text(words)], model=model), device)
    sizes = (len(pictures), max(height for _, height, _ in pictures), max(width for _, _, width in pictures))
    scaled = torch.arange(len(positions), device=positions.device) < len(positions) - words
    return Tokens(positions, sizes, scaled, call=len(positions) - words)


def _of_one_stream(module: Any, img_shapes: Any, image_pad_mask: Tensor, device: torch.device) -> Tokens:
    """Qwen-Image 2.1: text and pictures in one row, in the order of the mask."""
    is_picture: list[bool] = image_pad_mask.tolist()
    parts: list[Part] = []
    reached = 0
    for _, height, width in img_shapes:
        begins = is_picture.index(True, reached)
        parts += [Text(begins - reached), Image(height, width)]
        reached = begins + height * width
    parts.append(Text(len(is_picture) - reached))
    sizes = (len(img_shapes), max(shape[1] for shape in img_shapes), max(shape[2] for shape in img_shapes))
    return Tokens(_placed(latents(parts, model="qwen-image-2.1"), device), sizes, image_pad_mask.to(device))


def _of_cogvideox(module: Any, latent: Tensor) -> Tokens:
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
    return Tokens(_placed(positions, latent.device), sizes)


def _of_hunyuan_dit(module: Any, latent: Tensor) -> Tokens:
    """What the pipeline would compute for a latent ``(batch, channels, rows, columns)``: 512 pixels are its base."""
    patch = module.config.patch_size
    sizes = (latent.shape[2] // patch, latent.shape[3] // patch)
    trained = 512 // 8 // patch
    return Tokens(_placed(latents([Image(*sizes)], model="hunyuan-dit", trained=trained), latent.device), sizes)


# ---------------------------------------------------------------- rotations


def _axial(widths: Sequence[int], base: Any, scaling: Any, **options: Any) -> AxialRoPE:
    return AxialRoPE(**{"head_dim": sum(widths), **options}, axes_dims=tuple(widths), base=base, scaling=scaling)


def _listed(name: str) -> Callable[[Any, Any, Any], AxialRoPE]:
    return lambda module, config, scaling: _axial(getattr(module, name), float(module.theta), scaling)


def _thirds(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    return _axial((module.t_dim, module.h_dim, module.w_dim), 10_000.0, scaling)


def _chrono_edit(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    sides = 2 * (module.attention_head_dim // 6)
    return _axial((module.attention_head_dim - 2 * sides, sides, sides), 10_000.0, scaling)


def _cosmos(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    bases = tuple(10_000.0 * factor for factor in (module.t_ntk_factor, module.h_ntk_factor, module.w_ntk_factor))
    return _axial((module.dim_t, module.dim_h, module.dim_w), bases, scaling, layout="half")


def _two_halves(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    return _axial((module.dim // 2, module.dim // 2), float(module.theta), scaling, layout="half")


def _minimax_h3(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    """The pairs of the rotated channels alone, which is all that the table has."""
    return _axial((2 * config.rope_freq_dim,) * 3, float(config.rope_theta), scaling, layout="half")


def _kandinsky(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    return _axial(module.axes_dims, float(module.max_period), scaling)


def _eighths(width: int, scaling: Any) -> AxialRoPE:
    return _axial((width // 4, width // 8 * 3, width // 8 * 3), 10_000.0, scaling)


def _column_first(module: Any, config: Any, scaling: Any) -> AxialRoPE:
    return AxialRoPE(config.attention_head_dim, convention="sam-2", base=10_000.0, axes=2, scaling=scaling)


def _growing(axes: int) -> Callable[[Any, Any, Any], AxialRoPE]:
    return lambda module, config, scaling: AxialRoPE(module.dim, axes=axes, base=float(module.theta), convention="ltx")


def _ideogram(module: Any, config: Any, scaling: Any) -> MRoPE:
    _, rows, columns = module.mrope_section  # time has every pair that these leave
    sections, base = (module.head_dim // 2 - rows - columns, rows, columns), float(config.rope_theta)
    return MRoPE(module.head_dim, sections=sections, interleaved=True, base=base, scaling=scaling)


def _only_where_rotated(transformer: Any) -> str:
    if transformer.config.use_rotary_positional_embeddings:
        return ""
    return "transformer must rotate: this CogVideoX adds a sinusoidal embedding instead (CogVideoX-2B)"


# ---------------------------------------------------------------- classes

_FLUX_LIKE = (
    ("FluxPosEmbed", "transformer_flux", _of_one),  # FLUX.1, Kontext, Chroma
    ("BriaEmbedND", "transformer_bria", _of_thousand),
    ("BriaFiboEmbedND", "transformer_bria_fibo", _of_thousand),
)
_FLUX_2_IDS, _FLUX_3_IDS = ("txt_ids", "img_ids"), ("txt_ids", "img_ids", "image_cond_ids")
_LTX_2 = "LTX2AudioVideoRotaryPosEmbed"
_LTX_2_AXES = {"rope": 3, "audio_rope": 1, "cross_attn_rope": 1, "cross_attn_audio_rope": 1}

# by the name of the class, and the transformer's attribute that holds it: "" where the pipeline makes the tables
CLASSES: dict[tuple[str, str], PositionClass] = {
    **{
        (name, "pos_embed"): PositionClass(_listed("axes_dim"), _numbered, _by_channels, (file,), noise)
        for name, file, noise in _FLUX_LIKE
    },
    ("OvisImagePosEmbed", "pos_embed"): PositionClass(
        _listed("axes_dim"), _numbered, _by_channels, ("transformer_ovis_image",), _of_one, sizes=_extent_of_ids
    ),
    ("LongCatImagePosEmbed", "pos_embed"): PositionClass(
        _listed("axes_dim"), _numbered, _by_channels, ("transformer_longcat_image",), _of_one, sizes=_extent_of_ids
    ),
    ("Flux2PosEmbed", "pos_embed"): PositionClass(
        _listed("axes_dim"), _numbered, _by_channels, ("transformer_flux2",), _of_one, sizes=_sizes_of_ids(*_FLUX_2_IDS)
    ),
    ("Flux3PosEmbed", "pos_embed"): PositionClass(
        _listed("axes_dim"), _numbered, _by_channels, ("transformer_flux3",), _of_one, sizes=_sizes_of_ids(*_FLUX_3_IDS)
    ),
    ("Krea2RotaryPosEmbed", "rotary_emb"): PositionClass(
        _listed("axes_dim"), _numbered, _by_channels, ("transformer_krea2",), _of_one
    ),
    ("QwenEmbedRope", "pos_embed"): PositionClass(
        _listed("axes_dim"), _of_pictures, _pictures_and_text, ("transformer_qwenimage",), _of_one
    ),
    ("QwenEmbedLayer3DRope", "pos_embed"): PositionClass(
        _listed("axes_dim"), _of_layers, _pictures_and_text, ("transformer_qwenimage",), _of_one
    ),
    ("QwenImage21Rope", "pos_embed"): PositionClass(
        _listed("axes_dim"), _of_one_stream, _complex, ("transformer_qwenimage21",), _of_one
    ),
    ("NucleusMoEEmbedRope", "pos_embed"): PositionClass(
        _listed("axes_dim"), _of_one_picture, _pictures_and_text, ("transformer_nucleusmoe_image",), _of_one
    ),
    ("WanRotaryPosEmbed", "rope"): PositionClass(
        _thirds, _counted, _of_wan, ("transformer_wan", "transformer_wan_animate", "transformer_sana_video"),
        _of_thousand,
    ),
    ("SkyReelsV2RotaryPosEmbed", "rope"): PositionClass(
        _thirds, _counted, _of_wan, ("transformer_skyreels_v2",), _of_thousand
    ),
    ("ChronoEditRotaryPosEmbed", "rope"): PositionClass(
        _chrono_edit, _ruled("chrono-edit"), _of_wan, ("transformer_chronoedit",), _of_thousand
    ),
    ("HunyuanVideoRotaryPosEmbed", "rope"): PositionClass(
        _listed("rope_dim"), _counted, _by_channels, ("transformer_hunyuan_video",), _of_thousand
    ),
    ("HunyuanVideo15RotaryPosEmbed", "rope"): PositionClass(
        _listed("rope_dim"), _counted, _by_channels, ("transformer_hunyuan_video15",), _of_thousand
    ),
    ("HunyuanVideoFramepackRotaryPosEmbed", "rope"): PositionClass(
        _listed("rope_dim"), _by_frame_numbers, _by_channels, ("transformer_hunyuan_video_framepack",), _of_thousand,
        sizes=_framepack_sizes,
    ),
    ("MotifVideoRotaryPosEmbed", "rope"): PositionClass(
        _listed("rope_dim"), _counted, _by_channels, ("transformer_motif_video",), _of_thousand
    ),
    ("HunyuanImageRotaryPosEmbed", "rope"): PositionClass(
        _listed("rope_dim"), _counted, _by_channels, ("transformer_hunyuanimage",), _of_thousand
    ),
    ("RopeEmbedder", "rope_embedder"): PositionClass(
        _listed("axes_dims"), _numbered, _complex, ("transformer_z_image",), _backwards, "t", sizes=_z_image_sizes
    ),  # Z-Image
    ("Lumina2RotaryPosEmbed", "rope_embedder"): PositionClass(
        _listed("axes_dim"), _behind_captions, _caption_and_picture, ("transformer_lumina2",), _backwards
    ),
    ("CogView4RotaryPosEmbed", "rope"): PositionClass(
        _two_halves, _onto_trained, _by_halves, ("transformer_cogview4",), _of_thousand
    ),
    ("GlmImageRotaryPosEmbed", "rope"): PositionClass(
        _two_halves, _counted, _by_halves, ("transformer_glm_image",), _of_999
    ),
    ("CosmosRotaryPosEmbed", "rope"): PositionClass(_cosmos, _by_seconds, _by_halves, ("transformer_cosmos",)),
    ("Kandinsky5RoPE3D", "visual_rope_embeddings"): PositionClass(
        _kandinsky, _by_axis, _matrices, ("transformer_kandinsky",), _of_thousand
    ),
    ("EasyAnimateRotaryPosEmbed", "rope_embedding"): PositionClass(
        lambda module, config, scaling: _eighths(module.rope_dim, scaling),
        _ruled("easyanimate", trained=lambda module: (60 // module.patch_size, 90 // module.patch_size)),
        _by_channels, ("transformer_easyanimate",), _of_thousand,
    ),
    ("MiniMaxH3RotaryPosEmbed", "rope"): PositionClass(
        _minimax_h3, _numbered, _by_halves, ("transformer_minimax_h3",)
    ),
    ("Ideogram4MRoPE", "rotary_emb"): PositionClass(
        _ideogram, _numbered, _by_halves, ("transformer_ideogram4",), _backwards, scales="pairs"
    ),
    ("MochiRoPE", "rope"): PositionClass(
        None, _around_the_middle, _of_mochi, ("transformer_mochi",), scales="positions"
    ),
    ("LTXVideoRotaryPosEmbed", "rope"): PositionClass(
        _growing(3), _measured, _of_ltx, ("transformer_ltx",), scales="positions"
    ),
    **{
        (_LTX_2, place): PositionClass(
            _growing(axes), _middles, _of_ltx_2, ("transformer_ltx2",), scales="positions"
        )
        for place, axes in _LTX_2_AXES.items()
    },
    ("CogVideoXTransformer3DModel", ""): PositionClass(
        lambda module, config, scaling: _eighths(config.attention_head_dim, scaling), _of_cogvideox, _by_channels,
        ("cogvideox_transformer_3d",), _of_thousand, refusal=_only_where_rotated,
    ),
    ("HunyuanDiT2DModel", ""): PositionClass(
        _column_first, _of_hunyuan_dit, _by_channels, ("hunyuan_transformer_2d",), _of_thousand
    ),
}  # fmt: skip
KNOWN = tuple(dict.fromkeys(name for name, _ in CLASSES))
