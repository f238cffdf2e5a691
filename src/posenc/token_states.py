"""what encodings keep of a call's tokens, in addition to keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from posenc.arguments import TRANSPOSE_HINT, shown
from posenc.encoding import Encoding, ScoreEncoding


def token_states_of(
    encodings: Sequence[Encoding],
    x: Tensor | None,
    token_states: Sequence[Tensor | None] | None,
    k: Tensor,
) -> list[Tensor | None]:
    """What each encoding keeps of the keys' tokens: given, or made from x; None where it keeps nothing."""
    batch, keys = k.shape[0], k.shape[2]
    if token_states is not None:
        if x is not None:
            raise ValueError("token_states and x must not both be given: token_states are what token_state(x) gave")
        if not isinstance(token_states, Sequence) or isinstance(token_states, str):
            raise ValueError(f"token_states must be a list with one entry per encoding, got {shown(token_states)}")
        if len(token_states) != len(encodings):
            raise ValueError(
                f"token_states must hold one entry per encoding ({len(encodings)}), got {len(token_states)}"
            )
        for encoding, entry in zip(encodings, token_states, strict=True):
            if entry is None:
                continue
            if not isinstance(entry, Tensor) or entry.ndim < 3 or entry.shape[2] != keys:
                raise ValueError(
                    f"token_states of {type(encoding).__name__} must be what its token_state(x) gave for these keys, "
                    f"(batch, heads, {keys}, ...) or None, got {shown(entry)}"
                )
        return list(token_states)
    if x is None:
        return [None] * len(encodings)
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a tensor (batch, keys, dim) = ({batch}, {keys}, dim), got {shown(x)}")
    if x.ndim != 3 or x.shape[:2] != (batch, keys):
        hint = TRANSPOSE_HINT if x.ndim == 3 and x.shape[1] == k.shape[1] != keys else ""
        raise ValueError(f"x must be (batch, keys, dim) = ({batch}, {keys}, dim), got {tuple(x.shape)}{hint}")
    if batch == 0:
        return [None] * len(encodings)
    return [e.token_state(x) if isinstance(e, ScoreEncoding) else None for e in encodings]


def lacking_token_state(encoding: ScoreEncoding, token_states: Tensor | None) -> ValueError | None:
    """The error of an encoding that failed in a call without x, though it keeps something of x; None elsewhere."""
    if token_states is not None or type(encoding).token_state is ScoreEncoding.token_state:
        return None
    name = type(encoding).__name__
    return ValueError(
        f"{name} failed without x=..., the layer's input for the keys, of which its token_state(x) keeps some"
    )
