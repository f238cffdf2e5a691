"""A few queries against many keys, for everything that may be added to the scores."""

from __future__ import annotations

import pytest
import torch

from posenc import AttentionSink, T5Bias, attention, explain_backend
from posenc.score import CoPE, Shaw
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import (
    RECIPES,
    SITUATIONS,
    build_encodings,
    called,
    differentiated,
    expect_dense,
)
from tests.samples import gap, qkv

SERVED = [name for name in RECIPES if "dape" not in name]  # the others by definition
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


@pytest.mark.parametrize("name", SERVED)
def test_a_step_is_the_last_row_of_a_prefill(name):
    (q, k, v, x), encodings = called(130), build_encodings(name)
    full = attention(q, k, v, encodings, x=x, backend="tiled")
    for last in (1, 16, 20):
        step = attention(q[:, :, -last:], k, v, encodings, x=x, backend="tiled")
        assert gap(step, full[:, :, -last:]) < 1e-10


@pytest.mark.parametrize(
    "encoding",
    [CoPE(8, max_position=5), Shaw(8, max_distance=3), StickBreaking(), AttentionSink(4)],
    ids=lambda encoding: type(encoding).__name__,
)
@pytest.mark.parametrize(("queries", "keys", "backend"), [(1, 300, "dense"), (16, 300, "tiled"), (16, 40, "dense")])
def test_the_definition_serves_small_matrices_and_tiles_the_others(encoding, queries, keys, backend):
    q, k, v = qkv(1, 4, queries, keys)
    with torch.no_grad():
        assert explain_backend(q, k, v, [encoding]).backend == backend
        assert explain_backend(q, k, v, [T5Bias(4)]).backend == "sdpa", "a kernel serves the others"
