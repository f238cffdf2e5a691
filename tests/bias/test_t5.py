"""T5's bias against transformers: buckets, biases, attention, a whole encoder layer."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import T5Bias, attention
from posenc.bias.t5 import bucket_starts
from tests.golden import load
from tests.samples import BACKENDS, bounded, gap, refusals, weights

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
TABLES = [key for key in load("t5_bucket_tables") if key != "relative"]


def holding(golden, **options) -> T5Bias:
    """A bias with a golden table."""
    table = golden["table"]
    bias = T5Bias(table.shape[1], num_buckets=table.shape[0], **options).to(table.dtype)
    bias.load_state_dict({"weight": table})
    return bias


class TestBuckets:
    @pytest.mark.parametrize("key", TABLES)
    def test_tables_of_transformers(self, key):
        golden = load("t5_bucket_tables")
        both, buckets, distance = (int(n) for n in re.findall(r"\d+", key))
        bias = T5Bias(1, num_buckets=buckets, max_distance=distance, bidirectional=bool(both))
        for relative in (golden["relative"], golden["relative"].int(), golden["relative"].double()):
            assert torch.equal(bias.bucket(relative), golden[key])

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


class TestGolden:
    @EACH_BACKEND
    def test_encoder_layer(self, backend):
        golden = load("t5_hf_layer_encoder_l20")
        bias = holding(golden, bidirectional=True)
        q, k, v = ((golden["x"] @ golden[w].T).unflatten(-1, (3, 8)).transpose(1, 2) for w in ("wq", "wk", "wv"))
        out = attention(q, k, v, [bias], scale=1.0, causal=False, backend=backend)
        assert gap(out.transpose(1, 2).flatten(2) @ golden["wo"].T, golden["out"]) < 1e-11
        assert gap(weights(q, k, [bias], scale=1.0, causal=False, backend=backend), golden["attn"]) < 1e-11


def test_fractional_distances_lie_between():
    bias = T5Bias(1)
    assert bias.bucket(torch.tensor([-0.5, -1.0, -1.5, -15.999, -16.0, -127.5])).tolist() == [0, 1, 1, 15, 16, 31]


def test_initial_table():
    torch.manual_seed(0)
    assert T5Bias(64, init_std=0.5).weight.std().item() == pytest.approx(0.5, rel=0.1)


test_refusals = refusals(
    {
        "num_buckets": [
            lambda: T5Bias(2, num_buckets=1),
            lambda: T5Bias(2, num_buckets=2, bidirectional=True),
            lambda: T5Bias(2, num_buckets=31, bidirectional=True),
        ],
        "max_distance": [lambda: T5Bias(2, max_distance=16), lambda: T5Bias(2, max_distance=8, bidirectional=True)],
    }
)
