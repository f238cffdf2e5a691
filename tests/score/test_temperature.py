"""Temperatures: which kernels serve them, and where steps begin."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, explain_backend
from posenc.call import prepare_call
from posenc.score.temperature import LogN, SSMax, StepTemperature, Temperature
from tests.samples import qkv


def factor_at(encoding: Temperature, q: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    expected = {"x": None, "token_states": None, "mask": None, "segments": None, "causal": True, "scale": None}
    return encoding.factor(
        prepare_call(q, q, q, [encoding], q_pos=positions, k_pos=positions, **expected).context(None, None)
    )


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
