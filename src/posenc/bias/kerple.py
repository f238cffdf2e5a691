"""KERPLE: a learned kernel of the distance, falling like a logarithm or a power.

    s_ij ← s_ij − p_h · log(1 + a_h · |p_j − p_i|)                     kind="log"
    s_ij ← s_ij − a_h · |p_j − p_i|^p_h                                 kind="power",  p_h ≤ 2
    s_ij ← s_ij − e^log_a_h · (|p_j − p_i − 2 sinh mu_h| + 1e-5)^p_h    kind="bam"

p positions in tokens; p_h and a_h learned, one each a head, never below 0.01. Exponents up to 2 keep the kernel
conditionally positive definite. Past the training length the penalty goes on growing, slower and slower in the log
form. BAM is the power kernel without bounds: exponents start at 1, factors at ALiBi's slopes, and an exponent that
training brings below 0 prefers far keys. A token's own key gets −e^log_a · 1e-5^p, not 0. mu, learned only with
``shift=True``, moves the key without penalty by 2 sinh mu tokens: to earlier keys where it is negative.

Source: Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv 2205.09921, eq. 7
    (log) and 6 (power). Bianchessi et al., Bayesian Attention Mechanism, arXiv 2505.22842, and the authors' code (bam).
Checked against: the authors' ParallelKerpleLog and ParallelKerplePower (values at parameters in and out of bounds), and
    BAM's AttentionPrior (values and initial parameters).
Departs from the source: the code clamps its parameters in place at every call, outside of autograd; here they are
    clamped as they are used, with a straight gradient, so that one beyond a bound can come back. ``kind="power"`` with
    ALiBi's slopes is `ALiBi`. The code's third kernel multiplies products; it is not here.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_heads
from posenc.bias.alibi import alibi_slopes
from posenc.bias.distance import DistanceBias
from posenc.dtypes import precision
from posenc.entry import Entry
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.head_shares import QUERIES, HeadAxis, HeadShare
from posenc.operators import KERNELS

Kind = Literal["log", "power", "bam"]
_LEAST = 0.01
_EPS = 1e-5  # tokens, in the authors' code of BAM: negative powers of distance 0 stay finite


class KERPLE(DistanceBias):
    """Kernelized relative positional embedding.

    Args:
        num_heads: query heads.
        kind: ``"log"``, which extrapolates best in the paper, ``"power"``, or ``"bam"``, which has no bounds.
        shift: whether BAM learns the distance that has no penalty; 0 otherwise.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for no head, an unknown kind, or a shift of another kind than "bam".

    >>> kerple = KERPLE(4)
    >>> kerple(torch.arange(3), torch.arange(3)).shape
    torch.Size([4, 3, 3])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        kind: Kind = "log",
        shift: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
        if check_flag("shift", shift) and kind != "bam":
            raise ValueError(f'shift is for kind "bam" alone, got kind={kind!r}')
        self.num_heads, self.kind = num_heads, kind
        self._slopes = alibi_slopes(num_heads)
        self.p = nn.Parameter(torch.empty(num_heads))
        self.a = None if kind == "bam" else nn.Parameter(torch.empty(num_heads))
        self.log_a = nn.Parameter(torch.empty(num_heads)) if kind == "bam" else None
        self.mu = nn.Parameter(torch.empty(num_heads)) if shift else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw anew: p uniform in 0 … 2, a in 0 … 1. For BAM: p 1, a ALiBi's slopes, no shift."""
        if self.a is not None:
            nn.init.uniform_(self.p, 0.0, 2.0)
            nn.init.uniform_(self.a, 0.0, 1.0)
        if self.log_a is not None:
            nn.init.ones_(self.p)
            assign(self.log_a, torch.tensor(self._slopes, dtype=torch.float64, device="cpu").log())
        if self.mu is not None:
            nn.init.zeros_(self.mu)

    def head_axes(self) -> dict[str, HeadAxis]:
        return dict.fromkeys((name for name, _ in self.named_parameters()), QUERIES)

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self._slopes = self._slopes[share.heads]

    def of_distance(self, distance: Tensor) -> Tensor:
        if distance.is_cuda and "kerple row" in KERNELS:
            factor = self.a if self.log_a is None else self.log_a
            row: Tensor | None = KERNELS["kerple row"](self.p, factor, self.mu, distance, self.kind, _LEAST, _EPS)
            if row is not None:
                return row
        dtype = precision(distance, self.p)
        by_head = (-1, *[1] * distance.ndim)
        if self.log_a is not None:
            away = distance.to(dtype)
            if self.mu is not None:
                away = away - 2 * self.mu.to(dtype).sinh().view(by_head)
            return -self.log_a.to(dtype).exp().view(by_head) * (away.abs() + _EPS).pow(self.p.to(dtype).view(by_head))
        assert self.a is not None
        far = distance.abs().to(dtype)
        p = _within(self.p.to(dtype), 2.0 if self.kind == "power" else None).view(by_head)
        a = _within(self.a.to(dtype), None).view(by_head)
        if self.kind == "log":
            return -p * torch.log1p(a * far)
        # At distance 0 the power is 0 for every exponent; a 1 in its place keeps log(0) out of the gradients.
        return -a * torch.where(far > 0, far.clamp(min=torch.finfo(dtype).tiny), 1.0).pow(p) * (far > 0)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, kind={self.kind!r}" + (", shift=True" if self.mu is not None else "")


def _within(parameter: Tensor, most: float | None) -> Tensor:
    """The parameter inside its bounds; its gradient is the bounded value's."""
    return parameter.detach().clamp(_LEAST, most) + (parameter - parameter.detach())


ENTRIES = (
    Entry(
        name="kerple",
        encoding=KERPLE,
        title="KERPLE: a learned kernel of the distance",
        formula="s_ij ← s_ij − p_h · log(1 + a_h·|p_j − p_i|)",
        source="Chi et al., arXiv 2205.09921, eq. 7",
        parameters="2 × heads per layer",
        cost="one row of numbers per head; its gradient",
        past_training="the penalty keeps growing like a logarithm",
        reads="distances",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
        avoid="where far keys may deserve more weight than near ones: its kernels only fall with distance",
    ),
    Entry(
        name="bam",
        encoding=KERPLE,
        title="BAM: KERPLE's power kernel without bounds, with a learned shift as an option",
        formula="s_ij ← s_ij − e^log_a_h · (|p_j − p_i − 2 sinh mu_h| + 1e-5)^p_h",
        source="Bianchessi et al., arXiv 2505.22842",
        parameters="2 × heads per layer, 3 × heads with a shift",
        cost="one row of numbers per head; its gradient",
        past_training="the penalty keeps growing; it falls where training made an exponent negative",
        reads="distances",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
        avoid="where the bias must fall with distance: training may make an exponent negative",
        defaults=lambda shape: {"kind": "bam"},
    ),
)
