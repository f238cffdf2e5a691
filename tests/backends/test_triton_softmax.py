"""The softmax kernels in Triton against the definition in float64, over random calls of every mode.

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

from posenc import ALiBi, ForgetGate, T5Bias
from posenc.backends import dense
from posenc.backends import triton as backend
from posenc.backends.rewrites import rewritten
from posenc.backends.triton import launch
from posenc.backends.triton.launch import Tile
from posenc.bias import FIRE, KERPLE, Sandwich
from posenc.call import AttentionCall, prepare_call, with_structures
from posenc.weight import AttentionSink
from tests.interpreted import DEVICE, HERE, in_the_interpreter
from tests.samples import gap

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
kernels = pytest.mark.skipif(not HERE, reason="runs in the interpreter's own process")
CALLS = int(os.environ.get("POSENC_KERNEL_CALLS", "2000")) if HERE else 0
MODES = ("nothing", "row", "shared row", "slopes", "gates", "two rows", "row and gates", "network")
BOUND = 1e-5  # of float32, relative to the largest entry, or to 1
BOUND_OF_SUMS = 5e-5  # of FIRE's two scalars and its last bias, each a sum of all dS, most of which cancels
ROUNDED = 1e-3  # of float16, for the rounding of a result; what rounding inside makes of it is computed, call by call


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
    call = prepare_call(
        *tensors, encodings, x=x, causal=t["causal"], window=t["window"], softcap=t["softcap"], scale=t["scale"],
        dropout=t["dropout"], mask=mask if t["padding"] else None,
        segments=_documents(k_ids, m) if t["documents"] else None,
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
    """Weights as a product in float16 takes them, relative to the largest of their row; the gradient as it is."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor) -> Tensor:
        largest = weights.amax(-1, keepdim=True).clamp(min=1e-30)
        return (weights / largest).half().to(weights.dtype) * largest

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _GradientRounded(torch.autograd.Function):
    """Products of queries and keys whose gradient is rounded, before it meets queries and keys."""

    @staticmethod
    def forward(ctx: Any, products: Tensor) -> Tensor:
        return products.view_as(products)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.half().to(grad.dtype)


def rounded(call: AttentionCall, exact: Tensor, target: Tensor | None, leaves: list[Tensor]) -> list[Tensor]:
    """The definition in float64 with the roundings of a float16 kernel: the result, and gradients where wanted.

    Weights and dS are rounded for their products, and δ is a product of the rounded result: dS is a · (do·v − δ).
    """
    kept: dict[str, Tensor] = {}

    def weights_of(call: AttentionCall, scores: Tensor, mask: Tensor | None) -> Tensor:
        kept["scores"], kept["weights"] = scores, _weights_of(call, scores, mask)
        return _Rounded.apply(kept["weights"])

    with pytest.MonkeyPatch.context() as patch:
        _weights_of, _softcapped = dense.weights_of, dense.softcapped
        patch.setattr(dense, "weights_of", weights_of)
        patch.setattr(dense, "softcapped", lambda products, cap: _softcapped(_GradientRounded.apply(products), cap))
        out = dense.run(call)
    if target is None:
        return [out]
    lost = ((out.half().double() - exact) * target).sum(-1, keepdim=True)
    loss = (out * target).sum() - (kept["scores"] * (kept["weights"] * lost).detach()).sum()
    if call.sink is not None:
        taken = 1 - kept["weights"].sum(-1, keepdim=True)
        loss = loss - (call.sink[:, None, None] * (taken * lost).detach()).sum()
    return [out, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def bounds(told: dict[str, Any], names: list[str], right: list[Tensor], inexact: list[Tensor]) -> list[float]:
    """How far a kernel may be from what is right: in float16 three times what the roundings of one run make."""
    found = []
    for name, exact, other in zip(names, right, inexact, strict=True):
        largest = max(float(exact.detach().abs().max()), 1.0 if told["dtype"] == torch.float32 else 1e-2)
        narrow = told["dtype"] == torch.float16
        of_rounding = 3 * float((other - exact).abs().max()) + ROUNDED * largest
        bound = BOUND_OF_SUMS if name in ("c", "multiplier", "outer.bias") else BOUND
        found.append(of_rounding if narrow else bound * largest)
    return found


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
        wide, *_ = call_of(told, "cpu", torch.float64)
        call, *_ = call_of(told, DEVICE, told["dtype"])
        assert backend.unsupported(call) is None
        assert backend.kernel_of(with_structures(call)) == "few queries"
        got, right = backend.run(call), dense.run(wide)
        (bound,) = bounds(told, ["out"], [right], rounded(wide, right, None, []))
    assert got.dtype == told["dtype"]
    assert gap(got.cpu().double(), right) <= bound, told


@kernels
@pytest.mark.parametrize("seed", range(CALLS))
def test_equals_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = drawn(seed)
    if DEVICE == "cpu":
        rows, columns = random.Random(seed).choice([(16, 16), (16, 32), (32, 16)])
        monkeypatch.setattr(
            launch, "candidates", lambda name, *args: [Tile(rows, rows if name == "row" else columns, 4, 1)]
        )
    narrow: torch.dtype = told["dtype"]
    wide, right_leaves, names = call_of(told, "cpu", torch.float64)
    out = dense.run(wide)
    target = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(narrow)
    right = [out, *torch.autograd.grad(out, right_leaves, target.double(), retain_graph=True, materialize_grads=True)]
    allowed = bounds(told, ["out", *names], right, rounded(wide, out, target.double(), right_leaves))
    call, leaves, _ = call_of(told, DEVICE, narrow)
    assert backend.unsupported(call) is None
    out = backend.run(call)
    assert out.dtype == narrow
    results = [out, *torch.autograd.grad(out, leaves, target.to(DEVICE), materialize_grads=True)]
    for name, got, expected, bound in zip(["out", *names], results, right, allowed, strict=True):
        assert gap(got.detach().cpu().double(), expected) <= bound, (name, told)


@pytest.mark.parametrize("seed", range(4, 400, 25))
def test_a_fault_of_one_percent_is_above_the_bounds_of_float16(seed: int) -> None:
    told = drawn(seed)
    assert told["dtype"] == torch.float16
    call, leaves, names = call_of(told, "cpu", torch.float64)
    out = dense.run(call)
    target = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).half().double()
    right = [out, *torch.autograd.grad(out, leaves, target, retain_graph=True, materialize_grads=True)]
    allowed = bounds(told, ["out", *names], right, rounded(call, out, target, leaves))
    for name, expected, bound in zip(["out", *names], right, allowed, strict=True):
        largest = float(expected.detach().abs().max())
        cancels = name == "outer.bias"  # a sum over all dS, of which a sink alone leaves anything
        assert bound < 0.01 * largest or largest < 1e-2 or cancels, (name, bound / largest)
