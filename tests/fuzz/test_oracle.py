"""The oracle sees what it is there to see: every small change of a call makes a result disagree, in every dtype.

The library is called as it is; the definition is told of one thing that is not so. If the oracle were too generous, or
the definition did not look at that thing, both would still agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posenc.encoding import Encoding
from tests.fuzz.definition.terms import Rounding
from tests.fuzz.draw import Draw, Sizes, Spec, make
from tests.fuzz.encodings import KINDS
from tests.fuzz.modes import definition_result, float64_leaves, library_result
from tests.fuzz.oracle import DisagreementError, judge
from tests.fuzz.random_call import DTYPES, RandomCall

SIZES = Sizes(heads=2, num_kv_heads=1, head_dim=12, value_dim=12, dim=8)
TOKENS = 12
FINE, COARSE = (torch.float64, torch.float32), tuple(DTYPES)
AXES = {"MRoPE": 2, "AxialRoPE": 2, "VJEPARoPE": 3, "ALiBi2D": 2}


def text_call(spec: Spec | None, dtype: torch.dtype, seed: int = 0, axes: int = 1) -> RandomCall:
    """One text of a dozen tokens under one encoding."""
    draw = Draw(seed)
    specs = [] if spec is None else [spec]
    encodings: list[Encoding] = [make(spec, draw, strength=0.5).to(dtype) for spec in specs]
    batch = 1
    shapes = (
        (SIZES.heads, SIZES.head_dim),
        (SIZES.num_kv_heads, SIZES.head_dim),
        (SIZES.num_kv_heads, SIZES.value_dim),
    )
    q, k, v = (draw.normal(batch, heads, TOKENS, width).to(dtype) for heads, width in shapes)
    x = draw.normal(batch, TOKENS, SIZES.dim).to(dtype)
    call = RandomCall(seed, SIZES, axes, specs, encodings, dtype, q, k, v, x)
    if axes > 1:
        at = torch.stack([torch.arange(TOKENS) // 2**a for a in range(axes)], -1)
        call.options = {"q_pos": at, "k_pos": at}
    return call


def expect_disagreement(called: RandomCall, definition: RandomCall, leaves: dict[str, Tensor] | None = None) -> None:
    """The library's result of one call is not what the definition gives for the other."""
    leaves = float64_leaves(definition) if leaves is None else leaves
    got = {"result": library_result(called)}
    with pytest.raises(DisagreementError, match=r"off by .* is allowed"):
        judge(got, lambda r: {"result": definition_result(definition, leaves, r)}, called.dtype)


def expect_agreement(called: RandomCall) -> None:
    """Without a change the same comparison agrees."""
    leaves = float64_leaves(called)
    judge({"result": library_result(called)}, lambda r: {"result": definition_result(called, leaves, r)}, called.dtype)


def changed(called: RandomCall, **options: object) -> RandomCall:
    return replace(called, options={**called.options, **options})


ROPE = Spec("RoPE", {"head_dim": 12, "scaling": None})
ALIBI = Spec("ALiBi", {"num_heads": 2, "slopes": [1.0, 0.5]})
HIDDEN = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
HIDDEN[7, 3] = False
DOCUMENTS = torch.arange(TOKENS) // 6
LATER_DOCUMENT = (torch.arange(TOKENS) + 1) // 6
CHANGES: dict[str, Callable[[RandomCall], RandomCall]] = {
    "a key is dropped": lambda s: changed(s, mask=HIDDEN),
    "no order": lambda s: changed(s, causal=False),
    "a window": lambda s: changed(s, window=TOKENS - 2),
    "the scale": lambda s: changed(s, scale=12**-0.5 * (1.001 if s.dtype in FINE else 1.2)),
    "a document": lambda s: changed(s, segments=LATER_DOCUMENT),
    "a swap of heads": lambda s: replace(s, q=s.q.flip(1)),
    "a value's sign": lambda s: replace(s, v=torch.cat([-s.v[..., :1], s.v[..., 1:]], -1)),
}


@pytest.mark.parametrize("dtype", COARSE, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_call_disagrees(change, dtype):
    called = text_call(ROPE, dtype)
    expect_agreement(called)
    expect_disagreement(called, CHANGES[change](called))


@pytest.mark.parametrize("dtype", COARSE, ids=str)
@pytest.mark.parametrize("spec", [ROPE, ALIBI], ids=str)
def test_a_position_off_by_one_disagrees(spec, dtype):
    """One key of twelve is one token further."""
    at = torch.arange(TOKENS)
    called = changed(text_call(spec, dtype), q_pos=at, k_pos=at.clone())
    moved = at.clone()
    moved[4] += 1
    expect_agreement(called)
    expect_disagreement(called, changed(called, k_pos=moved))


def test_a_far_position_off_by_one_disagrees():
    """At two thousand million tokens too, where float32 counts in steps of 128."""
    at = torch.arange(TOKENS) + 2**31 - 60
    called = changed(text_call(ROPE, torch.float32), q_pos=at, k_pos=at.clone())
    moved = at.clone()
    moved[4] += 1
    expect_agreement(called)
    expect_disagreement(called, changed(called, k_pos=moved))


@pytest.mark.parametrize("dtype", COARSE, ids=str)
def test_the_sign_of_a_slope_disagrees(dtype):
    slopes = [0.25, 0.00390625]
    called = text_call(Spec("ALiBi", {"num_heads": 2, "slopes": slopes}), dtype)
    rotated = Spec("ALiBi", {"num_heads": 2, "slopes": [-slopes[0], slopes[1]]})
    expect_agreement(called)
    expect_disagreement(called, replace(called, specs=[rotated]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_encoding_is_detected(kind):
    """A list without the encoding disagrees with a list that has it; so does one with parameters 1 % larger."""
    axes = AXES.get(kind, 1)
    for seed in range(2):
        spec = Spec(kind, KINDS[kind](Draw(seed), SIZES, axes))
        called = text_call(spec, torch.float64, seed, axes)
        expect_agreement(called)
        expect_disagreement(called, replace(called, specs=[], encodings=[]))
        if called.parameters:
            larger = float64_leaves(called)
            expect_disagreement(called, called, {n: t * 1.01 if n[0].isdigit() else t for n, t in larger.items()})


def test_rounding_moves_results_by_rounding():
    """What is allowed is rounding, not more: of order 1e-13, 1e-5 and 1e-1 for results of order one."""
    for dtype, most in ((torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 0.5)):
        called = text_call(ROPE, dtype)
        expected = definition_result(called, float64_leaves(called), Rounding())
        judge(
            {"result": expected.to(dtype)},
            lambda r, s=called: {"result": definition_result(s, float64_leaves(s), r)},
            dtype,
        )
        off = expected + most * expected.abs().amax()
        with pytest.raises(DisagreementError):
            judge({"result": off}, lambda r, s=called: {"result": definition_result(s, float64_leaves(s), r)}, dtype)
