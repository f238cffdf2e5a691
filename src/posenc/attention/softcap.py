"""A cap on the products of queries and keys, as Gemma 2 and Grok have it: softcap · tanh(q·k · scale / softcap).

It acts before biases, score encodings and the mask, so that neither a distance nor a forget gate is held back by it;
`posenc.encoding.softcapped` is the formula. Encodings that put another product in the place of q·k (PaTH, rotations
inside a `Mixture`) cap that one, as they find the cap in their `Context`.
Source: Gemma Team, Gemma 2, arXiv 2408.00118, section 2 (logit soft-capping). The same order have flash-attention
    (before its ALiBi slopes and masks) and transformers' FlexAttention (before mask and position bias).
"""

from __future__ import annotations

import math

from posenc.arguments import shown


def check_softcap(softcap: float | None) -> float | None:
    """Raise a ValueError unless a cap is a positive finite number."""
    if softcap is None:
        return None
    if isinstance(softcap, bool) or not isinstance(softcap, int | float) or not 0 < softcap < math.inf:
        raise ValueError(f"softcap must be a positive finite number, or None for no cap, got {shown(softcap)}")
    return float(softcap)
