"""STRING against its authors' code, each pair counted once."""

from __future__ import annotations

import pytest
import torch

from posenc import Llama3, RoPE
from posenc.backends.call import Backend
from posenc.score import STRING
from tests.golden import config, names
from tests.score.remapping import EACH_BACKEND, EACH_FLOAT, expect_decoding, expect_golden, rope, scaling_of


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", names("string_*"))
def test_authors_numbers(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    said, scaling = config(name), None
    if said["llama3_scaling"]:
        told = scaling_of(name)
        scaling = Llama3(
            told["factor"], original_length=int(told["original_max_position_embeddings"]),
            low_freq_factor=told["low_freq_factor"], high_freq_factor=told["high_freq_factor"],
        )  # fmt: skip
    rotation = rope(name, scaling=scaling)
    own = STRING(rotation, shift=said["shifted_offset"], local=said["local_value"], gain=said["attention_factor"])
    expect_golden(name, [own], dtype, tolerance, backend, out="out_disjoint")


def test_decoding() -> None:
    expect_decoding(lambda: STRING(RoPE(8), shift=9, local=3))


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="local"):
        STRING(RoPE(8), shift=4, local=5)
