"""Shapes and precisions: what comes out, for what goes in."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from posenc.attend import attention
from posenc.encoding import BiasEncoding, EmbeddingEncoding, Encoding, RotaryEncoding
from posenc.testing.cases import EVERYWHERE, INSIDE, Case, applies_to, heads_of, random, tokens_of
from posenc.testing.compare import expect, expect_close, expect_same

Place = TypeVar("Place", bound=Encoding)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@applies_to("embedding", all_of_them=False)
def embedding_shapes(case: Case) -> None:
    """(batch, tokens, dim) in, (batch, tokens, at least dim) out; positions shared or per row are the same thing."""
    x, positions = tokens_of(case, 5, batch=3), case.positions(torch.arange(5))
    for encoding in at_hook_point(case.make(torch.float64), EmbeddingEncoding):
        out = encoding(x, positions)
        expect(out.shape[:2] == x.shape[:2] and out.shape[2] >= case.dim, f"shape is {tuple(out.shape)}")
        expect_same("positions (1, tokens)", encoding(x, positions[None]), out)
        expect_same("positions (batch, tokens)", encoding(x, positions.expand(3, *positions.shape)), out)


@applies_to("rotary", all_of_them=False)
def rotary_shapes(case: Case) -> None:
    """Grouped queries and keys keep their shapes, and `forward` is `table` and `rotate`, which layers share."""
    q, k, _ = heads_of(case, 3, 5, batch=2)
    q_pos, k_pos = case.positions(torch.arange(2, 5)), case.positions(torch.arange(5))
    for encoding in at_hook_point(case.make(torch.float64), RotaryEncoding):
        rotated = encoding(q, k, q_pos, k_pos)
        for name, before, after, positions in zip("qk", (q, k), rotated, (q_pos, k_pos), strict=True):
            expect(after.shape == before.shape, f"{name} {tuple(before.shape)} became {tuple(after.shape)}")
            if not encoding.cacheable(length=5):
                continue
            rotate = encoding.rotate_queries if name == "q" else encoding.rotate
            table = encoding.table(positions, like=before)
            expect_same(f"rotate({name}, table(positions)) is not forward", rotate(before, table), after)
            per_row = encoding.table(positions.expand(2, *positions.shape), like=before)
            # Matrix products of other shapes may add in another order.
            expect_close(f"{name} under positions (batch, tokens)", rotate(before, per_row), after)


@applies_to("rotary", all_of_them=False)
def rotation_is_linear(case: Case) -> None:
    """R(2a + b) = 2 R(a) + R(b): what lets keys be cached rotated, and scores be a product."""
    a, b = (random(1, case.num_heads, 6, case.head_dim, seed=seed) for seed in (1, 2))
    for encoding in at_hook_point(case.make(torch.float64), RotaryEncoding):
        positions = case.positions(torch.arange(6))
        of_a, of_b, together = (encoding(x, x, positions, positions) for x in (a, b, 2 * a + b))
        for name, first, other, both in zip("qk", of_a, of_b, together, strict=True):
            expect_close(f"{name} = R(2a + b)", both, 2 * first + other)


@applies_to("bias", all_of_them=False)
def bias_shapes(case: Case) -> None:
    """(heads, queries, keys), with the batch in front where positions have one; float64 for float64 positions."""
    q_pos, k_pos = case.positions(torch.arange(2, 5)), case.positions(torch.arange(5))
    for encoding in at_hook_point(case.make(), BiasEncoding):
        bias = encoding(q_pos, k_pos)
        expect(bias.shape == (case.num_heads, 3, 5), f"shape is {tuple(bias.shape)}")
        expect(bias.dtype == torch.float32, f"dtype for integer positions is {bias.dtype}")
        per_row = encoding(q_pos.expand(2, *q_pos.shape), k_pos.expand(2, *k_pos.shape))
        expect_close("positions (batch, tokens)", per_row, bias.expand(2, -1, -1, -1))
        expect(
            encoding.double()(q_pos.double(), k_pos.double()).dtype == torch.float64,
            "a float64 module gives no float64 bias for float64 positions",
        )


@applies_to(*INSIDE)
def attention_shapes(case: Case) -> None:
    """Grouped heads, fewer queries than keys, and values of another width: (batch, heads, queries, value_dim)."""
    for value_dim in (case.head_dim, case.head_dim + 3):
        q, k, v = heads_of(case, 3, 5, batch=2, value_dim=value_dim)
        encodings = case.make(torch.float64, sizes={"value_dim": value_dim})
        positions = case.positions(torch.arange(5))
        call = partial(
            attention, q, encodings=encodings, q_pos=positions[2:], k_pos=positions, x=tokens_of(case, 5, batch=2),
            causal=True,
        )  # fmt: skip
        out = call(k, v)
        expected = (2, case.num_heads, 3, value_dim)
        expect(out.shape == expected, f"expected {expected}, got {tuple(out.shape)}")
        many_k, many_v = (t.repeat_interleave(case.num_heads // case.num_kv_heads, 1) for t in (k, v))
        again = call(many_k, many_v)
        expect_close("keys and values repeated for each head", out, again)


@applies_to(*EVERYWHERE)
def dtype_in_dtype_out(case: Case) -> None:
    """The result has the dtype of x or q, and is the float64 result up to rounding, in float64, 32, 16 and bfloat16."""
    float32, wide = case.make(), case.make(torch.float64)
    for dtype in DTYPES:
        cast = [e.to(dtype) for e in case.make()]
        exact = [copy.deepcopy(e).double() for e in cast]
        for name, encodings, reference in (("cast", cast, exact), ("float32", float32, wide)):
            what = f"{dtype} through a {name} module"
            for got, expected in zip(run(case, encodings, dtype), run(case, reference, dtype, wide=True), strict=True):
                expect(got.dtype == dtype, f"{what}: result is {got.dtype}")
                precision = torch.float32 if dtype == torch.float64 and name == "float32" else dtype
                expect_close(what, got.to(precision), expected)


def run(case: Case, encodings: Sequence[Encoding], dtype: torch.dtype, wide: bool = False) -> list[Tensor]:
    """Results of all embeddings, and of attention under the rest, for inputs of ``dtype`` (``wide``: as float64)."""
    last = torch.float64 if wide else dtype
    x, positions = (
        tokens_of(case, 6, batch=2, dtype=dtype).to(last),
        case.positions(torch.arange(6) * ((case.max_length - 1) // 5)),
    )
    results = [e(x, positions) for e in encodings if isinstance(e, EmbeddingEncoding)]
    inside = [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
    if inside or not results:
        q, k, v = (t.to(last) for t in heads_of(case, 6, 6, dtype=dtype))
        results.append(attention(q, k, v, inside, q_pos=positions, k_pos=positions, x=x, causal=True))
    return results


@applies_to(*EVERYWHERE)
def autocast_changes_nothing(case: Case) -> None:
    """Angles, biases and embeddings are the same inside ``torch.autocast``, which rounds matrix products."""
    positions = case.positions(torch.arange(40, 46))

    def measured() -> list[Tensor]:
        encodings = case.make()
        results = run(case, encodings, torch.float32)
        for encoding in encodings:
            if isinstance(encoding, BiasEncoding):
                results.append(encoding(positions, positions))
            if isinstance(encoding, RotaryEncoding):
                results.extend(encoding(*heads_of(case, 6, 6, dtype=torch.float32)[:2], positions, positions))
        return results

    outside = measured()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = measured()
    for got, expected in zip(cast, outside, strict=True):
        expect_same("inside autocast", got, expected)


def at_hook_point(encodings: Sequence[Encoding], place: type[Place]) -> list[Place]:
    """The members of a list that act at one hook point."""
    return [e for e in encodings if isinstance(e, place)]
