"""Dual chunk attention against its authors' code and vLLM's rotation of it."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.backends.call import Backend
from posenc.score import DualChunk
from tests.golden import config, load, names
from tests.samples import gap
from tests.score.remapping import EACH_BACKEND, EACH_FLOAT, expect_decoding, expect_golden, rope


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", [n for n in names("dca_*") if "vllm" not in n])
def test_authors_numbers(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    said = config(name)
    own = DualChunk(rope(name), size=said["chunk_size"], local=said["local_window"], gain=said["mscale"])
    expect_golden(name, [own], dtype, tolerance, backend)


@pytest.mark.parametrize("name", names("dca_vllm_*"))
def test_turned_queries_and_keys_of_vllm(name: str) -> None:
    golden, said = load(name), config(name)
    layout = "half" if said["neox"] else "interleaved"
    rotation = RoPE(said["head_dim"], base=said["rope_theta"], layout=layout, rotary_dim=said["rotary_dim"])
    own = DualChunk(rotation, size=said["chunk_size"], local=said["local_size"])
    at = golden["positions"][0]
    heads = {"q": said["heads"], "k": said["kv_heads"]}
    q, k = (golden[part].view(1, len(at), heads[part], -1).transpose(1, 2) for part in "qk")
    parts = own.ranges(at, at)
    for part, wanted in zip(parts, ("q_intra", "q_succ", "q_inter"), strict=True):
        turned = own._rotated(q, part.q_pos, None)[0].transpose(0, 1).flatten(1)
        assert gap(turned, golden[wanted]) < 1e-12, wanted
        assert gap(own._rotated(k, part.k_pos, None)[0].transpose(0, 1).flatten(1), golden["k_rot"]) < 1e-12


def test_decoding() -> None:
    expect_decoding(lambda: DualChunk(RoPE(8), size=8, local=3))


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="local"):
        DualChunk(RoPE(8), size=8, local=8)
