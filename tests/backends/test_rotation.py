"""Rotations that span a row: each row, document and call for itself, declared or found."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from posenc import RoPE, attention
from posenc.frequencies.modules import DynamicPositionInterpolation
from posenc.layers import KVCache, SelfAttention
from tests.samples import gap, qkv

TRAINED = 4


def dynamic(**options) -> RoPE:
    return RoPE(8, scaling=DynamicPositionInterpolation(original_length=TRAINED), **options)


class TestAttention:
    def test_the_undeclared_form_is_not_causal_and_the_declared_one_is(self):
        """What the documentation says of both."""
        q, k, v = qkv(1, 2, 12)
        early = slice(0, 6)
        for length, moved in ((None, True), (12, False)):
            long = attention(q, k, v, [dynamic()], length=length)[:, :, early]
            short = attention(q[:, :, early], k[:, :, early], v[:, :, early], [dynamic()], length=length)
            assert (gap(long, short) > 1e-3) == moved


class TestLayer:
    def layer(self, *encodings):
        torch.manual_seed(0)
        return SelfAttention(16, 2, encodings=[*encodings]).double()

    def test_lengths_may_not_change_under_a_cache(self):
        layer, cache, x = self.layer(dynamic()), KVCache(), torch.randn(1, 3, 16).double()
        layer(x, cache=cache, length=8)
        with pytest.raises(ValueError, match=r"\b8\b.*\b16\b"):
            layer(x, cache=cache, length=16)
        with pytest.raises(ValueError, match=r"\blength\b"):
            layer(x, cache=cache)
        assert len(cache) == 3
        assert cache.rotated

    def test_tables_stand_for_a_declared_length(self):
        rope, x = dynamic(), torch.randn(2, 9, 16).double()
        layer = self.layer(rope)
        table = rope.table(torch.arange(9), 20, like=x)
        assert gap(layer(x, tables=[table]), layer(x, length=20)) < 1e-12

    def test_every_rotation_waits_for_the_last_one(self):
        """A list in which one rotation needs the whole call: none is cached."""
        layer, x, cache = self.layer(RoPE(8), dynamic()), torch.randn(1, 9, 16).double(), KVCache()
        steps = [layer(x[:, t : t + 1], cache=cache) for t in range(9)]
        assert not cache.rotated
        assert gap(steps[-1], layer(x)[:, -1:]) < 1e-12


class TestBasesOfHeads:
    class Bases(nn.Module):
        """Four heads that share two bases."""

        def forward(self, spectrum):
            slow = spectrum.theta * 0.5
            return spectrum._replace(theta=torch.stack([spectrum.theta, spectrum.theta, slow, slow]))

    @pytest.mark.parametrize("heads", [1, 3, 8])
    def test_heads_that_do_not_share_a_base_are_refused(self, heads):
        rope = RoPE(8, scaling=self.Bases())
        with pytest.raises(ValueError, match=r"^num_kv_heads\b.*\b4\b.*\b2\b"):
            rope.rotate(torch.zeros(1, heads, 3, 8), rope.table(torch.arange(3)))

    def test_queries_of_another_number_are_refused(self):
        q, k, v = qkv(1, 8, 6, num_kv_heads=2)
        with pytest.raises(ValueError, match=r"^num_heads\b.*RoPE.*\b4\b.*\b8\b"):
            attention(q, k, v, [RoPE(8, scaling=self.Bases())])


class TestScalingsThatDoNotFit:
    class Wrong(nn.Module):
        def __init__(self, theta):
            super().__init__()
            self.theta = theta

        def forward(self, spectrum):
            return spectrum._replace(theta=torch.tensor(self.theta.tolist(), dtype=self.theta.dtype))

    @pytest.mark.parametrize(
        ("theta", "words"),
        [
            (torch.ones(3).double(), "scaling must give 4 frequencies"),
            (torch.ones(2, 2, 4).double(), "scaling must give 4 frequencies"),
            (torch.ones(4), "float64"),
            (torch.full((4,), torch.nan).double(), "not finite"),
        ],
    )
    def test_refused_at_construction(self, theta, words):
        with pytest.raises(ValueError, match=words):
            RoPE(8, scaling=self.Wrong(theta))
