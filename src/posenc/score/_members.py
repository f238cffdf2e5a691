"""Lists of encodings inside a score encoding: the scores under one list alone, and the states of several lists."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.arguments import check_several
from posenc.encoding import BiasEncoding, Context, Encoding, RotaryEncoding, ScoreEncoding, softcapped
from posenc.heads import by_key_head

Members = Sequence[Sequence[Encoding]]
Shape = tuple[int, ...]  # of the state of one token: heads, and what follows the tokens


def checked(members: Sequence[Encoding | Sequence[Encoding]], num_heads: int) -> list[list[Encoding]]:
    """Every member as a list; a ValueError where one cannot be given scores and context alone."""
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
        if not isinstance(encoding, RotaryEncoding | BiasEncoding | ScoreEncoding):
            raise ValueError(f"members must be rotary, bias or score encodings, which leave scores behind: got {name}")
        if isinstance(encoding, ScoreEncoding) and encoding.scope.replaces:
            raise ValueError(f"members must not hold {name}: it replaces the products of q and k, which members share")
        heads = getattr(encoding, "num_heads", num_heads)
        if heads != num_heads:
            raise ValueError(f"num_heads of {name} is {heads}, but members must have num_heads = {num_heads}")
        if isinstance(encoding, RotaryEncoding):
            _check_rotation(encoding)
    return lists


def _check_rotation(rotation: RotaryEncoding) -> None:
    name = type(rotation).__name__
    if rotation.length_dependent:
        raise ValueError(
            f"members: the frequencies of this {name} depend on the length of a row, of which a score encoding "
            "learns nothing; give it a scaling that does not"
        )


def rotations_of(member: Sequence[Encoding]) -> list[RotaryEncoding]:
    """The rotations of a member, in order."""
    return [e for e in member if isinstance(e, RotaryEncoding)]


def scores_of(member: Sequence[Encoding]) -> list[ScoreEncoding]:
    """The score encodings of a member, in order."""
    return [e for e in member if isinstance(e, ScoreEncoding)]


def alone(
    member: Sequence[Encoding], scores: Tensor, context: Context, token_states: Sequence[Tensor | None]
) -> Tensor:
    """The scores where nothing but this list acts on those handed in: rotations, then biases, then scores.

    Args:
        member: any list of the three kinds.
        scores: ``(batch, heads, queries, keys)``.
        context: of the call; its own token_states are not read.
        token_states: what each score encoding of the list kept.
    """
    after = rotated(member, context)
    if after is not context:
        softcap = context.softcap
        scores = scores + (softcapped(products(after), softcap) - softcapped(products(context), softcap))
    for encoding in member:
        if isinstance(encoding, BiasEncoding):
            scores = scores + bias_at(encoding, context, scores.dtype)
    for score, states_of_score in zip(scores_of(member), token_states, strict=True):
        scores = score(scores, after._replace(token_state=states_of_score))
    return scores


def read_by(
    member: Sequence[Encoding], weights: Tensor, context: Context, token_states: Sequence[Tensor | None]
) -> Tensor | None:
    """The value terms that the list adds to v's, ``(batch, heads, queries, value_dim)``; None if it adds none."""
    total: Tensor | None = None
    after = rotated(member, context) if scores_of(member) else context
    for score, states_of_score in zip(scores_of(member), token_states, strict=True):
        read = score.output(weights, after._replace(token_state=states_of_score))
        if read is None:
            continue
        if read.shape[-1] != context.v.shape[-1]:
            name, width = type(score).__name__, context.v.shape[-1]
            raise ValueError(f"value_dim of {name} is {read.shape[-1]}, but v has width {width}")
        total = read if total is None else total + read
    return total


def rotated(member: Sequence[Encoding], context: Context) -> Context:
    """The context with queries and keys after the rotations of the list; the same one where it has none."""
    for rotation in rotations_of(member):
        q, k = rotation(context.q, context.k, context.q_pos, context.k_pos)
        context = context.with_qk(q, k)
    return context


def check_bias(bias: object, num_heads: int) -> None:
    """Raise a ValueError unless this is a bias for so many heads."""
    if not isinstance(bias, BiasEncoding):
        raise ValueError(f"bias must be a bias encoding, got {type(bias).__name__}")
    if bias.num_heads != num_heads:
        raise ValueError(f"num_heads of {type(bias).__name__} is {bias.num_heads}, expected {num_heads}")


def bias_at(encoding: BiasEncoding, context: Context, dtype: torch.dtype) -> Tensor:
    """The bias of a call in the precision of its scores, ``(batch | 1, heads, queries, keys)``."""
    q_pos, k_pos = context.q_pos, context.k_pos
    if dtype == torch.float64:
        q_pos, k_pos = q_pos.double(), k_pos.double()
    bias: Tensor = encoding(q_pos, k_pos).to(dtype)
    return bias if bias.ndim == 4 else bias.unsqueeze(0)


def products(context: Context) -> Tensor:
    """q·k · scale, ``(batch, heads, queries, keys)``."""
    return by_key_head(context.q, context.k.mT) * context.scale


def shape_kept(score: ScoreEncoding, dim: int | None) -> Shape | None:
    """Heads, and what follows the tokens, of the token states that an encoding keeps; None where it keeps nothing.

    Asked with one token of zeros, at construction: nothing may be carried from one call to another.
    """
    like = next(score.parameters(), torch.zeros(()))
    token = torch.zeros(1, 1, 1 if dim is None else dim, dtype=like.dtype, device=like.device)
    name = type(score).__name__
    missing = f"dim must be given, the width of the layer's input: {name} keeps some of it"
    try:
        with torch.no_grad():
            token_states = score.token_state(token)
    except (ValueError, RuntimeError) as error:
        raise ValueError(missing if dim is None else f"dim is {dim}, which {name} refuses: {error}") from error
    if token_states is None:
        return None
    if dim is None:
        raise ValueError(missing)
    return token_states.shape[1], *token_states.shape[3:]


def packed(token_states: Sequence[Tensor | None]) -> Tensor | None:
    """Features ``(batch, heads, tokens, ...)`` of several as one, ``(batch, 1, tokens, channels)``; None if none."""
    flat = [f.transpose(1, 2).flatten(2) for f in token_states if f is not None]
    return torch.cat(flat, -1).unsqueeze(1) if flat else None


def unpacked(together: Tensor, shapes: Sequence[Shape | None]) -> list[Tensor | None]:
    """The token states that `packed` made one of, by the shapes of each."""
    rows = together.squeeze(1)  # (batch, tokens, channels)
    parts = iter(torch.split(rows, [channels(shape) for shape in shapes if shape is not None], -1))
    return [None if shape is None else next(parts).view(*rows.shape[:2], *shape).transpose(1, 2) for shape in shapes]


def channels(shape: Shape | None) -> int:
    """How many numbers a token has."""
    return 0 if shape is None else int(torch.Size(shape).numel())
