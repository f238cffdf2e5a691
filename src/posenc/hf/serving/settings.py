"""What trainers' settings share: the one rotation of a model, and YaRN's gain as a pair of scales."""

from __future__ import annotations

import math
from typing import Any

from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rotation import text_rope
from posenc.hf.serving.lines import Serving

WRITE_FIRST = "write the folder first (posenc extend --config-only --out DIR), and train that"


def only_rope(serving: Serving) -> RoPESpec:
    """The rotation of all layers.

    Raises:
        ValueError: where layers differ, do not rotate, or rotate by several coordinates of a token.
    """
    rotations = list(serving.config.rotations.values())
    if len(rotations) != 1 or rotations[0] is None:
        raise ValueError("its settings have one rotation for all layers, and the layers of this model differ")
    rope = text_rope(rotations[0])
    if rope is not rotations[0]:
        raise ValueError("its settings have no M-RoPE")
    return rope


def gain_of_yarn(block: dict[str, Any]) -> tuple[float, float, float]:
    """The gain of a YaRN block on rotated queries and keys, and the scales (numerator, denominator) that give it.

    m(a) = 0.1 a ln(factor) + 1, and the gain is m(numerator) / m(denominator).

    Raises:
        ValueError: for a factor of 1 with another gain than 1.
    """
    scale, all_dim = float(block.get("mscale") or 0), float(block.get("mscale_all_dim") or 0)
    if block.get("attention_factor") is None:
        scale, all_dim = (scale, all_dim) if scale and all_dim else (1.0, 0.0)
        return _m(block["factor"], scale) / _m(block["factor"], all_dim), scale, all_dim
    gain = float(block["attention_factor"])
    if block["factor"] <= 1:
        raise ValueError("a gain needs a factor above 1 there")
    return gain, (gain - 1) / (0.1 * math.log(block["factor"])), 0.0


def _m(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0
