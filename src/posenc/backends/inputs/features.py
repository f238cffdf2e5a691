"""What encodings remember of a call's tokens, in addition to keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from posenc.arguments import TRANSPOSE_HINT, shown
from posenc.encoding import Encoding, ScoreEncoding


def remember(
    encodings: Sequence[Encoding],
    x: Tensor | None,
    features: Sequence[Tensor | None] | None,
    k: Tensor,
) -> list[Tensor | None]:
    """What each encoding keeps of the keys' tokens: given, or made from x; None where it keeps nothing."""
    batch, keys = k.shape[0], k.shape[2]
    if features is not None:
        if x is not None:
            raise ValueError("features and x must not both be given: features are what remember(x) gave")
        if not isinstance(features, Sequence) or isinstance(features, str):
            raise ValueError(f"features must be a list with one entry per encoding, got {shown(features)}")
        if len(features) != len(encodings):
            raise ValueError(f"features must hold one entry per encoding ({len(encodings)}), got {len(features)}")
        for encoding, entry in zip(encodings, features, strict=True):
            if entry is None:
                continue
            if not isinstance(entry, Tensor) or entry.ndim < 3 or entry.shape[2] != keys:
                raise ValueError(
                    f"features of {type(encoding).__name__} must be what its remember(x) gave for these keys, (batch, "
                    f"heads, {keys}, ...) or None, got {shown(entry)}"
                )
        return list(features)
    if x is None:
        return [None] * len(encodings)
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a tensor (batch, keys, dim) = ({batch}, {keys}, dim), got {shown(x)}")
    if x.ndim != 3 or x.shape[:2] != (batch, keys):
        hint = TRANSPOSE_HINT if x.ndim == 3 and x.shape[1] == k.shape[1] != keys else ""
        raise ValueError(f"x must be (batch, keys, dim) = ({batch}, {keys}, dim), got {tuple(x.shape)}{hint}")
    if batch == 0:
        return [None] * len(encodings)
    return [e.remember(x) if isinstance(e, ScoreEncoding) else None for e in encodings]


def lacking_features(encoding: ScoreEncoding, features: Tensor | None) -> ValueError | None:
    """The error of an encoding that failed in a call without x, though it keeps something of x; None elsewhere."""
    if features is not None or type(encoding).remember is ScoreEncoding.remember:
        return None
    name = type(encoding).__name__
    return ValueError(
        f"{name} failed without x=..., the layer's input for the keys, of which its remember(x) keeps some"
    )
