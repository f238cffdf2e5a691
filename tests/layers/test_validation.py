"""Whatever a layer or its cache is given is taken, or refused by a ValueError that names the argument."""

from __future__ import annotations

import inspect
import math
import re

import pytest
import torch

from posenc import RoPE
from posenc.layers import FoXPro, KVCache, SelfAttention, StickBreakingAttention

WRONG = (3, 0, -1, 2.5, None, "x", [None], {}, object(), True, math.nan, 10**30)
LAYERS = (SelfAttention, FoXPro, StickBreakingAttention)
BUILT = [(kind, name) for kind in LAYERS for name in inspect.signature(kind).parameters]
CALLED = [name for name in inspect.signature(SelfAttention.forward).parameters if name != "self"]


def takes_or_names(call, name, values):
    for value in values:
        try:
            call(value)
        except ValueError as error:
            assert re.search(rf"\b{name}\b", str(error)), f"{value!r}: {error}"  # noqa: PT017


@pytest.mark.parametrize(("kind", "name"), BUILT)
def test_construction(kind, name):
    takes_or_names(lambda value: kind(**{"dim": 16, "num_heads": 4, name: value}), name, (*WRONG, torch.ones(2)))


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("cached", [False, True])
def test_call(name, cached):
    layer, x = SelfAttention(16, 4, encodings=[RoPE(4)]), torch.randn(2, 5, 16)
    wrong = (*WRONG, torch.ones(2), torch.ones(2, 5, 16, 1), torch.ones(7, 5))

    def call(value):
        cache = KVCache() if cached else None
        layer(**{"x": x, "cache": cache, name: value})

    with torch.no_grad():
        takes_or_names(call, name, wrong)


@pytest.mark.parametrize("name", ["capacity", "window", "sinks", "slack"])
def test_cache(name):
    takes_or_names(lambda value: KVCache(**{name: value}), name, (*WRONG, torch.ones(2)))


@pytest.mark.parametrize(
    ("method", "name"),
    [("crop", "tokens"), ("reorder", "rows"), ("select", "rows"), ("repeat", "times"), ("shift", "by")],
)
def test_editing(method, name):
    layer, x = SelfAttention(16, 4, encodings=[RoPE(4)]), torch.randn(2, 5, 16)

    def call(value):
        cache = KVCache()
        with torch.no_grad():
            layer(x, cache=cache)
        getattr(cache, method)(value)

    takes_or_names(call, name, (*WRONG, torch.ones(2), torch.tensor([5, 6])))
