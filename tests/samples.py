"""Inputs and comparisons that several tests share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc import attention
from posenc.catalogue import CATALOGUE

BACKENDS = ("dense", "sdpa")
FLOATS = {torch.float64: 1e-12, torch.float32: 2e-5}  # how close attention must come to a golden number
INSIDE_ATTENTION = tuple(name for name, entry in CATALOGUE.items() if entry.hook_point != "embedding")
bounded = settings(max_examples=25, deadline=None, derandomize=True)


def mostly_slow(values: Iterable[object], *quick: object) -> list[object]:
    """Values of a test that takes seconds for each: those in ``quick`` for the quick suite, the others marked slow."""
    values = list(values)
    assert set(quick) <= set(values), "what is quick must be among the values"
    several = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        value if value in quick else pytest.param(*parts, marks=pytest.mark.slow)
        for value, parts in zip(values, several, strict=True)
    ]


def few_spectra(names: Iterable[str]) -> list[object]:
    """Names of entries; RoPE under other frequencies is quick for a fixed spectrum and two dynamic ones."""
    names = list(names)
    remaining = {"yarn", "dynamic_ntk", "clex"}
    return mostly_slow(
        names, *(n for n in names if n in remaining or n not in CATALOGUE or CATALOGUE[n].scaling is None)
    )


def expect_taken_or_named(
    run: Callable[..., object],
    valid: Mapping[str, object],
    argument: str,
    values: Iterable[object],
    *,
    also: str = "",
    refusal: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> None:
    """In the place of one argument any value is taken, or refused by an error that names it, or what ``also`` says."""
    named = rf"\b({argument}|{also or argument})\b"
    for value in values:
        try:
            run(**{**valid, argument: value})
        except refusal as error:
            assert re.search(named, str(error)), f"{value!r}: {error}"  # noqa: PT017


def qkv(
    batch: int = 2,
    heads: int = 4,
    queries: int = 6,
    keys: int | None = None,
    head_dim: int = 8,
    *,
    num_kv_heads: int | None = None,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    transposed: bool = False,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k and v; ``transposed`` as a projection leaves them, (batch, tokens, heads, width).transpose(1, 2)."""
    keys, num_kv_heads = queries if keys is None else keys, heads if num_kv_heads is None else num_kv_heads
    value_dim = head_dim if value_dim is None else value_dim
    generator = torch.Generator().manual_seed(seed)
    shapes = [(heads, queries, head_dim), (num_kv_heads, keys, head_dim), (num_kv_heads, keys, value_dim)]
    tensors = []
    for h, t, width in shapes:
        if transposed:
            x = torch.randn(batch, t, h, width, generator=generator, dtype=torch.float64).to(dtype).transpose(1, 2)
        else:
            x = torch.randn(batch, h, t, width, generator=generator, dtype=torch.float64).to(dtype)
        tensors.append(x)
    return tensors[0], tensors[1], tensors[2]


def weights(q: Tensor, k: Tensor, encodings: list, **options: object) -> Tensor:
    """The attention weights ``(batch, heads, queries, keys)``, read off by values that are the identity."""
    identity = torch.eye(k.shape[2], dtype=k.dtype).expand(k.shape[0], k.shape[1], -1, -1)
    return attention(q, k, identity, encodings, **options)


class WithoutFloat64(TorchDispatchMode):
    """A device that has no float64, as Apple's: any operation that makes or takes such a tensor fails."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        built = func(*args, **(kwargs or {}))
        if any(isinstance(t, Tensor) and t.dtype == torch.float64 for t in tree_leaves((args, kwargs, built))):
            raise TypeError(f"{func}: this device has no float64")
        return built


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, in float64; NaN counts as infinite."""
    assert a.shape == b.shape, f"{tuple(a.shape)} is not {tuple(b.shape)}"
    return (a.detach().double() - b.detach().double()).abs().nan_to_num(torch.inf).max().item() if a.numel() else 0.0
