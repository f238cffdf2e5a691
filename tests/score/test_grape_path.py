"""GRAPE-AP: what is refused."""

from __future__ import annotations

from posenc import attention
from posenc.score import GRAPEAP
from tests.samples import qkv, refusals

test_refusals = refusals(
    {
        "path_dim": [
            lambda: GRAPEAP(16, num_heads=2, path_dim=7),
            lambda: attention(*qkv(1, 2, 3), [GRAPEAP(16, num_heads=2, path_dim=6, tie="key")]),
        ],
        "x": [lambda: attention(*qkv(1, 2, 3), [GRAPEAP(16, num_heads=2, path_dim=8)])],
    }
)
