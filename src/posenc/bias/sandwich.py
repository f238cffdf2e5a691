"""Sandwich: the dot product of two sinusoidal position embeddings, used as a bias.

    s_ij ← s_ij + (1 / r_h) · Σ_k cos((p_j − p_i) · w_k),   w_k = 10000^(−2k/dim),  k = start … start + dim/2 − 1
    r_h = 8h / heads,  h = 1 … heads

p positions in tokens. Nothing is learned. The sum falls with the distance, steeply at first and then like a logarithm,
and goes on falling past the training length.

Source: Chi et al., Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis,
    arXiv 2212.10356, section 5 and appendix E (whose listing starts at k = 0).
Checked against: attention-gym's transcription of appendix E.
Departs from the source: nothing; the main text's sum starts at 1 (``start=1``, as NeMo's): a constant that softmax does
    not see, and one more slow wave.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import check_heads, check_whole
from posenc.bias.distance import DistanceBias
from posenc.constants import constant
from posenc.dtypes import precision
from posenc.entry import Entry
from posenc.frequencies.host import geometric
from posenc.frequencies.phase import Frequencies, angles, working_dtype
from posenc.head_shares import HeadShare
from posenc.structure.lookup import Lookup, index_by_distance, kept, reach_of
from posenc.tracing import stand_ins


def _waves(dim: int, start: int) -> list[float]:
    return geometric(dim + 2 * start, 10_000.0, denominator=dim)[start:]


def _distance(distance: Tensor, told: None) -> Tensor:
    return distance.abs()


def _table(strength: tuple[float, ...], dim: int, start: int, reach: int, device: torch.device) -> Tensor:
    """The bias at distances 0 … reach − 1, ``(heads, reach)`` float32."""
    far = torch.arange(reach, device=device)
    total = angles(far, Frequencies(_waves(dim, start)), working_dtype(torch.float32, device)).cos().sum(-1)
    return total.float() * constant(strength, torch.float32, device)[:, None]


class Sandwich(DistanceBias):
    """A fixed bias of summed cosines of the distance.

    Args:
        num_heads: query heads.
        dim: twice the number of waves, even; not the width of a head.
        start: the first k.

    Raises:
        ValueError: for no head, an odd ``dim``, a negative ``start``.

    >>> Sandwich(8)(torch.tensor([2]), torch.arange(3))[0, 0].round(decimals=2)
    tensor([57.3800, 62.0900, 64.0000])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        dim: int = 128,
        start: int = 0,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_whole("dim", dim, least=2)
        check_whole("start", start, least=0)
        if dim % 2:
            raise ValueError(f"dim must be even and at least 2, got {dim}")
        self.num_heads, self.dim, self.start = num_heads, dim, start
        self._strength = tuple(num_heads / (8.0 * head) for head in range(1, num_heads + 1))
        waves = _waves(dim, start)
        self._waves = Frequencies(waves)
        self._each_wave = [Frequencies([wave]) for wave in waves]

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self._strength = self._strength[share.heads]

    def of_distance(self, distance: Tensor) -> Tensor:
        dtype = precision(distance)
        wide = working_dtype(dtype, distance.device)
        if distance.ndim == 1:  # of a row all waves at once, which is 64 times less for a GPU to launch
            total = angles(distance, self._waves, wide).cos().sum(-1)
        else:
            total = torch.zeros(distance.shape, dtype=wide, device=distance.device)
            for wave in self._each_wave:
                total = total + angles(distance, wave, wide).squeeze(-1).cos()
        return total.to(dtype) * constant(self._strength, dtype, distance.device).view(-1, *[1] * distance.ndim)

    def lookup(self, queries: int, keys: int, *, like: Tensor) -> Lookup | None:
        if stand_ins():
            return None
        told = self._strength, self.dim, self.start, reach_of(queries, keys), like.device
        table = kept(("sandwich", *told), like.device, lambda: _table(*told))
        return None if table is None else Lookup(table, index_by_distance(_distance, None, queries, keys, like.device))

    def extra_repr(self) -> str:
        return f"{self.num_heads}, dim={self.dim}, start={self.start}"


ENTRY = Entry(
    name="sandwich",
    encoding=Sandwich,
    title="Sandwich: the dot product of sinusoidal embeddings as a bias",
    formula="s_ij ← s_ij + (heads/8h) · Σ_k cos((p_j − p_i)·w_k)",
    source="Chi et al., arXiv 2212.10356, section 5 and appendix E",
    parameters="none",
    cost="one row of numbers per head",
    past_training="keeps falling like a logarithm",
    reads="distances",
    extension="none needed by its definition",
    used_in="its paper's own models; no other is known to us",
    avoid="where the strength of the decay should be learned: it has no parameters",
)
