"""StreamingLLM against its authors' cache, token by token and in chunks."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE, attention
from posenc.backends.call import Backend
from posenc.layers import KVCache
from posenc.score import StreamingLLM
from tests.golden import config, load, names
from tests.samples import gap
from tests.score.remapping import EACH_BACKEND, EACH_FLOAT, expect_decoding, rope


def windows(said: dict) -> list[tuple[int, int, int]]:
    """Of each token: the newest that it sees, those kept of the cache before its call, and those of its call so far."""
    found, cached = [], 0
    for size in said["chunks"]:
        room = said["start_size"] + said["recent_size"]
        if said["eviction"] == "before":
            cached = min(cached, room - size)
        found += [(cached, cached - said["start_size"], index + 1) for index in range(size)]
        cached += size
        if said["eviction"] == "after":
            cached = min(cached, room)
    return found


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", names("streaming_*"))
def test_authors_numbers(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    """Each token with the window that its call leaves it: of the cache, and of its own chunk."""
    golden, said = load(name, dtype), config(name)
    q, k, v = (golden[part] for part in "qkv")
    for token, (cached, newest, own) in enumerate(windows(said)):
        whole = token + 1 == cached + own  # nothing has been forgotten yet
        window = token + 1 if whole else newest + own
        encoding = StreamingLLM(rope(name), window=window, sinks=said["start_size"])
        call = q[:, :, token : token + 1], k[:, :, : token + 1], v[:, :, : token + 1]
        found = attention(*call, [encoding], backend=backend)
        assert gap(found, golden["out"][:, :, token : token + 1]) < tolerance, token


@EACH_BACKEND
def test_a_whole_text_is_its_tokens_one_by_one(backend: Backend) -> None:
    name = "streaming_one_by_one_t30_s4_r8"
    golden, said = load(name), config(name)
    own = StreamingLLM(rope(name), window=said["recent_size"] + 1, sinks=said["start_size"])
    assert gap(attention(golden["q"], golden["k"], golden["v"], [own], backend=backend), golden["out"]) < 1e-12


def test_decoding_also_where_the_cache_forgets_what_nobody_sees() -> None:
    for cache in (KVCache(), KVCache(window=7, sinks=3)):
        expect_decoding(lambda: StreamingLLM(RoPE(8), window=7, sinks=3), cache)
    assert len(cache) < 12


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="sinks"):
        StreamingLLM(RoPE(8), sinks=-1)
