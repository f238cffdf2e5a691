"""A learned mixture of encodings: each head learns how much each member counts.

    s_ij ← Σ_m w_hm · score_m(s)_ij,   w_h = softmax(logits_h)                    over the members m
    w_hmi = softmax(logits_h + weight_h · x_i)                                    adaptive: per query token i

score_m(s) is what member m alone makes of the scores s handed in: s_ij + scale · (R q_i·R k_j − q_i·k_j) for a
rotation R, s_ij + b_ij for a bias. A member may be a list of both; the empty list (NoPE) leaves s as it is. x is the
layer's input. All weights start equal. Past the training length each member does what it does alone, at weights that
were learned before.
Source: no paper. Circulating notes that choose dynamically between RoPE (arXiv 2104.09864, eq. 15) and ALiBi
    (arXiv 2108.12409, section 3) have s + w_r · (s_rope − s) + w_a · b; this is the sound form of that idea.
Checked against: the formula written out; lists of one member; RoPE and ALiBi alone where a head gives one all weight.
Departs from the source: weights per head, or per head and query, where the notes have two numbers; any members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_heads, check_several, check_whole
from posenc.bias.alibi import ALiBi
from posenc.dtypes import float32_or_better
from posenc.encoding import BiasEncoding, Context, Encoding, Reads, RotaryEncoding, ScoreEncoding, softcapped
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis, HeadShare
from posenc.rotary.rope import RoPE
from posenc.score._inputs import bias_at, own_index, products, token_state_of, wide_linear
from posenc.structure import Vectors

Member = tuple[RotaryEncoding | BiasEncoding, ...]


class Mixture(ScoreEncoding):
    """A weighted sum of the scores that several encodings, or lists of them, would make.

    Args:
        members: each a rotary or bias encoding or a list of them, in which rotations act first; the empty list is a
            member too. They are fixed from then on.
        dim: width of the layer's input; needed where the mixture is adaptive.
        num_heads: query heads.
        adaptive: whether weights also depend on the token of the query: ``attention(..., x=x)``. Its projection starts
            at zero, where it learns at once: a fresh adaptive mixture is a fresh mixture.
        device, dtype: of its own parameters, as in torch.nn; members keep theirs.

    Put it in a list after rotations that all members share: members rotate what these have rotated.

    Raises:
        ValueError: at construction for no member, encodings of other hook points, another ``num_heads``, a missing dim,
            and length-dependent rotations, which need what a score encoding does not receive; at a call without the x
            or token_states of an adaptive mixture, and for members that were exchanged, added or taken away.

    >>> from posenc import ALiBi, RoPE, attention
    >>> mixture = Mixture([RoPE(64), ALiBi(8), []], num_heads=8)
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [mixture]).shape
    torch.Size([1, 8, 16, 64])
    >>> mixture.weights_of()[0].detach()
    tensor([0.3333, 0.3333, 0.3333])
    """

    shared_by_layers = False

    def __init__(
        self,
        members: Sequence[Encoding | Sequence[Encoding]],
        *,
        dim: int | None = None,
        num_heads: int,
        adaptive: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        if dim is not None:
            check_whole("dim", dim)
        adaptive = check_flag("adaptive", adaptive)
        if adaptive and dim is None:
            raise ValueError("dim must be given for adaptive=True: the width of the layer's input")
        self._made_of = _checked(members, num_heads)  # a tuple registers nothing
        inside = [encoding for member in self._made_of for encoding in member]
        several = sorted({encoding.axes for encoding in inside if encoding.axes})
        if len(several) > 1:
            raise ValueError(f"members must agree on how many coordinates a position has, got {several}")
        self.num_heads, self.adaptive, self.dim = num_heads, adaptive, dim
        self.axes = several[0] if several else 0
        self.causal_only = any(encoding.causal_only for encoding in inside)
        self.reads = Reads(rotated=any(isinstance(e, RotaryEncoding) for e in inside), own_key=adaptive)
        self.members = nn.ModuleList(nn.ModuleList(member) for member in self._made_of)
        self.logits = nn.Parameter(torch.empty(num_heads, len(self._made_of)))
        self.weight: nn.Parameter | None = None  # (num_heads · members, dim)
        if adaptive and dim is not None:
            self.weight = nn.Parameter(torch.empty(num_heads * len(self._made_of), dim))
        # Made once, as a compiler follows no construction of modules inside a call.
        biases = [(m, e) for m, member in enumerate(self._made_of) for e in member if isinstance(e, BiasEncoding)]
        weighted = _MixtureBias if adaptive else _WeightedBias
        self._weighted = tuple(weighted(self, m, bias) for m, bias in biases)
        self.reset_parameters()
        place_parameters(self, device, dtype, given=inside)

    def reset_parameters(self) -> None:
        """Logits and projection back to zero: equal weights. Members draw their own."""
        for parameter in (self.logits, self.weight):
            if parameter is not None:
                nn.init.zeros_(parameter)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"logits": QUERIES} | ({} if self.weight is None else {"weight": QUERIES})

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        for weighted in self._weighted:
            weighted.num_heads = self.num_heads

    def weights_of(self, x: Tensor | None = None) -> Tensor:
        """How far heads heed members, ``(heads, members)``; rows sum to 1.

        Args:
            x: tokens ``(batch, tokens, dim)``, where the mixture is adaptive: then ``(batch, heads, tokens, members)``.
        """
        if (x is not None) != self.adaptive:
            raise ValueError(f"x must {'' if self.adaptive else 'not '}be given where adaptive is {self.adaptive}")
        projected = None if x is None else self.token_state(x)
        if projected is None:
            return self.logits.to(torch.promote_types(self.logits.dtype, torch.float32)).softmax(-1)
        return (projected + self.logits.to(projected.dtype).unsqueeze(1)).softmax(-1)

    def token_state(self, x: Tensor) -> Tensor | None:
        """weight · x ``(batch, heads, tokens, members)``, where the mixture is adaptive; else None."""
        if self.weight is None:
            return None
        return wide_linear(x, self.weight).view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        mixed = scores  # weights sum to 1: what is weighted is how far each member changes the scores
        for share, member in zip(self._shares(context, scores.dtype), self._members(), strict=True):
            after = _rotated(member, context)
            if after is not context:
                softcap = context.softcap
                mixed = mixed + share * (softcapped(products(after), softcap) - softcapped(products(context), softcap))
            for encoding in member:
                if isinstance(encoding, BiasEncoding):
                    mixed = mixed + share * bias_at(encoding, context, scores.dtype)
        return mixed

    def absorb_into_qk(
        self, context: Context
    ) -> tuple[Tensor, Tensor, *tuple[BiasEncoding | ScoreEncoding, ...]] | None:
        """All rotations' channels side by side, queries times their weights; and the biases times theirs.

        Not under a softcap, which bends each rotation's products alone.
        """
        rotates = self.reads.rotated
        if rotates and context.softcap is not None:
            return None
        members = self._members()
        if not rotates:
            return context.q, context.k, *self._weighted
        queries, keys = [], []
        unrotated_share: Tensor | None = None  # members that rotate nothing share one product
        for share, member in zip(self._shares(context, context.q.dtype), members, strict=True):
            after = _rotated(member, context)
            if after is context:
                unrotated_share = share if unrotated_share is None else unrotated_share + share
                continue
            queries.append(after.q * share)
            keys.append(after.k)
        if unrotated_share is not None:
            queries.append(context.q * unrotated_share)
            keys.append(context.k)
        return torch.cat(queries, -1), torch.cat(keys, -1), *self._weighted

    def _shares(self, context: Context, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The weight of each member, ``(batch | 1, heads, queries | 1, 1)``."""
        logits = self.logits.to(dtype).view(1, self.num_heads, 1, -1)
        if self.weight is not None:  # queries before the first key, which attend to none, take any weights
            kept = token_state_of("Mixture", context, (self.num_heads, len(self._made_of)), dtype)
            own = own_index(context.q.shape[2], kept)
            logits = logits + kept.index_select(2, own.clamp(min=0))
        return logits.softmax(-1).unsqueeze(-2).unbind(-1)

    def _members(self) -> tuple[Member, ...]:
        """The members; a ValueError unless they are those that the mixture was made of."""
        present = [list(member) for member in self.members if isinstance(member, nn.ModuleList)]
        if len(present) != len(self._made_of) or any(
            len(now) != len(made) or any(a is not b for a, b in zip(now, made, strict=True))
            for now, made in zip(present, self._made_of, strict=True)
        ):
            raise ValueError(
                "members of a Mixture are fixed once it is made: its weights follow from them; make another"
            )
        return self._made_of

    def extra_repr(self) -> str:
        names = [" + ".join(type(encoding).__name__ for encoding in member) or "none" for member in self._made_of]
        extra = f", adaptive=True, dim={self.dim}" if self.adaptive else ""
        return f"num_heads={self.num_heads}, members=({', '.join(names)}){extra}"


class _WeightedBias(BiasEncoding):
    """A bias of one member, times what heads give the member.

    It owns no parameters: it reads the mixture's, which may have been replaced since.
    """

    def __init__(self, mixture: Mixture, member: int, bias: BiasEncoding) -> None:
        super().__init__()
        self.num_heads, self.axes, self.causal_only = mixture.num_heads, bias.axes, bias.causal_only
        self._of = (mixture, member, bias)  # a tuple registers nothing

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The mixture's parameters."""
        return self._of[0].parameters(recurse)

    def _times_share(self, values: Tensor) -> Tensor:
        mixture, member, _ = self._of
        share = mixture.logits.to(values.dtype).softmax(-1)[:, member]
        return values * share.view(-1, *[1] * (values.ndim - 1))

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        bias: Tensor = self._of[2](q_pos, k_pos)
        return self._times_share(bias) if bias.ndim == 3 else self._times_share(bias.transpose(0, 1)).transpose(0, 1)

    def of_distance(self, distance: Tensor) -> Tensor | None:
        values = self._of[2].of_distance(distance)
        return None if values is None else self._times_share(values)


class _MixtureBias(ScoreEncoding):
    """A bias of one member, times what the token of each query gives the member; it has the mixture's token states."""

    reads = Reads(rotated=False, own_key=True)

    def __init__(self, mixture: Mixture, member: int, bias: BiasEncoding) -> None:
        super().__init__()
        self.axes, self.causal_only = bias.axes, bias.causal_only
        self._of = (mixture, member, bias)  # a tuple registers nothing

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        mixture, member, bias = self._of
        return scores + mixture._shares(context, scores.dtype)[member] * bias_at(bias, context, scores.dtype)

    def structure(self, context: Context, *, future: bool) -> tuple[Vectors] | None:
        """The bias by distance as vectors of one number, which queries meet with their share."""
        (mixture, member, bias), dtype = self._of, float32_or_better(context.q.dtype)
        queries, keys = context.q.shape[2], context.k.shape[2]
        apart = torch.arange(queries - 1, -keys, -1, device=context.q.device)
        row = bias.of_distance(apart.double() if dtype == torch.float64 else apart)
        if row is None or context.scale == 0:  # which vectors of the distance are multiplied with
            return None
        share = mixture._shares(context, dtype)[member] / context.scale
        share = share.expand(context.q.shape[0], -1, queries, 1)
        return (Vectors(row.to(dtype).unsqueeze(-1), 1 - queries, share),)


def _checked(members: Sequence[Encoding | Sequence[Encoding]], num_heads: int) -> tuple[Member, ...]:
    """Every member as a tuple; a ValueError where one cannot be given scores and context alone."""
    if isinstance(members, Encoding):
        raise ValueError(f"members must be a list, got one encoding: pass [{type(members).__name__}(...), ...]")
    lists = [
        [member] if isinstance(member, Encoding) else check_several("members", member)
        for member in check_several("members", members)
    ]
    if not lists:
        raise ValueError("members must hold at least one encoding or list of them; the empty list is one too")
    for encoding in (e for member in lists for e in member):
        name = type(encoding).__name__
        if not isinstance(encoding, RotaryEncoding | BiasEncoding):
            raise ValueError(f"members must be rotary or bias encodings, or lists of them: got {name}")
        if isinstance(encoding, RotaryEncoding) and encoding.length_dependent:
            raise ValueError(
                f"members: the frequencies of this {name} depend on the length of a row, of which a score encoding "
                "learns nothing; give it a scaling that does not"
            )
        heads = getattr(encoding, "num_heads", num_heads)
        if heads != num_heads:
            raise ValueError(f"num_heads of {name} is {heads}, but members must have num_heads = {num_heads}")
    return cast("tuple[Member, ...]", tuple(map(tuple, lists)))  # each member was looked at above


def _rotated(member: Member, context: Context) -> Context:
    """The context with queries and keys after the rotations of a member; the same one where it has none."""
    for encoding in member:
        if isinstance(encoding, RotaryEncoding):
            context = context.with_qk(*encoding(context.q, context.k, context.q_pos, context.k_pos))
    return context


def _rotation_bias_or_neither(shape: Mapping[str, object]) -> dict[str, object]:
    head_dim, num_heads = shape.get("head_dim"), shape.get("num_heads")
    if "members" in shape or not isinstance(head_dim, int) or not isinstance(num_heads, int):
        return {}
    return {"members": [RoPE(head_dim), ALiBi(num_heads), []]}


ENTRY = Entry(
    name="mixture",
    encoding=Mixture,
    title="A learned mixture of encodings",
    formula="s_ij ← Σ_m softmax(logits_h)_m · score_m(s)_ij,  score_m what member m alone makes of s",
    source="no paper; its members here: RoPE, arXiv 2104.09864, and ALiBi, arXiv 2108.12409",
    parameters="heads × members per layer, times dim + 1 if adaptive, and the members'",
    cost="one product as wide as all rotations together; under a softcap, one product per rotation",
    past_training="each member behaves as it does alone, with the weights learned in training",
    reads="distances",
    extension="as its members",
    used_in="none known to us",
    avoid="on a checkpoint that cannot be trained further: the shares of its members are learned",
    defaults=_rotation_bias_or_neither,
)
