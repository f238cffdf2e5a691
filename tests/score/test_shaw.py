"""Shaw: what is refused."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.score import Shaw
from tests.samples import qkv, refusals

test_refusals = refusals(
    {
        "head_dim": [lambda: attention(*qkv(), [Shaw(16, max_distance=2)])],
        "q_pos": [lambda: attention(*qkv(), [Shaw(8, max_distance=2)], q_pos=torch.arange(6.0))],
        "Shaw": [lambda: attention(*qkv(), [Shaw(8, max_distance=2)], backend="sdpa")],
    }
)


@pytest.mark.parametrize("value_dim", [1, 7])
def test_values_of_another_width_are_refused(value_dim):
    with pytest.raises(ValueError, match="value_dim"):
        attention(*qkv(value_dim=5), [Shaw(8, max_distance=2, value_dim=value_dim)])
