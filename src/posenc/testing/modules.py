"""Modules as PyTorch handles them: casts, empty allocation, state dicts, copies, pickles; gradients of everything."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor, nn

from posenc.backends import Backend
from posenc.encoding import BiasEncoding, Encoding, RotaryEncoding
from posenc.testing.backends import serving
from posenc.testing.cases import EVERYWHERE, Case, Probe, applies_to, tokens_of
from posenc.testing.compare import expect, expect_close, expect_different, expect_same

TOKENS = 20


def result(case: Case, encodings: list[Encoding]) -> Tensor:
    """What the encodings do to a fixed float32 input at positions where roundings would show."""
    x, positions = tokens_of(case, TOKENS, dtype=torch.float32), case.positions(torch.arange(TOKENS) * 3)
    with torch.no_grad():
        out: Tensor = Probe(case, encodings, dtype=torch.float32)(x, positions)
    return out


@applies_to(*EVERYWHERE)
def bfloat16_round_trip(case: Case) -> None:
    """``.to(bfloat16)`` and back rounds parameters and nothing else: with those restored, the result is the same.

    A table of angles or slopes in a buffer fails here, as it does in every model that is served in bfloat16.
    """
    encodings = case.make()
    expected = result(case, encodings)
    for encoding in encodings:
        parameters = {name: p.detach().clone() for name, p in encoding.named_parameters()}
        encoding.to(torch.bfloat16).float()
        encoding.load_state_dict(parameters, strict=False)
    expect_same("after .to(bfloat16).float()", result(case, encodings), expected)


@applies_to(*EVERYWHERE)
def meta_device(case: Case) -> None:
    """Built on the meta device and given empty memory, it needs its parameters and nothing else.

    Large models are built that way; a buffer of frequencies then holds whatever lay in memory.
    """
    normal = case.make()
    with torch.device("meta"):
        empty = case.fresh()
    empty = [spoilt(encoding.to_empty(device="cpu")) for encoding in empty]
    for encoding, source in zip(empty, normal, strict=True):
        encoding.load_state_dict(source.state_dict())
    expect_same("meta → to_empty → load_state_dict", result(case, empty), result(case, normal))


@applies_to(*EVERYWHERE)
def reset_parameters(case: Case) -> None:
    """Each module that owns parameters draws them anew in ``reset_parameters``, as FSDP asks of it."""
    normal, empty = case.fresh(), [spoilt(encoding) for encoding in case.fresh(seed=1)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # as in `Case.fresh`: sizes of a few random numbers must not decide by chance
        for module in (m for encoding in empty for m in encoding.modules()):
            if next(module.parameters(recurse=False), None) is not None:
                reset = getattr(module, "reset_parameters", None)
                expect(callable(reset), f"{type(module).__name__} owns parameters and has no reset_parameters()")
                assert reset is not None
                reset()
    for encoding, source in zip(empty, normal, strict=True):
        for (name, got), original in zip(encoding.named_parameters(), source.parameters(), strict=True):
            expect(bool(got.isfinite().all()), f"{name} is not finite after reset_parameters()")
            spread, usual = (float(p.detach().double().square().mean().sqrt()) for p in (got, original))
            expect(
                spread == usual if usual == 0 else 0.3 < spread / usual < 3,
                f"{name} is of size {spread:.3g} after reset_parameters(), {usual:.3g} after construction",
            )


def spoilt(encoding: Encoding) -> Encoding:
    """The encoding with NaN in all floating parameters and buffers, as empty memory may hold."""
    with torch.no_grad():
        for tensor in (*encoding.parameters(), *encoding.buffers()):
            tensor.fill_(float("nan") if tensor.is_floating_point() else 77)
    return encoding


@applies_to(*EVERYWHERE)
def patched_arange(case: Case) -> None:
    """Built while ``torch.arange`` gives the model's low precision (DeepSpeed), it is the same encoding."""
    arange = torch.arange

    def patched(*args: float, **options: object) -> Tensor:
        return arange(*args).to(torch.bfloat16)

    expected = result(case, case.make())
    with mock.patch.object(torch, "arange", patched):
        encodings = case.make()
    expect_same("built under a patched torch.arange", result(case, encodings), expected)


@applies_to(*EVERYWHERE)
def default_dtype(case: Case) -> None:
    """Built while the default dtype is bfloat16, as loaders of checkpoints do, it is the same encoding."""
    before = torch.get_default_dtype()
    normal = case.make()
    try:
        torch.set_default_dtype(torch.bfloat16)
        encodings = case.fresh()
    finally:
        torch.set_default_dtype(before)
    for encoding, source in zip(encodings, normal, strict=True):
        encoding.float().load_state_dict(source.state_dict())
    expect_same("built under a default dtype of bfloat16", result(case, encodings), result(case, normal))


@applies_to("rotary", "bias", all_of_them=False)
def double_parameters(case: Case) -> None:
    """Parameters in float64 are computed with in float64, though positions are integers, which have no precision."""
    positions = case.positions(torch.arange(9) * 2)
    for encoding in case.make(torch.float64):
        if next(encoding.parameters(), None) is None:
            continue
        if isinstance(encoding, BiasEncoding):
            expect_close("the bias at integers", encoding(positions, positions).double(),
                         encoding(positions.double(), positions.double()))  # fmt: skip
        elif isinstance(encoding, RotaryEncoding) and not encoding.length_dependent:
            expected = encoding.table(positions, like=torch.zeros((), dtype=torch.float64))
            for got, right in zip(encoding.table(positions), expected, strict=True):
                expect_close("the table of integers", got.to(right.dtype), right)


@applies_to(*EVERYWHERE)
def gradients(case: Case) -> None:
    """Gradients of every parameter and of x are right, in float64 against differences, on each backend that serves."""
    x = tokens_of(case, 6, batch=2).requires_grad_()
    only = any(encoding.causal_only for encoding in case.fresh())
    for backend in serving(case):
        for what, causal in (("causal", True),) if only else (("causal", True), ("bidirectional", False)):
            probe = Probe(case, causal=causal, backend=backend)
            names = [name for name, _ in probe.named_parameters()]
            values = [p.detach().clone().requires_grad_() for p in probe.parameters()]
            call = with_parameters(probe, names, case.positions(torch.arange(6)) if case.axes > 1 else None)
            try:
                torch.autograd.gradcheck(call, (x, *values), fast_mode=True, atol=1e-6, rtol=1e-4)
            except RuntimeError as error:
                raise AssertionError(f"backend {backend}, {what}, inputs x, {', '.join(names)}: {error}") from error
            learns(backend, call, x, names, values)


def with_parameters(probe: nn.Module, names: list[str], positions: Tensor | None) -> Callable[..., Tensor]:
    """The probe as a function of x and of its parameters."""

    def call(x: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(probe, dict(zip(names, values, strict=True)), (x, positions))
        return out

    return call


def learns(backend: Backend, call: Callable[..., Tensor], x: Tensor, names: list[str], values: list[Tensor]) -> None:
    """Every parameter gets a gradient, so none is cut off by a detach that finite differences cannot detect."""
    out = call(x, *values)
    total = (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)).sum()
    of_values = torch.autograd.grad(total, values, allow_unused=True) if values else ()
    for name, gradient in zip(names, of_values, strict=True):
        expect(gradient is not None and bool((gradient != 0).any()), f"backend {backend}: {name} gets no gradient")


@applies_to(*EVERYWHERE)
def state_dict_is_parameters(case: Case) -> None:
    """A state dict holds the parameters alone, of sizes that no call changes; modules have no floating buffer."""
    encodings = case.make()
    probe = Probe(case, encodings, dtype=torch.float32)
    before = shapes(encodings)
    for tokens in (3, min(case.max_length, 100)):
        probe(tokens_of(case, tokens, dtype=torch.float32), case.positions(torch.arange(tokens)))
    expect(shapes(encodings) == before, f"after calls the state dict holds {shapes(encodings)}, before {before}")
    for encoding in encodings:
        parameters, state = set(dict(encoding.named_parameters())), set(encoding.state_dict())
        expect(state == parameters, f"the state dict holds {sorted(state)}, the parameters are {sorted(parameters)}")
        bare = [name for name, parameter in encoding.named_parameters() if parameter.ndim == 0]
        expect(not bare, f"parameters {bare} have no axis, by which FSDP2 shards them: make them of size (1,)")
        floating = [name for name, b in encoding.named_buffers() if b.is_floating_point() or b.is_complex()]
        expect(not floating, f"buffers {floating} would be rounded by a cast and lost by to_empty")


def shapes(encodings: list[Encoding]) -> list[dict[str, tuple[int, ...]]]:
    """Names and shapes of the state dicts."""
    return [{name: tuple(t.shape) for name, t in encoding.state_dict().items()} for encoding in encodings]


@applies_to(*EVERYWHERE)
def strict_load(case: Case) -> None:
    """A state dict loads strictly into a new encoding of another initialisation, which then is the same encoding."""
    source, other = case.make(), case.make(seed=5)
    expected = result(case, source)
    if any(True for encoding in source for _ in encoding.parameters()):
        expect_different("before loading", result(case, other), expected)
    for encoding, loaded in zip(other, source, strict=True):
        encoding.load_state_dict(loaded.state_dict(), strict=True)
    expect_same("after loading", result(case, other), expected)


@applies_to(*EVERYWHERE)
def deep_copy(case: Case) -> None:
    """A deep copy, as a moving average of the weights takes, does the same and shares nothing."""
    encodings = case.make()
    expected, copied = result(case, encodings), copy.deepcopy(encodings)
    expect_same("the copy", result(case, copied), expected)
    with torch.no_grad():
        for parameter in (p for encoding in copied for p in encoding.parameters()):
            parameter.zero_()
    expect_same("the original, after its copy was changed", result(case, encodings), expected)


@applies_to(*EVERYWHERE)
def pickled(case: Case) -> None:
    """Pickled and read again, as process launchers do with models, it is the same. Its class must be importable."""
    encodings = case.make()
    again: list[Encoding] = pickle.loads(pickle.dumps(encodings))
    expect_same("read from a pickle", result(case, again), result(case, encodings))


@applies_to(*EVERYWHERE)
def readable(case: Case) -> None:
    """``repr`` shows the class and its sizes on one line, so that printing a model tells what it encodes with."""
    for encoding in case.make():
        text = encoding.extra_repr()
        expect(bool(text) and "\n" not in text, f"extra_repr() of {type(encoding).__name__} is {text!r}")
