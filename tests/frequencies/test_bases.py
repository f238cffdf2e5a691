"""Bases by length against the tables of their sources."""

from __future__ import annotations

import pytest

from posenc.frequencies import base_for

SIMILAR = {1000: 4.3e3, 2000: 1.6e4, 4000: 2.7e4, 8000: 8.4e4, 64 * 1024: 2.1e6}
CRITICAL = {8192: 4, 16384: 14, 24576: 31, 32768: 55}  # LongLLaDA's factors of a base of 500,000, rounded up


@pytest.mark.parametrize(("length", "base"), SIMILAR.items())
def test_least_base_that_tells_similar_keys_apart(length: int, base: float) -> None:
    assert base_for(length) == base


@pytest.mark.parametrize(("length", "factor"), CRITICAL.items())
def test_base_to_go_on_training_with(length: int, factor: int) -> None:
    result = base_for(length, rule="critical", trained=4096, base=500_000) / 500_000
    assert factor - 1 < result <= factor


def test_no_base_is_lowered() -> None:
    assert base_for(4096, rule="critical", trained=4096, base=500_000) == 500_000
    assert base_for(2048, rule="critical", trained=4096) == 10_000
