"""No matrix of queries × keys, forward or backward, for any structure."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from tests.backends.tiles.compare import Largest, build_encodings, called
from tests.samples import mostly_slow

LENGTH = 2048
LISTS = (
    "nope",
    "alibi",
    "t5",
    "per key",
    "fox",
    "shaw far",
    "xl",
    "cope",
    "cope separate",
    "fire",
    "dape over fire",
    "sticks own",
    "sticks vector",
    "t5+fox",
    "everything",
)
MASKED = {
    "window": {"window": 17}, "window, bidirectional": {"window": 9, "causal": False},
    "packed": {"segments": torch.arange(LENGTH) // 700},
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_slow(LISTS, *LISTS[::3]))
def test_training(name):
    leaves = [t.requires_grad_() for t in called(LENGTH, batch=1, dtype=torch.float32)]
    with Largest() as seen:
        attention(
            *leaves[:3], build_encodings(name, torch.float32), x=leaves[3], backend="tiled"
        ).square().sum().backward()
    assert leaves[0].numel() <= seen.elements < LENGTH * LENGTH


@pytest.mark.parametrize("situation", MASKED)
@pytest.mark.parametrize("name", ["nope", "t5", "fox", "cope", "sticks"])
def test_inference_under_masks_that_are_no_matrix(name, situation):
    q, k, v, x = called(LENGTH, batch=1, dtype=torch.float32)
    with torch.no_grad(), Largest() as seen:
        attention(q, k, v, build_encodings(name, torch.float32), x=x, backend="tiled", **MASKED[situation])
    assert q.numel() <= seen.elements < LENGTH * LENGTH


def test_the_measure_includes_what_the_definition_builds():
    q, k, v, x = called(LENGTH, batch=1, dtype=torch.float32)
    with torch.no_grad(), Largest() as seen:
        attention(q, k, v, build_encodings("t5", torch.float32), x=x, backend="dense")
    assert seen.elements >= LENGTH * LENGTH
