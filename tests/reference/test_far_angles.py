"""Far angles: transformers, x-transformers and rotary-embedding-torch compared with posenc at the same positions."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch

from posenc import RoPE

pytestmark = pytest.mark.reference
DIM, BASE = 128, 10_000.0
Cosines = Callable[[torch.Tensor], torch.Tensor]


def transformers_cos(positions):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    config = LlamaConfig(
        hidden_size=4 * DIM, num_attention_heads=4, rope_parameters={"rope_type": "default", "rope_theta": BASE}
    )
    return modeling_llama.LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])[0][0, :, : DIM // 2]


def x_transformers_cos(positions):
    library = pytest.importorskip("x_transformers.x_transformers")
    frequencies, _ = library.RotaryEmbedding(DIM, base=BASE)(positions)
    return frequencies.cos()[0, :, ::2]


def rotary_embedding_cos(positions):
    library = pytest.importorskip("rotary_embedding_torch")
    return library.RotaryEmbedding(DIM, theta=BASE, cache_if_possible=False)(positions).cos()[:, ::2]


PEERS: dict[str, Cosines] = {
    "transformers": transformers_cos,
    "x-transformers": x_transformers_cos,
    "rotary-embedding-torch": rotary_embedding_cos,
}


def exact(positions):
    with mpmath.workdps(50):
        theta = [mpmath.mpf(BASE) ** (mpmath.mpf(-2 * j) / DIM) for j in range(DIM // 2)]
        rows = [[float(mpmath.cos(p * t)) for t in theta] for p in positions]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("last", "off"), [(2**17, 1e-3), (2**21, 1e-2), (10**8, 0.5), (2**31 - 1, 0.5)])
@pytest.mark.parametrize("peer", PEERS)
def test_peers_against_posenc(peer, last, off):
    """``off`` is what the peer is wrong by, at least, among the last positions before ``last``."""
    positions = list(range(last - 40, last))
    expected = exact(positions)
    actual = RoPE(DIM, base=BASE).table(torch.tensor(positions))[0]
    reference = PEERS[peer](torch.tensor(positions))
    assert (actual.double() - expected).abs().max() < (3e-7 if last <= 10**8 else 2e-6)
    gap = float((reference.detach().double() - expected).abs().max())
    assert gap > off, f"{peer} is off by {gap:.1e} only"


@pytest.mark.parametrize("peer", PEERS)
def test_near_the_start_all_agree(peer):
    positions = torch.arange(100)
    actual = RoPE(DIM, base=BASE).table(positions)[0]
    assert (actual - PEERS[peer](positions)).abs().max() < 1e-4
