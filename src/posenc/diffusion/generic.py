"""A module of positions whose class posenc does not know, by what its user says of it: ``attach(…, place=…, axes=…)``.

What the user says is compared with what the module computes: at the first call posenc makes the unscaled table, and
looks for the form in which the module gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

import torch
from torch import Tensor

from posenc.arguments import check_whole, shown
from posenc.diffusion.models import Axis, AxisName, Model, Noise
from posenc.diffusion.modules import Tokens
from posenc.positions import grid
from posenc.rotary.axial import AxialRoPE

KEPT = {"none": "it tells pictures apart", "text": "it counts text"}
CLOSE = 1e-3  # float32 angles of a few thousand radians are off by less


class GenericModule:
    """Stands for a `PositionModule`, of a class that is not known.

    Args:
        axes: channels by the name of the axis, in order.
        base: of the frequencies, or one for each axis.
        noise: the noise level of the transformer's timestep.

    Raises:
        ValueError: for names of axes that are none, and widths that no axis has.
    """

    sizes = beyond = variant = None
    method = False

    def __init__(self, axes: Mapping[str, int], base: float | Sequence[float], noise: Noise | None) -> None:
        names = get_args(AxisName)
        if not isinstance(axes, Mapping) or not axes or any(name not in names for name in axes):
            raise ValueError(f"axes must give channels by names among {names}, in order; got {shown(axes)}")
        for name, width in axes.items():
            check_whole(f"axes[{name!r}]", width, least=2)
        self.widths = tuple(axes.values())
        self.base = base
        by_name = tuple(Axis(cast(AxisName, name), kept=KEPT.get(name, "")) for name in axes)
        self.record = Model(by_name, "as the user says", noise=noise, has_preset=False)
        self._form: str | None = None

    def rotation(self, module: Any, config: Any, scaling: Any) -> AxialRoPE:
        base: Any = self.base if isinstance(self.base, int | float) else tuple(self.base)
        return AxialRoPE(sum(self.widths), axes_dims=self.widths, base=base, scaling=scaling)

    def tokens(self, module: Any, *inputs: Any, **options: Any) -> Tokens:
        """Coordinates, or the grid of a latent; the module's own output is what the form is read off."""
        count = len(self.widths)
        tables = module(*inputs, **options)
        tensors = [each for each in (*inputs, *options.values()) if isinstance(each, Tensor)]
        ids = [each for each in tensors if each.ndim in (2, 3) and each.shape[-1] == count]
        latents = [each for each in tensors if each.ndim == count + 2]
        if ids:
            positions = ids[0].float() if ids[0].is_floating_point() else ids[0]
            tokens = Tokens(positions, None, call=tables)
        elif latents:
            patch = getattr(module, "patch_size", 1)
            patches = (patch,) * count if isinstance(patch, int) else tuple(patch)[-count:]
            sizes = tuple(size // by for size, by in zip(latents[0].shape[2:], patches, strict=True))
            tokens = Tokens(grid(*sizes).to(latents[0].device), sizes, call=tables)
        else:
            raise ValueError(
                f"place: the module must be called with coordinates (…, tokens, {count}) or with a latent of "
                f"{count + 2} axes, got {shown([tuple(each.shape) for each in tensors])}"
            )
        if self._form is None:
            self._form = self._form_of(tables, tokens.positions, module)
        return tokens

    def table(self, cos: Tensor, sin: Tensor, tokens: Tokens, module: Any) -> Any:
        assert self._form is not None
        return _shaped(_FORMS[self._form](cos, sin, self.widths), tokens.call)

    def _form_of(self, own: Any, positions: Tensor, module: Any) -> str:
        cos, sin = self.rotation(module, None, None).table(positions)
        nearest = float("inf")
        for name, form in _FORMS.items():
            try:
                ours = _shaped(form(cos, sin, self.widths), own)
            except (RuntimeError, TypeError, AttributeError):  # other numbers of tensors, of numbers, or of axes
                continue
            gap = max(float((a - b).abs().max()) for a, b in zip(_listed(ours), _listed(own), strict=True))
            nearest = min(nearest, gap)
            if gap < CLOSE:
                return name
        raise ValueError(
            f"axes and base must be those of {type(module).__name__}: its table differs from axial RoPE's with "
            f"{dict(zip([axis.name for axis in self.record.axes], self.widths, strict=True))} and base {self.base} "
            f"by {nearest:.2g}"
        )


def _listed(tables: Any) -> list[Tensor]:
    return [tables] if isinstance(tables, Tensor) else list(tables)


def _shaped(tables: Any, like: Any) -> Any:
    """Tables in the shapes and dtypes of the module's own."""
    if isinstance(like, Tensor):
        if not isinstance(tables, Tensor) or tables.is_complex() != like.is_complex():
            raise TypeError
        return tables.to(like.dtype).reshape(like.shape)
    if len(like) != len(tables):
        raise TypeError
    return type(like)(part.to(own.dtype).reshape(own.shape) for part, own in zip(tables, like, strict=True))


def _by_axis_halves(part: Tensor, widths: Sequence[int]) -> Tensor:
    shares = torch.split(part, [width // 2 for width in widths], -1)
    return torch.cat([twice for share in shares for twice in (share, share)], -1)


_FORMS: dict[str, Callable[[Tensor, Tensor, Sequence[int]], Any]] = {
    "pairs": lambda cos, sin, widths: (cos, sin),
    "neighbours": lambda cos, sin, widths: (cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)),
    "halves": lambda cos, sin, widths: (torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)),
    "halves of each axis": lambda cos, sin, widths: (_by_axis_halves(cos, widths), _by_axis_halves(sin, widths)),
    "complex": lambda cos, sin, widths: torch.complex(cos, sin),
    "matrices": lambda cos, sin, widths: torch.stack([cos, -sin, sin, cos], -1),
}
