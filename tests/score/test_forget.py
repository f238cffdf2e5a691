"""FoX's forget gates: their kinds, and lengths where running sums go wrong."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from posenc import ALiBi, attention, read_attention
from posenc.layers import KVCache, SelfAttention
from posenc.score.forget import ForgetGate
from tests.samples import gap, qkv, refusals

DIM, HEADS = 16, 4


def causal(queries: int, keys: int) -> torch.Tensor:
    return torch.ones(queries, keys).bool().tril(keys - queries)


def decay(gates: torch.Tensor, queries: int) -> torch.Tensor:
    """The bias ``(batch, heads, queries, keys)`` of the last queries under these log gates: scores of q·k = 0."""
    batch, heads, keys = gates.shape
    q, k = (torch.zeros(batch, heads, length, 1, dtype=gates.dtype) for length in (queries, keys))
    return read_attention(q, k, encodings=[ForgetGate(DIM, num_heads=heads)], token_states=[gates]).scores


def tokens(batch=2, length=9, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1)).to(dtype)


def layer(*encodings, **options) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, HEADS, encodings=encodings, **options)


def spread(gate: ForgetGate) -> ForgetGate:
    """The gate with weights so large that its values differ from token to token."""
    torch.manual_seed(3)
    if gate.weight is not None:
        torch.nn.init.normal_(gate.weight, std=1.0)
    return gate


class TestGates:
    def test_first_values(self):
        torch.manual_seed(0)
        gate = ForgetGate(512, num_heads=64)
        assert abs(gate.weight.std().item() - 0.02) < 1e-3
        assert not gate.bias.any()
        assert ForgetGate(8, num_heads=3, kind="bias").bias.tolist() == [0, 0, 0]

    @pytest.mark.parametrize("times", [(1, 64), (0.001, 1e6), (30, 30)])
    def test_decay_times(self, times):
        fixed, learned = (ForgetGate(8, num_heads=5, kind=kind, decay_time=times) for kind in ("fixed", "bias"))
        expected = torch.tensor(fixed.decay_times(), dtype=torch.float64)
        assert expected[0].item() == pytest.approx(times[0])
        assert expected[-1].item() == pytest.approx(times[1])
        assert torch.allclose(expected.log().diff(), expected.log().diff().mean().expand(4))
        got = -1 / F.logsigmoid(learned.double().bias)
        assert torch.allclose(got, expected, rtol=2e-6)  # a float32 bias of 13.8 is off by 1e-6
        assert ForgetGate(8, num_heads=1, kind="fixed", decay_time=times).decay_times() == [pytest.approx(times[0])]

    def test_fixed_gates_are_alibi(self):
        q, k, v = qkv(dtype=torch.float64)
        gate = ForgetGate(DIM, num_heads=HEADS, kind="fixed", decay_time=(2, 16))
        slopes = [1 / t for t in gate.decay_times()]
        assert gap(attention(q, k, v, [gate]), attention(q, k, v, [ALiBi(HEADS, slopes=slopes)])) < 1e-12

    def test_strong_logits_stay_finite(self):
        gate = ForgetGate(DIM, num_heads=HEADS)
        torch.nn.init.constant_(gate.weight, 1e4)
        gates = gate.token_state(torch.cat([tokens(), -tokens()]))
        assert gates.isfinite().all()
        assert gates.min() < -1e4
        assert gates.max() == 0


class TestLongTexts:
    LENGTH, TILE = 131_072, 16

    @pytest.mark.parametrize("bias", [0.0, 3.0, 8.0])
    def test_a_tile_of_the_decay(self, bias):
        """The last queries of one head against every key, in float32."""
        logits = torch.randn(self.LENGTH, generator=torch.Generator().manual_seed(0)) + bias
        gates, seen = F.logsigmoid(logits), causal(self.TILE, self.LENGTH)
        got = decay(gates[None, None], self.TILE)[0, 0].masked_fill(~seen, 0.0).double()
        running = gates.double().cumsum(0)
        exact = (running[-self.TILE :, None] - running).masked_fill(~seen, 0.0)
        error = (got.masked_fill(~seen, 0.0) - exact).abs()
        assert error[:, -self.TILE :].max() < 1e-5
        assert (error * exact.exp()).max() < 1e-6, "what a weight can lose"
        assert (error <= 1e-6 * exact.abs()).all()
        steps = got.diff(dim=-1)[:, -self.TILE :] - exact.diff(dim=-1)[:, -self.TILE :]
        assert steps[seen[:, -self.TILE :]].abs().max() < 1e-5

    def test_a_running_sum_from_the_start_would_not_do(self):
        gates = F.logsigmoid(torch.randn(self.LENGTH, generator=torch.Generator().manual_seed(0)))
        running, exact = gates.cumsum(0), gates.double().cumsum(0)
        near = slice(-self.TILE, None)
        assert (running[-1] - running[near] - (exact[-1] - exact[near])).abs().max() > 1e-3


class TestDecoding:
    def test_any_mask(self):
        """Attention sinks with a window: what a query does not attend to may not depend on who else is in the call."""
        module, x, cache = layer(spread(ForgetGate(DIM, num_heads=HEADS))), tokens(), KVCache()
        index = torch.arange(9)
        mask = (index[:, None] - index < 3) | (index < 2)
        pieces = [
            module(x[:, i : i + 1], cache=cache, mask=mask[i : i + 1, : i + 1]) for i in range(9)
        ]  # fmt: skip
        assert gap(torch.cat(pieces, 1), module(x, mask=mask)) < 1e-5


test_refusals = refusals(
    {
        "decay_time": [
            lambda: ForgetGate(8, num_heads=2, decay_time=(1, 2)),
            lambda: ForgetGate(8, num_heads=2, kind="fixed"),
            lambda: ForgetGate(8, num_heads=2, kind="bias", decay_time=(0, 2)),
            lambda: ForgetGate(8, num_heads=2, kind="bias", decay_time=(1, math.inf)),
            lambda: ForgetGate(8, num_heads=2, kind="bias", decay_time=(1,)),
        ],
        "x": [
            lambda: attention(*qkv(), [ForgetGate(DIM, num_heads=HEADS)]),
            lambda: attention(*qkv(), [ForgetGate(DIM, num_heads=HEADS)], x=torch.ones(2, 6, 5)),
        ],
        "token_states": [
            lambda: attention(*qkv(), [ForgetGate(DIM, num_heads=HEADS)], token_states=[torch.zeros(2, 1, 6)]),
            lambda: attention(
                *qkv(queries=1, keys=6), [ForgetGate(DIM, num_heads=HEADS)], token_states=[torch.zeros(2, HEADS, 1)]
            ),
        ],
        "num_heads": [lambda: attention(*qkv(), [ForgetGate(DIM, num_heads=8)], x=torch.ones(2, 6, DIM))],
    }
)
