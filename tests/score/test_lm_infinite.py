"""LM-Infinite against its authors' code."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.backends.call import Backend
from posenc.layers import KVCache
from posenc.score import LMInfinite
from tests.golden import config, names
from tests.score.remapping import EACH_BACKEND, EACH_FLOAT, expect_decoding, expect_golden, rope


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", names("lminf_*"))
def test_authors_numbers(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    said = config(name)
    sinks = said["global_branch"] if said["lambda_mask"] else None
    own = LMInfinite(rope(name), window=said["local_branch"], sinks=sinks, limit=said["limit_distance"])
    expect_golden(name, [own], dtype, tolerance, backend)


def test_decoding_also_where_the_cache_forgets_what_nobody_sees() -> None:
    for cache in (KVCache(), KVCache(window=7, sinks=3)):
        expect_decoding(lambda: LMInfinite(RoPE(8), window=7, sinks=3), cache)
    assert len(cache) < 12


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="limit"):
        LMInfinite(RoPE(8), limit=0)
