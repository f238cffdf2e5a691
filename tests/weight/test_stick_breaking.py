"""Stick-breaking: its numbers where logits are large, small or many, and hidden own values."""

from __future__ import annotations

import mpmath
import pytest
import torch

from posenc import attention
from posenc.call import prepare_call
from posenc.encoding import Context
from posenc.weight.stick_breaking import StickBreaking
from tests.samples import gap, qkv


def given_scores(scores, **options) -> tuple[torch.Tensor, Context]:
    """Scores (batch, heads, queries, keys) with the context of a causal call that they could come from."""
    batch, heads, queries, keys = scores.shape
    q, k, v = qkv(batch, heads, queries, keys, dtype=scores.dtype)
    expected = {"q_pos": None, "k_pos": None, "x": None, "token_states": None, "mask": None, "segments": None}
    problem = prepare_call(q, k, v, [], **{**expected, "causal": True, "scale": None, **options})
    return scores, problem.context(problem.visible(), None)


class TestNumbers:
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=str)
    @pytest.mark.parametrize("current", [True, False])
    @pytest.mark.parametrize("kind", ["mixed", "all high", "all low", "huge"])
    def test_large_logits(self, kind, current, dtype, tolerance):
        signs = torch.randn(2, 4, 64, 64, generator=torch.Generator().manual_seed(0)).sign().to(dtype)
        logits = {"mixed": 80 * signs, "all high": 80 * signs.abs(), "all low": -80 * signs.abs(), "huge": 1e4 * signs}
        scores, context = given_scores(logits[kind].requires_grad_())
        stick = StickBreaking(attend_current=current)
        shares, left = stick(scores, context), stick.remainder_of(scores, context)
        assert (shares.sum(-1) + left - 1).abs().max() < tolerance
        assert ((shares >= 0) & (shares <= 1)).all()
        factors = torch.linspace(-1, 1, shares.numel(), dtype=dtype).view(shares.shape)
        (gradient,) = torch.autograd.grad((shares * factors).sum() + left.sum(), scores)
        assert gradient.isfinite().all()

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)], ids=str)
    def test_every_digit_of_every_weight(self, dtype, tolerance):
        """Relative errors, across the thresholds where softplus(x) is taken for x (15 and 20 in known codes)."""
        row = [20.5, -15.25, 3.5, -30.0, 0.125, -20.5, 10.5, -40.0, 16.0, -2.0]
        scores, context = given_scores(torch.tensor(row, dtype=dtype).expand(1, 1, 1, -1))
        stick = StickBreaking(attend_current=True)
        with mpmath.workdps(60):
            left, expected = mpmath.mpf(1), []
            for logit in reversed(row):
                share = 1 / (1 + mpmath.exp(-mpmath.mpf(logit)))
                expected.append(share * left)
                left *= 1 - share if logit < 0 else 1 / (1 + mpmath.exp(mpmath.mpf(logit)))
            pairs = [*zip(stick(scores, context)[0, 0, 0].tolist(), reversed(expected), strict=True)]
            pairs.append((stick.remainder_of(scores, context).item(), left))
            worst = max(abs(got / exact - 1) for got, exact in pairs)
        assert left < 1e-22, "one minus a sum would leave no digit of it"
        assert worst < 30 * tolerance

    def test_long_rows(self):
        scores = torch.randn(1, 1, 2, 20_000, generator=torch.Generator().manual_seed(0)) - 8
        shares = StickBreaking()(*given_scores(scores))
        left = StickBreaking().remainder_of(*given_scores(scores))
        wide = StickBreaking()(*given_scores(scores.double()))
        assert gap(shares.sum(-1) + left, torch.ones_like(left)) < 1e-6
        some = wide > 0
        assert ((shares[some] / wide[some] - 1).abs() < 1e-5).all(), "relative errors"


class TestRemainder:
    def test_a_hidden_own_value_is_not_read(self):
        q, k, v = qkv(1, 4, 6)
        mask = ~torch.eye(6, dtype=torch.bool)
        own_key, drop = (attention(q, k, v, [StickBreaking(remainder=r)], mask=mask) for r in ("own", "drop"))
        assert torch.equal(own_key, drop)
