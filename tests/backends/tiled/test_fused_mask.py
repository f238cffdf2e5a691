"""Biases that the fused kernel takes as a view or as a small mask: the same numbers as by the definition."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.backends.tiled import fused_mask
from tests.backends.tiled.compare import (
    BORDERS,
    Fading,
    build_encodings,
    called,
    errors,
    expect_dense,
    expect_same,
    passes_of,
)
from tests.samples import mostly_slow

FIXED = ("alibi", "alibi+per key")  # without a gradient, or not asked for one
WRITTEN = ("fire", "t5+fire", "xl", "xl clamped", "rope+xl", "shaw keys")  # masks that are the result of a product
LEARNED = ("t5", "t5 both ways", "one row for all heads", "alibi+per key")


@pytest.fixture
def taken(monkeypatch) -> list[str]:
    return passes_of(fused_mask, monkeypatch)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", mostly_slow([*(n for n in BORDERS if n > 100), 700], 257, 700))
@pytest.mark.parametrize("name", mostly_slow(["alibi", *LEARNED], "alibi", LEARNED[0]))
def test_equals_the_definition(name, length, causal, taken):
    expect_dense(name, length, causal=causal)
    assert "forward" in taken
    assert ("backward" in taken) == (name == "alibi"), "gradients of a term come from tiles"


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", mostly_slow([257, 700], 257))
@pytest.mark.parametrize("name", WRITTEN)
def test_masks_that_are_the_result_of_a_product(name, length, causal, taken):
    expect_dense(name, length, causal=causal)
    if length > 257:
        expect_dense(name, length - 99, length, causal=causal)
    assert "forward" in taken
    assert "backward" not in taken


@pytest.mark.parametrize(("name", "kernel"), [("fire", True), ("shaw keys", False)])
def test_frozen_terms_that_are_the_result_of_a_product(name, kernel, taken):
    """A mask of the distance alone has no gradient; one computed from queries has one for them."""
    expect_frozen_dense(name)
    assert ("backward" in taken) == kernel


@pytest.mark.parametrize(("queries", "keys"), [(257, 300), (300, 257), (100, 700), (700, 100)])
@pytest.mark.parametrize("name", ["alibi", *LEARNED])
def test_cross_lengths(name, queries, keys, taken):
    if queries <= keys:
        expect_dense(name, queries, keys)
    expect_dense(name, queries, keys, causal=False)
    assert "forward" in taken


def test_terms_that_are_not_trained(taken):
    """Frozen encodings in a training of q, k and v alone."""
    for name in LEARNED:
        expect_frozen_dense(name)
    assert taken.count("backward") == len(LEARNED)


def expect_frozen_dense(name: str) -> None:
    """Results and gradients of q, k and v alone, as by the definition."""
    encodings, tensors = build_encodings(name), called(300, batch=1)
    for encoding in encodings:
        encoding.requires_grad_(False)
    results = []
    for backend in ("tiled", "dense"):
        leaves = [t.detach().requires_grad_() for t in tensors[:3]]
        out = attention(*leaves, encodings, x=tensors[3], backend=backend)
        results.append(dict(zip("oqkv", [out, *torch.autograd.grad(out.square().sum(), leaves)], strict=True)))
    expect_same(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["alibi", "t5", "alibi+per key"])
def test_narrow_types_against_float64(name, dtype, taken):
    tolerance = {torch.float32: 3e-6, torch.bfloat16: 3e-2, torch.float16: 3e-3}[dtype]
    for options in ({}, {"causal": False}):
        result = errors(name, dtype, **options)
        assert max(result.values()) < tolerance, result
    assert "forward" in taken


def test_gates_that_forget_within_a_block_are_left_to_tiles(taken):
    """Pruned tiles leave out most keys, where the kernel would multiply with all of them."""
    expect_dense("t5+fox", 1100, tolerance=1e-9)
    expect_dense([*build_encodings("t5"), Fading(-0.1, -0.5, -1.0, -3.0)], 1100, tolerance=1e-9)
    assert taken == []
