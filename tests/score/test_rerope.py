"""ReRoPE and its leaky form against the author's code."""

from __future__ import annotations

import pytest
import torch

from posenc import Encoding, LogN, RoPE
from posenc.backends.call import Backend
from posenc.score import LeakyReRoPE, ReRoPE
from tests.golden import config, names
from tests.score.remapping import EACH_BACKEND, EACH_FLOAT, expect_decoding, expect_golden, rope


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", [*names("rerope_*"), *names("leaky_rerope_*")])
def test_authors_numbers(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    said = config(name)
    window, factor = said["window"], said["scaling_factor"]
    own: Encoding = ReRoPE(rope(name), window=window)
    if factor is not None:
        own = LeakyReRoPE(rope(name), window=window, factor=factor)
    expect_golden(name, [own, LogN(said["training_length"])], dtype, tolerance, backend)


def test_decoding() -> None:
    expect_decoding(lambda: ReRoPE(RoPE(8), window=7))
    expect_decoding(lambda: LeakyReRoPE(RoPE(8), window=7, factor=3))


def test_numbers_are_checked() -> None:
    with pytest.raises(ValueError, match="factor"):
        LeakyReRoPE(RoPE(8), factor=0.5)
