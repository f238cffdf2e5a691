"""xPos: RoPE whose pairs also lose strength with the distance, fast pairs sooner than slow ones.

    s_ij = Σ over pairs of  Re(q_pair · conj(k_pair) · e^(i (p_i − p_j) theta)) · zeta^((p_i − p_j) / scale_base)
    theta_pair = base^(−2·pair/head_dim),  zeta_pair = (2·pair/head_dim + gamma) / (1 + gamma)

p positions in tokens. The decay is split between query and key around a middle c of the queries,
zeta^((p_i − c)/scale_base) and zeta^((c − p_j)/scale_base): c cancels, so a score depends on the distance alone, and
both factors stay in range however far out the text is. c cancels in the product alone, so this is an encoding of
scores: it takes the place of q·k, rotates by itself, and stands with no encoding that reads q or k by themselves (Shaw,
PaTH, CoPE(rotated=True), a mixture of rotations). A call whose queries span no more than the dtype holds (24,000 tokens
in float32 and bfloat16, 2,400 in float16) hands both factors to any backend; a longer one goes by blocks of queries,
each around a middle of its own. Causal only: a key after its query would grow with distance; where given positions put
one there, it is right as far as the dtype holds it, and refused beyond. Under a compiler given positions are not looked
at: queries must lie as near to one another as default ones. Past the training length scores decay with distance, as
they do within it.

Source: Sun et al., A Length-Extrapolatable Transformer, arXiv 2212.10554, section 3 (algorithm 1).
Checked against: torchscale's XPOS, its scores in float64.
Departs from the source: the released code centres its exponents on the call's whole length, which overflows float32
    36,000 tokens from the centre and changes cached keys from call to call; here keys are cached unrotated and both
    factors are relative to queries of the call. gamma 0.4 and scale_base 512 are the code's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

import torch
from torch import Tensor

from posenc.arguments import check_number, check_pairs
from posenc.constants import constant
from posenc.encoding import Context, Reads, Scope, ScoreEncoding, float64_if_supported, softcapped
from posenc.entry import Entry
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.frequencies.rotation import Layout
from posenc.positions import checking as position
from posenc.positions.checking import is_default
from posenc.rotary._rotate import rotate_pairs
from posenc.score._inputs import products
from posenc.tracing import has_values

# How large the factors may become, as a power of e: float16 ends at e^11, the others at e^88. A score has two of them,
# and must be finite also where its key is hidden: an infinite score that a mask sets to zero has a NaN for a gradient.
_ROOM = {torch.float16: 3.0}
_ROOM_OF_OTHERS = 30.0


class XPos(ScoreEncoding):
    """Extrapolatable position embedding: a rotation with a decay of each pair by distance.

    Args:
        head_dim: width of a head, even.
        base: wavelengths run from 2π to about 2π · base tokens.
        scale_base: distance in tokens over which a pair loses the factor zeta.
        gamma: zeta of the fastest pair is gamma / (1 + gamma); positive.
        layout: ``"interleaved"`` as the source, or ``"half"``; see `RoPE`.

    Raises:
        ValueError: for an odd ``head_dim``, a base not above 1, a scale_base or gamma not above 0, an unknown layout.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [XPos(64)]).shape
    torch.Size([1, 8, 16, 64])
    """

    causal_only = True
    reads = Reads(rotated=False, unrotated=True)
    scope = Scope(replaces=True)

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        layout: Layout = "interleaved",
    ) -> None:
        super().__init__()
        check_pairs("head_dim", head_dim)
        if layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {get_args(Layout)}, got {layout!r}")
        check_base(base)
        check_number("scale_base", scale_base, above=0)
        check_number("gamma", gamma, above=0)
        self.head_dim, self.base, self.layout = head_dim, base, layout
        self.scale_base, self.gamma = scale_base, gamma
        self._frequencies = Frequencies(geometric(head_dim, base))
        zeta = [(2 * pair / head_dim + gamma) / (1 + gamma) for pair in range(head_dim // 2)]
        self._decay = tuple(math.log(z) / scale_base for z in zeta)  # per token, negative

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        """Scores with these products instead of q·k, each query's factors relative to a middle near it."""
        q_pos, k_pos = self._placed(context)
        replaced = torch.zeros_like(scores)
        for middle, own in self._middles(context, q_pos, k_pos, self._reach(scores.dtype)):
            around_middle = products(context.with_qk(*self._scaled(context, q_pos, k_pos, middle, scores.dtype)))
            replaced = around_middle if own is None else torch.where(own, around_middle, replaced)
        return scores + (softcapped(replaced, context.softcap) - softcapped(products(context), context.softcap))

    def absorb_into_qk(self, context: Context) -> tuple[Tensor, Tensor] | None:
        """Queries and keys rotated and scaled for one another, where one middle serves the whole call."""
        q_pos, k_pos = self._placed(context)
        dtype = context.v.dtype  # of the call: q and k are wider here, and are rounded to it afterwards
        if not self._one_middle_serves(q_pos, k_pos, self._reach(dtype)):
            return None
        return self._scaled(context, q_pos, k_pos, _middle(q_pos), dtype)

    def _reach(self, dtype: torch.dtype) -> int:
        """Tokens that queries with one middle may span, so that no factor leaves the range of ``dtype``."""
        return max(1, int(2 * _ROOM.get(dtype, _ROOM_OF_OTHERS) / -self._decay[0]))

    def _placed(self, context: Context) -> tuple[Tensor, Tensor]:
        """Positions of queries and keys, where differences of them are exact."""
        q_pos, k_pos = position.wide(context.q_pos), position.wide(context.k_pos)
        if q_pos.is_floating_point() or k_pos.is_floating_point():  # differences of float32 ones need more digits
            q_pos, k_pos = (p.to(float64_if_supported(p.device)) for p in (q_pos, k_pos))
        return q_pos, k_pos

    def _one_middle_serves(self, q_pos: Tensor, k_pos: Tensor, reach: int) -> bool:
        """Whether no query, and no key after the queries, lies farther from their middle than half the reach.

        Numbers are looked at only where they exist and are no default: a look waits for the device.
        """
        if is_default(k_pos) or not has_values(k_pos) or not has_values(q_pos):
            return q_pos.shape[-1] <= reach
        first, last = q_pos.amin(-1), q_pos.amax(-1)
        beyond = (k_pos.amax(-1) - last).clamp(min=0) if k_pos.shape[-1] else 0
        return bool((last - first + 2 * beyond < reach).all())

    def _middles(
        self, context: Context, q_pos: Tensor, k_pos: Tensor, reach: int
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Middles ``(*batch, 1)``, each with the queries that it serves, ``(*batch, 1, queries, 1)``; None: all.

        Raises:
            ValueError: where a query attends to a key so far after it that their factors leave the range of the dtype.
        """
        if self._one_middle_serves(q_pos, k_pos, reach) or not has_values(q_pos):
            yield _middle(q_pos), None
            return
        ahead = (k_pos.unsqueeze(-2) - q_pos.unsqueeze(-1)).unsqueeze(-3)
        most = (ahead if context.mask is None else torch.where(context.mask, ahead, 0)).amax().clamp(min=0).item()
        if 2 * most >= reach:
            raise ValueError(
                f"k_pos must lie less than {reach / 2:g} tokens after the query that attends to them, got {most:g}: "
                "xPos grows with such distances (causal='positions' hides these keys)"
            )
        width = max(1, int(reach - 2 * most))  # what is left of the reach for queries around their middle
        first = q_pos.amin(-1, keepdim=True)
        # queries go by position, not by index, so that rows whose positions jump get their own middles
        number = torch.div(q_pos - first, width, rounding_mode="floor")
        for group in sorted(set(number.flatten().tolist())):
            own = (number == group).unsqueeze(-1).unsqueeze(-3)
            yield first + (group * width + width // 2), own

    def _scaled(
        self, context: Context, q_pos: Tensor, k_pos: Tensor, middle: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """q and k for one another: their product is right, each of them alone means nothing."""
        room = _ROOM.get(dtype, _ROOM_OF_OTHERS)
        return (
            self._rotated(context.q_content, q_pos, q_pos - middle, room),
            self._rotated(context.k_content, k_pos, middle - k_pos, room),
        )

    def _rotated(self, x: Tensor, positions: Tensor, apart: Tensor, room: float) -> Tensor:
        """``x`` rotated by its positions, each pair times zeta^(apart / scale_base)."""
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"head_dim of this XPos is {self.head_dim}, got a tensor of {tuple(x.shape)}")
        cos, sin = cos_sin(angles(positions, self._frequencies, working_dtype(x.dtype, x.device)), x.dtype)
        power = apart.unsqueeze(-1).to(x.dtype) * constant(self._decay, x.dtype, x.device)
        # What would grow beyond the room are keys after all queries, which a causal mask hides; what falls below
        # e^-80 is negligible, and denormal numbers are slow.
        strength = torch.where(power < -80.0, 0.0, power.clamp(-80.0, room).exp())
        return rotate_pairs(x, (cos * strength).unsqueeze(-3), (sin * strength).unsqueeze(-3), self.layout)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, base={self.base:g}, scale_base={self.scale_base:g}, layout={self.layout!r}"


def _middle(q_pos: Tensor) -> Tensor:
    """The middle of the queries of each row, ``(*batch, 1)``; whole where positions are."""
    first, last = q_pos.amin(-1, keepdim=True), q_pos.amax(-1, keepdim=True)
    return first + ((last - first) / 2 if q_pos.is_floating_point() else (last - first) // 2)


ENTRY = Entry(
    name="xpos",
    encoding=XPos,
    title="xPos: RoPE with a decay of each pair by distance",
    formula="s_ij = Σ Re(q_pair·conj(k_pair)·e^(i(p_i − p_j)theta)) · zeta_pair^((p_i − p_j)/scale_base)",
    source="Sun et al., arXiv 2212.10554, section 3",
    parameters="none",
    cost="one rotation of q, and of all keys so far, per layer; blocks of queries beyond 24,000 tokens",
    past_training="logits decay with distance, as in training",
    reads="distances",
    extension="its scores decay with distance; the paper adds attention by blocks",
    used_in="Kosmos-1 (arXiv 2302.14045)",
    avoid="without a causal mask: for later keys its factor grows with distance",
)
