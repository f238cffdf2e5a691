"""FIRE: a small network of the distance, normalised by the query's position.

    s_ij ← s_ij + f_h( psi(|p_i − p_j|) / (psi(max(L, p_i)) + 1e-6) ),   psi(x) = log(1 + |c x|)
    f = Linear(1, hidden), ReLU, Linear(hidden, heads);   L = |multiplier · threshold|

p positions in tokens, counted from 0; c, multiplier and f are learned. The ratio stays in 0 … 1 for keys of the past,
so no input past the training length is new to f. Positions are absolute: adding a number to all of them changes the
bias, once queries lie beyond L.

Source: Li et al., Functional Interpolation for Relative Position Encoding Improves Long Context Transformers,
    arXiv 2310.04418, section 3, eq. 2 to 4; numbers (hidden 32, c 0.1, threshold 512, 1e-6) of its appendix.
Checked against: mcleish7/arithmetic's FIRE, which equals DAPE's; also at random positions and in a decoding step.
Departs from the source: the paper defines the past only; for keys after their query the distance is absolute and the
    normaliser still the query's, as in that code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_heads, check_number, check_whole
from posenc.bias._affine import Affine
from posenc.dtypes import precision
from posenc.encoding import BiasEncoding, no_autocast
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis
from posenc.positions import checking as position
from posenc.structure import DistanceNetwork

_EPS = 1e-6


class FIRE(BiasEncoding):
    """Functional interpolation for relative position encoding.

    Args:
        num_heads: query heads.
        hidden: units of the network.
        c: initial scale inside the logarithm, above 0.
        threshold: tokens up to which all queries are normalised alike; a learned factor, first 1, multiplies it.
        leak: slope of the units below 0; 0 is ReLU, 0.01 the LeakyReLU of DAPE's FIRE.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for sizes below 1, or c or threshold not above 0.

    >>> fire = FIRE(4)
    >>> fire(torch.arange(3), torch.arange(3)).shape
    torch.Size([4, 3, 3])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        hidden: int = 32,
        c: float = 0.1,
        threshold: float = 512.0,
        leak: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_number("leak", leak, least=0)
        check_heads("num_heads", num_heads)
        check_whole("hidden", hidden)
        check_number("c", c, above=0)
        check_number("threshold", threshold, above=0)
        self.num_heads, self.hidden, self.threshold, self.first_c = num_heads, hidden, float(threshold), float(c)
        self.leak = float(leak)
        self.inner = Affine(1, hidden)
        self.outer = Affine(hidden, num_heads)
        self.c = nn.Parameter(torch.empty(1))  # FSDP2 shards by the first axis, so that a parameter must have one
        self.multiplier = nn.Parameter(torch.empty(1))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Half the training length, past which the normaliser moves."""
        return {"threshold": max(1, train_length // 2)}

    def reset_parameters(self) -> None:
        """Draw the network anew, as PyTorch draws linear layers; c and the multiplier as at construction."""
        self.inner.reset_parameters()
        self.outer.reset_parameters()
        nn.init.constant_(self.c, self.first_c)
        nn.init.constant_(self.multiplier, 1.0)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"outer.weight": QUERIES, "outer.bias": QUERIES}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Also of states in which both numbers have no axis."""
        for name in ("c", "multiplier"):
            if isinstance(state_dict.get(prefix + name), Tensor):
                state_dict[prefix + name] = state_dict[prefix + name].reshape(1)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        position.check_dtype("q_pos", q_pos)
        position.check_dtype("k_pos", k_pos)
        q_pos, k_pos = position.wide(q_pos), position.wide(k_pos)
        dtype = precision(q_pos, k_pos, self.c)
        far = (k_pos.unsqueeze(-2) - q_pos.unsqueeze(-1)).abs().to(dtype)
        limit = self._limit(q_pos, dtype).unsqueeze(-1)
        ratio = self._log(far) / (self._log(limit) + _EPS)
        with no_autocast(ratio.device.type):
            units = self.inner(ratio.unsqueeze(-1))
            units = F.leaky_relu(units, self.leak) if self.leak else units.relu()
            bias = self.outer(units)
        return bias.movedim(-1, -3)

    def distance_network(self) -> DistanceNetwork:
        layers = self.inner.weight[:, 0], self.inner.bias, self.outer.weight, self.outer.bias
        return DistanceNetwork(self.c, self.multiplier, *layers, self.threshold, _EPS, self.leak)

    def _limit(self, q_pos: Tensor, dtype: torch.dtype) -> Tensor:
        """The distance that counts as 1 for each query."""
        return torch.maximum(q_pos.to(dtype), (self.multiplier.to(dtype) * self.threshold).abs())

    def _log(self, tokens: Tensor) -> Tensor:
        """psi, between tokens and their order of magnitude."""
        return torch.log1p((self.c.to(tokens.dtype) * tokens).abs())

    def extra_repr(self) -> str:
        leak = f", leak={self.leak:g}" if self.leak else ""
        return f"{self.num_heads}, hidden={self.hidden}, c={self.first_c:g}, threshold={self.threshold:g}{leak}"


ENTRY = Entry(
    name="fire",
    encoding=FIRE,
    title="FIRE: a network of the distance relative to the query's position",
    formula="s_ij ← s_ij + f_h(psi(|p_i − p_j|) / psi(max(L, p_i))),  psi(x) = log(1 + |c x|)",
    source="Li et al., arXiv 2310.04418, eq. 2 to 4",
    parameters="hidden × (2 + heads) + heads + 2 per layer",
    cost="a small network for every query and key",
    past_training="the network's input stays in 0 … 1",
    reads="distances and positions",
    extension="none needed by its definition: the input of its network stays in its range",
    used_in="its paper's own models; no other is known to us",
    avoid="where the bias must depend on the distance alone: this one depends on the query's position too",
    exempt={"common_shift": "the normaliser is the query's absolute position"},
)
