"""Functions of the distance that the fused kernel takes as a view of one row: the same numbers as by the definition."""

from __future__ import annotations

import pytest
import torch

from posenc.backends.tiles import masks
from tests.backends.tiles.compare import (
    BORDERS,
    PerKey,
    build_encodings,
    expect_dense,
    passes_of,
)
from tests.samples import mostly_slow

LEARNED = ("t5", "t5 both ways", "one row for all heads")


@pytest.fixture
def taken(monkeypatch) -> list[str]:
    return passes_of(masks, monkeypatch)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", mostly_slow([*(n for n in BORDERS if n > 100), 700], 257, 700))
@pytest.mark.parametrize("name", mostly_slow(["alibi", *LEARNED], "alibi", LEARNED[0]))
def test_equals_the_definition(name, length, causal, taken):
    expect_dense(name, length, causal=causal)
    assert "forward" in taken
    assert ("backward" in taken) == (name == "alibi"), "gradients of a term come from tiles"


@pytest.mark.parametrize("name", LEARNED)
def test_terms_that_are_not_trained(name, taken):
    """Frozen encodings in a training of q, k and v alone."""
    expect_dense([encoding.requires_grad_(False) for encoding in build_encodings(name)], 300)
    assert taken.count("backward") == 1


@pytest.mark.parametrize(
    ("encodings", "options"),
    [
        (lambda: [*build_encodings("t5"), PerKey()], {}),
        (lambda: build_encodings("t5"), {"window": 20}),
        (lambda: build_encodings("t5"), {"segments": torch.arange(300) // 50}),
        (lambda: [*build_encodings("t5"), *build_encodings("sticks")], {}),
    ],
    ids=["numbers a key", "window", "packed", "sticks"],
)
def test_other_calls_go_by_tiles(encodings, options, taken):
    expect_dense([e.double() for e in encodings()], 300, **options)
    assert not taken
