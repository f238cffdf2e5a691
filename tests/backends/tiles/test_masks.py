"""Functions of the distance that the fused kernel takes as a view of one row: the same numbers as by the definition."""

from __future__ import annotations

import pytest

from tests.backends.tiles.compare import build_encodings, expect_dense


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(("length", "causal"), [(257, False), (700, True)])
@pytest.mark.parametrize("name", ["alibi", "t5", "one row for all heads"])
def test_equals_the_definition(name, length, causal, trained):
    """Also of frozen encodings in a training of q, k and v alone."""
    expect_dense([encoding.requires_grad_(trained) for encoding in build_encodings(name)], length, causal=causal)
