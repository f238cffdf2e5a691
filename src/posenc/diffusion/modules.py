"""How each class of diffusers computes its tables of positions, as code next to the records of `models`.

A record of `MODULES` has what posenc puts in the place of one module: the rotation, where the tokens of a call stand,
and the form in which the model takes the table. Where the pipeline makes the tables (CogVideoX, ConsisID, HunyuanDiT,
Lumina-Next, Allegro), posenc's take their place on the way into the transformer; where a method makes them (JoyImage,
Wan-Animate 2), posenc stands in for the method.

What is scaled differs by model:

    most models         the axes that `models` lets a scaling act on, all tokens
    Qwen-Image, JoyImage    the pictures; text keeps the model's own frequencies, as in DyPE's code for Qwen-Image,
                        since it begins behind the picture, at unscaled coordinates
    LTX, LTX-2, Mochi, OmniGen    coordinates are divided (`PositionInterpolation`), as their frequencies grow, are
                        learned, or come with the call; of LTX-2 the seconds of sound and of the video alike, so that
                        the two stay in step
    Ovis-Image, LongCat-Image    all tokens; their text counts on rows and columns, and is scaled with the pictures
    Ideogram 4, Cosmos 3    one scaling for all axes, which share one list of frequencies

Source: diffusers 0.42, models/transformers/*.py; pipelines/cogvideo/pipeline_cogvideox.py,
    pipelines/hunyuandit/pipeline_hunyuandit.py, pipelines/allegro/pipeline_allegro.py.
Checked against: tiny models of these classes, whose outputs stay the same (tests/reference/test_diffusers_attach.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from posenc.arguments import shown
from posenc.diffusion.models import Model, ModelName, Transformer
from posenc.diffusion.rules import latents
from posenc.encoding import RotaryEncoding, Table
from posenc.positions import Image, Text, Video, grid
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
        steps: how far each coordinate moves from one token to the next, where the call decides it; None: as the model's
            axes say.
    """

    positions: Tensor
    sizes: tuple[int, ...] | None
    scaled: Tensor | None = None
    frequencies: Tensor | None = None
    call: Any = None
    steps: tuple[float, ...] | None = None


BY_RECORD: Literal["by record"] = "by record"


class PositionModule(NamedTuple):
    """What posenc puts in the place of one class of diffusers that makes tables of positions.

    Attributes:
        model: whose positions it has, unless its transformer's class says otherwise.
        tokens: where the tokens stand, given the module and the arguments of its call.
        table: cos and sin ``(*batch, tokens, pairs)`` in the form in which the model takes them.
        rotation: the encoding, given the module, the transformer's config and a scaling; `BY_RECORD`: with the sizes
            that the model's record gives; None where the frequencies come with each call.
        sizes: tokens along each axis, given the module and the arguments of the transformer, where the module is called
            several times for one call of the transformer: all tables of one attention need the same frequencies.
        beyond: whether a call passes the end of the module's own tables, which posenc's do not have.
        variant: the model by the transformer's config, where it decides.
        method: whether it is a method of the transformer that is replaced.
    """

    model: ModelName
    tokens: Callable[..., Tokens]
    table: Callable[[Tensor, Tensor, Tokens, Any], Any]
    rotation: Callable[[Any, Any, Any], RotaryEncoding] | Literal["by record"] | None = BY_RECORD
    sizes: Callable[[Any, Mapping[str, Any]], tuple[int, ...]] | None = None
    beyond: Callable[[Any, Tokens], bool] | None = None
    variant: Callable[[Any], ModelName] | None = None
    method: bool = False


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


def _complex(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    return torch.complex(cos, sin)


def _complex_of_heads(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    return torch.complex(cos, sin)[None, None]


def _for_queries_and_keys(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> dict[str, Tensor]:
    """AnyFlow multiplies in float64."""
    waves = torch.complex(_wide(cos), _wide(sin))[None, None]
    return {"query": waves, "key": waves}


def _by_index(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    """Wan-Animate 2: a row for each number on all axes, which it multiplies by in float64."""
    return torch.complex(_wide(cos), _wide(sin))


def _quads(cos: Tensor, sin: Tensor) -> Tensor:
    """Rotations as matrices ``(*batch, tokens, pairs, 2, 2)``."""
    quads: Tensor = torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))  # type: ignore[no-untyped-call]
    return quads


def _matrices_behind_tokens(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    return _quads(cos, sin).unsqueeze(-4)


def _matrices_of_heads(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    return _quads(cos, sin).unsqueeze(1)


def _matrices_on_grid(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    assert tokens.sizes is not None
    on_grid: Tensor = _quads(cos, sin).unflatten(0, tokens.sizes)  # type: ignore[no-untyped-call]
    return on_grid.unsqueeze(-4)


def _matrices(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    """Kandinsky 5: the same for each row of the batch."""
    on_grid = _matrices_on_grid(cos, sin, tokens, module)
    return on_grid.expand(tokens.call, *on_grid.shape)


def _angles(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    """ERNIE-Image takes cos and sin of the angles itself."""
    return torch.atan2(sin, cos).repeat_interleave(2, -1).unsqueeze(-2)


def _of_helios(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    """All cosines, then all sines, along channels of ``(batch, channels, frames, rows, columns)``."""
    channels = torch.cat(_by_channels(cos, sin, tokens, module), -1)
    on_grid: Tensor = channels.mT.unflatten(-1, tokens.call)  # type: ignore[no-untyped-call]
    return on_grid


def _of_cosmos_3(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Table:
    return tuple(part.to(tokens.call) for part in _by_halves(cos, sin, tokens, module))


def _of_omnigen(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Table:
    """With the gain of LongRoPE."""
    original = module.original_max_position_embeddings
    longer = max(module.max_position_embeddings / original, 1.0)
    gain = math.sqrt(1 + math.log(longer) / math.log(original))
    return tuple(part.squeeze(0) * gain for part in _by_halves(cos, sin, tokens, module))


def _of_joyimage(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Any, Any]:
    cos, sin = _by_channels(cos, sin, tokens, module)
    pictures = tokens.call
    return (cos[:pictures], sin[:pictures]), ((cos[pictures:], sin[pictures:]) if len(cos) > pictures else None)


def _of_lumina_next(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Tensor:
    assert tokens.sizes is not None
    on_grid: Tensor = torch.complex(cos, sin).unflatten(0, tokens.sizes)  # type: ignore[no-untyped-call]
    return on_grid


def _of_allegro(cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> tuple[Any, Any]:
    """A table for each axis, and the row of it that each token reads."""
    assert tokens.sizes is not None
    pairs = cos.shape[-1] // 3
    tables, begins = [], 0
    for axis, size in enumerate(tokens.sizes):
        rows, channels = slice(begins, begins + size), slice(axis * pairs, (axis + 1) * pairs)
        tables.append(tuple(torch.cat([part[rows, channels]] * 2, -1) for part in (cos, sin)))
        begins += size
    return tuple(tables), tuple(grid(*tokens.sizes).to(cos.device).T[:, None])


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


def numbered(module: Any, ids: Tensor) -> Tokens:
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
        return tuple(patch)[-axes:]
    return (getattr(module, "patch_size_t", 1), patch, patch)[-axes:]


def _ruled(model: ModelName, **options: Any) -> Callable[[Any, Tensor], Tokens]:
    """A call with the latent, whose tokens stand by the rule of a model of `latents`."""

    def tokens(module: Any, latent: Tensor) -> Tokens:
        sizes = _sizes(module, latent)
        by_module = {name: value(module) for name, value in options.items()}
        return Tokens(_placed(latents([Video(*sizes)], model=model, **by_module), latent.device), sizes)

    return tokens


def _by_sizes(module: Any, sizes: Sequence[int], device: torch.device | None = None) -> Tokens:
    """A call with the sizes themselves."""
    frames, rows, columns = (int(size) for size in sizes)
    return Tokens(_placed(grid(frames, rows, columns), device), (frames, rows, columns))


def _onto_trained(module: Any, latent: Tensor) -> Tokens:
    tokens = _counted(module, latent)
    return tokens._replace(positions=floored(tokens.positions, times=module.rope_axes_dim, over=_sizes(module, latent)))


def _by_seconds(module: Any, latent: Tensor, fps: float | None = None) -> Tokens:
    tokens = _counted(module, latent)
    if fps is None:
        return tokens
    rate = module.base_fps / float(fps)
    positions = affine(_wide(tokens.positions), times=[rate, 1, 1], plus=[0] * 3, over=[1] * 3)
    return tokens._replace(positions=positions, steps=(rate, 1.0, 1.0))


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


def _sizes_of_ids(
    *names: str, steps: Sequence[float] = (1, 1, 1, 1)
) -> Callable[[Any, Mapping[str, Any]], tuple[int, ...]]:
    """One more than the steps to the largest coordinate on each axis, of all ids that the transformer is given."""

    def sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        ids = [arguments[name].flatten(0, -2).float() for name in names if arguments.get(name) is not None]
        largest = torch.cat(ids).amax(0).tolist()
        return tuple(round(number / step) + 1 for number, step in zip(largest, steps, strict=True))

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


def _captioned_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    return (_z_image_sizes if "cap_feats" in arguments else _fibo_2_sizes)(module, arguments)


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
    over = [float(factor) for factor in scale_factor]
    scaled = affine(_wide(counted), times=[1] * 3, plus=[0] * 3, over=over)
    steps = tuple(1 / factor for factor in over)
    return Tokens(scaled, (int(shape[1]), int(shape[2]), int(shape[3])), call=int(shape[0]), steps=steps)


def _by_numbers(module: Any, pos: Sequence[Tensor], scale_factor: Sequence[float] = (1.0, 1.0, 1.0)) -> Tokens:
    """Kandinsky 6: the same, without the shape."""
    return _by_axis(module, (1, *(len(numbers) for numbers in pos)), pos, scale_factor)


def _whole_layout(module: Any, layout_cfg: Mapping[str, Any], device: torch.device) -> Tokens:
    """AnyFlow: frames, rows and columns by the layout of the call."""
    return _by_sizes(module, (layout_cfg["total_frames"], *layout_cfg["full_frame_shape"]), device)


def _far_layout(
    module: Any, far_cfg: Mapping[str, Any], device: torch.device, clean_hidden_states: Tensor | None = None
) -> Tokens:
    """AnyFlow FAR: compressed frames, whose tokens join several patches and stand in their middle; then whole ones.

    Source: the mean of waves of k neighbours is a wave at their middle, k · i + (k − 1) / 2, which is normalised.
    """
    frames, compressed = far_cfg["total_frames"], far_cfg["num_compressed_frames"]
    rows, columns = far_cfg["full_frame_shape"]
    history = grid(frames, rows, columns)[compressed * rows * columns :].double()
    joined = torch.tensor([by // own for by, own in zip(module.compressed_patch_size, module.patch_size, strict=True)])
    few = grid(frames, *far_cfg["compressed_frame_shape"])
    few = few[: compressed * math.prod(far_cfg["compressed_frame_shape"])].double() * joined + (joined - 1) / 2
    clean = [history] if clean_hidden_states is not None else []
    return Tokens(_placed(torch.cat([few, *clean, history]), device), (frames, rows, columns))


def _by_batch_of_frames(module: Any, frame_indices: Tensor, height: int, width: int, device: Any) -> Tokens:
    """Helios: the frames that each row of the call numbers."""
    shape = (frame_indices.shape[1], int(height), int(width))
    counted = grid(*shape).to(device)
    times = frame_indices.to(counted)[:, counted[:, 0]]
    places = counted.expand(len(frame_indices), -1, -1).clone()
    places[..., 0] = times
    return Tokens(places, (int(frame_indices.max()) + 1, *shape[1:]), call=shape)


def _helios_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Frames up to the largest number of the call: its history is rotated like its own frames."""
    frames, rows, columns = (
        size // by for size, by in zip(arguments["hidden_states"].shape[2:], (1, 2, 2), strict=True)
    )
    names = ("hidden_states", "latents_history_short", "latents_history_mid", "latents_history_long")
    numbered = [arguments.get(f"indices_{name}") for name in names]
    return max([frames, *(int(each.max()) + 1 for each in numbered if each is not None)]), rows, columns


def _fibo_2_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Rows and columns of the largest picture; its gist and pictures have numbers up to the last one's."""
    pictures = [arguments["hidden_states"], *(arguments.get("context_latents") or [])]
    return len(pictures), max(each.shape[2] // 2 for each in pictures), max(each.shape[3] // 2 for each in pictures)


def _by_streams(module: Any, position_ids: Tensor, device: Any, dtype: torch.dtype) -> Tokens:
    """Cosmos 3: ``(3, batch, tokens)``, or one number for all axes."""
    ids = position_ids.expand(3, *position_ids.shape) if position_ids.ndim == 2 else position_ids
    return Tokens(ids.movedim(0, -1).to(device), None, call=dtype)


def _one_row(module: Any, hidden_states: Tensor, position_ids: Tensor, *, divisors: tuple[float, ...]) -> Tokens:
    """OmniGen: LongRoPE's factors by the longest row; of a batch the first row's positions, as in its own module."""
    longest = int(position_ids.max()) + 1
    is_long = longest > module.original_max_position_embeddings
    factors = torch.tensor(module.long_factor if is_long else module.short_factor, dtype=torch.float64)
    pairs = torch.arange(0, module.dim, 2, dtype=torch.float64) / module.dim
    theta = 1 / (factors * module.base**pairs)
    places = _wide(position_ids[0, :, None]) / divisors[0]
    return Tokens(places, (longest,), frequencies=theta[None, None].to(places.device))


def _pictures_of_joyimage(module: Any, vis_rope_size: Sequence[int], txt_rope_size: int | None = None) -> Tokens:
    sizes = (1,) * (3 - len(vis_rope_size)) + tuple(int(size) for size in vis_rope_size)
    pictures = grid(*sizes)
    words = torch.arange(txt_rope_size or 0)[:, None].expand(-1, 3) + max(sizes)
    scaled = torch.arange(len(pictures) + len(words)) < len(pictures)
    return Tokens(torch.cat([pictures, words]), sizes, scaled, call=len(pictures))


def _range(module: Any, start: Sequence[int], stop: Sequence[int]) -> Tokens:
    """JoyImage Edit Plus: one picture of several, between two corners."""
    sizes = tuple(last - first for first, last in zip(start, stop, strict=True))
    return Tokens(grid(*sizes) + torch.tensor(list(start)), sizes)


def _joyimage_plus_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    pictures = [shape for row in arguments["shape_list"] for shape in row]
    return tuple(max(shape[axis] for shape in pictures) for axis in range(3))


def _counted_from(module: Any, offsets: Sequence[int], device: Any) -> Tokens:
    """Wan-Animate 2: as many numbers on each axis as its own table has, from an offset."""
    counted = torch.arange(512)[:, None] + torch.tensor([int(offset) for offset in offsets])
    return Tokens(_placed(counted, device), (512,) * 3)


def _animate_2_sizes(module: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    return _sizes(module.config, arguments["hidden_states"][0][None])


def _of_latent_grid(module: Any, latent: Tensor) -> Tokens:
    """Lumina-Next: what its pipeline would compute for a latent, as large as the picture."""
    return _counted(module.config, latent)


def _each_axis(module: Any, latent: Tensor) -> Tokens:
    """Allegro: the rows of its three tables, one behind the other."""
    config = module.config
    frames, rows, columns = latent.shape[2:]
    sizes = (frames // config.patch_size_t, rows // config.patch_size, columns // config.patch_size)
    scales = (config.interpolation_scale_t, config.interpolation_scale_h, config.interpolation_scale_w)
    places = [torch.zeros(size, 3, dtype=torch.float64) for size in sizes]
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        places[axis][:, axis] = torch.arange(size, dtype=torch.float64) / scale
    return Tokens(_placed(torch.cat(places), latent.device), sizes, steps=tuple(1 / scale for scale in scales))


# ---------------------------------------------------------------- where the model's own tables end


def _past(name: str) -> Callable[[Any, Tokens], bool]:
    """Of tables whose lengths, of all axes alike or of each, the module keeps under this name."""

    def beyond(module: Any, tokens: Tokens) -> bool:
        ends, sizes = getattr(module, name), tokens.sizes
        assert sizes is not None
        return any(size > (ends if isinstance(ends, int) else ends[axis]) for axis, size in enumerate(sizes))

    return beyond


def _past_axes_lens(module: Any, tokens: Tokens) -> bool:
    largest = tokens.positions.flatten(0, -2).amax(0).tolist()
    return any(number >= end for number, end in zip(largest, module.axes_lens, strict=True))


def _past_longest_side(module: Any, tokens: Tokens) -> bool:
    assert tokens.sizes is not None
    return max(tokens.sizes) > int(max(module.max_size))


def _past_text(module: Any, tokens: Tokens) -> bool:
    """Qwen-Image: text begins behind half of the longest side."""
    assert tokens.sizes is not None
    return max(tokens.sizes) // 2 + len(tokens.positions) - int(tokens.call) > 4096


def _past_stream(module: Any, tokens: Tokens) -> bool:
    return int(tokens.positions.max()) > 8191


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
    return _pictures("qwen-image", module, video_fhw, device, max_txt_seq_len)


def _of_layers(
    module: Any, video_fhw: Any, max_txt_seq_len: int | Tensor, device: torch.device | None = None
) -> Tokens:
    """Qwen-Image-Layered: layers, the picture that they are of, text."""
    return _pictures("qwen-image-layered", module, video_fhw, device, max_txt_seq_len)


def _of_one_picture(
    module: Any, video_fhw: Any, device: torch.device | None = None, max_txt_seq_len: int | Tensor | None = None
) -> Tokens:
    """Nucleus-Image: as Qwen-Image, but text begins behind the last picture, so there may be only one."""
    tokens = _pictures("qwen-image", module, video_fhw, device, max_txt_seq_len)
    if tokens.sizes is not None and tokens.sizes[0] > 1:
        raise ValueError(f"video_fhw must be one picture for this model, got {shown(video_fhw)}")
    return tokens


def _pictures(
    model: ModelName, module: Any, video_fhw: Any, device: torch.device | None, max_txt_seq_len: int | Tensor | None
) -> Tokens:
    if max_txt_seq_len is None:
        raise ValueError("max_txt_seq_len must be given: the tokens of the text")
    pictures = video_fhw[0] if isinstance(video_fhw, list) else video_fhw
    pictures = pictures if isinstance(pictures, list) else [pictures]
    if any(frames != 1 for frames, _, _ in pictures):
        raise ValueError(f"video_fhw must be pictures of one frame, got {shown(video_fhw)}")
    words = int(max_txt_seq_len)
    parts = [Image(height, width) for _, height, width in pictures]
    placed = latents([*parts, Text(words)], model=model)
    if not module.scale_rope:  # counted from the top left corner, and text from the longest side
        corners = [torch.tensor([0, (part.height + 1) // 2, (part.width + 1) // 2]) for part in parts]
        tokens = [part.height * part.width for part in parts]
        sides = [side for part in parts for side in (part.height, part.width)]
        furthest = [side // 2 for side in sides] + [len(parts) - 1] * (model == "qwen-image-layered")
        behind = max(sides + [len(parts) - 1] * (model == "qwen-image-layered")) - max(furthest)
        moved = [corner.expand(count, 3) for corner, count in zip(corners, tokens, strict=True)]
        placed = placed + torch.cat([*moved, torch.full((words, 3), behind)])
    positions = _placed(placed, device)
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
    patch, patch_t = config.patch_size, getattr(config, "patch_size_t", None)
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


def by_record(known: Transformer, config: Any) -> dict[str, Any]:
    """The sizes of a rotation as the record gives them for a config: channels and base of each axis.

    They are plain values, since an attached module is saved with its model.
    """
    filled = known.filled(dict(config))
    widths, bases = tuple(known.widths(filled)), tuple(map(float, known.bases(filled)))
    return {"widths": widths, "base": bases[0] if len(set(bases)) == 1 else bases}


def rotation_of(model: Model, sizes: Mapping[str, Any], scaling: Any) -> RotaryEncoding:
    """The rotation of a record with these sizes, over the channels that the tables have."""
    widths, base = sizes["widths"], sizes["base"]
    if model.scales == "pairs":
        sections = tuple(width // 2 for width in widths)
        return MRoPE(sum(widths), sections=sections, interleaved=True, base=base, scaling=scaling)
    if model.convention != "eva-02":  # whose axes are alike
        return AxialRoPE(sum(widths), axes=len(widths), convention=model.convention, base=base, scaling=scaling)
    return AxialRoPE(sum(widths), axes_dims=widths, layout=model.layout, base=base, scaling=scaling)


def _growing(axes: int) -> Callable[[Any, Any, Any], AxialRoPE]:
    return lambda module, config, scaling: AxialRoPE(module.dim, axes=axes, base=float(module.theta), convention="ltx")


# ---------------------------------------------------------------- classes

_LTX_2 = ("LTX2AudioVideoRotaryPosEmbed", "SanaWMLTX2AudioVideoRotaryPosEmbed")
_LTX_2_AXES = {"rope": 3, "audio_rope": 1, "cross_attn_rope": 1, "cross_attn_audio_rope": 1}


def _of_captioned(config: Any) -> ModelName:
    return "bria-fibo-2" if hasattr(config, "max_num_gist_tokens") else "z-image"


def _of_cogvideox_version(config: Any) -> ModelName:
    return "cogvideox-1.5" if getattr(config, "patch_size_t", None) else "cogvideox"


# by the name of the class, and the transformer's attribute that holds it: "" where the pipeline makes the tables
MODULES: dict[tuple[str, str], PositionModule] = {
    ("FluxPosEmbed", "pos_embed"): PositionModule("flux-1", numbered, _by_channels),  # FLUX.1, Kontext, Chroma
    ("BriaEmbedND", "pos_embed"): PositionModule("flux-1", numbered, _by_channels),
    ("BriaFiboEmbedND", "pos_embed"): PositionModule("flux-1", numbered, _by_channels),
    ("OvisImagePosEmbed", "pos_embed"): PositionModule("ovis-image", numbered, _by_channels, sizes=_extent_of_ids),
    ("LongCatImagePosEmbed", "pos_embed"): PositionModule(
        "longcat-image", numbered, _by_channels, sizes=_extent_of_ids
    ),
    ("Flux2PosEmbed", "pos_embed"): PositionModule(
        "flux-2", numbered, _by_channels, sizes=_sizes_of_ids("txt_ids", "img_ids")
    ),
    ("Flux3PosEmbed", "pos_embed"): PositionModule(
        "flux-3", numbered, _by_channels,
        sizes=_sizes_of_ids("txt_ids", "img_ids", "image_cond_ids", steps=(1, 0.5, 0.5, 1)),
    ),
    ("Krea2RotaryPosEmbed", "rotary_emb"): PositionModule("krea-2", numbered, _by_channels),
    ("HiDreamImageEmbedND", "pe_embedder"): PositionModule("hidream", numbered, _matrices_behind_tokens),
    ("PRXEmbedND", "pe_embedder"): PositionModule("prx", numbered, _matrices_of_heads),
    ("ErnieImageEmbedND3", "pos_embed"): PositionModule("ernie-image", numbered, _angles),
    ("QwenEmbedRope", "pos_embed"): PositionModule("qwen-image", _of_pictures, _pictures_and_text, beyond=_past_text),
    ("QwenEmbedLayer3DRope", "pos_embed"): PositionModule(
        "qwen-image-layered", _of_layers, _pictures_and_text, beyond=_past_text
    ),
    ("QwenImage21Rope", "pos_embed"): PositionModule("qwen-image-2.1", _of_one_stream, _complex, beyond=_past_stream),
    ("NucleusMoEEmbedRope", "pos_embed"): PositionModule(
        "qwen-image", _of_one_picture, _pictures_and_text, beyond=_past_text
    ),
    ("JoyImageEditTransformer3DModel", "get_rotary_pos_embed"): PositionModule(
        "joyimage", _pictures_of_joyimage, _of_joyimage, method=True
    ),
    ("JoyImageEditPlusTransformer3DModel", "_get_rotary_pos_embed_for_range"): PositionModule(
        "joyimage", _range, _by_channels, sizes=_joyimage_plus_sizes, method=True
    ),
    ("WanRotaryPosEmbed", "rope"): PositionModule("wan", _counted, _of_wan, beyond=_past("max_seq_len")),
    ("SkyReelsV2RotaryPosEmbed", "rope"): PositionModule("wan", _counted, _of_wan, beyond=_past("max_seq_len")),
    ("AnyFlowRotaryPosEmbed", "rope"): PositionModule(
        "wan", _whole_layout, _for_queries_and_keys, beyond=_past("max_seq_len")
    ),
    ("AnyFlowCausalRotaryPosEmbed", "rope"): PositionModule(
        "wan", _far_layout, _for_queries_and_keys, beyond=_past("max_seq_len")
    ),
    ("SanaWMRotaryPosEmbed", "rope"): PositionModule("wan", _by_sizes, _complex_of_heads, beyond=_past("max_seq_len")),
    ("WanAnimate2Transformer3DModel", "_rope_freqs"): PositionModule(
        "wan", _counted_from, _by_index, sizes=_animate_2_sizes, method=True
    ),
    ("ChronoEditRotaryPosEmbed", "rope"): PositionModule(
        "chrono-edit", _ruled("chrono-edit"), _of_wan, beyond=_past("max_seq_len")
    ),
    ("HeliosRotaryPosEmbed", "rope"): PositionModule("helios", _by_batch_of_frames, _of_helios, sizes=_helios_sizes),
    ("HunyuanVideoRotaryPosEmbed", "rope"): PositionModule("hunyuan-video", _counted, _by_channels),
    ("HunyuanVideo15RotaryPosEmbed", "rope"): PositionModule("hunyuan-video", _counted, _by_channels),
    ("MotifVideoRotaryPosEmbed", "rope"): PositionModule("hunyuan-video", _counted, _by_channels),
    ("HunyuanVideoFramepackRotaryPosEmbed", "rope"): PositionModule(
        "framepack", _by_frame_numbers, _by_channels, sizes=_framepack_sizes
    ),
    ("HunyuanImageRotaryPosEmbed", "rope"): PositionModule("hunyuan-image", _counted, _by_channels),
    ("RopeEmbedder", "rope_embedder"): PositionModule(
        "z-image", numbered, _complex, sizes=_captioned_sizes, beyond=_past_axes_lens, variant=_of_captioned
    ),  # Z-Image, Bria Fibo 2
    ("Lumina2RotaryPosEmbed", "rope_embedder"): PositionModule(
        "lumina-2", _behind_captions, _caption_and_picture, beyond=_past_axes_lens
    ),
    ("CogView4RotaryPosEmbed", "rope"): PositionModule("cogview-4", _onto_trained, _by_halves),
    ("GlmImageRotaryPosEmbed", "rope"): PositionModule("glm-image", _counted, _by_halves),
    ("CosmosRotaryPosEmbed", "rope"): PositionModule("cosmos", _by_seconds, _by_halves, beyond=_past_longest_side),
    ("Cosmos3VLTextRotaryEmbedding", "rotary_emb"): PositionModule("cosmos-3", _by_streams, _of_cosmos_3),
    ("Kandinsky5RoPE3D", "visual_rope_embeddings"): PositionModule(
        "kandinsky-5", _by_axis, _matrices, beyond=_past("max_pos")
    ),
    ("Kandinsky6RoPE3D", "visual_rope_embeddings"): PositionModule(
        "kandinsky-6", _by_numbers, _matrices_on_grid, beyond=_past("max_pos")
    ),
    ("Kandinsky6SRRoPE3D", "visual_rope_embeddings"): PositionModule(
        "kandinsky-6-sr", _by_numbers, _matrices_on_grid, beyond=_past("max_pos")
    ),
    ("EasyAnimateRotaryPosEmbed", "rope_embedding"): PositionModule(
        "easyanimate",
        _ruled("easyanimate", trained=lambda module: (60 // module.patch_size, 90 // module.patch_size)), _by_channels,
    ),
    ("MiniMaxH3RotaryPosEmbed", "rope"): PositionModule("minimax-h3", numbered, _by_halves),
    ("Ideogram4MRoPE", "rotary_emb"): PositionModule("ideogram-4", numbered, _by_halves),
    ("MochiRoPE", "rope"): PositionModule("mochi", _around_the_middle, _of_mochi, rotation=None),
    ("OmniGenSuScaledRotaryEmbedding", "rope"): PositionModule("omnigen", _one_row, _of_omnigen, rotation=None),
    ("LTXVideoRotaryPosEmbed", "rope"): PositionModule("ltx", _measured, _of_ltx, rotation=_growing(3)),
    **{
        (name, place): PositionModule("ltx-2", _middles, _of_ltx_2, rotation=_growing(axes))
        for name in _LTX_2 for place, axes in _LTX_2_AXES.items()
    },
    ("CogVideoXTransformer3DModel", ""): PositionModule(
        "cogvideox", _of_cogvideox, _by_channels, variant=_of_cogvideox_version
    ),
    ("ConsisIDTransformer3DModel", ""): PositionModule("cogvideox", _of_cogvideox, _by_channels),
    ("HunyuanDiT2DModel", ""): PositionModule("hunyuan-dit", _of_hunyuan_dit, _by_channels),
    ("HunyuanDiT2DControlNetModel", ""): PositionModule("hunyuan-dit", _of_hunyuan_dit, _by_channels),
    ("LuminaNextDiT2DModel", ""): PositionModule("lumina-next", _of_latent_grid, _of_lumina_next),
    ("AllegroTransformer3DModel", ""): PositionModule("allegro", _each_axis, _of_allegro),
}  # fmt: skip
