"""PaTH against products of reflections written out: blocks, what a cache must keep, neighbours."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from posenc import attention
from posenc.score.path import PaTH, reflected
from posenc.visibility import VisibilityMask
from tests.backends.tiles.compare import Largest
from tests.samples import gap, qkv

DIM, HEADS, WIDTH = 16, 4, 4


def directions(keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors and betas in (0, 2)."""
    source = torch.Generator().manual_seed(4)
    w = F.normalize(torch.randn(1, 1, keys, WIDTH, generator=source, dtype=torch.float64), dim=-1)
    return w, 2 * torch.rand(1, 1, keys, generator=source, dtype=torch.float64)


def by_the_formula(q, k, w, beta) -> torch.Tensor:
    """A_ij = q_i · H_i … H_{j+1} · k_j of the last query."""
    out = []
    for j in range(k.shape[2]):
        vector = q[:, :, -1]
        for t in range(k.shape[2] - 1, j, -1):
            vector = vector - beta[:, :, t, None] * (vector * w[:, :, t]).sum(-1, keepdim=True) * w[:, :, t]
        out.append((vector * k[:, :, j]).sum(-1))
    return torch.stack(out, -1).unsqueeze(2)


def test_blocks_follow_on_from_each_other():
    """Over several blocks of tokens, the newest row equals the products written out, and the last 60 tokens give
    among themselves what they give in one block, with the gradients."""
    q, k, _ = (t.requires_grad_() for t in qkv(1, 2, 130, 130, WIDTH, num_kv_heads=1, dtype=torch.float64))
    w, beta = (t.requires_grad_() for t in directions(130))
    last = (q[:, :, -1:] @ k.mT - by_the_formula(q.detach(), k.detach(), w.detach(), beta.detach())).detach()
    for queries in (130, 70, 1):
        several = reflected(q[:, :, -queries:], k, w, beta)
        assert gap(several.detach()[:, :, -1:], last) < 1e-11
        rows = min(queries, 60)
        single = reflected(q[:, :, -rows:], *(t[:, :, -60:] for t in (k, w, beta)))
        several, upstream = several[:, :, -rows:, -60:], torch.randn_like(single)
        assert gap(several.detach(), single.detach()) < 1e-11
        grads = [torch.autograd.grad(out, (q, k, w, beta), upstream) for out in (several, single)]
        assert all(gap(a, b) < 1e-9 for a, b in zip(*grads, strict=True))


def test_what_a_cache_must_keep_under_a_window():
    """`Scope.look_back` tokens before the oldest key in sight, and not one fewer."""
    for conv in (1, 2, 3, 5):
        torch.manual_seed(0)
        encoding, window = PaTH(DIM, head_dim=WIDTH, num_kv_heads=2, rank=3, conv=conv, init_std=0.7).double(), 4
        q, k, v = qkv(1, HEADS, 12, None, WIDTH, num_kv_heads=2, dtype=torch.float64)
        x = torch.randn(1, 12, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        full = attention(q, k, v, [encoding], x=x, window=window)[:, :, -1:]
        for fewer, same in ((0, True), (1, False)):
            if fewer > encoding.scope.look_back:
                continue
            remaining = slice(12 - window - encoding.scope.look_back + fewer, None)
            out = attention(
                q[:, :, -1:], k[:, :, remaining], v[:, :, remaining], [encoding], x=x[:, remaining], window=window
            )
            assert (gap(out, full) < 1e-12) == same


def test_neighbours_in_a_text():
    at, documents = torch.arange(5), torch.tensor([[0, 0, 1, 1, 1]])

    def before(queries: int, **hidden: object) -> list:
        options = {"mask": None, "segments": None, "window": None, **hidden}
        return (
            VisibilityMask(causal=True, q_pos=at[-queries:], k_pos=at, **options)
            .token_order(queries, 5)
            .previous.tolist()
        )

    assert before(5) == before(2) == before(5, window=1) == [[-1, 0, 1, 2, 3]]
    assert before(5, mask=torch.ones(1, 1, 1, 5).bool()) == [[-1, 0, 1, 2, 3]]
    assert before(5, segments=(documents, documents)) == [[-1, 0, -1, 2, 3]]
    assert before(2, segments=(documents[:, 3:], documents)) == [[-1, -1, -1, 2, 3]], (
        "keys of earlier calls: which queries attend to them?"
    )


def test_no_matrix_of_queries_and_keys():
    """Forward and backward; the largest tensors are blocks of queries by all keys, and grow with the length."""
    length, encoding = 4096, PaTH(8, head_dim=4, num_kv_heads=1)
    leaves = [t.requires_grad_() for t in qkv(1, 1, length, head_dim=4)]
    with Largest() as seen:
        attention(*leaves, [encoding], x=torch.randn(1, length, 8)).square().sum().backward()
    assert seen.elements < length * length / 4
