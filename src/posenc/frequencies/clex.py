"""CLEX: frequencies follow a learned differential equation as the context grows beyond the training length.

    theta_j(t) = theta_j · exp(w_j(t)),   w(1) = 0,   t = min(max_factor, max(1, ceil(length / original_length)))
    dw/dt = act((w + ln theta + ln ntk(t)) up) down + d ln ntk / dt
    ln ntk_j(t) = −(2j/dim) ln time_base − (2j/(dim − 2)) ln(2t − 1)

dim = 2 · pairs; up (pairs, dim · param_factor) and down (its transpose's shape) are the parameters, one set for all
heads and layers. ``down`` starts at zero: NTK-aware scaling by 2t − 1, which training improves. A text up to the
training length keeps plain frequencies and gives the parameters no gradient; past original_length · max_factor the
last frequencies stay. With unbounded "silu" a large ``down`` makes them explode: watch them, or keep "tanh".

Source: Chen et al., CLEX, ICLR 2024, arXiv 2310.16450, eq. 12 and 13; DAMO-NLP-SG/CLEX, CLEX/clex_layer.py.
Checked against: that code at 023709d, with torchdiffeq 0.2.5, in float64.
Departs from the source: nothing in the frequencies of the released code, which differs from the paper: 2t − 1 where
    the paper has t, tanh by default where it has SiLU, whole t where it has real ones (``continuous=True``). The
    released time embedding has base 10000 whatever the model's (``time_base=10_000.0``; the default is the model's).
    A ``step`` that does not divide 1 is shortened at each t, as in its training; its inference interpolates.
    Its faults stay behind: solutions that outlive a change of the weights, tables that end at original_length ·
    max_factor, angles for frequencies at max_factor=2. Its evaluation also multiplies queries by
    ln(keys) / ln(original_length); that is no part of the frequencies: give `attention` such a ``scale``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_number, check_table, check_whole
from posenc.entry import Entry, Shape
from posenc.frequencies._defaults import NO_SHIFT, factor, pairs_of
from posenc.frequencies._solver import solve
from posenc.frequencies.host import check_base, check_length, index_like
from posenc.frequencies.spectrum import Scaling, Spectrum

Activation = Literal["tanh", "silu"]


class CLEX(Scaling):
    """Frequencies learned as a function of the context length over the training length.

    Give training steps a length of their own (`sample`), declare it, and let an optimizer have the parameters. Keys
    stay un-rotated in a cache unless a length is declared. In the released checkpoints the parameters are called
    ``model.clex_layer.proj_func.ode_up_proj`` and ``ode_down_proj``; they load as they are.

    Args:
        pairs: channels that rotate, halved.
        original_length: tokens that the model was trained at.
        max_factor: the largest t, a whole number.
        param_factor: hidden width of the network / (2 · pairs).
        activation: "tanh" as released, or "silu" as in the paper.
        step: of the solver, in (0, 1]; "time_dt" in released configurations.
        time_base: base of the time embedding. None: the spectrum's own frequencies; 10_000.0: as released.
        continuous: use t = length / original_length as it is, instead of the next whole number.
        device, dtype: of the parameters.

    Raises:
        ValueError: for fewer than two pairs, sizes below 1, a step out of (0, 1], an unknown activation; at a call
            for a spectrum of other pairs.

    >>> from posenc import RoPE
    >>> clex = CLEX(32, original_length=1024, max_factor=4, step=0.1)
    >>> slower = RoPE(64).spectrum().theta / RoPE(64, scaling=clex).spectrum(2048).theta
    >>> slower[[0, -1]].detach().round(decimals=4)  # 1 … 2t − 1
    tensor([1., 3.], dtype=torch.float64)
    """

    length_dependent = True

    def __init__(
        self,
        pairs: int,
        *,
        original_length: int,
        max_factor: int = 16,
        param_factor: int = 1,
        activation: Activation = "tanh",
        step: float = 0.01,
        time_base: float | None = None,
        continuous: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("pairs", pairs)
        if pairs < 2:
            raise ValueError(f"pairs must be at least 2, got {pairs}: one pair has no spectrum to bend")
        check_length(original_length)
        check_whole("max_factor", max_factor)
        check_whole("param_factor", param_factor)
        check_table("pairs and param_factor", pairs, 2 * pairs, param_factor)
        if activation not in get_args(Activation):
            raise ValueError(f"activation must be one of {get_args(Activation)}, got {activation!r}")
        check_number("step", step, above=0, most=1)
        if time_base is not None:
            check_base(time_base, "time_base")
        self.pairs, self.original_length, self.max_factor = pairs, original_length, max_factor
        continuous = check_flag("continuous", continuous)
        self.activation, self.step, self.time_base, self.continuous = activation, float(step), time_base, continuous
        hidden = 2 * pairs * param_factor
        self.up_proj = nn.Parameter(torch.empty(pairs, hidden, device=device, dtype=dtype))
        self.down_proj = nn.Parameter(torch.empty(hidden, pairs, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.up_proj, a=math.sqrt(5))  # as released: by the hidden width, ± hidden^−1/2
        nn.init.zeros_(self.down_proj)

    def forward(self, spectrum: Spectrum) -> Spectrum:
        if spectrum.theta.shape != (self.pairs,):
            raise ValueError(
                f"CLEX was made for one spectrum of pairs = {self.pairs}, got {tuple(spectrum.theta.shape)}; "
                "put it before scalings that depend on the length or on the head"
            )
        if spectrum.length is None:
            return spectrum
        times = spectrum.times_longer(self.original_length)
        scales = (times if self.continuous else times.ceil()).clamp(max=self.max_factor)
        return spectrum._replace(theta=self.frequencies(spectrum.theta, scales.squeeze(-1) if scales.ndim else scales))

    def frequencies(self, theta: Tensor, scales: Tensor) -> Tensor:
        """The frequencies at scales t, float64 ``(*scales.shape, pairs)``.

        Args:
            theta: the plain ones, float64 ``(pairs,)``.
            scales: any shape, whole or fractional, at least 1; also past ``max_factor``.
        """
        log_theta = theta.log()
        base = log_theta if self.time_base is None else index_like(theta) * (-math.log(self.time_base) / self.pairs)
        w = solve(scales, log_theta + base, self.up_proj, self.down_proj, self.step, self.activation)
        return theta * w.exp()

    def sample(self, tokens: int, *, generator: torch.Generator | None = None) -> tuple[Tensor, int]:
        """Positions ``(tokens,)`` for a training text, and the length to declare for them.

        The length is t · original_length, with t drawn from 1 … max_factor; or, if ``continuous``, any number of
        tokens between these. Positions are 0, the last one of a sequence t times as long, and a sorted draw without
        repetition from those between; divided by tokens // original_length, as float64, where that is above 1. The
        released code then rounds the last one down, which may put it before its neighbours. All are on the host.

        >>> positions, length = CLEX(8, original_length=16).sample(16)
        >>> positions.shape, int(positions[0]), int(positions[-1]) == length - 1
        (torch.Size([16]), 0, True)
        """
        if tokens < 2:
            raise ValueError(f"tokens must be at least 2, a first and a last one, got {tokens}")
        device = "cpu" if generator is None else generator.device
        unit = 1 if self.continuous else self.original_length
        lowest, highest = self.original_length // unit, self.max_factor * self.original_length // unit
        length = unit * int(torch.randint(lowest, highest + 1, (), generator=generator, device=device))
        last = tokens * length // self.original_length - 1
        indices = torch.randperm(last - 1, generator=generator, device=device)[: tokens - 2].sort().values + 1
        positions = torch.cat([indices.new_zeros(1), indices, indices.new_full((1,), last)]).cpu()
        squeeze = tokens // self.original_length
        return (positions.double() / squeeze if squeeze > 1 else positions), length

    def extra_repr(self) -> str:
        base = "" if self.time_base is None else f", time_base={self.time_base:g}"
        continuous = ", continuous=True" if self.continuous else ""
        return (
            f"{self.pairs}, original_length={self.original_length}, max_factor={self.max_factor}, "
            f"activation={self.activation!r}, step={self.step:g}{base}{continuous}"
        )


def _dynamics(shape: Shape) -> Mapping[str, object]:
    """The width of CLEX's network, and how far it reaches."""
    pairs, longer = pairs_of(shape), factor(shape).get("factor")
    reach = {"max_factor": max(2, math.ceil(longer))} if isinstance(longer, float) else {}
    return reach if pairs is None else {"pairs": pairs, **reach}


ENTRY = Entry(
    name="clex",
    scaling=CLEX,
    title="CLEX: RoPE with frequencies from a learned differential equation over the scale",
    formula="d ln theta / dt = network(ln theta, t) + d ln theta_ntk / dt,  t = ceil(length / original_length)",
    source="Chen et al., arXiv 2310.16450",
    parameters="2 × pairs × (2 · pairs) for all layers",
    cost="a solution of the equation per change of weights; a table per sequence length",
    past_training="trained on sampled scales up to max_factor; beyond it the last spectrum stays",
    reads="distances and lengths",
    extension="is itself an extension: trained on sampled scales up to max_factor",
    used_in="its paper's own models; no other is known to us",
    avoid="without training: an untrained one is NTK-aware scaling",
    extends_context=True,
    defaults=_dynamics,
    exempt={"common_shift": NO_SHIFT},
)
