"""The kernels of attention in Triton against the definition in float64, over random calls of every mode.

On a GPU they run as they are, else in Triton's interpreter (`tests.interpreted`): a quick test runs a few dozen calls
and a slow one all.
`POSENC_KERNEL_CALLS` says how many.
"""

from __future__ import annotations

import importlib.util
import os
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, ForgetGate, RoPE, T5Bias
from posenc.backends import dense
from posenc.backends import triton as backend
from posenc.backends.rewrites import rewritten
from posenc.backends.triton import launch
from posenc.backends.triton.launch import Tile
from posenc.bias import FIRE, KERPLE, Sandwich
from posenc.call import AttentionCall, prepare_call, with_structures
from posenc.score import CoPE
from posenc.weight import AttentionSink, StickBreaking
from tests.interpreted import DEVICE, HERE, in_the_interpreter
from tests.samples import gap

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
kernels = pytest.mark.skipif(not HERE, reason="runs in the interpreter's own process")
CALLS = int(os.environ.get("POSENC_KERNEL_CALLS", "2000")) if HERE else 0
MODES = ("nothing", "row", "shared row", "slopes", "gates", "two rows", "row and gates", "network")
ALONE = ("sticks", "counts")  # without other terms
BOUND = 1e-5  # of float32, relative to the largest entry, or to 1
ROUNDED = 1e-3  # of float16, alike; what rounding inside makes of a sum is computed, call by call
DRAWS = 8  # of what rounding makes of a sum: one alone may be near 0 by chance
# The largest of them times so much. In the interpreter kernels are off by 1.0 to 1.3 times such a draw in float16, and
# by 2 to 4 in float32, where products are added up in float32 too; root mean squares of ten calls.
SPREAD = {torch.float16: 3, torch.float32: 9}


@pytest.mark.skipif(HERE, reason="the kernels run in this process")
def test_some_in_the_interpreter() -> None:
    in_the_interpreter(__file__, POSENC_KERNEL_CALLS="24")  # three of each mode


@pytest.mark.slow
@pytest.mark.skipif(HERE, reason="the kernels run in this process")
def test_all_in_the_interpreter() -> None:
    in_the_interpreter(__file__, POSENC_KERNEL_CALLS="2000")


def drawn(seed: int) -> dict[str, Any]:
    """What a random call is made of: every mode with every dtype, and each option by itself."""
    of = random.Random(seed)
    mode = MODES[seed % len(MODES)]
    causal = "gates" in mode or of.random() < 0.6
    queries, keys = of.randint(1, 37), of.randint(1, 37)
    if causal:
        queries = min(queries, keys)
    width, value_width = of.choice([(16, 16), (24, 16), (32, 32), (16, 40)])
    if seed % 50 == 0:
        width, value_width = ((64, 64), (80, 80), (128, 64), (192, 128), (256, 256))[seed // 50 % 5]
    heads, kv_heads = of.choice([(1, 1), (2, 1), (2, 2), (4, 2)])
    return {
        "seed": seed, "mode": mode, "causal": causal, "queries": queries, "keys": keys, "width": width,
        "value_width": value_width, "heads": heads, "kv_heads": kv_heads, "batch": of.choice([1, 1, 2]),
        "window": of.randint(1, keys) if of.random() < 0.3 else None, "documents": of.random() < 0.3,
        "padding": of.random() < 0.25, "softcap": of.choice([None, None, 2.0]), "dropout": of.choice([0.0, 0.0, 0.4]),
        "sink": of.random() < 0.3, "scale": of.choice([None, None, 1.0, -0.5]),
        "dtype": torch.float16 if seed % 5 == 4 else torch.float32,
    }  # fmt: skip


def encodings_of(told: dict[str, Any]) -> list[torch.nn.Module]:
    """Encodings of a call, with parameters drawn for its seed."""
    mode, heads, causal = str(told["mode"]), int(told["heads"]), told["causal"]
    generator = torch.manual_seed(int(told["seed"]))
    made: list[torch.nn.Module] = []
    if mode in ("row", "two rows", "row and gates"):
        made.append(T5Bias(heads, num_buckets=8, max_distance=20, bidirectional=not causal))
    if mode == "two rows":
        made += [KERPLE(heads), ALiBi(heads)]
    if mode == "shared row":
        made.append(Sandwich(heads, dim=8))
    if mode == "slopes":
        made.append(ALiBi(heads))
    if mode == "network":
        units, leak = (3, 0.0) if int(told["seed"]) % 3 else (32, 0.1)
        made.append(FIRE(heads, hidden=units, threshold=12.0, leak=leak))
    if "gates" in mode:
        made.append(ForgetGate(6, num_heads=heads))
    if told["sink"]:
        made.append(AttentionSink(heads))
    if mode == "sticks":
        own = {"num_heads": heads, "value_dim": told["value_width"]} if told["remainder"] == "vector" else {}
        made.append(StickBreaking(attend_current=told["current"], remainder=told["remainder"], **own))
    if mode == "counts":
        of_others = {"dim": 6, "num_kv_heads": told["kv_heads"]} if told["gates"] == "separate" else {}
        if told["gates"] == "keys" and told["turned"]:  # counts of content under rotations
            made.append(RoPE(told["width"]))
        options = {"max_position": told["last"], "gates": told["gates"], "scaled": told["scaled"]}
        made.append(CoPE(told["width"], **options, **of_others))
    for module in made:
        for name, parameter in module.named_parameters():
            if not isinstance(module, KERPLE) and name not in ("c", "multiplier"):
                parameter.data = torch.randn(parameter.shape, generator=generator) * (0.3 if "bias" in name else 1.0)
    return made


def call_of(told: dict[str, Any], device: str, dtype: torch.dtype) -> tuple[AttentionCall, list[Tensor], list[str]]:
    """The call on a device in a dtype, and what wants a gradient in it."""
    t = dict(told)
    generator = torch.Generator().manual_seed(1000 + int(t["seed"]))
    b, h, kv, m, n = (int(t[name]) for name in ("batch", "heads", "kv_heads", "queries", "keys"))
    narrow: torch.dtype = t["dtype"]
    shapes = [(b, h, m, t["width"]), (b, kv, n, t["width"]), (b, kv, n, t["value_width"])]
    numbers = [torch.randn(shape, generator=generator).to(narrow) for shape in shapes]
    tensors = [x.to(device, dtype).requires_grad_(torch.is_grad_enabled()) for x in numbers]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    encodings = [module.to(device, wide) for module in encodings_of(told)]
    x = torch.randn(b, n, 6, generator=generator).to(device, wide)
    k_ids = torch.randint(0, 3, (b, n), generator=generator).sort(-1).values.to(device)
    mask = (torch.rand(b, 1, n, generator=generator) < 0.7).to(device)
    states: list[Tensor | None] | None = None
    if t["mode"] == "counts" and t["gates"] == "separate":  # kernels read these keys in the dtype of all others
        made = [e.token_state(x) if isinstance(e, CoPE) else None for e in encodings]
        states = [None if s is None else s + (s.to(narrow).to(wide) - s).detach() for s in made]
    call = prepare_call(
        *tensors, encodings, x=x if states is None else None, token_states=states, causal=t["causal"],
        window=t["window"], softcap=t["softcap"], scale=t["scale"], dropout=t["dropout"],
        mask=mask if t["padding"] else None, segments=_documents(k_ids, m) if t["documents"] else None,
    )  # fmt: skip
    if call.dropout is not None:
        call = call.replace(dropout=call.dropout._replace(seed=torch.tensor([7, -3], dtype=torch.int32, device=device)))
    named = [("q", tensors[0]), ("k", tensors[1]), ("v", tensors[2])]
    named += [(name, p) for module in encodings for name, p in module.named_parameters() if p.requires_grad]
    return rewritten(call), [tensor for _, tensor in named], [name for name, _ in named]


def _documents(k_ids: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    keys = k_ids.shape[1]
    if queries > keys:
        return torch.nn.functional.pad(k_ids, (queries - keys, 0)), k_ids
    return k_ids[:, keys - queries :], k_ids


class _Rounded(torch.autograd.Function):
    """Numbers as products in a dtype take them, times a factor; the gradient as it is."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
        return (numbers * factor).to(dtype).to(numbers.dtype) / factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad, None, None


class _GradientRounded(torch.autograd.Function):
    """Products of queries and keys as float32, whose gradient is rounded before it meets queries and keys."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
        ctx.factor, ctx.dtype = factor, dtype
        return (products * factor).float().double() / factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return (grad * ctx.factor).to(ctx.dtype).to(grad.dtype) / ctx.factor, None, None


def rounded(
    call: AttentionCall, exact: Tensor, target: Tensor | None, leaves: list[Tensor], dtype: torch.dtype, factor: float
) -> list[Tensor]:
    """The definition in float64 with the roundings of a kernel: the result, and gradients where wanted.

    Logits are float32. Weights, relative to the largest of their row, and dS are rounded for their products, and δ is a
    product of the rounded result: dS is a · (do·v − δ). Another factor before rounding is another draw of all of them.
    """
    kept: dict[str, Tensor] = {}

    def weights_of(call: AttentionCall, scores: Tensor, mask: Tensor | None) -> Tensor:
        kept["scores"] = scores
        kept["weights"] = _weights_of(call, _Rounded.apply(scores, torch.tensor(factor), torch.float32), mask)
        largest = kept["weights"].amax(-1, keepdim=True).clamp(min=1e-30)
        return _Rounded.apply(kept["weights"], factor / largest, dtype)

    def softcapped(products: Tensor, cap: float | None) -> Tensor:
        return _softcapped(_GradientRounded.apply(products, factor, dtype), cap)

    with pytest.MonkeyPatch.context() as patch:
        _weights_of, _softcapped = dense.weights_of, dense.softcapped
        patch.setattr(dense, "weights_of", weights_of)
        patch.setattr(dense, "softcapped", softcapped)
        out = dense.run(call)
    if target is None:
        return [out]
    if call.replaces_softmax:  # dS is a difference of sums of a · (do·v), which are float32
        loss = (out * target).sum()
        (of_weights,) = torch.autograd.grad(loss, kept["weights"], retain_graph=True)
        terms = (kept["weights"] * of_weights).detach()
        rounded_terms = _Rounded.apply(terms, torch.tensor(factor), torch.float32)
        loss = loss + (kept["scores"] * (rounded_terms - terms)).sum()
        return [out, *torch.autograd.grad(loss, leaves, retain_graph=True, materialize_grads=True)]
    lost = (((out * factor).to(dtype).double() / factor - exact) * target).sum(-1, keepdim=True)
    loss = (out * target).sum() - (kept["scores"] * (kept["weights"] * lost).detach()).sum()
    if call.sink is not None:
        taken = 1 - kept["weights"].sum(-1, keepdim=True)
        loss = loss - (call.sink[:, None, None] * (taken * lost).detach()).sum()
    return [out, *torch.autograd.grad(loss, leaves, retain_graph=True, materialize_grads=True)]


def bounds(
    told: dict[str, Any], right: list[Tensor], call: AttentionCall, target: Tensor | None, leaves: list[Tensor]
) -> list[float]:
    """How far a kernel may be from what is right: its share of the largest entry, and some of what roundings make.

    They follow from float64: sums most of whose terms cancel keep fewer digits, whoever adds them up.
    """
    dtype: torch.dtype = told["dtype"]
    of_rounding = [0.0] * len(right)
    for draw in range(DRAWS):
        inexact = rounded(call, right[0], target, leaves, dtype, 1 + draw / DRAWS)
        lost = (float((other - exact).detach().abs().max()) for exact, other in zip(right, inexact, strict=True))
        of_rounding = list(map(max, of_rounding, lost))
    return [share + SPREAD[dtype] * y for share, y in zip(shares(dtype, right), of_rounding, strict=True)]


def shares(dtype: torch.dtype, right: list[Tensor]) -> list[float]:
    """How far any sum may be off, whatever it cancels."""
    share, least = (BOUND, 1.0) if dtype == torch.float32 else (ROUNDED, 1e-2)
    return [share * max(float(x.detach().abs().max()), least) for x in right]


def compare(told: dict[str, Any], seed: int) -> None:
    """A call by the kernels and by the definition in float64: results, and where gradients are recorded all of them."""
    narrow: torch.dtype = told["dtype"]
    wide, right_leaves, names = call_of(told, "cpu", torch.float64)
    call, leaves, _ = call_of(told, DEVICE, narrow)
    assert backend.unsupported(call) is None
    if not torch.is_grad_enabled():
        assert backend.kernel_of(with_structures(call)) == "few queries"
    out, got = dense.run(wide), backend.run(call)
    assert got.dtype == narrow
    right, results, target = [out], [got], None
    if torch.is_grad_enabled():
        drawn = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(narrow)
        target = drawn.double()
        right += torch.autograd.grad(out, right_leaves, target, retain_graph=True, materialize_grads=True)
        results += torch.autograd.grad(got, leaves, drawn.to(DEVICE), materialize_grads=True)
    gaps = [gap(one.detach().cpu().double(), exact) for one, exact in zip(results, right, strict=True)]
    if all(off <= share for off, share in zip(gaps, shares(narrow, right), strict=True)):
        return
    allowed = bounds(told, right, wide, target, right_leaves)
    for name, off, bound in zip(["out", *names], gaps, allowed, strict=False):
        assert off <= bound, (name, told)


@kernels
@pytest.mark.parametrize("seed", range(CALLS // 2))
def test_few_queries_equal_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from posenc.backends.triton import decode

    of, told = random.Random(seed), drawn(seed)
    monkeypatch.setattr(decode, "BLOCK", of.choice([16, 32]) if DEVICE == "cpu" else decode.BLOCK)
    monkeypatch.setattr(decode, "_multiprocessors", lambda device: of.choice([1, 8]))
    told |= {"queries": of.choice([1, 1, 2, 5, 16]), "keys": of.randint(1, 150), "dropout": 0.0}
    told["queries"] = min(told["queries"], told["keys"])
    if "gates" in str(told["mode"]):
        told["documents"] = False
    with torch.no_grad():
        compare(told, seed)


@kernels
@pytest.mark.parametrize("seed", range(CALLS))
def test_equals_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = drawn(seed)
    if DEVICE == "cpu":
        rows, columns = random.Random(seed).choice([(16, 16), (16, 32), (32, 16)])
        monkeypatch.setattr(
            launch, "candidates", lambda name, *args: [Tile(rows, rows if name == "row" else columns, 4, 1)]
        )
    compare(told, seed)


@kernels
@pytest.mark.parametrize("seed", range(CALLS // 4))
def test_sticks_and_counts_equal_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both by the kernels of many queries, and few without gradients by parts of the keys."""
    from posenc.backends.triton import decode

    of, told = random.Random(-1 - seed), drawn(seed)
    told |= {
        "mode": of.choice(ALONE), "dropout": 0.0, "sink": False, "softcap": None,
        "queries": min(told["queries"], told["keys"]), "current": of.random() < 0.5,
        "remainder": of.choice(["drop", "own", "vector"]), "gates": of.choice(["keys", "values", "separate"]),
        "last": of.choice([1, 7, 200]), "scaled": of.random() < 0.5, "turned": of.random() < 0.5,
        "width": min(told["width"], launch.WIDEST), "value_width": min(told["value_width"], launch.WIDEST),
    }  # fmt: skip
    if told["mode"] == "sticks":  # small logits and large ones
        told["scale"] = of.choice([None, 1e-4, 5.0])
    elif told["gates"] == "values":  # as wide as the table
        told["value_width"] = told["width"]
    if DEVICE == "cpu":
        monkeypatch.setattr(launch, "TILE", 16)
        monkeypatch.setattr(launch, "ROOM", of.choice([launch.ROOM, 1]))
        monkeypatch.setattr(decode, "BLOCK", of.choice([16, 32]))
    monkeypatch.setattr(decode, "_multiprocessors", lambda device: of.choice([1, 8]))
    compare(told, seed)
    if told["queries"] <= 16:
        with torch.no_grad():
            compare(told, seed)


@pytest.mark.parametrize("seed", range(4, 400, 25))
def test_a_fault_of_a_few_percent_is_above_the_bounds_of_float16(seed: int) -> None:
    """Bounds are less than 1 % of the largest entry, those of KERPLE's single numbers, whose sums cancel, 1.5 %."""
    told = drawn(seed)
    assert told["dtype"] == torch.float16
    call, leaves, names = call_of(told, "cpu", torch.float64)
    out = dense.run(call)
    target = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).half().double()
    right = [out, *torch.autograd.grad(out, leaves, target, retain_graph=True, materialize_grads=True)]
    allowed = bounds(told, right, call, target, leaves)
    for name, expected, bound in zip(["out", *names], right, allowed, strict=True):
        largest = float(expected.detach().abs().max())
        cancels = name == "outer.bias"  # a sum over all dS, of which a sink alone leaves anything
        share = 0.015 if name in ("p", "a") else 0.01
        assert bound < share * largest or largest < 1e-2 or cancels, (name, bound / largest)
