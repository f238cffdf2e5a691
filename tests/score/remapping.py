"""What the tests of remapped distances share: a call of a golden file, and its numbers beside theirs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc import Encoding, RoPE, attention
from posenc.backends.call import Backend
from posenc.layers import KVCache, SelfAttention
from tests.golden import config, load
from tests.samples import FLOATS, gap

EACH_FLOAT = pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
EACH_BACKEND = pytest.mark.parametrize("backend", ["ranged", "dense"])


def rope(name: str, **options: object) -> RoPE:
    """The rotation of a golden file."""
    said = config(name)
    return RoPE(said["head_dim"], base=said["rope_theta"], **options)


def expect_golden(
    name: str,
    encodings: list[Encoding],
    dtype: torch.dtype,
    tolerance: float,
    backend: Backend,
    *,
    out: str = "out",
    real: Tensor | None = None,
    **options: object,
) -> None:
    """Results, and gradients where the file has some, of a call.

    Args:
        name: of the file.
        encodings: under which.
        dtype, tolerance: of the call, and of its results; gradients may be ten times as far off.
        backend: of attention.
        out: the name of the results.
        real: bool ``(batch, tokens)``, the rows that count.
        options: of `attention`.
    """
    golden = load(name, dtype)
    q, k, v = (golden[part].clone().requires_grad_() for part in "qkv")
    found = attention(q, k, v, encodings, backend=backend, **options)
    rows = torch.ones(found.shape[0], found.shape[2], dtype=torch.bool) if real is None else real
    assert gap(found.transpose(1, 2)[rows], golden[out].transpose(1, 2)[rows]) < tolerance
    if "grad_out" in golden and real is None:
        gradients = torch.autograd.grad(found, (q, k, v), golden["grad_out"])
        for part, gradient in zip("qkv", gradients, strict=True):
            assert gap(gradient, golden[f"grad_{part}"]) < 10 * tolerance, part


def expect_decoding(make: Callable[[], Encoding], cache: KVCache | None = None) -> None:
    """A layer token by token, after a prompt and after a chunk, gives what it gives at once."""
    torch.manual_seed(0)
    layer, x = SelfAttention(32, 4, num_kv_heads=2, encodings=[make()]).double(), torch.randn(2, 40, 32).double()
    cache = KVCache() if cache is None else cache
    with torch.no_grad():
        parts = [layer(part, cache=cache) for part in torch.split(x, [17, 1, 1, 9, *[1] * 12], 1)]
        assert gap(torch.cat(parts, 1), layer(x)) < 1e-12


def scaling_of(name: str) -> dict[str, float]:
    """What a file says of its Llama 3 scaling."""
    said = config(name)["llama3_scaling"]
    found: dict[str, float] = json.loads(said) if isinstance(said, str) else said
    return found
