"""Temperatures: what is counted on every backend, which kernels serve them, where steps begin."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, attention, explain_backend
from posenc.backends import BACKENDS
from posenc.call import prepare_call
from posenc.score import Shaw
from posenc.score.temperature import LogN, SSMax, StepTemperature, Temperature
from tests.samples import gap, qkv, run_or_none


def factor_at(encoding: Temperature, q: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    expected = {"x": None, "token_states": None, "mask": None, "segments": None, "causal": True, "scale": None}
    return encoding.factor(
        prepare_call(q, q, q, [encoding], q_pos=positions, k_pos=positions, **expected).context(None, None)
    )


SEGMENTS = torch.tensor([0] * 9 + [1] * 12)
CALLS = {
    "text": ({}, torch.arange(1, 22).expand(2, -1)),
    "both ways": ({"causal": False}, torch.full((2, 21), 21)),
    "window": ({"window": 3}, torch.arange(1, 22).clamp(max=3).expand(2, -1)),
    "packed": ({"segments": SEGMENTS}, torch.cat([torch.arange(1, 10), torch.arange(1, 13)]).expand(2, -1)),
    "padded": (
        {"mask": (torch.arange(21) >= torch.tensor([[0], [5]]))[:, None]},
        torch.stack([torch.arange(1, 22), torch.arange(-4, 17).clamp(min=0)]),
    ),
}
LISTS = {
    "rope": lambda: [RoPE(8)], "alibi": lambda: [ALiBi(4)], "fox": lambda: [ForgetGate(12, num_heads=4)],
    "shaw": lambda: [Shaw(8, max_distance=3)], "log_n": lambda: [LogN(4)],
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("listed", LISTS)
def test_what_is_counted_on_every_backend(listed: str, call: str) -> None:
    torch.manual_seed(0)
    (options, seen), counted = CALLS[call], SSMax(4, bias=True).double()
    encodings = [counted, *(e.double() for e in LISTS[listed]())]
    if call == "both ways" and any(e.causal_only for e in encodings):
        pytest.skip("defined for causal attention alone")
    q, k, v = (t.requires_grad_() for t in qkv(2, 4, 21, 21, num_kv_heads=2, dtype=torch.float64))
    x = torch.randn(2, 21, 12, dtype=torch.float64)
    leaves, actual = [q, k, v, *counted.parameters()], {}
    upstream = torch.randn(2, 4, 21, 8, dtype=torch.float64)
    for backend in ("dense", "auto", *BACKENDS):
        out = run_or_none(q, k, v, encodings, x=x, backend=backend, **options)
        if out is None:
            continue
        actual[backend] = [out, *torch.autograd.grad(out, leaves, upstream)]
    for backend, parts in actual.items():
        for got, expected in zip(parts, actual["dense"], strict=True):
            assert gap(got, expected) < 1e-10, backend
    if listed == "rope":
        logs = seen.clamp(min=1).double().log()[:, None, :, None] * counted.scale.view(-1, 1, 1) + counted.bias.view(
            -1, 1, 1
        )
        rotated = RoPE(8)(q, k, torch.arange(21), torch.arange(21))
        assert gap(attention(rotated[0] * logs, rotated[1], v, [], **options), actual["dense"][0]) < 1e-12


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
