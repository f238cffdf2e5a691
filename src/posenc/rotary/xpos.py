"""xPos: RoPE whose pairs also lose strength with the distance, fast pairs sooner than slow ones.

    s_ij = Σ over pairs of  Re(q_pair · conj(k_pair) · e^(i (p_i − p_j) theta)) · zeta^((p_i − p_j) / scale_base)
    theta_pair = base^(−2·pair/head_dim),  zeta_pair = (2·pair/head_dim + gamma) / (1 + gamma)

p positions in tokens. The decay is split between query and key around the middle of the call's queries,
zeta^((p_i − c)/scale_base) and zeta^((c − p_j)/scale_base): c cancels, so a score depends on the distance alone, and
both factors stay in range however far out the text is. c cancels in the product alone, and there only where nothing
stands between the two factors. Therefore, in a list of several rotations, the decay acts after all of them, wherever
XPos stands; and encodings that read q or k by themselves (Shaw, PaTH, CoPE(rotated=True), a mixture of rotations) are
refused next to it, as they would read numbers that change from call to call. Causal only: a key after its query would
grow with distance; where given positions put one there, it is right as far as the dtype holds it, and refused beyond.
Past the training length scores decay with distance, as they do within it.

Source: Sun et al., A Length-Extrapolatable Transformer, arXiv 2212.10554, section 3 (algorithm 1).
Checked against: torchscale's XPOS, its scores in float64.
Departs from the source: the released code centres its exponents on the call's whole length, which overflows float32
    36,000 tokens from the centre and changes cached keys from call to call; here keys are cached un-rotated and both
    factors are relative to the queries of the call. gamma 0.4 and scale_base 512 are the code's.
"""

from __future__ import annotations

import math
from typing import get_args

import torch
from torch import Tensor

from posenc import positions as position
from posenc.arguments import check_number, check_whole
from posenc.encoding import RotaryEncoding, Table, float64_if_supported
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.frequencies.rotation import Layout
from posenc.rotary._rotate import rotate_pairs

# How large the factors may become in a call, as a power of e: float16 ends at e^11, the others at e^88. A score has two
# of them, and must be finite also where its key is hidden: what is put to zero later is no zero where it is infinite.
_ROOM = {torch.float16: 3.0}
_ROOM_OF_OTHERS = 30.0


class XPos(RotaryEncoding):
    """Extrapolatable position embedding: a rotation with a decay of each pair by distance.

    Args:
        head_dim: width of a head, even.
        base: wavelengths run from 2π to about 2π · base tokens.
        scale_base: distance in tokens over which a pair loses the factor zeta.
        gamma: zeta of the fastest pair is gamma / (1 + gamma); positive.
        layout: ``"interleaved"`` as the source, or ``"half"``; see `RoPE`.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for an odd ``head_dim``, a base not above 1, a scale_base or gamma not above 0, an unknown layout.

    >>> xpos = XPos(64)
    >>> q, k = torch.randn(2, 1, 8, 16, 64)
    >>> q, k = xpos(q, k, torch.arange(16), torch.arange(16))
    """

    causal_only = True

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        layout: Layout = "interleaved",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("head_dim", head_dim)
        if head_dim % 2:
            raise ValueError(f"head_dim must be even and at least 2, got {head_dim}: channels are rotated in pairs")
        if layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {get_args(Layout)}, got {layout!r}")
        check_base(base)
        check_number("scale_base", scale_base, above=0)
        check_number("gamma", gamma, above=0)
        self.head_dim, self.base, self.layout = head_dim, base, layout
        self.scale_base, self.gamma = scale_base, gamma
        self._frequencies = Frequencies(geometric(head_dim, base))
        zeta = [(2 * pair / head_dim + gamma) / (1 + gamma) for pair in range(head_dim // 2)]
        self._decay = [math.log(z) / scale_base for z in zeta]  # per token, negative
        place_parameters(self, device, dtype)

    def fixed(self, length: int | None = None) -> bool:
        """False: how a key decays depends on the queries of the call."""
        return False

    def reach(self, dtype: torch.dtype) -> int:
        """Tokens that the queries of one call may span, so that no factor leaves the range of ``dtype``."""
        return max(1, int(2 * _ROOM.get(dtype, _ROOM_OF_OTHERS) / -self._decay[0]))

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        raise ValueError("XPos has no table: how a key decays depends on the query; call forward with both")

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        raise ValueError("XPos has no table: how a key decays depends on the query; call forward with both")

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate and scale q and k for one another; their product is right, each of them alone means nothing."""
        q_pos, k_pos = self._placed(q, k, q_pos, k_pos)
        of_q, of_k = self._strengths(q, k, q_pos, k_pos)
        return self._rotated(q, q_pos, of_q), self._rotated(k, k_pos, of_k)

    def rotate_only(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation without the decay."""
        q_pos, k_pos = self._placed(q, k, q_pos, k_pos)
        return self._rotated(q, q_pos), self._rotated(k, k_pos)

    def decay(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """The decay without the rotation."""
        of_q, of_k = self._strengths(q, k, *self._placed(q, k, q_pos, k_pos))
        return (q * self._of_channels(of_q)).to(q.dtype), (k * self._of_channels(of_k)).to(k.dtype)

    def _placed(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Positions checked, and where q and k are."""
        for name, x, positions in (("q_pos", q, q_pos), ("k_pos", k, k_pos)):
            position.check_dtype(name, positions)
            if x.shape[-1] != self.head_dim:
                raise ValueError(f"head_dim of this XPos is {self.head_dim}, got a tensor of {tuple(x.shape)}")
        return position.wide(q_pos.to(q.device)), position.wide(k_pos.to(k.device))

    def _strengths(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """zeta^((p_i − c) / scale_base) of queries and zeta^((c − p_j) / scale_base) of keys."""
        if q_pos.is_floating_point() or k_pos.is_floating_point():  # differences of float32 ones need more digits
            q_pos, k_pos = q_pos.to(float64_if_supported(q.device)), k_pos.to(float64_if_supported(k.device))
        first, last = q_pos.amin(-1, keepdim=True), q_pos.amax(-1, keepdim=True)
        middle = first + ((last - first) / 2 if q_pos.is_floating_point() else (last - first) // 2)
        return self._strength(q, q_pos - middle), self._strength(k, middle - k_pos)

    def _strength(self, x: Tensor, apart: Tensor) -> Tensor:
        """zeta^(apart / scale_base), ``(*batch, tokens, pairs)``, within the room of the dtype of ``x``."""
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        power = apart.unsqueeze(-1).to(dtype) * torch.tensor(self._decay, dtype=dtype, device=x.device)
        # What would grow beyond the room are keys after all queries, which a causal mask hides; what falls below
        # e^-80 is negligible, and denormal numbers are slow.
        room = _ROOM.get(x.dtype, _ROOM_OF_OTHERS)
        return torch.where(power < -80.0, 0.0, power.clamp(-80.0, room).exp())

    def _rotated(self, x: Tensor, positions: Tensor, strength: Tensor | None = None) -> Tensor:
        """``x`` rotated by its positions, each pair times its strength."""
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        cos, sin = cos_sin(angles(positions, self._frequencies, working_dtype(dtype, x.device)), dtype)
        if strength is not None:
            cos, sin = cos * strength, sin * strength
        return rotate_pairs(x, cos.unsqueeze(-3), sin.unsqueeze(-3), self.layout)

    def _of_channels(self, strength: Tensor) -> Tensor:
        """The strength of each pair for both of its channels, ``(*batch, 1, tokens, head_dim)``."""
        axis = -2 if self.layout == "half" else -1
        return torch.stack([strength, strength], axis).flatten(-2).unsqueeze(-3)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, base={self.base:g}, scale_base={self.scale_base:g}, layout={self.layout!r}"
