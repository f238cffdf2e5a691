"""Dropout on weights: one mask for all backends, tiles and passes, right on average, repeatable; a cap on products."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc import ALiBi, RoPE, T5Bias, attention, explain_backend
from posenc.attention_maps import read_attention
from posenc.dropout import Dropout
from posenc.score import CoPE, Shaw
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import Largest
from tests.samples import gap, qkv

LISTS = {
    "nope": [],
    "rope+t5": [RoPE(8), T5Bias(4, init_std=1.0, bidirectional=True)],
    "shaw": [Shaw(8, max_distance=3, value_dim=5, init_std=1.0)],
    "sticks": [StickBreaking()],
    "sticks own": [StickBreaking(remainder="own", attend_current=True)],
    "sticks vector": [StickBreaking(remainder="vector", num_heads=4, value_dim=5)],
}


def factors(p: float, seed: int, batch: int, heads: int, queries: int, keys: int) -> Tensor:
    torch.manual_seed(seed)
    samples = Dropout(p).with_seed(torch.device("cpu"))
    return samples.factors(slice(0, batch), slice(0, heads), slice(0, queries), torch.arange(keys), torch.float64)


class TestTheMask:
    @pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
    def test_rate(self, p):
        result = factors(p, 0, 2, 3, 200, 200)
        assert result.unique().tolist() == [0.0, 1 / (1 - p)]
        share = float((result == 0).double().mean())
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / result.numel())

    def test_neighbours_know_nothing_of_one_another(self):
        result = factors(0.5, 1, 4, 4, 128, 128) - 1  # ±1
        bound = 4.5 / math.sqrt(result.numel())
        for axis in range(4):
            for step in (1, 2, 3):
                moved = result.roll(step, axis)
                assert abs(float((result * moved).mean())) < bound, (axis, step)
        for axis in (0, 1, 2, 3):  # nor are whole rows or columns favoured
            means = result.movedim(axis, 0).flatten(1).mean(1)
            assert float(means.abs().max()) < 5 / math.sqrt(result.numel() / result.shape[axis])

    def test_pairs_of_rows_and_columns_are_free(self):
        """The parity of the four corners of rectangles: a hash of a row joined with one of a column might fix it."""
        result = factors(0.5, 2, 1, 1, 512, 512)[0, 0] - 1
        corners = result[:-1, :-1] * result[1:, :-1] * result[:-1, 1:] * result[1:, 1:]
        assert abs(float(corners.mean())) < 4.5 / 511
        far = result * result.roll(256, 0) * result.roll(256, 1) * result.roll((256, 256), (0, 1))
        assert abs(float(far.mean())) < 9 / 512  # each rectangle is met four times

    def test_a_tile_has_its_part_of_the_whole(self):
        full = factors(0.3, 5, 3, 4, 20, 30)
        torch.manual_seed(5)
        samples = Dropout(0.3).with_seed(torch.device("cpu"))
        keys = torch.arange(19, 6, -1)
        part = samples.after(4).factors(slice(1, 3), slice(2, 4), slice(3, 9), keys, torch.float64)
        assert torch.equal(part, full[1:3, 2:4, 7:13][..., keys])
        own_keys = torch.arange(6)[:, None] + 2
        of_own = samples.factors(slice(0, 3), slice(0, 4), slice(0, 6), own_keys, torch.float64)
        assert torch.equal(of_own[..., 0], full[:, :, torch.arange(6), torch.arange(6) + 2])


@pytest.mark.parametrize("backend", ["dense", "tiled", "sdpa"])
@pytest.mark.parametrize("name", LISTS)
def test_right_on_average(name, backend):
    """The mean over draws, and what dropout adds to the variance: p / (1 − p) · Σ a² v² where nothing else is read."""
    if backend == "sdpa" and name not in ("nope", "rope+t5"):
        pytest.skip("kernels do not serve it")
    draws, p = 1500, 0.3
    q, k, v = qkv(1, 4, 6, value_dim=5, dtype=torch.float64)
    encodings = [e.double() for e in LISTS[name]]
    with torch.no_grad():
        for parameter in (p for e in encodings for p in e.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(4))
        torch.manual_seed(7)
        many = (t.expand(draws, -1, -1, -1) for t in (q, k, v))
        actual = attention(*many, encodings, dropout=p, backend=backend)
        expected = attention(q, k, v, encodings, backend="dense")[0]
        deviation = (actual - expected).square().mean(0)
        off = (actual.mean(0) - expected) / (deviation / draws).sqrt().clamp(min=1e-9)
        assert float(off.abs().max()) < 5
        if name in ("nope", "rope+t5", "sticks", "sticks own"):
            weights = read_attention(q, k, v, encodings).weights[0]
            variance = p / (1 - p) * (weights.square() @ v[0].square())
            seen = variance > 1e-12
            assert float((deviation[seen] / variance[seen] - 1).abs().max()) < 0.25


@pytest.mark.parametrize("backend", ["auto", "dense", "tiled", "rows", "sdpa"])
def test_repeatable(backend):
    q, k, v = qkv(2, 4, 70)

    def call() -> Tensor:
        return attention(q, k, v, [RoPE(8)], dropout=0.5, backend=backend)

    torch.manual_seed(0)
    first, second = call(), call()
    torch.manual_seed(0)
    assert torch.equal(first, call())
    assert gap(first, second) > 0.1


@pytest.mark.parametrize("backend", ["auto", "dense", "tiled", "rows"])
def test_everything_dropped(backend):
    leaves = [t.requires_grad_() for t in qkv(2, 4, 70, dtype=torch.float64)]
    out = attention(*leaves, [RoPE(8)], dropout=1.0, backend=backend)
    assert bool((out == 0).all())
    assert all(bool((g == 0).all()) for g in torch.autograd.grad(out.sum(), leaves))


def test_what_a_vector_gets_is_no_weight():
    """The remainder of stick-breaking comes from all weights, and is not dropped; the own key's weight is one."""
    q, k, v = qkv(1, 4, 70, value_dim=5, dtype=torch.float64)
    stick = StickBreaking(remainder="vector", num_heads=4, value_dim=5).double()
    torch.nn.init.normal_(stick.vector)
    left = 1 - read_attention(q, k, v, [stick]).weights.sum(-1, keepdim=True)
    for backend in ("dense", "tiled", "rows"):
        result = attention(q, k, v, [stick], dropout=1.0, backend=backend)
        assert gap(result, left * stick.vector[None, :, None]) < 1e-12
        own_values = attention(q, k, v, [StickBreaking(remainder="own")], dropout=1.0, backend=backend)
        assert bool((own_values == 0).all())


@pytest.mark.parametrize("name", ["nope", "rope+t5"])
def test_gradcheck_of_kernels(name):
    """Gradients follow the mask of the forward pass, also where a block of queries is computed anew."""
    tokens = 530
    leaves = [t.requires_grad_() for t in qkv(1, 4, tokens, num_kv_heads=2, value_dim=5, dtype=torch.float64)]
    encodings = [e.double() for e in LISTS[name]]
    mask = torch.arange(tokens) % 5 != 2

    def call(*tensors: Tensor) -> Tensor:
        torch.manual_seed(1)
        return attention(*tensors, encodings, mask=mask[None], dropout=0.4, backend="sdpa")

    torch.autograd.gradcheck(call, leaves, fast_mode=True)


@pytest.mark.parametrize("backend", ["dense", "tiled", "rows", "sdpa"])
def test_under_a_checkpoint(backend):
    """Whoever recomputes a layer finds the mask again, as the generator's state is restored."""
    results = []
    for wrapped in (False, True):
        leaves = [t.requires_grad_() for t in qkv(1, 4, 70, dtype=torch.float64)]
        torch.manual_seed(2)
        call = lambda *t: attention(*t, [RoPE(8)], dropout=0.4, backend=backend)  # noqa: E731
        out = checkpoint(call, *leaves, use_reentrant=False) if wrapped else call(*leaves)
        torch.randn(5)  # what comes between the passes
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert all(gap(a, b) < 1e-12 for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("encodings", [[], [ALiBi(1)], [StickBreaking()]], ids=str)
def test_no_matrix_of_queries_and_keys(encodings):
    length = 2048
    leaves = [t.requires_grad_() for t in qkv(1, 1, length, head_dim=4)]
    with Largest() as seen:
        attention(*leaves, encodings, dropout=0.1).square().sum().backward()
    assert leaves[0].numel() <= seen.elements < length * length


def test_compiled():
    (q, k, v), encodings = qkv(1, 4, 70), [RoPE(8)]
    torch.compiler.reset()
    compiled = torch.compile(lambda: attention(q, k, v, encodings, dropout=0.5), backend="aot_eager", fullgraph=True)
    torch.manual_seed(0)
    first, second = compiled(), compiled()
    torch.manual_seed(0)
    assert torch.equal(first, compiled())
    assert gap(first, second) > 0.1
    torch.compiler.reset()


def test_explaining_draws_nothing():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert "dropout" in explain_backend(*qkv(1, 4, 200), dropout=0.1).how
    assert torch.equal(torch.get_rng_state(), state)


def test_refusals():
    q, k, v = qkv(1, 4, 70)
    with pytest.raises(ValueError, match="dropout"):
        attention(q, k, v, dropout=0.1, backend="flex")
    with pytest.raises(ValueError, match="dropout"):
        attention(q, k, v, dropout=1.0, backend="sdpa")


CAP = 0.7


def capped(products: Tensor, cap: float = CAP) -> Tensor:
    return cap * torch.tanh(products / cap)


def test_gates_count_products_without_a_cap():
    """CoPE's positions come from the products themselves, whichever backend computes them."""
    q, k, v = qkv(1, 4, 40, dtype=torch.float64)
    cope = CoPE(8, max_position=6).double()
    torch.nn.init.normal_(cope.table)
    read = [read_attention(q, k, v, [cope], softcap=cap).scores for cap in (None, 0.01)]
    products = (q @ k.mT) * 8**-0.5
    seen = torch.ones(40, 40).tril().bool()
    assert gap((read[0] - products)[..., seen], (read[1] - capped(products, 0.01))[..., seen]) < 1e-9
    assert gap(*(attention(q, k, v, [cope], softcap=0.01, backend=backend) for backend in ("tiled", "dense"))) < 1e-12


def test_keys_that_have_lost_their_weight_are_left_out_rightly():
    """Bounds on scores know the cap: steep slopes over more than 512 keys, large products."""
    results = []
    for backend in ("tiled", "dense"):
        leaves = [(t * s).requires_grad_() for t, s in zip(qkv(1, 4, 600, dtype=torch.float64), (9, 9, 1), strict=True)]
        out = attention(*leaves, [ALiBi(4, slopes=[0.5, 2.0, 9.0, 0.01])], softcap=3.0, backend=backend)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for a, b in zip(*results, strict=True):
        assert gap(a, b) < 1e-10


def test_fused_kernels_refuse():
    with pytest.raises(ValueError, match="softcap"):
        attention(*qkv(), softcap=1.0, backend="sdpa")
    assert "a cap" in explain_backend(*qkv(1, 4, 200), softcap=1.0).how


@pytest.mark.reference
def test_gemma_2_of_transformers():
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    q, k, v = qkv(2, 4, 12, num_kv_heads=2)
    module = torch.nn.Module()
    module.num_key_value_groups, module.head_dim = 2, 8
    mask = torch.zeros(12, 12).masked_fill(torch.ones(12, 12).triu(1).bool(), torch.finfo(torch.float32).min)
    out, weights = eager_attention_forward(module, q, k, v, mask[None, None], scaling=0.5, softcap=CAP)
    assert gap(attention(q, k, v, scale=0.5, softcap=CAP), out.transpose(1, 2)) < 1e-6
    assert gap(read_attention(q, k, v, scale=0.5, softcap=CAP).weights, weights) < 1e-6
