"""Keys whose weight is below rounding are skipped; nothing else is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from posenc import BiasEncoding, attention
from posenc.backends.tiles import prune
from tests.backends.tiles.compare import (
    HEADS,
    Fading,
    called,
    expect_same_as_dense,
)
from tests.samples import gap

LENGTH = 2 * prune.BLOCK + 200


class FixedBias(BiasEncoding):
    """A function of the distance by a table of numbers, for distances −limit … limit (key after the query first)."""

    def __init__(self, table: Tensor, *, learned: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(table, requires_grad=learned)

    def of_distance(self, distance: Tensor) -> Tensor:
        limit = self.table.shape[1] // 2
        return self.table[:, (limit - distance.long()).clamp(0, 2 * limit)]

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.of_distance(k_pos - q_pos[..., None])


def sloped(*slopes: float) -> Tensor:
    apart = torch.arange(2 * LENGTH + 1, dtype=torch.float64) - LENGTH  # tokens from a key to its query
    return -torch.tensor(slopes, dtype=torch.float64)[:, None] * apart.abs()


@pytest.mark.parametrize("queries", [LENGTH, 300, 1])
@pytest.mark.parametrize("gates", [(-2.0, -1e-3, -0.3, -1.0), (-1e-4, -0.124, -0.2, 0.0), (-0.12,) * 4, (-9.0,) * 4])
def test_strong_and_weak_gates(queries, gates):
    expect_same_as_dense([Fading(*gates)], called(queries, LENGTH, batch=1))
    expect_same_as_dense(
        [Fading(*gates), FixedBias(sloped(0.0, 0.1, 1.0, -0.2), learned=True)], called(queries, LENGTH, batch=1), 1e-9
    )


@pytest.mark.parametrize("where", [0, 1, 300, 700])
@pytest.mark.parametrize("bias", ["row", "gates"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_loud_key_is_heard_from_afar(where, causal, bias):
    """One key, and one query that looks for it, are long enough to outweigh the bias of any distance."""
    if bias == "gates" and not causal:
        return
    q, k, v, x = called(LENGTH, batch=1)
    k[:, :, where] *= 200
    loudest = (k[:, :, where] / k[:, :, where].norm()).repeat_interleave(HEADS // k.shape[1], 1)
    q[:, :, -1] = q[:, :, 0] = 20 * loudest
    encoding = FixedBias(sloped(*[1.0] * HEADS), learned=True) if bias == "row" else Fading(*[-1.0] * HEADS)
    expect_same_as_dense([encoding], [q, k, v, x], 1e-9, causal=causal)


@pytest.mark.parametrize("learned", [True, False])
def test_rows_of_any_shape(learned):
    """Peaks far away, holes of −inf, a row that rises with the distance."""
    table = sloped(1.0, 1.0, -0.5, 0.0)
    table[0, LENGTH + 600 :] = 3.0
    table[1, LENGTH + 20 : LENGTH + 90] = -1e4
    table[3, LENGTH + 100 : LENGTH + 300] = -torch.inf
    for causal in (True, False):
        expect_same_as_dense([FixedBias(table, learned=learned)], called(LENGTH, batch=1), 1e-9, causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("bias", ["row", "gates", "both"])
def test_narrow_inputs(dtype, bias):
    q, k, v, x = called(LENGTH, batch=1, dtype=dtype)
    encodings = [FixedBias(sloped(2.0, 0.5, 0.1, 0.01), learned=False), Fading(-0.12, -0.5, -0.12, -0.01)]
    encodings = {"row": encodings[:1], "gates": encodings[1:], "both": encodings}[bias]
    for size in (0.01, 1.0):
        out = attention(q * size, k, v, encodings, x=x, backend="tiled")
        exact = attention((q * size).double(), k.double(), v.double(), encodings, x=x.double(), backend="dense")
        assert gap(out, exact) < {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]


def test_products_beyond_float16():
    q, k, v = (torch.zeros(1, 2, LENGTH, 4, dtype=torch.float16) for _ in range(3))
    q[:, :, -1, 0], k[:, :, -1, 0], k[:, :, 3, 0] = 300, 300, 600
    v[:, :, 3] = 1
    out = attention(q, k, v, [FixedBias(sloped(1.0, 0.5), learned=False)], scale=0.5, backend="tiled")
    assert (out[:, :, -1] == 1).all(), "the last query sees key 3, whose score is far above all others"


class TestBounds:
    """What the bounds themselves say."""

    def test_a_tolerance_lets_more_go(self):
        """Rows keep their weight up to the tolerance."""
        q, k, v, x = called(LENGTH, batch=1)
        encodings = [Fading(*[-0.05] * HEADS)]
        exact = attention(q, k, v, encodings, x=x, backend="dense")
        missed = [
            gap(attention(q, k, v, encodings, x=x, tolerance=tolerance, backend="tiled"), exact)
            for tolerance in (0.0, 1e-3, 1e-1)
        ]
        assert missed[0] < 1e-12
        for tolerance, gone in zip((1e-3, 1e-1), missed[1:], strict=True):
            assert gone <= 2 * tolerance * float(v.abs().max())
