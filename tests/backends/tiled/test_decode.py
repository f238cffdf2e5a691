"""Decoding: a few queries against many keys, in all types, for everything that may be added to the scores."""

from __future__ import annotations

import pytest
import torch

from posenc import T5Bias, attention
from tests.backends.tiled.compare import (
    RECIPES,
    SITUATIONS,
    Largest,
    build_encodings,
    called,
    differentiated,
    expect_dense,
)
from tests.samples import gap, qkv

SERVED = [name for name in RECIPES if not any(bent in name for bent in ("dape", "kernel"))]  # the others by definition
MASKED = [name for name in SITUATIONS if name != "by positions"]


@pytest.mark.parametrize(("queries", "keys"), [(1, 2), (1, 300), (5, 65), (16, 17), (17, 80)])
@pytest.mark.parametrize("name", SERVED)
def test_equals_the_definition(name, queries, keys):
    expect_dense(name, queries, keys)


@pytest.mark.parametrize("situation", MASKED)
@pytest.mark.parametrize("name", ["nope", "t5+fox", "shaw", "cope relative", "fire", "sticks own", "sticks vector"])
def test_visibility_equals_the_definition(name, situation):
    for queries in (1, 11):
        expect_dense(name, queries, 80, **SITUATIONS[situation](queries, 80))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wide_values", [False, True])
@pytest.mark.parametrize("name", SERVED)
def test_narrow_types(name, wide_values, dtype):
    """Values as wide as heads may go to a kernel, others not."""
    if wide_values and any(word in name for word in ("shaw", "everything", "vector")):
        return  # whose tables are as narrow as the values
    q, k, v, x = called(3, 300, dtype=dtype)
    v = torch.cat([v, v], -1)[..., :8] if wide_values else v
    encodings = build_encodings(name, torch.float32)
    with torch.no_grad():
        out = attention(q, k, v, encodings, x=x, backend="tiled")
        exact = attention(q.double(), k.double(), v.double(), encodings, x=x.double(), backend="dense")
    assert out.dtype == dtype
    assert gap(out, exact) < {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["nope", "t5", "fox", "cope", "sticks own"])
def test_rows_that_see_no_key(name, dtype):
    mask = torch.ones(2, 1, 3, 50, dtype=torch.bool)
    mask[1] = mask[0, :, 1] = False
    tensors = [*qkv(2, 4, 3, 50, head_dim=8, num_kv_heads=2, dtype=dtype), called(50, dtype=dtype)[3]]
    result = differentiated(build_encodings(name, torch.float64), tensors, mask=mask)
    assert all(t.isfinite().all() for t in result.values())
    assert (result["result"][1] == 0).all()
    assert (result["result"][0, :, 1] == 0).all()
    assert (result["q"][1] == 0).all()


def test_training_on_a_few_queries_in_half_precision():
    """The norms of one forward pass serve another backward pass."""
    for name in ("t5", "fox", "cope"):
        encodings, tensors = build_encodings(name), called(5, 300, batch=1, dtype=torch.bfloat16)
        actual = differentiated(encodings, tensors)
        expected = differentiated(encodings, [t.double() for t in tensors], backend="dense")
        for part, exact in expected.items():
            assert (actual[part] - exact).norm() <= 2e-2 * max(0.1, float(exact.norm())), f"{name}: {part}"


@pytest.mark.parametrize("layout", ["columns", "every second row"])
def test_layouts_of_a_cache(layout):
    q, k, v, x = called(1, 200, dtype=torch.bfloat16)
    if layout == "columns":
        rotated = [t.mT.contiguous().mT for t in (q, k, v)]
    else:
        rotated = [torch.stack([t, t], 1).flatten(0, 1)[::2] for t in (q, k, v)]
    with torch.no_grad():
        for name in ("nope", "t5", "cope", "sticks"):
            got, expected = (attention(*t, build_encodings(name), x=x, backend="tiled") for t in (rotated, (q, k, v)))
            assert gap(got, expected) < 2e-2


@pytest.mark.parametrize("name", ["nope", "t5", "cope", "sticks"])
def test_a_step_makes_no_wide_copy_of_the_keys(name):
    q, k, v = (t.repeat(1, 8, 1, 1) for t in called(1, 4000, batch=1, dtype=torch.bfloat16)[:3])
    with torch.no_grad(), Largest() as seen:
        attention(q, k, v, build_encodings(name) if name != "t5" else [T5Bias(32, bidirectional=True)], backend="tiled")
    assert seen.nbytes <= k.nbytes


@pytest.mark.parametrize("name", SERVED)
def test_a_step_is_the_last_row_of_a_prefill(name):
    (q, k, v, x), encodings = called(130), build_encodings(name)
    full = attention(q, k, v, encodings, x=x, backend="tiled")
    for last in (1, 16, 20):
        step = attention(q[:, :, -last:], k, v, encodings, x=x, backend="tiled")
        assert gap(step, full[:, :, -last:]) < 1e-10
