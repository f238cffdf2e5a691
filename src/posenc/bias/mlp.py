"""DistanceMLP: a small network maps the signed distance to a bias, one output a head.

    s_ij ← s_ij + f_h(x),   x = sign(d) · log(1 + |d|) with log=True, else x = d,   d = p_i − p_j
    f = layers × ( Linear, layer norm with norm=True, SiLU ), Linear(hidden, heads)

p positions in tokens; the past is positive. Past the training length f comes close to a straight line in x: steep in a
raw distance, gentle in its logarithm. With norm=True it levels off: a layer norm takes away the size of its input.

Source: Wang et al., CrossFormer: A Versatile Vision Transformer Hinging on Cross-scale Attention, arXiv 2108.00154,
    section 3.2 (dynamic position bias); in this form, for text, x-transformers' DynamicPositionBias.
Checked against: x-transformers 2.31.10, with and without logarithm and layer norms.
Departs from the source: the logarithm is the default here and an option there. CrossFormer's own network sees two
    coordinates and has layer norms and ReLUs; for grids see `LogCPB`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_flag, check_heads, check_table, check_whole
from posenc.bias._affine import Affine
from posenc.bias.distance import DistanceBias
from posenc.dtypes import precision
from posenc.encoding import no_autocast
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis


class DistanceMLP(DistanceBias):
    """A multilayer perceptron of the distance.

    Args:
        num_heads: query heads.
        hidden: units of each hidden layer (x-transformers: a quarter of the model's width).
        layers: hidden layers.
        log: whether the network's input is the logarithm of the distance, with its sign, rather than the distance.
        norm: whether each hidden layer has a layer norm before its SiLU.
        device, dtype: of the parameters, as in torch.nn.

    ``linears`` and ``norms`` hold x-transformers' weights in their order; its first layer norm has no bias.

    Raises:
        ValueError: for sizes below 1.

    >>> bias = DistanceMLP(8)
    >>> bias(torch.tensor([200]), torch.arange(201)).shape
    torch.Size([8, 1, 201])
    """

    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        log: bool = True,
        norm: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_whole("hidden", hidden)
        check_whole("layers", layers, most=1024)
        check_table("layers and hidden", layers, hidden, hidden)
        self.num_heads, self.hidden, self.layers = num_heads, hidden, layers
        self.log, self.norm = check_flag("log", log), check_flag("norm", norm)
        widths = [1, *[hidden] * layers, num_heads]
        self.linears = nn.ModuleList(Affine(narrow, wide) for narrow, wide in pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, bias=layer > 0) for layer in range(layers if self.norm else 0))
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw the network anew, as PyTorch draws linear layers and layer norms."""
        for module in (*self.linears, *self.norms):
            assert isinstance(module, Affine | nn.LayerNorm)
            module.reset_parameters()

    def head_axes(self) -> dict[str, HeadAxis]:
        return {f"linears.{self.layers}.{name}": QUERIES for name in ("weight", "bias")}

    def of_distance(self, distance: Tensor) -> Tensor:
        dtype = precision(distance, next(self.parameters()))
        x = -distance.to(dtype)
        if self.log:
            x = x.sign() * x.abs().log1p()
        return self._network(x.unsqueeze(-1)).movedim(-1, 0)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, hidden={self.hidden}, layers={self.layers}, log={self.log}, norm={self.norm}"

    def _network(self, x: Tensor) -> Tensor:
        """The bias ``(..., heads)`` for the network's input ``(..., 1)``."""
        with no_autocast(x.device.type):
            for layer in range(self.layers):
                x = self.linears[layer](x)
                x = F.silu(F.layer_norm(x, x.shape[-1:], *_cast(self.norms[layer], x.dtype)) if self.norm else x)
            out: Tensor = self.linears[self.layers](x)
            return out


def _cast(module: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Weight and bias, if any, in the precision of the computation."""
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    return weight.to(dtype), bias.to(dtype) if isinstance(bias, Tensor) else None


ENTRY = Entry(
    name="distance_mlp",
    encoding=DistanceMLP,
    title="DistanceMLP: a network of the signed distance",
    formula="s_ij ← s_ij + f_h(x),  x = sign(d)·log(1 + |d|),  d = p_i − p_j",
    source="Wang et al., arXiv 2108.00154, section 3.2; x-transformers' DynamicPositionBias",
    parameters="hidden × (2 + heads) + heads per layer; hidden × (hidden + 1) for each hidden layer past the first",
    cost="a small network for every distance",
    past_training="approaches a straight line in the logarithm of the distance, rising or falling as learned",
    reads="distances",
    extension="none of its own",
    used_in="CrossFormer (arXiv 2108.00154)",
    avoid="where the bias must decay beyond the training length: its line may also rise",
)
