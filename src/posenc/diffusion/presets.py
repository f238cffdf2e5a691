"""A diffusion transformer's encoding and positions by the model's name, in one call.

    from posenc.diffusion import preset
    flux = preset("flux-1", [Text(512), Image(64, 64)])
    out = attention(q, k, v, [flux.encoding], q_pos=flux.positions, causal=False)

Sizes are the released ones: ``head_dim=…``, ``axes_dims=…``, ``num_heads=…`` change them.
`latents` has the rule of each model's positions. Most encodings are `AxialRoPE`; the others:

    mochi               mixed RoPE, frequencies learned (heads, 3, pairs): give the checkpoint's as ``frequencies``
    ltx                 axial RoPE of convention "ltx" over the width of all heads; cut q and k into heads behind it
    ltx-2               the same frequencies dealt out to the heads, "half" within each (its rope_type "split")
    ideogram-4          M-RoPE, as Qwen3-VL
    sd3, pixart         sinusoidal embedding, the column's half first
    cogvideox-2b        sinusoidal embedding of three axes

Source: diffusers 0.42, models/transformers/transformer_*.py and models/embeddings.py.
Checked against: the position modules of the installed diffusers (tests/reference/test_diffusers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from torch import Tensor

from posenc.arguments import check_whole
from posenc.diffusion.models import PRESETS, ModelName, record_of
from posenc.diffusion.rules import Keyframe, latents
from posenc.diffusion.scalings import Fixed, by_axis, in_tokens
from posenc.embedding.sinusoidal_grid import SinusoidalGrid
from posenc.encoding import Encoding
from posenc.positions import Audio
from posenc.positions.parts import Part
from posenc.positions.validation import Sizes
from posenc.rotary._conventions import growing
from posenc.rotary.axial import AxialRoPE
from posenc.rotary.mixed import MixedRoPE
from posenc.rotary.mrope import MRoPE


class Preset(NamedTuple):
    """What a model does with positions.

    Attributes:
        encoding: its rotation, or the embedding that it adds to its tokens.
        positions: of the tokens of a row, ``(tokens, axes)``, or ``(tokens,)`` for one axis.
    """

    encoding: Encoding
    positions: Tensor


def preset(
    model: ModelName,
    parts: Sequence[Part],
    *,
    scaling: Fixed = None,
    fps: float | None = None,
    trained: Sizes | None = None,
    table: int | None = None,
    scale: float | Sequence[float] | None = None,
    frames: Sequence[int] | None = None,
    keyframes: Sequence[Keyframe] | None = None,
    **changes: Any,
) -> Preset:
    """The encoding and the positions of a released model.

    Args:
        model: one of `PRESETS`.
        parts: the tokens of a row: `Text`, `Image`, `Video`, `Audio` of `posenc.positions`.
        scaling: scalings of axes by their names, one (or None) for each, or one for all, as for `attach`; of models
            with axial or multimodal RoPE. They count patches and latent frames.
        fps, trained, table, scale, frames, keyframes: of the positions; see `latents`.
        changes: further arguments of the encoding in the place of the model's own.

    Raises:
        ValueError: for an unknown model, parts and options that it does not take, and arguments that its encoding
            refuses.

    >>> from posenc.positions import Image, Text
    >>> rope, positions = preset("qwen-image", [Image(4, 6), Text(3)])
    >>> rope
    AxialRoPE(128, axes_dims=(16, 56, 56), base=10000, convention='eva-02')
    >>> positions.shape
    torch.Size([27, 3])
    """
    record_of(model, PRESETS)
    positions = latents(
        parts, model=model, fps=fps, trained=trained, table=table, scale=scale, frames=frames, keyframes=keyframes
    )
    arguments = dict(changes)
    if model == "ltx-2" and any(isinstance(part, Audio) for part in parts):
        arguments = {"axes": 1, **arguments}
    return Preset(rotation(model, scaling=scaling, **arguments), positions)


def rotation(model: ModelName, *, scaling: Fixed = None, **changes: Any) -> Any:
    """The encoding of a released model without its positions.

    Args:
        model, scaling: as for `preset`.
        changes: arguments of the encoding in the place of the model's own.

    >>> rotation("wan")
    AxialRoPE(128, axes_dims=(44, 42, 42), base=10000, convention='eva-02')
    """
    record = record_of(model, PRESETS)
    if scaling is not None:
        each = by_axis(scaling, record, model)
        by_token = tuple(
            in_tokens(axis_scaling, axis.step) for axis_scaling, axis in zip(each, record.axes, strict=True)
        )
        changes["scaling"] = each[0] if record.scales == "pairs" else by_token
    try:
        if model in _NOT_AXIAL:
            return _NOT_AXIAL[model](**changes)
        return AxialRoPE(**cast(Any, {**record.arguments(), **changes}))
    except TypeError as error:
        raise ValueError(f"the encoding of {model!r} takes other arguments than {sorted(changes)}: {error}") from error


def _mochi(head_dim: int = 128, num_heads: int = 24, frequencies: Any = None, **changes: Any) -> Encoding:
    """Without given frequencies they are 0, as in diffusers before a checkpoint is loaded."""
    check_whole("head_dim", head_dim, least=2)
    first = [[0.0] * (head_dim // 2)] * 3 if frequencies is None else frequencies
    return MixedRoPE(head_dim, num_heads=num_heads, axes=3, frequencies=first, **changes)


def _ltx_2(head_dim: int = 128, num_heads: int = 32, axes: int = 3, base: float = 10_000.0) -> Encoding:
    """Pair j of the whole width belongs to head j // (pairs of a head); those left over come first and rest."""
    check_whole("head_dim", head_dim, least=2)
    check_whole("num_heads", num_heads)
    check_whole("axes", axes, most=3)
    pairs = head_dim * num_heads // 2
    count = pairs // axes
    woven = [(0, 0.0)] * (pairs - axes * count)
    woven += [(axis, theta) for theta in growing(count, base) for axis in range(axes)]
    width = head_dim // 2
    by_head = [
        [
            [theta if read == axis else 0.0 for read, theta in woven[head * width : (head + 1) * width]]
            for axis in range(axes)
        ]
        for head in range(num_heads)
    ]
    return MixedRoPE(head_dim, num_heads=num_heads, axes=axes, frequencies=by_head, learned=False, layout="half")


def _ideogram_4(head_dim: int = 256, sections: Sequence[int] = (24, 20, 20), **changes: Any) -> Encoding:
    """Time has every pair that rows and columns leave, whatever its section says: of 128 pairs all but 40."""
    check_whole("head_dim", head_dim, least=2)
    sections = (head_dim // 2 - sum(sections[1:]), *sections[1:])
    return MRoPE(head_dim, **{"sections": sections, "interleaved": True, "base": 5e6, **changes})


def _sincos(width: int, **fixed: Any) -> Callable[..., Encoding]:
    return lambda dim=width, **changes: SinusoidalGrid(dim, **{**fixed, **changes})


_NOT_AXIAL: dict[str, Callable[..., Encoding]] = {
    "mochi": _mochi,
    "ltx-2": _ltx_2,
    "ideogram-4": _ideogram_4,
    "sd3": _sincos(1_536),
    "pixart": _sincos(1_152),
    "cogvideox-2b": _sincos(1_920, axes=3, family="cogvideox"),
}
