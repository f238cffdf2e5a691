"""TAPE: what turns queries and keys is a state of each token, which layers change by what they read and put out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tests.fuzz.definition.rotary import channels, first_waves, rope
from tests.fuzz.definition.terms import Call, Encoded, Rounding, linear

States = tuple[Tensor, Tensor]  # cosines and sines, (batch, heads, tokens, head_dim)


def tape(encoded: Encoded, call: Call) -> Call:
    """By the states of a call's tokens, where these are told; else by those of the first layer, RoPE's waves."""
    if "cos" not in encoded.parameters:
        return rope(encoded, call)
    parts = []
    for x in (call.q, call.k):
        cos, sin = (encoded.parameters[name][:, :, -x.shape[2] :] for name in ("cos", "sin"))
        beside = list(x.unbind(-1))
        for a, b in channels(x.shape[-1] // 2, "half"):
            beside[a], beside[b] = -beside[b], beside[a]
        parts.append(call.rounding.stored(x * cos + torch.stack(beside, -1) * sin))
    return replace(call, q=parts[0], k=parts[1])


def first_states(encoded: Encoded, positions: Tensor, heads: int, rounding: Rounding) -> States:
    """RoPE's waves at positions ``(batch, tokens)``, for both channels of each pair."""
    cos, sin = first_waves(encoded, positions, heads, rounding)
    shape = (positions.shape[0], heads, positions.shape[1], -1)
    return torch.cat([cos, cos], -1).expand(shape), torch.cat([sin, sin], -1).expand(shape)


def after_attention(parameters: Mapping[str, Tensor], states: States, read: States, rounding: Rounding) -> States:
    """c + mix_h · what the weights of head h read of all tokens' c."""
    of_heads = [sum(row[1:], row[0]) for row in parameters["mix"]]
    sizes = parameters["mix"].detach().abs().sum(1)
    mix = rounding.near(torch.stack(of_heads), sizes)[:, None, None]
    cos, sin = (
        rounding.near(state + mix * mean, state.detach().abs() + (mix * mean).detach().abs())
        for state, mean in zip(states, read, strict=True)
    )
    return cos, sin


def after_network(parameters: Mapping[str, Tensor], states: States, x: Tensor, rounding: Rounding) -> States:
    """c + down · (silu(G x) ⊙ up · c), across heads, for each channel alike."""
    asked = linear(x, parameters["gate"], None, rounding)
    gate = rounding.near(rounding.bent(asked, asked * asked.sigmoid(), 1 + asked.detach().abs()))
    found = []
    for state in states:
        across = state.permute(0, 2, 3, 1)  # (batch, tokens, head_dim, heads)
        units = rounding.near(linear(across, parameters["up"], None, rounding) * gate[:, :, None])
        change = linear(units, parameters["down"], None, rounding).permute(0, 3, 1, 2)
        found.append(rounding.near(state + change, state.detach().abs() + change.detach().abs()))
    return found[0], found[1]
