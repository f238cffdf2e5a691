"""A learned mixture of encodings: each head learns how much each member counts.

    s_ij ← Σ_m w_hm · score_m(s)_ij,   w_h = softmax(logits_h)                    over the members m
    w_hmi = softmax(logits_h + weight_h · x_i)                                    adaptive: per query token i

score_m(s) is what member m alone makes of the scores s handed in: s_ij + scale · (R q_i·R k_j − q_i·k_j) for a
rotation R, s_ij + b_ij for a bias. A member may be a list of encodings; the empty list (NoPE) leaves s as it is. What
members add to the values (Shaw) counts with the same weights. x is the layer's input. All weights start equal. Past the
training length each member does what it does alone, at weights that were learned before.
Source: no paper. Circulating notes that choose dynamically between RoPE (arXiv 2104.09864, eq. 15) and ALiBi
    (arXiv 2108.12409, section 3) have s + w_r · (s_rope − s) + w_a · b; this is the sound form of that idea.
Checked against: the formula written out; lists of one member; RoPE and ALiBi alone where a head gives one all weight.
Departs from the source: weights per head, or per head and query, where the notes have two numbers; any members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_heads, check_whole
from posenc.bias.alibi import ALiBi
from posenc.encoding import BiasEncoding, Context, Encoding, Reads, Scope, ScoreEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.rotary.rope import RoPE
from posenc.score._inputs import own_index, token_state_of, wide_linear
from posenc.score._members import (
    alone,
    channels,
    checked,
    packed,
    read_by,
    rotated,
    rotations_of,
    scores_of,
    shape_kept,
    unpacked,
)
from posenc.score._shares import Share


class Mixture(ScoreEncoding):
    """A weighted sum of the scores that several encodings, or lists of them, would make.

    Args:
        members: each a rotary, bias or score encoding, or a list of them, in which rotations act first, then biases,
            then score encodings; the empty list is a member too.
        num_heads: query heads.
        adaptive: whether weights also depend on the token of the query: ``attention(..., x=x)``. Its projection starts
            at zero, where it learns at once: a fresh adaptive mixture is a fresh mixture.
        dim: width of the layer's input; needed where the mixture is adaptive or a member keeps some of it.
        device, dtype: of its own parameters, as in torch.nn; members keep theirs.

    Put it in a list after rotations that all members share: members rotate what these have rotated.

    Raises:
        ValueError: at construction for no member, embedding or weight encodings, another ``num_heads``, a missing
            dim, and rotations that need what a score encoding does not receive: length-dependent ones, and xPos, for
            which long calls are divided; at a call for whatever members refuse, or without the x or token_states that
            they need.

    >>> from posenc import ALiBi, RoPE, attention
    >>> mixture = Mixture([RoPE(64), ALiBi(8), []], 8)
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
        num_heads: int,
        *,
        adaptive: bool = False,
        dim: int | None = None,
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
        lists = checked(members, num_heads)
        scores = [score for member in lists for score in scores_of(member)]
        self.num_heads, self.adaptive, self.dim = num_heads, adaptive, dim
        several = sorted({encoding.axes for member in lists for encoding in member if encoding.axes})
        if len(several) > 1:
            raise ValueError(f"members must agree on how many coordinates a position has, got {several}")
        self.axes = several[0] if several else 0
        self.causal_only = any(encoding.causal_only for member in lists for encoding in member)
        self.reads = Reads(*map(any, zip(*(score.reads for score in scores), strict=True)))._replace(
            rotated=any(score.reads.rotated for score in scores) or any(map(rotations_of, lists)),
            key_counts=False,
            own_key=adaptive or any(score.reads.own_key for score in scores),
        )
        self.scope = Scope(
            by_rows=all(score.scope.by_rows for score in scores),
            look_back=max((score.scope.look_back for score in scores), default=0),
        )
        self.members = nn.ModuleList(nn.ModuleList(member) for member in lists)
        self._sizes = [(len(member), len(scores_of(member))) for member in lists]  # what the rest was made for
        of_weights = (num_heads, len(lists)) if adaptive else None
        self._shapes = (of_weights, *(shape_kept(score, dim) for score in scores))
        self.logits = nn.Parameter(torch.empty(num_heads, len(lists)))
        self.weight: nn.Parameter | None = None  # (num_heads · members, dim)
        if adaptive and dim is not None:
            self.weight = nn.Parameter(torch.empty(num_heads * len(lists), dim))
        biases = [(m, e) for m, member in enumerate(lists) for e in member if isinstance(e, BiasEncoding)]
        self._shares = () if adaptive else tuple(Share(self, m, bias) for m, bias in biases)
        self.reset_parameters()
        place_parameters(self, device, dtype, given=lists)

    def reset_parameters(self) -> None:
        """Logits and projection back to zero: equal weights. Members draw their own."""
        for parameter in (self.logits, self.weight):
            if parameter is not None:
                nn.init.zeros_(parameter)

    def weights_of(self, x: Tensor | None = None) -> Tensor:
        """How far heads heed members, ``(heads, members)``; rows sum to 1.

        Args:
            x: tokens ``(batch, tokens, dim)``, where the mixture is adaptive: then ``(batch, heads, tokens, members)``.
        """
        if (x is not None) != self.adaptive:
            raise ValueError(f"x must {'' if self.adaptive else 'not '}be given where adaptive is {self.adaptive}")
        if x is None:
            return self.logits.to(torch.promote_types(self.logits.dtype, torch.float32)).softmax(-1)
        logits = self._projected(x)
        return (logits + self.logits.to(logits.dtype).unsqueeze(1)).softmax(-1)

    def token_state(self, x: Tensor) -> Tensor | None:
        """What the weights of each token and all members need, ``(batch, 1, tokens, channels)``."""
        of_weights = self._projected(x) if self.adaptive else None
        return packed([of_weights, *(score.token_state(x) for member in self._lists() for score in scores_of(member))])

    def _projected(self, x: Tensor) -> Tensor:
        """weight · x, ``(batch, heads, tokens, members)``, in float32 or better."""
        if self.weight is None:
            raise RuntimeError("not adaptive: no projection of x")
        return wide_linear(x, self.weight).view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def _lists(self) -> list[list[Encoding]]:
        """The members."""
        modules = (member for member in self.members if isinstance(member, nn.ModuleList))
        lists = [[encoding for encoding in member if isinstance(encoding, Encoding)] for member in modules]
        if [(len(member), len(scores_of(member))) for member in lists] != self._sizes:
            raise ValueError(
                "members of a Mixture are fixed once it is made: its weights follow from them; make another"
            )
        return lists

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        shares, token_states = self._parts(scores, context)
        mixed = scores.new_zeros(())
        for share, member, kept_by in zip(shares, self._lists(), token_states, strict=True):
            mixed = mixed + share * alone(member, scores, context, kept_by)
        return mixed

    def absorb_into_qk(self, context: Context) -> tuple[Tensor, Tensor] | None:
        """Where members are rotations and biases: all their channels side by side, queries times their weights."""
        lists = self._lists()
        biased = any(isinstance(e, BiasEncoding) for member in lists for e in member)
        rotates = any(map(rotations_of, lists))
        if any(map(scores_of, lists)) or (self.adaptive and biased) or (rotates and context.softcap is not None):
            return None
        if not rotates:
            return context.q, context.k
        size = context.q.shape[2], context.k.shape[2]
        shares, _ = self._parts(context.q.new_empty(0, *size), context)
        queries, keys = [], []
        unrotated_share: Tensor | None = None  # members that rotate nothing share one product
        for share, member in zip(shares, lists, strict=True):
            after = rotated(member, context)
            if after is context:
                unrotated_share = share if unrotated_share is None else unrotated_share + share
                continue
            queries.append(after.q * share)
            keys.append(after.k)
        if unrotated_share is not None:
            queries.append(context.q * unrotated_share)
            keys.append(context.k)
        return torch.cat(queries, -1), torch.cat(keys, -1)

    def extra_biases(self) -> tuple[Share, ...]:
        return self._shares

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        shares, token_states = self._parts(weights, context)
        mixed: Tensor | None = None
        for share, member, kept_by in zip(shares, self._lists(), token_states, strict=True):
            read = read_by(member, weights, context, kept_by)
            if read is not None:
                mixed = share * read if mixed is None else mixed + share * read
        return mixed

    def _parts(self, scores: Tensor, context: Context) -> tuple[tuple[Tensor, ...], list[list[Tensor | None]]]:
        """Per member its weights, ``(batch | 1, heads, queries | 1, 1)``, and the states of its score encodings."""
        parts: list[Tensor | None] = [None] * len(self._shapes)
        width = sum(channels(shape) for shape in self._shapes)
        if width:
            parts = unpacked(token_state_of("Mixture", context, (1, width), scores.dtype), self._shapes)
        by_query, *rest = parts
        logits = self.logits.to(scores.dtype).unsqueeze(1)  # (heads, 1, members)
        if by_query is None:
            logits = logits.unsqueeze(0)
        else:  # queries before the first key, which attend to none, take any weights
            logits = logits + by_query.index_select(2, own_index(scores).flatten().clamp(min=0))
        remaining = iter(rest)
        token_states = [[next(remaining) for _ in scores_of(member)] for member in self._lists()]
        return logits.softmax(-1).unsqueeze(-2).unbind(-1), token_states

    def extra_repr(self) -> str:
        names = [" + ".join(type(encoding).__name__ for encoding in member) or "none" for member in self._lists()]
        extra = f", adaptive=True, dim={self.dim}" if self.adaptive else ""
        return f"{self.num_heads}, members=({', '.join(names)}){extra}"


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
    cost="one product as wide as all rotations together; with score encodings, each member's cost over all logits",
    past_training="each member behaves as it does alone, with the weights learned in training",
    reads="distances",
    extension="as its members",
    used_in="none known to us",
    defaults=_rotation_bias_or_neither,
)
