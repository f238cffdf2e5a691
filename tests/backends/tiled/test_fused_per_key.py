"""Numbers a key by the fused kernel: small masks, older keys under one row, sums over queries from one more channel."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.backends.tiled import fused_per_key
from tests.backends.tiled.compare import (
    DIM,
    HEADS,
    Fading,
    PerKey,
    build_encodings,
    called,
    differentiated,
    expect_dense,
    expect_same,
    passes_of,
)
from tests.samples import gap, qkv

WEAK = (-0.2, -0.1, -0.01, 0.0)


@pytest.fixture
def taken(monkeypatch) -> list[str]:
    return passes_of(fused_per_key, monkeypatch)


LISTS = {
    "per key": lambda: [PerKey()],
    "per key, one batch": lambda: [PerKey(of_tokens=False)],
    "loud keys": lambda: [PerKey(size=30.0)],
    "weak gates": lambda: [Fading(*WEAK)],
    "gates and keys": lambda: [Fading(*WEAK), PerKey(), PerKey(of_tokens=False)],
    "equal gates": lambda: [Fading(*[-0.12] * HEADS)],
}


def lists(name: str) -> list:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [encoding.double() for encoding in LISTS[name]()]


@pytest.mark.parametrize("length", [256, 257, 520])  # a block of queries; one more; two and a part
@pytest.mark.parametrize("name", LISTS)
def test_equals_the_definition_under_grouped_heads(name, length, taken):
    expect_dense(lists(name), length, tolerance=1e-9)
    assert taken == ["forward"], "gradients of grouped heads come from tiles"


@pytest.mark.parametrize(("value_dim", "length"), [(3, 257), (8, 256), (8, 520), (11, 257)])
@pytest.mark.parametrize("name", LISTS)
def test_backward_pass_for_a_key_head_per_query_head(name, value_dim, length, taken):
    tensors = [*qkv(1, HEADS, length, head_dim=8, value_dim=value_dim, dtype=torch.float64, transposed=True)]
    tensors.append(torch.randn(1, length, DIM, dtype=torch.float64))
    got, expected = (differentiated(lists(name), tensors, backend=backend) for backend in ("tiled", "dense"))
    expect_same(got, expected, 1e-9)
    assert taken == ["forward", "backward"]


@pytest.mark.parametrize("queries", [256, 300, 520])
def test_fewer_queries_than_keys(queries, taken):
    for name in LISTS:
        expect_dense(lists(name), queries, 600, tolerance=1e-9)
    assert taken == ["forward"] * len(LISTS)


def test_a_batch(taken):
    tensors = [*qkv(3, HEADS, 300, head_dim=8, dtype=torch.float64), torch.randn(3, 300, DIM, dtype=torch.float64)]
    for name in LISTS:
        got, expected = (differentiated(lists(name), tensors, backend=backend) for backend in ("tiled", "dense"))
        expect_same(got, expected, 1e-9)
    assert taken == ["forward", "backward"] * len(LISTS)


@pytest.mark.parametrize("name", ["gates and keys", "equal gates"])
def test_gradients_of_gates_in_float32(name, taken):
    """Sums over 1,500 keys of what rows gain, which in each row is nothing but rounding."""
    tensors = [*qkv(1, HEADS, 1500, head_dim=8, dtype=torch.float64), torch.randn(1, 1500, DIM, dtype=torch.float64)]
    expected = differentiated(lists(name), tensors, backend="dense")
    got = differentiated(lists(name), [t.float() for t in tensors])
    for part, exact in expected.items():
        tolerance = 3e-4 if "gates" in part else 1e-5
        assert gap(got[part], exact) < tolerance * max(1.0, float(exact.abs().max())), part
    assert taken == ["forward", "backward"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LISTS)
def test_narrow_values(name, dtype, taken):
    """Rounded to the dtype at the end, however many blocks are joined."""
    q, k, v, x = called(520, batch=1, dtype=dtype)
    encodings = lists(name)
    with torch.no_grad():
        out = attention(q, k, v, encodings, x=x, backend="tiled")
        exact = attention(q.double(), k.double(), v.double(), encodings, x=x.double(), backend="dense")
    assert gap(out, exact) < {torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    assert taken == ["forward"]


@pytest.mark.parametrize(
    ("encodings", "options"),
    [
        (lambda: [Fading(-1.0, 0.0, 0.0, 0.0)], {}),
        (lambda: [PerKey()], {"causal": False}),
        (lambda: [PerKey()], {"window": 20}),
        (lambda: [PerKey()], {"segments": torch.arange(300) // 50}),
        (lambda: [*build_encodings("t5"), PerKey()], {}),
        (lambda: [PerKey(), *build_encodings("sticks")], {}),
    ],
    ids=["steep gates", "bidirectional", "window", "packed", "with a row", "sticks"],
)
def test_other_calls_go_elsewhere(encodings, options, taken):
    expect_dense([e.double() for e in encodings()], 300, **options)
    assert not taken
