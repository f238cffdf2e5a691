"""Temperatures: what is counted, which kernels serve them, and where steps begin."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, attention, explain_backend
from posenc.call import prepare_call
from posenc.score.temperature import LogN, SSMax, StepTemperature, Temperature
from tests.samples import gap, qkv


def factor_at(encoding: Temperature, q: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    expected = {"x": None, "token_states": None, "mask": None, "segments": None, "causal": True, "scale": None}
    return encoding.factor(
        prepare_call(q, q, q, [encoding], q_pos=positions, k_pos=positions, **expected).context(None, None)
    )


COUNTED = {  # what each query sees
    "text": ({}, torch.arange(1, 22).expand(2, -1)),
    "both ways": ({"causal": False}, torch.full((2, 21), 21)),
    "window": ({"window": 3}, torch.arange(1, 22).clamp(max=3).expand(2, -1)),
    "packed": (
        {"segments": (torch.arange(21) >= 9).long()},
        torch.cat([torch.arange(1, 10), torch.arange(1, 13)]).expand(2, -1),
    ),
    "padded": (
        {"mask": (torch.arange(21) >= torch.tensor([[0], [5]]))[:, None]},
        torch.stack([torch.arange(1, 22), torch.arange(-4, 17).clamp(min=0)]),
    ),
}


@pytest.mark.parametrize("call", COUNTED)
def test_what_is_counted(call: str) -> None:
    (options, seen), counted = COUNTED[call], SSMax(4, bias=True).double()
    with torch.no_grad():
        counted.bias.normal_()
    q, k, v = qkv(2, 4, 21, 21, dtype=torch.float64)
    logs = seen.clamp(min=1).double().log()[:, None, :, None]
    factor = logs * counted.scale.view(-1, 1, 1) + counted.bias.view(-1, 1, 1)
    assert gap(attention(q, k, v, [counted], **options), attention(q * factor, k, v, [], **options)) < 1e-12


def test_the_kernel_alone_serves_it() -> None:
    q, k, v = qkv(1, 4, 600, 600)
    assert explain_backend(q, k, v, [RoPE(8), SSMax(4)]).backend == "sdpa"
    x = torch.randn(1, 600, 12)
    assert explain_backend(q, k, v, [LogN(8), ForgetGate(12, num_heads=4)], x=x).backend == "tiled"
    after = explain_backend(q, k, v, [ALiBi(4), SSMax(4)])
    assert after.backend == "rows"
    assert "SSMax" in after.refused["tiled"]


def test_steps_begin_where_the_models_begin_them() -> None:
    q = qkv(1, 1, 20, 20)[0]
    for offset, first in ((1, 7), (0, 8)):
        result = factor_at(StepTemperature(8, strength=0.5, offset=offset), q, torch.arange(20))[0, 0]
        assert (result[:first] == 1).all()
        assert result[first].item() == pytest.approx(1 + 0.5 * math.log(2))
