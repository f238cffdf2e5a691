"""PaTH against products of reflections written out: blocks, windows, neighbours, lists."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from posenc import attention
from posenc.score.path import PaTH, reflected
from posenc.visibility import VisibilityMask
from tests.backends.tiles.compare import Largest
from tests.samples import gap, mostly_slow, qkv, refusals, weights

DIM, HEADS, WIDTH = 16, 4, 4


def directions(batch=2, num_kv_heads=2, keys=7, width=WIDTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors and betas in (0, 2)."""
    source = torch.Generator().manual_seed(4)
    w = F.normalize(torch.randn(batch, num_kv_heads, keys, width, generator=source, dtype=torch.float64), dim=-1)
    return w, 2 * torch.rand(batch, num_kv_heads, keys, generator=source, dtype=torch.float64)


def by_the_formula(q, k, w, beta) -> torch.Tensor:
    """A_ij = q_i · H_i … H_{j+1} · k_j for the last queries; later keys as they are."""
    queries, keys = q.shape[2], k.shape[2]
    out = torch.zeros(*q.shape[:3], keys, dtype=q.dtype)
    for b, h, row, j in torch.cartesian_prod(*(torch.arange(n) for n in out.shape)).tolist():
        g, i, vector = h * k.shape[1] // q.shape[1], row + keys - queries, q[b, h, row]
        for t in range(i, j, -1):
            vector = vector - beta[b, g, t] * (vector @ w[b, g, t]) * w[b, g, t]
        out[b, h, row, j] = vector @ k[b, g, j]
    return out


def test_blocks_follow_on_from_each_other():
    """Over several blocks of tokens, the newest row equals the products written out, and the last 60 tokens give
    among themselves what they give in one block, with the gradients."""
    q, k, _ = (t.requires_grad_() for t in qkv(1, 2, 130, 130, WIDTH, num_kv_heads=1, dtype=torch.float64))
    w, beta = (t.requires_grad_() for t in directions(1, 1, 130))
    last = (q[:, :, -1:] @ k.mT - by_the_formula(q.detach()[:, :, -1:], k.detach(), w.detach(), beta.detach())).detach()
    for queries in (130, 70, 1):
        several = reflected(q[:, :, -queries:], k, w, beta)
        assert gap(several.detach()[:, :, -1:], last) < 1e-11
        rows = min(queries, 60)
        single = reflected(q[:, :, -rows:], *(t[:, :, -60:] for t in (k, w, beta)))
        several, upstream = several[:, :, -rows:, -60:], torch.randn_like(single)
        assert gap(several.detach(), single.detach()) < 1e-11
        grads = [torch.autograd.grad(out, (q, k, w, beta), upstream) for out in (several, single)]
        assert all(gap(a, b) < 1e-9 for a, b in zip(*grads, strict=True))


def test_reflections_keep_lengths():
    """beta = 2 reflects: the transformed query is as long as q, so its products with a basis square-sum to |q|²."""
    q = torch.randn(1, 1, 1, WIDTH, dtype=torch.float64)
    w, _ = directions(1, 1, 40)
    k = torch.cat([torch.eye(WIDTH, dtype=torch.float64), torch.zeros(36, WIDTH, dtype=torch.float64)])[None, None]
    basis_first = w.clone()
    basis_first[:, :, :WIDTH] = 0  # tokens that carry the basis reflect nothing
    products = (q @ k.mT - reflected(q, k, basis_first, torch.full((1, 1, 40), 2.0, dtype=torch.float64)))[..., :WIDTH]
    assert products.square().sum().item() == pytest.approx(q.square().sum().item(), rel=1e-12)


def token_state_of(encoding: PaTH, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """w and beta as the authors' layer makes them, by PyTorch's own convolution."""
    raw = x @ (encoding.up if encoding.down is None else encoding.up @ encoding.down).T
    weight = encoding.taps.T.flip(-1).unsqueeze(1)  # (channels, 1, conv): the last tap is the token's own
    mixed = F.conv1d(F.pad(raw.mT, (encoding.conv - 1, 0)), weight, groups=len(weight)).mT
    w = F.silu(mixed).unflatten(-1, (encoding.num_kv_heads, -1)).transpose(1, 2)
    beta = 2 * torch.sigmoid(x @ encoding.beta_weight.T + encoding.beta_bias).transpose(1, 2)
    return w / (w.square().sum(-1, keepdim=True) + 1e-6).sqrt(), beta


def lively(*, rank: int | None = 3, conv: int = 3, num_kv_heads: int = 2) -> PaTH:
    torch.manual_seed(0)
    return PaTH(DIM, head_dim=WIDTH, num_kv_heads=num_kv_heads, rank=rank, conv=conv, init_std=0.7)


@pytest.mark.parametrize("window", mostly_slow([1, 2, 3, 5], 1, 3))
@pytest.mark.parametrize("conv", mostly_slow([1, 3, 4], 1, 3))
@pytest.mark.parametrize("padded", [False, True])
def test_under_a_window(window, conv, padded):
    """A window hides keys and nothing else: w comes from the full text, in one call as in steps."""
    encoding = lively(conv=conv).double()
    q, k, _ = qkv(2, HEADS, 12, None, WIDTH, num_kv_heads=2, dtype=torch.float64)
    x = torch.randn(2, 12, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    first = 5 if padded else 0
    text = slice(first, None)
    scores = by_the_formula(q[:, :, text], k[:, :, text], *token_state_of(encoding, x[:, text])) * 0.4
    index = torch.arange(12 - first)
    apart = index[:, None] - index
    expected = scores.masked_fill((apart < 0) | (apart >= window), -torch.inf).softmax(-1)
    mask = (torch.arange(12) >= first)[None, None].expand(2, 1, -1)
    options = {"scale": 0.4, "window": window}
    assert gap(weights(q, k, [encoding], x=x, mask=mask, **options)[:, :, text, text], expected) < 1e-12
    for step in range(first, 12):  # as a cache has it
        last = slice(0, step + 1)
        actual = weights(q[:, :, [step]], k[:, :, last], [encoding], x=x[:, last], mask=mask[..., last], **options)
        assert gap(actual[..., text], expected[:, :, [step - first], : step + 1 - first]) < 1e-12, step


def test_what_a_cache_must_keep_under_a_window():
    """`Scope.look_back` tokens before the oldest key in sight, and not one fewer."""
    for conv in (1, 2, 3, 5):
        encoding, window = lively(conv=conv).double(), 4
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


test_refusals = refusals(
    {
        "head_dim": [lambda: attention(*qkv(), [PaTH(DIM, head_dim=4, num_kv_heads=4)], x=torch.ones(2, 6, DIM))],
        "num_kv_heads": [lambda: attention(*qkv(), [PaTH(DIM, head_dim=8, num_kv_heads=3)], x=torch.ones(2, 6, DIM))],
        "x": [
            lambda: attention(*qkv(), [PaTH(DIM, head_dim=8, num_kv_heads=4)], x=torch.ones(2, 6, 5)),
            lambda: attention(*qkv(), [PaTH(DIM, head_dim=8, num_kv_heads=4)]),
        ],
        "token_states": [
            lambda: attention(*qkv(), [PaTH(DIM, head_dim=8, num_kv_heads=4)], token_states=[torch.ones(2, 4, 6, 8)])
        ],
    }
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": (1, 2, 6, 4)}, "w must be"),
        ({"beta": (1, 2, 5, 4)}, "beta must be"),
        ({"q": (1, 3, 5, 4)}, "q must be queries"),
    ],
)
def test_given_directions_that_do_not_fit(change, words):
    shapes = {"q": (1, 2, 5, 4), "k": (1, 2, 5, 4), "w": (1, 2, 5, 4), "beta": (1, 2, 5), **change}
    with pytest.raises(ValueError, match=words):
        reflected(**{name: torch.rand(shape) for name, shape in shapes.items()})


def test_no_matrix_of_queries_and_keys():
    """Forward and backward; the largest tensors are blocks of queries by all keys, and grow with the length."""
    length, encoding = 4096, PaTH(8, head_dim=4, num_kv_heads=1)
    leaves = [t.requires_grad_() for t in qkv(1, 1, length, head_dim=4)]
    with Largest() as seen:
        attention(*leaves, [encoding], x=torch.randn(1, length, 8)).square().sum().backward()
    assert seen.elements < length * length / 4
