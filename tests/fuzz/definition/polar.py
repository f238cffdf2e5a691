"""PoPE: strengths from content, angles from positions; queries and keys become wider."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from tests.fuzz.definition.angles import angles, geometric
from tests.fuzz.definition.grid_rotary import places
from tests.fuzz.definition.rotary import COS_ERROR, FRACTION, heads_of, waves
from tests.fuzz.definition.terms import Call, Encoded, softplus


def pope(encoded: Encoded, call: Call) -> Call:
    """softplus of every channel times the cosine, then times the sine, of its angle; a key's has the bias as well."""
    count = encoded.count("rotary_dim", encoded.count("head_dim"))
    sections: list[int] = list(encoded.option("sections") or [count])  # type: ignore[call-overload]
    bias = encoded.parameters["bias"].clamp(-2 * math.pi, 0.0).unsqueeze(-2)  # (key heads, 1, channels)
    parts = []
    for x, positions, shift in ((call.q, call.q_pos, None), (call.k, call.k_pos, bias)):
        at, _ = places(positions, len(sections))
        angle, far = [], []
        for axis, channels in enumerate(sections):
            theta = geometric(encoded.number("base", 10_000.0), channels, 2 * channels)
            angle.append(angles(at[..., axis], theta))
            far.append(at[..., axis].double().abs()[..., None] * (theta + FRACTION))
        turn, units = torch.cat(angle, -1)[:, None], COS_ERROR
        if shift is not None:  # which may be added to angles, or be turned by after them
            turn, units = turn + heads_of(shift, x.shape[1]), 3 * COS_ERROR
        cos, sin = waves(turn, call.rounding, torch.cat(far, -1)[:, None], units)
        strength = call.rounding.near(softplus(x[..., :count]))
        polar = torch.cat([call.rounding.stored(strength * wave) for wave in (cos, sin)], -1)
        parts.append(torch.cat([polar, x[..., count:]], -1))
    return replace(call, q=parts[0], k=parts[1])
