"""posenc's rotation in a transformer of diffusers: attached, scaled for larger pictures and longer videos, detached.

    from posenc.diffusers import attach, detach
    attach(pipe.transformer, scaling=(None, YaRN(2.0, original_length=64), YaRN(2.0, original_length=64)))

The module that makes the model's tables of cos and sin is replaced by one that makes them by `AxialRoPE`, in float32 of
exact angles; everything else of the model, its applying of the tables included, is its own. Flux, Flux 2, Qwen-Image,
Wan and HunyuanVideo are known, by the class of that module, whatever its sizes.

Source: diffusers 0.42, models/transformers (transformer_flux.py, transformer_flux2.py, transformer_qwenimage.py,
    transformer_wan.py, transformer_hunyuan_video.py).
Checked against: tiny models of these classes, whose outputs stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from posenc.arguments import shown
from posenc.positions import Image, Text, grid, latents
from posenc.positions.parts import Part
from posenc.rotary.axial import AxialRoPE

Scalings = Sequence[nn.Module | None]
Scaling = Scalings | Callable[[tuple[int, ...]], Scalings | None] | None


class AttachedPositions(nn.Module):
    """The tables of a model's positions by posenc, in the form in which the model takes them.

    Args:
        replaced: the model's own module.
        scaling: as for `attach`.
    """

    def __init__(self, replaced: nn.Module, scaling: Scaling) -> None:
        super().__init__()
        self._replaced = (replaced,)  # in a tuple: no part of the model while it is replaced
        self.kind = type(replaced).__name__
        self.axes_dims, self.base = _numbers_of(replaced)
        self.scaling = scaling
        self._of_sizes((1,) * len(self.axes_dims))  # a scaling that does not fit is refused here

    @property
    def replaced(self) -> nn.Module:
        """The model's own module."""
        return self._replaced[0]

    def _of_sizes(self, sizes: tuple[int, ...]) -> AxialRoPE:
        scaling = self.scaling(sizes) if callable(self.scaling) else self.scaling
        return AxialRoPE(sum(self.axes_dims), axes_dims=self.axes_dims, base=self.base, scaling=scaling)

    def _tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        sizes = tuple(int(size) + 1 for size in positions.amax(0).tolist())
        cos, sin = self._of_sizes(sizes).table(positions)
        return cos, sin

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The tables for a call of the model's own module."""
        if self.kind in ("FluxPosEmbed", "Flux2PosEmbed"):
            return _repeated(self._tables(inputs[0]))
        if self.kind == "QwenEmbedRope":
            return self._of_qwen_image(*inputs, **options)
        latent, own = inputs[0], cast(Any, self.replaced)
        patch = own.patch_size
        sizes = (own.patch_size_t, patch, patch) if isinstance(patch, int) else patch
        frames, height, width = (size // by for size, by in zip(latent.shape[2:], sizes, strict=True))
        tables = _repeated(self._tables(grid(frames, height, width).to(latent.device)))
        return tuple(table[None, :, None] for table in tables) if self.kind == "WanRotaryPosEmbed" else tables

    def _of_qwen_image(
        self, video_fhw: Any, device: torch.device | None = None, max_txt_seq_len: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Complex tables of pictures and of text; of a batch the first row's, as in the model's own module."""
        if max_txt_seq_len is None:
            raise ValueError("max_txt_seq_len must be given: the tokens of the text")
        pictures = video_fhw[0] if isinstance(video_fhw, list) else video_fhw
        pictures = pictures if isinstance(pictures, list) else [pictures]
        if any(frames != 1 for frames, _, _ in pictures):
            raise ValueError(f"video_fhw must be pictures of one frame, got {shown(video_fhw)}")
        parts: list[Part] = [Image(height, width) for _, height, width in pictures]
        words = int(max_txt_seq_len)
        positions = latents([*parts, Text(words)], model="qwen-image").to(device or torch.device("cpu"))
        waves = torch.complex(*self._tables(positions))
        return waves[: len(waves) - words], waves[len(waves) - words :]


_PLACES = {  # where a model has its module, by the module's class
    "FluxPosEmbed": "pos_embed", "Flux2PosEmbed": "pos_embed", "QwenEmbedRope": "pos_embed",
    "WanRotaryPosEmbed": "rope", "HunyuanVideoRotaryPosEmbed": "rope",
}  # fmt: skip


def attach(transformer: nn.Module, scaling: Scaling = None) -> nn.Module:
    """Let posenc make a model's tables of positions; returns the model, which is changed in place.

    Args:
        transformer: a transformer of diffusers with the positions of Flux, Flux 2, Qwen-Image, Wan or HunyuanVideo.
        scaling: a `Scaling` or None for each axis; or a function of the sizes, the largest coordinate + 1 of each axis,
            that gives them for each call, as `RIFLEx` and `DyPE` need; None: the model's own frequencies.

    Raises:
        ValueError: for a model whose positions are not known, and for a scaling that does not fit its axes.
    """
    name, module = _place(transformer)
    own = module.replaced if isinstance(module, AttachedPositions) else module
    setattr(transformer, name, AttachedPositions(own, scaling))
    return transformer


def detach(transformer: nn.Module) -> nn.Module:
    """Put the model's own module back; nothing changes where posenc's is not attached."""
    name, module = _place(transformer)
    if isinstance(module, AttachedPositions):
        setattr(transformer, name, module.replaced)
    return transformer


def _place(transformer: nn.Module) -> tuple[str, nn.Module]:
    for name in sorted(set(_PLACES.values())):
        module = getattr(transformer, name, None)
        if isinstance(module, AttachedPositions) or _PLACES.get(type(module).__name__) == name:
            assert isinstance(module, nn.Module)
            return name, module
    known = ", ".join(sorted(_PLACES))
    raise ValueError(f"transformer must have one of {known} as pos_embed or rope, got {type(transformer).__name__}")


def _numbers_of(module: Any) -> tuple[tuple[int, ...], float]:
    """Channels of each axis and the base, as the model's own module has them."""
    if type(module).__name__ == "WanRotaryPosEmbed":
        return (module.t_dim, module.h_dim, module.w_dim), 10_000.0
    widths = module.rope_dim if hasattr(module, "rope_dim") else module.axes_dim
    return tuple(widths), float(module.theta)


def _repeated(tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Each pair's number for both of its channels, (2j, 2j + 1)."""
    cos, sin = tables
    return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
