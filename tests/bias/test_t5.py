"""T5's bias: starts of its buckets by the formula, its limits and fractional distances."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import T5Bias
from posenc.bias.t5 import bucket_starts
from tests.samples import bounded


class TestBuckets:
    @bounded
    @given(st.integers(2, 48), st.integers(1, 300))
    def test_starts_equal_the_formula(self, buckets, beyond):
        exact = buckets // 2
        max_distance = exact + beyond
        starts = bucket_starts(buckets, max_distance)
        assert len(starts) == buckets
        assert starts == sorted(starts)
        assert starts[: exact + 1] == list(range(exact + 1))
        for bucket, start in enumerate(starts[exact + 1 :], exact + 1):
            ratio, step, wide = Fraction(max_distance, exact), bucket - exact, buckets - exact
            for n, reaches in ((start, True), (start - 1, False)):  # no logarithm: the formula to the power of `wide`
                assert (Fraction(n, exact) ** wide >= ratio**step) == reaches

    @pytest.mark.parametrize("both", [False, True])
    def test_limits(self, both):
        bias = T5Bias(1, bidirectional=both)
        far = torch.tensor([-(2**40), -128, -127, 0, 1, 2**40])
        assert bias.bucket(far).tolist() == ([15, 15, 15, 0, 17, 31] if both else [31, 31, 31, 0, 0, 0])


def test_fractional_distances_lie_between():
    bias = T5Bias(1)
    assert bias.bucket(torch.tensor([-0.5, -1.0, -1.5, -15.999, -16.0, -127.5])).tolist() == [0, 1, 1, 15, 16, 31]


def test_initial_table():
    torch.manual_seed(0)
    assert T5Bias(64, init_std=0.5).weight.std().item() == pytest.approx(0.5, rel=0.1)
