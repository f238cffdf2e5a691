"""A kernel serves only after it was found right on the card at hand.

At the first eager use of a kind of calls (`Kind`: a kernel, what it is compiled for, dtype and widths) two small ragged
calls of that kind run on the device and, by tiles in float64, on the CPU; results and gradients are compared. The
verdict is kept in the user's cache folder, by device, versions of torch and Triton, and the kernels' own text: a later
process reads it. Where no kernel can run or be read from (a compiler traces, a CUDA graph is captured) and no verdict
is known, the kernel does not serve, and other backends do.

What does not compile, or needs more than the device has with the smallest tile, fails its check like what is wrong: one
warning, and other backends serve. Errors of the CUDA runtime are raised as they are.

    POSENC_KERNELS=check    the default: as above
    POSENC_KERNELS=1        kernels serve without a check
    POSENC_KERNELS=0        kernels serve only where they are asked for by name
"""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.call import AttentionCall
from posenc.dropout import Dropout
from posenc.structure import Counts, Decay, DistanceNetwork, Lookup, Network, Row, Sink, Sticks, Structure
from posenc.tracing import has_transforms, stand_ins

Run = Callable[..., Any]  # one call by a kernel: of an `AttentionCall` for kernels of attention
Results = dict[str, Tensor]  # the result and the gradients of one small call, by name

VARIABLE = "POSENC_KERNELS"
CAPABILITY = (8, 0)  # of the oldest GPUs that the kernels are compiled for: asynchronous copies, bfloat16
MODES = ("check", "0", "1")
# Largest differences, relative to the largest number of a result or gradient.
TOLERANCES = {torch.float32: 5e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2}
# Batch, heads, key heads, queries, keys: several tiles, all ragged.
SIZES = ((2, 4, 2, 150, 200), (1, 2, 1, 257, 257))
FEW_SIZES = ((2, 4, 2, 3, 200), (1, 4, 1, 1, 257))  # of few queries


Size = tuple[int, int, int, int, int]


class Kind(NamedTuple):
    """Calls that one check is for."""

    kernel: str
    flags: tuple[str, ...]  # what acts in them
    dtype: torch.dtype
    width: int
    value_width: int
    training: bool

    def __str__(self) -> str:
        words = (self.kernel, *self.flags, str(self.dtype).removeprefix("torch."), f"{self.width}x{self.value_width}")
        return " ".join((*words, "training" if self.training else "inference"))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def missing(device: torch.device) -> str | None:
    """What a device, or its installation, lacks of what the kernels were made for, or None."""
    return _missing(device)


@functools.cache
def _missing(device: torch.device) -> str | None:
    if device.type != "cuda" or torch.version.hip is not None:
        return "its kernels were made for NVIDIA's GPUs"
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        return "its kernels were made for GPUs of compute capability 8.0 and later"
    return "Triton is not installed" if find_spec("triton") is None else None


ResultsOf = Callable[[Kind, Size, torch.device, Run], tuple[Results, Results]]  # what is right, and what came


def refusal(kind: Kind, device: torch.device, run: Run, results_of: ResultsOf | None = None) -> str | None:
    """Why a kernel should not serve calls of a kind on a device, or None; checks it where that is possible.

    Args:
        kind: of the calls.
        device: a GPU.
        run: what runs such a call by its kernel.
        results_of: what makes small calls of it, by the kernel and by definition; default: of attention.
    """
    mode = os.environ.get(VARIABLE, "check")
    if mode not in MODES:
        raise ValueError(f"{VARIABLE} must be one of {MODES}, got {mode!r}")
    if mode == "0":
        return f"{VARIABLE}=0"
    return None if mode == "1" else _verdict(kind, device, run, results_of)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _verdict(kind: Kind, device: torch.device, run: Run, results_of: ResultsOf | None) -> str | None:
    """What the check of a kind said, or why there was none; None: the kernel is right."""
    known = _verdicts(_folder_key(device))
    if str(kind) not in known:
        if _cannot_check(device):
            return "not checked on this device yet: call attention once outside of compilers, captures and transforms"
        known[str(kind)] = check(kind, device, run, results_of) or ""
        _keep(_folder_key(device), known)
        if known[str(kind)]:
            warnings.warn(
                f"{_said(kind, device, known[str(kind)])}; other backends serve", RuntimeWarning, stacklevel=2
            )
    return _said(kind, device, known[str(kind)]) if known[str(kind)] else None


def _said(kind: Kind, device: torch.device, fault: str) -> str:
    return f"posenc's kernel ({kind}) failed its check on {_name(device)}: {fault}"


def _cannot_check(device: torch.device) -> bool:
    """Whether kernels cannot run here, or numbers cannot be read."""
    if stand_ins() or has_transforms():
        return True
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def check(
    kind: Kind, device: torch.device, run: Run, results_of: ResultsOf | None = None, sizes: Sequence[Size] = ()
) -> str | None:
    """Whether a kernel is right on a device, in calls of these sizes (none: small ones): None, or what is wrong."""
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import TritonError

    try:
        with torch.inference_mode(mode=False), torch.set_grad_enabled(kind.training):
            sizes = sizes or (FEW_SIZES if kind.kernel == "few queries" else SIZES)
            faults = [_difference(kind, (results_of or _of_attention)(kind, size, device, run)) for size in sizes]
    except (TritonError, CompilationError) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    except RuntimeError as error:
        if "PassManager" not in str(error):  # Triton's compiler; all else is the device's own
            raise
        return "its compiler failed"
    return next((fault for fault in faults if fault is not None), None)


def _difference(kind: Kind, results: tuple[Results, Results]) -> str | None:
    """The first difference between what is right and what came that is above the tolerance, in words, or None."""
    rights, gots = results
    for name, right in rights.items():
        got = gots[name]
        tolerance = TOLERANCES[kind.dtype] * max(float(right.abs().max()), 1e-3)
        difference = float((got - right).abs().max()) if bool(got.isfinite().all()) else float("inf")
        if not difference <= tolerance:
            said = "the result" if name == "result" else f"the gradient of {name}"
            return f"{said} is off by {difference:.1e}, allowed are {tolerance:.1e}"
    return None


def _of_attention(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """What tiles in float64 on the CPU and what a kernel makes of a small call, in float64."""
    from posenc.backends import tiles

    results = []
    for backend, at, dtype in ((tiles.run, torch.device("cpu"), torch.float64), (run, device, kind.dtype)):
        call, learned = small_call(kind, size, at, dtype)
        out = backend(call)
        gradients: tuple[Tensor, ...] = ()
        if kind.training:
            target = drawn(out.shape, seed=1).to(kind.dtype)
            gradients = torch.autograd.grad(out, list(learned.values()), target.to(out.device, out.dtype))
        named = zip(("result", *learned), (out, *gradients), strict=False)
        results.append({name: x.detach().cpu().double() for name, x in named})
    return results[0], results[1]


def small_call(
    kind: Kind, size: Size, device: torch.device, dtype: torch.dtype
) -> tuple[AttentionCall, dict[str, Tensor]]:
    """A call of a kind, and what wants gradients in it: the same numbers for all devices and dtypes."""
    batch, heads, kv_heads, queries, keys = size
    learned: dict[str, Tensor] = {}
    seeds = iter(range(2, 100))

    def tensor(name: str, *shape: int, narrow: bool = False) -> Tensor:
        """Numbers that the kind's dtype can hold where kernels get them in it, else float32."""
        numbers = drawn(shape, seed=next(seeds)).to(kind.dtype if narrow else torch.float32)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        made = numbers.to(device, dtype if narrow else wide).requires_grad_(kind.training)
        learned[name] = made
        return made

    q = tensor("q", batch, heads, queries, kind.width, narrow=True)
    k = tensor("k", batch, kv_heads, keys, kind.width, narrow=True)
    v = tensor("v", batch, kv_heads, keys, kind.value_width, narrow=True)
    flags, weight = {kind.kernel, *kind.flags}, None
    structures: list[Structure] = []
    bias: tuple[Any, ...] = ()
    if "row" in flags and batch == 1:  # one of the two calls has a table
        table = tensor("table", heads, 40)
        index = (torch.arange(queries + keys - 1, device=device) - (queries - 1)).abs().clamp(max=39).to(torch.int32)
        bias = (_StandIn(lookup_=Lookup(table, index)),)
    elif "row" in flags:
        structures.append(Row(tensor("row", heads, queries + keys - 1)))
    if "slopes" in flags:
        bias = (*bias, _StandIn(slopes=torch.tensor([0.5 ** (2 * h + 1) for h in range(heads)], device=device)))
    if "network" in flags:
        shapes = {"c": (1,), "multiplier": (1,), "inner": (20,), "inner_bias": (20,), "outer": (heads, 20)}
        c, multiplier, inner, inner_bias, outer = (tensor(name, *shape) for name, shape in shapes.items())
        last = tensor("outer_bias", heads)
        del learned["outer_bias"]  # softmax takes no notice of it: its gradient is rounding
        found = DistanceNetwork(c, multiplier, inner, inner_bias, outer, last, 60.0, 1e-6, 0.01)
        bias = (*bias, _StandIn(network_=found))
    if "gates" in flags:
        structures.append(Decay(torch.nn.functional.logsigmoid(tensor("gates", batch, heads, keys) + 3.0)))
    if "sink" in flags:
        weight = _weight(Sink(tensor("sink", heads)))
    if "sticks" in flags:
        remainder: Any = next(name for name in ("drop", "own", "vector") if name in flags)
        vector = tensor("vector", heads, kind.value_width) if remainder == "vector" else None
        weight = _weight(Sticks("current" in flags, remainder, vector))
    if "counts" in flags:
        gates: list[Tensor | None] = [None, None]
        if "own gates" in flags:
            gates = [
                tensor("queries", batch, heads, queries, kind.width, narrow=True),
                tensor("keys", batch, kv_heads, keys, kind.width, narrow=True),
            ]
        structures.append(Counts(tensor("table", kind.width, 40), kind.width**-0.5, *gates))
    segments = mask = None
    if "documents" in flags:
        k_ids = (torch.arange(keys, device=device) * torch.tensor([[3], [2]], device=device)[:batch]) // keys
        segments = (k_ids[:, keys - queries :], k_ids)
    if "padding" in flags:
        mask = (torch.arange(keys, device=device) % 7 != 3)[None, None, None]
    dropout = None
    if "dropout" in flags:
        dropout = Dropout(0.25, torch.tensor([12345, -999], dtype=torch.int32, device=device))
    call = AttentionCall(
        q, k, v, bias, (), weight, (), None, "causal" in flags, kind.width**-0.5, None, True, mask=mask,
        segments=segments, window=70 if "window" in flags else None, softcap=3.0 if "softcap" in flags else None,
        dropout=dropout, structures=(tuple(structures),),
    )  # fmt: skip
    return call, learned


class _StandIn(NamedTuple):
    """A bias of slopes, of a table by distance or of a network, as backends ask it."""

    slopes: Tensor | None = None
    lookup_: Lookup | None = None
    network_: DistanceNetwork | None = None

    def distance_slopes(self, *, like: Tensor) -> Tensor | None:
        return self.slopes

    def lookup(self, queries: int, keys: int, *, like: Tensor) -> Lookup | None:
        return self.lookup_

    def distance_network(self) -> DistanceNetwork | None:
        return self.network_

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        return None if self.network_ is None else self.network_.of_lengths(queries, keys, like=like)

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """At the distances of a row, in its order."""
        if self.lookup_ is not None:
            return self.lookup_.table[:, self.lookup_.entries.long()]
        return None if self.slopes is None else -distance.abs() * self.slopes.to(torch.float64)[:, None]

    def parameters(self) -> tuple[Tensor, ...]:
        return ()


def _weight(structure: Sink | Sticks) -> Any:
    """What stands in place of softmax, as backends ask it."""
    return SimpleNamespace(structure=lambda: structure)


def drawn(shape: tuple[int, ...] | torch.Size, seed: int) -> Tensor:
    """Normal numbers, the same everywhere, from a generator of their own."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@functools.cache
def _folder_key(device: torch.device) -> str:
    """A name of all that a verdict depends on: the card, the versions, the kernels' text."""
    import triton

    text = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text.update(path.read_bytes())
    told = (_name(device), str(torch.cuda.get_device_capability(device)), torch.__version__, triton.__version__)
    for word in told:
        text.update(word.encode())
    return text.hexdigest()[:24]


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device)


def folder() -> Path:
    """Where verdicts are kept: a folder of the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "posenc" / "kernels"


@functools.cache
def _verdicts(key: str) -> dict[str, str]:
    """What is known under a key, by kind: "" for a kernel that is right, else what is wrong."""
    try:
        kept = json.loads((folder() / f"{key}.json").read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and all(isinstance(word, str) for word in kept.values()) else {}


def _keep(key: str, verdicts: dict[str, str]) -> None:
    """Write what is known; without a folder to write to, the next process checks again."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder(), suffix=".tmp", delete=False) as file:
            json.dump(verdicts, file, indent=1)
        Path(file.name).replace(folder() / f"{key}.json")
    except OSError:
        pass
