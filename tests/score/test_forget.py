"""FoX's forget gates: their kinds and first values."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from posenc import Context, create_encoding
from posenc.score.forget import ForgetGate
from tests.samples import gap, qkv

DIM, HEADS = 16, 4


class TestGates:
    def test_first_values(self):
        torch.manual_seed(0)
        gate = ForgetGate(512, num_heads=64)
        assert abs(gate.weight.std().item() - 0.02) < 1e-3
        assert not gate.bias.any()
        assert ForgetGate(8, num_heads=3, kind="bias").bias.tolist() == [0, 0, 0]

    @pytest.mark.parametrize("kind", ["data", "bidirectional", "rows"])
    def test_first_values_of_data_dependent_alibi(self, kind):
        torch.manual_seed(0)
        gate = create_encoding("data_alibi", dim=300, num_heads=64, kind=kind)
        assert abs(gate.weight.std().item() - 900**-0.5) < 1e-3
        assert (gate.bias is None) if kind == "rows" else bool((gate.bias == 5).all())

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

    def test_strong_logits_stay_finite(self):
        gate = ForgetGate(DIM, num_heads=HEADS)
        torch.nn.init.constant_(gate.weight, 1e4)
        x = torch.randn(2, 9, DIM)
        gates = gate.token_state(torch.cat([x, -x]))
        assert gates.isfinite().all()
        assert gates.min() < -1e4
        assert gates.max() == 0


def context(q, k, mask, token_states):
    at = torch.arange(k.shape[2])
    return Context(q, k, k, at[-q.shape[2] :], at, 1.0, mask, token_states)


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["data", "bidirectional", "rows"])
def test_kinds_of_the_installed_library(kind):
    theirs_of = pytest.importorskip("x_transformers.x_transformers")
    torch.manual_seed(0)
    if kind == "rows":
        reference = theirs_of.PerRowDataDependentAlibi(DIM, HEADS).double()
    else:
        reference = theirs_of.DataDependentAlibi(DIM, HEADS, causal=kind == "data").double()
    built = ForgetGate(DIM, num_heads=HEADS, kind=kind).double()
    built.load_state_dict({name.split(".")[-1]: p for name, p in reference.state_dict().items()})
    x = torch.randn(2, 30, DIM, dtype=torch.float64)
    q, k, _ = qkv(2, HEADS, 30, dtype=torch.float64)
    seen = torch.ones(30, 30, dtype=torch.bool)
    seen = (seen if kind == "bidirectional" else seen.tril())[None, None]
    got = built(torch.zeros(2, HEADS, 30, 30, dtype=torch.float64), context(q, k, seen, built.token_state(x)))
    assert gap(torch.where(seen, got - reference(x), 0.0), torch.zeros_like(got)) < 1e-12
