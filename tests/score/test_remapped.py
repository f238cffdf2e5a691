"""Encodings that remap distances: the group for a length."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.catalogue import encoding_info
from posenc.score import SelfExtend


@pytest.mark.parametrize("times", [1.5, 2, 3, 4, 8])
@pytest.mark.parametrize("trained", [64, 100, 4096])
def test_the_group_for_a_length_is_the_smallest_without_a_new_position(trained: int, times: float) -> None:
    longest = int(trained * times)
    entry = encoding_info("self_extend")
    shape = {"head_dim": 8, **entry.lengths(trained), "train_length": trained, "max_length": longest}

    def farthest(group: int) -> float:
        encoding = SelfExtend(RoPE(8), window=entry.lengths(trained)["window"], group=group)
        positions = torch.arange(longest)
        far = encoding.ranges(positions, positions)[-1]
        return float((far.q_pos - far.k_pos[0]).max())

    group = entry.defaults(shape)["group"]
    assert isinstance(group, int)
    assert farthest(group) < trained
    assert group == 2 or farthest(group - 1) >= trained
