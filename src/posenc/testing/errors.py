"""Mistakes: each raises a ValueError that names the argument, rather than a wrong result or an error far below."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from posenc.attend import attention
from posenc.encoding import BiasEncoding, EmbeddingEncoding, Encoding, RotaryEncoding, ScoreEncoding
from posenc.testing.cases import EVERYWHERE, Case, applies_to, heads_of, random, tokens_of
from posenc.testing.compare import expect, expect_value_error
from posenc.testing.shapes import at_hook_point

POSITIONS = ("positions", "q_pos", "k_pos")


def calls(case: Case) -> list[tuple[str, Callable[[Tensor], object]]]:
    """Ways to hand positions of six tokens in two rows to the encodings of a case."""
    encodings, x = case.make(torch.float64), tokens_of(case, 6, batch=2)
    q, k, v = heads_of(case, 6, 6)
    inside = [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
    ways: list[tuple[str, Callable[[Tensor], object]]] = []
    for encoding in at_hook_point(encodings, EmbeddingEncoding):
        ways.append((type(encoding).__name__, lambda positions, e=encoding: e(x, positions)))  # type: ignore[misc]
    if inside or not ways:
        ways.append(
            (
                "attention",
                lambda positions: attention(q, k, v, inside, q_pos=positions, k_pos=positions, x=x, causal=True),
            )
        )
    return ways


@applies_to(*EVERYWHERE)
def wrong_positions_raise(case: Case) -> None:
    """Positions for another number of tokens or rows, with an axis too many, or of other coordinates."""
    index = [torch.arange(7), torch.arange(5), torch.arange(18).view(3, 6), torch.arange(12).view(2, 1, 6)]
    wrong = [case.positions(counted) for counted in index]
    if case.axes > 1:  # none, one too many, and in front, as Hugging Face's position ids have them
        six = case.positions(torch.arange(6))
        accepts_one = any(encoding.plain_positions for encoding in case.fresh())  # which take one coordinate for all
        wrong += [
            torch.cat([six, six[:, :1]], -1),
            six.T[:, None].expand(-1, 2, -1),
            *([] if accepts_one else [torch.arange(6)]),
        ]
    for what, call in calls(case):
        for positions in wrong:
            shape = tuple(positions.shape)
            expect_value_error(f"{what}, positions {shape} for (2, 6)", lambda: call(positions), *POSITIONS)  # noqa: B023


@applies_to(*EVERYWHERE)
def inexact_positions_raise(case: Case) -> None:
    """Positions in bfloat16 or float16, which cannot count to 300 or 3000, and bool, in every call that takes some."""
    counted = case.positions(torch.arange(6))
    everything = calls(case)
    for encoding in case.make():
        if isinstance(encoding, RotaryEncoding):
            q, k, _ = heads_of(case, 6, 6, dtype=torch.float32)
            everything.append((type(encoding).__name__, lambda at, e=encoding, q=q, k=k: e(q, k, at, at)))  # type: ignore[misc]
            if encoding.cacheable(length=6):
                everything.append((f"{type(encoding).__name__}.table", encoding.table))
        if isinstance(encoding, BiasEncoding):
            everything.append((type(encoding).__name__, lambda positions, e=encoding: e(positions, positions)))  # type: ignore[misc]
    for what, call in everything:
        for dtype in (torch.bfloat16, torch.float16, torch.bool):
            positions = counted.to(dtype)
            expect_value_error(f"{what}, {dtype} positions", lambda: call(positions), *POSITIONS)  # noqa: B023


@applies_to(*EVERYWHERE)
def past_the_table_raises(case: Case) -> None:
    """Positions past the end of a table, where the case has one: never a wrapped or clamped row."""
    for what, call in calls(case) if case.table_bound else []:
        for wrong in (case.max_length, -1000):
            positions = case.positions(torch.tensor([0, 1, 2, 3, 4, wrong]))
            expect_value_error(f"{what}, position {wrong}", lambda: call(positions), *POSITIONS)  # noqa: B023


@applies_to("bias", all_of_them=False)
def wrong_heads_raise(case: Case) -> None:
    """A bias for another number of heads than the queries have; one head's would broadcast in silence."""
    heads = case.num_heads + case.num_kv_heads
    _, k, v = heads_of(case, 6, 6)
    more = random(2, heads, 6, case.head_dim)
    for encoding in at_hook_point(case.make(torch.float64), BiasEncoding):
        expect(getattr(encoding, "num_heads", None) == case.num_heads, "num_heads is not an attribute")
        expect_value_error(f"{heads} query heads", lambda: attention(more, k, v, [encoding], causal=True), "num_heads")  # noqa: B023


@applies_to("embedding", "rotary", "score", all_of_them=False)
def wrong_widths_raise(case: Case) -> None:
    """Tokens, heads or values wider than the encoding was made for; an embedding that appends takes any width."""
    positions = case.positions(torch.arange(6))
    for encoding in case.make(torch.float64):
        name = type(encoding).__name__
        if isinstance(encoding, EmbeddingEncoding):
            wide = random(2, 6, case.dim + 1)
            if not appends(encoding, wide, positions):
                expect_value_error(f"{name}, x too wide", lambda: encoding(wide, positions), "x", "dim")  # noqa: B023
        if isinstance(encoding, RotaryEncoding) or hasattr(encoding, "head_dim"):
            q, k = (random(2, heads, 6, case.head_dim + 2) for heads in (case.num_heads, case.num_kv_heads))
            call = attend(encoding, q, k, k, positions, x=tokens_of(case, 6, batch=2))
            expect_value_error(f"{name}, heads too wide", call, "head_dim")
        if isinstance(encoding, ScoreEncoding):
            wide_values(case, encoding, positions)


def appends(encoding: EmbeddingEncoding, x: Tensor, positions: Tensor) -> bool:
    """Whether an embedding adds channels to tokens of any width."""
    try:
        out: Tensor = encoding(x, positions)
    except ValueError:
        return False
    return out.shape[-1] > x.shape[-1]


def attend(
    encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, *, x: Tensor
) -> Callable[[], Tensor]:
    """A call of attention under one encoding, to be made later."""
    return lambda: attention(q, k, v, [encoding], q_pos=positions, k_pos=positions, x=x, causal=True)


def wide_values(case: Case, encoding: ScoreEncoding, positions: Tensor) -> None:
    """Values of another width than the encoding reads are refused by name; an encoding that reads none takes them."""
    q, k, v = heads_of(case, 6, 6, value_dim=case.head_dim + 3)
    try:
        out = attend(encoding, q, k, v, positions, x=tokens_of(case, 6, batch=2))()
    except ValueError as error:
        expect("value_dim" in str(error), f"wider values: the ValueError must name value_dim, got {str(error)!r}")
    except RuntimeError as error:
        raise AssertionError(f"wider values: expected a ValueError that names value_dim, got {error}") from error
    else:
        expect(out.shape[-1] == v.shape[-1], f"values of width {v.shape[-1]} gave {out.shape[-1]}")


@applies_to("rotary")
def odd_head_dim_raises(case: Case) -> None:
    """A rotation of 7 channels is refused at construction: channels are rotated in pairs or blocks."""
    if "head_dim" in case.takes:
        expect_value_error(
            "head_dim=7", lambda: case.fresh(sizes={"head_dim": 7, "dim": 7 * case.num_heads}), "head_dim", "rotary_dim"
        )


@applies_to("bias")
def no_heads_raise(case: Case) -> None:
    """A bias for no head at all is refused at construction."""
    if "num_heads" in case.takes:
        expect_value_error("num_heads=0", lambda: case.fresh(sizes={"num_heads": 0}), "num_heads")
