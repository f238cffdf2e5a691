"""Biases and scores of several coordinates by tiles: the definition, wherever tokens lie; views, not look-ups."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.bias import ALiBi2D, BEiTBias, LogCPB, SwinBias, T5GridBias
from posenc.encoding import Encoding
from posenc.positions import grid, with_prefix
from posenc.score import DecomposedRelative
from tests.backends.tiles.compare import Largest, expect_same_as_dense
from tests.samples import qkv

BUILDERS = {
    "swin": lambda: SwinBias(4, window=(7, 9)),  # smaller than the pictures: edges count
    "beit": lambda: BEiTBias(4, window=(10, 12)),
    "log_cpb": lambda: LogCPB(4, axes=2, hidden=8),
    "alibi_2d": lambda: ALiBi2D(4),
    "t5_grid": lambda: T5GridBias(4),
    "decomposed": lambda: DecomposedRelative(8, window=(8, 13)),
}
PICTURE = grid(10, 12)
SOME = torch.rand(121, 121, generator=torch.Generator().manual_seed(0)) > 0.4
CALLS = {
    "picture": (PICTURE, {}),
    "class tokens": (with_prefix(PICTURE, 2), {}),
    "causal": (PICTURE, {"causal": True}),
    "window": (PICTURE, {"window": 30}),
    "shuffled": (PICTURE[torch.randperm(120, generator=torch.Generator().manual_seed(1))], {}),
    "another picture's keys": (PICTURE, {"k_pos": grid(7, 11) + 2}),
    "mask": (with_prefix(PICTURE), {"mask": SOME}),
    "steps": (grid(8, 15) * 2, {}),
    "lines from the bottom": (PICTURE.view(10, 12, 2).flip(0).flatten(0, 1), {}),
}


def build_encoding(name: str) -> Encoding:
    torch.manual_seed(0)
    encoding = BUILDERS[name]().double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.rand_like(parameter) * 0.5)
    return encoding


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", BUILDERS)
def test_the_definition(name, call):
    positions, options = CALLS[call]
    keywords = {"q_pos": positions, "k_pos": positions, "causal": False, **options}
    keys = len(keywords["k_pos"])
    tensors = [
        *qkv(2, 4, len(positions), keys, num_kv_heads=2, dtype=torch.float64),
        torch.zeros(2, keys, 1, dtype=torch.float64),
    ]
    expect_same_as_dense([build_encoding(name)], tensors, **keywords)


def test_no_matrix_of_tokens_is_looked_up():
    """In training: of pairs there are only tiles, and no table of indices."""
    at, bias = grid(48, 48), SwinBias(2, window=(48, 48))
    leaves = [t.requires_grad_() for t in qkv(1, 2, 48 * 48, head_dim=4)]
    with Largest() as seen:
        attention(*leaves, [bias], q_pos=at, k_pos=at, causal=False).square().sum().backward()
    assert seen.elements < (48 * 48) ** 2 / 4
