"""Log-CPB: a small network of the logarithm of the distance, axis by axis; it works for windows of any size.

    s_ij ← s_ij + 16 · sigmoid(f_h(c))                      kind="swin",  c = sign(d) · log2(1 + |d|) / log2(8)
    s_ij ← s_ij + f_h(c)                                    kind="paper", c = sign(d) · log(1 + |d|)
    d = 8 · (p_i − p_j) / (window − 1) in kind="swin", p_i − p_j in kind="paper", an axis each
    f = Linear(axes, hidden), ReLU, Linear(hidden, heads) without a bias

p positions in tokens, one coordinate or several; distances count from the key to the query, so the past is positive.
window is that of training and stays when the module serves another: its edge lies at |d| = 8, |c| = 1.06. Past it c
goes on like a logarithm, and so does f at most; 16 · sigmoid stays in 0 … 16. Tokens without a place have the bias 0.
On a grid the network is evaluated once for each distinct difference; under a compiler, for every query and key.

Source: Liu et al., Swin Transformer V2: Scaling Up Capacity and Resolution, arXiv 2111.09883, section 3.3; 8, log2(8)
    and 16 · sigmoid are the authors' code's alone.
Checked against: the authors' WindowAttention (coordinates, biases, the whole layer; also in a larger window).
Departs from the source: no table and no window of its own; positions may be fractional, in any order, along one axis.
    For Swin's checkpoints normalise q and k, multiply q by exp(min(logit_scale, log 100)), and pass scale=1.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import MOST_AXES, check_heads, check_number, check_whole
from posenc.bias.offset import OffsetBias
from posenc.constants import constant
from posenc.dtypes import precision
from posenc.encoding import no_autocast
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis

Kind = Literal["swin", "paper"]
_EDGE, _MOST, _STD = 8.0, 16.0, 0.02  # |d| at the edge of the window; the largest bias; of the first weights


class LogCPB(OffsetBias):
    """Log-spaced continuous position bias, of distances along one axis or of differences of coordinates.

    Args:
        num_heads: query heads.
        axes: coordinates of a position.
        hidden: units of the network.
        window: tokens along an axis in training, above 1: one number, or one an axis; not used in ``kind="paper"``.
        kind: ``"swin"``, the authors' code, or ``"paper"``, the paper's formula.
        device, dtype: of the parameters, as in torch.nn.

    ``inner_weight``, ``inner_bias`` and ``outer_weight`` are Swin's ``cpb_mlp.0.weight``, ``cpb_mlp.0.bias`` and
    ``cpb_mlp.2.weight``.

    Raises:
        ValueError: for sizes below 1, an unknown kind, windows not above 1 or not one an axis.

    >>> from posenc.positions import grid
    >>> cpb = LogCPB(4, axes=2, window=7)
    >>> cpb(grid(7, 7), grid(7, 7)).shape, cpb(grid(12, 5), grid(12, 5)).shape
    (torch.Size([4, 49, 49]), torch.Size([4, 60, 60]))
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        axes: int = 1,
        hidden: int = 512,
        window: float | Sequence[float] = 8.0,
        kind: Kind = "swin",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_whole("axes", axes, most=MOST_AXES)
        check_whole("hidden", hidden)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
        self.num_heads, self.axes, self.hidden, self.kind = num_heads, axes, hidden, kind
        self.window = _windows(window, axes)
        self.inner_weight = nn.Parameter(torch.empty(hidden, axes))
        self.inner_bias = nn.Parameter(torch.empty(hidden))
        self.outer_weight = nn.Parameter(torch.empty(num_heads, hidden))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """The training length is the window."""
        return {"window": max(2, train_length)}

    def reset_parameters(self) -> None:
        """Draw the network anew, as Swin does: weights normal and small, no bias; all heads start almost flat."""
        nn.init.trunc_normal_(self.inner_weight, std=_STD)
        nn.init.zeros_(self.inner_bias)
        nn.init.trunc_normal_(self.outer_weight, std=_STD)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"outer_weight": QUERIES}

    def of_offset(self, offset: Tensor) -> Tensor:
        seen = self.log_spaced(offset)
        dtype = seen.dtype
        with no_autocast(seen.device.type):
            units = F.linear(seen, self.inner_weight.to(dtype), self.inner_bias.to(dtype)).relu()
            bias = F.linear(units, self.outer_weight.to(dtype)).movedim(-1, 0)
        return bias if self.kind == "paper" else _MOST * bias.sigmoid()

    def log_spaced(self, delta: Tensor) -> Tensor:
        """The network's input c for differences ``p_query − p_key`` of coordinates ``(..., axes)``."""
        dtype = precision(delta, self.inner_weight)
        delta, unit = delta.to(dtype), 1.0
        if self.kind == "swin":
            rates = [_EDGE / (window - 1) for window in self.window]
            delta, unit = delta * constant(rates, dtype, delta.device), math.log(8)
        return delta.sign() * delta.abs().log1p() / unit

    def extra_repr(self) -> str:
        window = ", ".join(f"{w:g}" for w in self.window)
        return f"{self.num_heads}, axes={self.axes}, hidden={self.hidden}, window=({window}), kind={self.kind!r}"


def _windows(window: float | Sequence[float], axes: int) -> tuple[float, ...]:
    """One window an axis, as given or the same for all."""
    sizes = tuple(window) if isinstance(window, Sequence) and not isinstance(window, str) else (window,) * axes
    for size in sizes:
        check_number("window", size, above=1)
    windows = tuple(map(float, sizes))
    if len(windows) != axes:
        raise ValueError(f"window must be one number, or one for each of {axes} axes, got {window!r}")
    return windows


ENTRY = Entry(
    name="log_cpb",
    encoding=LogCPB,
    title="Log-CPB: a network of the distance's logarithm, axis by axis, as in Swin V2",
    formula="s_ij ← s_ij + 16·sigmoid(f_h(c)),  c = sign(d)·log2(1 + |d|)/3,  d = 8·(p_i − p_j)/(window − 1)",
    source="Liu et al., arXiv 2111.09883, section 3.3",
    parameters="hidden × (axes + 1 + heads) per layer",
    cost="a small network for every distinct difference; under compilers with several axes for every query and key",
    past_training="the network's input keeps growing like a logarithm; the bias stays in 0 … 16",
    reads="distances",
    extension="the window of training as unit, and training at the larger one",
    used_in="Swin Transformer V2 (arXiv 2111.09883)",
    avoid="where a bias must be able to hide keys: it stays between 0 and 16",
)
