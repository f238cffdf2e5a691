"""The definition by blocks of queries: for encodings of which nothing is known but that they act row by row."""

from __future__ import annotations

import pytest
import torch

from posenc import ForgetGate, RoPE, ScoreEncoding, T5Bias, attention
from posenc.backends.rows import BLOCK
from posenc.bias import KERPLE
from posenc.encoding import Scope
from posenc.score import DAPE, CoPE, Mixture, Shaw
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import Largest
from tests.samples import gap, qkv

LISTS = {
    "nope": list,
    "rope+t5": lambda: [RoPE(8), T5Bias(4, init_std=1.0, bidirectional=True)],
    "shaw": lambda: [Shaw(8, max_distance=4, value_dim=5, init_std=1.0)],
    "fox": lambda: [ForgetGate(6, num_heads=4)],
    "rope+cope": lambda: [RoPE(8), CoPE(8, max_position=9, gates="separate", dim=6, num_kv_heads=2)],
    "sticks": lambda: [StickBreaking(remainder="own")],
    "sticks vector": lambda: [StickBreaking(remainder="vector", num_heads=4, value_dim=5)],
    "dape": lambda: [DAPE(KERPLE(4))],
    "mixture": lambda: [Mixture([RoPE(8), T5Bias(4, init_std=1.0, bidirectional=True), []], num_heads=4)],
}


def random_tensor(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(2))


def results(backend: str, name: str, queries: int, keys: int, **options: object) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encodings = [e.double() for e in LISTS[name]()]
        with torch.no_grad():
            for parameter in (p for e in encodings for p in e.parameters()):
                parameter.add_(torch.rand_like(parameter) * 0.3)
    tensors = qkv(2, 4, queries, keys, num_kv_heads=2, value_dim=5, dtype=torch.float64, transposed=True)
    leaves = [t.requires_grad_() for t in (*tensors, random_tensor(2, keys, 6).double())]
    out = attention(*leaves[:3], encodings, x=leaves[3], backend=backend, **options)
    parameters = [p for e in encodings for p in e.parameters()]
    target = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return [out, *torch.autograd.grad(out, [*leaves, *parameters], target, materialize_grads=True)]


@pytest.mark.parametrize(("queries", "keys"), [(BLOCK + 1, BLOCK + 1), (2 * BLOCK, 150), (70, 150)])
@pytest.mark.parametrize("name", LISTS)
def test_equals_the_definition(name, queries, keys):
    if name == "shaw" and queries > keys:
        keys = queries
    for a, b in zip(*(results(backend, name, queries, keys) for backend in ("rows", "dense")), strict=True):
        assert gap(a, b) < 1e-10


def test_one_block_lives_at_a_time():
    length = 1500
    q, k, v = (t.requires_grad_() for t in qkv(1, 2, length))
    with Largest() as seen:
        attention(q, k, v, [DAPE(KERPLE(2), hidden=2)], backend="rows").square().sum().backward()
    assert q.numel() <= seen.elements < length * length


class Centred(ScoreEncoding):
    """Takes from each score the mean over all queries of the call, and says so."""

    scope = Scope(by_rows=False)

    def forward(self, scores, context):
        return scores - scores.mean(2, keepdim=True)


class TestRefusals:
    def test_without_an_order_by_index(self):
        for causal in (False, "positions"):
            with pytest.raises(ValueError, match=r"'rows'.*causal"):
                attention(*qkv(1, 4, 100), causal=causal, backend="rows")

    def test_one_block(self):
        with pytest.raises(ValueError, match=rf"\b{BLOCK}\b"):
            attention(*qkv(1, 4, BLOCK), backend="rows")

    def test_queries_that_depend_on_one_another(self):
        with pytest.raises(ValueError, match="Centred"):
            attention(*qkv(1, 4, 100), [Centred()], backend="rows")

    def test_under_a_compiler(self):
        q, k, v = qkv(1, 4, 100)
        torch.compiler.reset()
        with pytest.raises(Exception, match="rows"):
            torch.compile(lambda: attention(q, k, v, backend="rows"), backend="eager", fullgraph=True)()
        torch.compiler.reset()
