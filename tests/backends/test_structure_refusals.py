"""What structures refuse, as `explain_backend` names it; FlexAttention's term of a network is the definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from posenc import attention, explain_backend
from posenc.score import CoPE, PaTH
from posenc.weight import StickBreaking
from tests.samples import qkv

DIM, HEADS, HEAD_DIM, KV_HEADS, TOKENS = 32, 4, 8, 2, 70
REFUSED: dict[str, tuple[Callable[[], list[nn.Module]], int, str]] = {
    "key heads": (lambda: [CoPE(HEAD_DIM, max_position=5, gates="separate", dim=DIM, num_kv_heads=1)], TOKENS, "heads"),
    "two reflections": (lambda: [PaTH(DIM, head_dim=HEAD_DIM, num_kv_heads=KV_HEADS) for _ in range(2)], TOKENS, "two"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tiles_refuse_what_they_cannot_compute(case: str) -> None:
    make, queries, words = REFUSED[case]
    q, k, v = qkv(1, HEADS, queries, TOKENS, HEAD_DIM, num_kv_heads=KV_HEADS)
    explanation = explain_backend(q, k, v, make(), x=torch.randn(1, TOKENS, DIM))
    assert explanation.backend in ("dense", "rows")
    assert words in explanation.refused["tiled"]


def test_a_vector_of_another_width_than_the_values_is_an_error() -> None:
    q, k, v = qkv(1, HEADS, TOKENS, TOKENS, HEAD_DIM, num_kv_heads=KV_HEADS)
    with pytest.raises(ValueError, match="value_dim"):
        attention(q, k, v, [StickBreaking(remainder="vector", num_heads=HEADS, value_dim=5)], backend="tiled")
