"""Whether posenc computes what it says on the machine at hand, and how long it takes there: ``posenc selftest``.

On an NVIDIA GPU every kernel is checked in each mode and dtype, as `posenc.backends.triton.guard` checks it before it
serves, each in a process of its own; then a few calls are timed, the device's time (a captured graph, replayed) and the
host's (calls that nobody waits for) apart. On a CPU each backend is compared with the definition.

Records are dicts that JSON takes: ``{"kind": "check", …}`` and ``{"kind": "timing", …}``, after one with the versions.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn

from posenc.attend import Explanation, attention, explain_backend
from posenc.backends import BACKENDS
from posenc.backends.triton import check_of
from posenc.backends.triton.guard import Kind, Size, check
from posenc.bias import FIRE, ALiBi, T5Bias
from posenc.rotary import RoPE
from posenc.score import CoPE, ForgetGate
from posenc.weight import AttentionSink, StickBreaking

Record = dict[str, Any]
_attend: Callable[..., Tensor] = attention  # with options from a dict
_explain: Callable[..., Explanation] = explain_backend

WIDTH = 64  # of heads on a CPU
TOLERANCE = 1e-9  # of float64, relative to the largest number
LONG: Size = (1, 2, 1, 4096, 4096)  # of checks in bfloat16 whose sums are as long as those of real texts
ROUNDS = 5  # of a timing, whose median counts
LEAST = 5e-3  # seconds of a round


def records(device: torch.device, *, seconds: float = 180.0, timings: bool = True) -> Iterator[Record]:
    """The versions, then each check, then each timing, as soon as it is there.

    Args:
        device: a CPU or a GPU.
        seconds: after which nothing more is begun, a third of them for timings; what was left out is said in a record.
        timings: whether calls are timed, on a GPU.
    """
    until = time.monotonic() + seconds
    yield versions(device)
    if device.type != "cuda":
        yield from cpu_checks()
        return
    yield from kernel_checks(device, until - seconds / 3 if timings else until)
    if timings:
        yield from call_timings(device, until)


def versions(device: torch.device) -> Record:
    """What ran where."""
    versions: Record = {"kind": "versions", "python": platform.python_version(), "torch": torch.__version__}
    for package in ("posenc", "triton"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    if device.type == "cuda":
        of = torch.cuda.get_device_properties(device)
        return versions | {
            "device": of.name, "capability": f"{of.major}.{of.minor}", "multiprocessors": of.multi_processor_count,
            "shared_memory": getattr(of, "shared_memory_per_block_optin", None), "cuda": torch.version.cuda,
        }  # fmt: skip
    return versions | {"device": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}


def kinds() -> list[tuple[Kind, Size | None]]:
    """Every kernel in each mode and dtype, the most used first; with a size where a check is not the one at use."""
    modes: list[tuple[str, ...]] = [
        ("slopes", "causal"), ("row", "causal"), ("gates", "causal"), ("causal", "window", "documents", "padding"),
        ("network", "causal"), ("row", "gates", "sink", "softcap", "dropout", "causal"), ("row",),
    ]  # fmt: skip
    few: list[tuple[str, ...]] = [
        ("slopes", "causal", "padding"), ("row", "sink", "causal", "window"), ("gates", "causal", "padding"),
        ("network", "causal", "padding"), ("causal", "documents", "softcap"), ("sticks", "own", "causal"),
        ("counts", "own gates", "causal"),
    ]  # fmt: skip
    slots: list[tuple[str, ...]] = [
        ("causal",), ("slopes", "causal"), ("row", "causal"), ("gates", "causal"), ("sticks", "drop", "causal"),
        ("counts", "causal"),
    ]  # fmt: skip
    kinds, layouts = [], ("half", "interleaved")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        kinds += [Kind("rotation", (layout,), dtype, 128, 128, True) for layout in layouts]
        kinds += [
            Kind("append", flags, dtype, 128, 128, False) for flags in ((), ("half", "64 pairs"), ("ring",), ("at",))
        ]
        kinds += [Kind("few queries", (*flags, "padding", "slots"), dtype, 128, 128, False) for flags in slots]
        kinds += [Kind("few queries", flags, dtype, 128, 128, False) for flags in few]
        kinds += [Kind("softmax", flags, dtype, 128, 128, True) for flags in modes]
        kinds += [Kind("softmax", ("row", "causal"), dtype, 64, 64, True)]
        kinds += [Kind("softmax", ("gates", "causal"), dtype, 192, 128, True)]
        kinds += [Kind("sticks", ("own", "causal"), dtype, 128, 128, True)]
        kinds += [Kind("counts", ("causal",), dtype, 128, 128, True)]
        kinds += [Kind("log gates", ("bias",), dtype, 2048, 16, False)]
    kinds += [Kind("rotation table", (), torch.float32, 64, 64, False)]
    kinds += [Kind("kerple row", (kind,), torch.float32, 1, 1, True) for kind in ("log", "power", "bam")]
    long = [Kind("softmax", (flag, "causal"), torch.bfloat16, 128, 128, True) for flag in ("gates", "row")]
    return [*((kind, LONG) for kind in long), *((kind, None) for kind in kinds)]


def kernel_checks(device: torch.device, until: float) -> Iterator[Record]:
    """A record for each kind of calls; a check that ends its process is a fault like any other."""
    workers = max(1, min(8, (os.cpu_count() or 1) // 2))
    context = multiprocessing.get_context("spawn")
    running_before = set(multiprocessing.active_children())
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, max_tasks_per_child=1)
    waiting = {pool.submit(checked, kind, size, str(device)): (kind, size) for kind, size in kinds()}
    try:
        for future, (kind, size) in waiting.items():
            record: Record = {"kind": "check", "what": f"{kind}, {size[4]} keys" if size else str(kind)}
            try:
                fault = future.result(timeout=max(0.0, until - time.monotonic()))
            except concurrent.futures.TimeoutError:
                future.cancel()
                yield record | {"status": "not reached", "fault": None}
                continue
            except BrokenProcessPool:  # and with it all that had not begun
                fault = "its process ended, or the process of another check"
            yield record | {"status": "right" if fault is None else "wrong", "fault": fault}
    finally:  # what still compiles when time is up would be timed along
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - running_before:
            child.terminate()


def checked(kind: Kind, size: Size | None, device: str) -> str | None:
    """What is wrong with a kernel, or None; an error of the device in words, as it ends with this process."""
    try:
        return check(kind, torch.device(device), *check_of(kind), () if size is None else (size,))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def cpu_checks() -> Iterator[Record]:
    """Each backend that serves a call against the definition, results and gradients, in float64."""
    for name, make, options in _cpu_calls():
        right = _results(make, "dense", options)
        for backend in BACKENDS:
            if backend == "dense" or not _serves(make, backend, options):
                continue
            record: Record = {"kind": "check", "what": f"{backend}: {name}"}
            got = _results(make, backend, options)
            worst = max(
                float((a - b).abs().max()) / max(1.0, float(b.abs().max())) for a, b in zip(got, right, strict=True)
            )
            fault = None if worst <= TOLERANCE else f"off by {worst:.1e} of the largest number"
            yield record | {"status": "right" if fault is None else "wrong", "fault": fault}


def _cpu_calls() -> Iterator[tuple[str, Callable[[], list[nn.Module]], dict[str, Any]]]:
    """Names of calls, what makes their encodings, and their options."""
    documents = torch.arange(150)[None] // 60
    encodings: dict[str, Callable[[], list[nn.Module]]] = {
        "no encoding": list, "RoPE": lambda: [RoPE(WIDTH)], "ALiBi": lambda: [ALiBi(4)], "T5": lambda: [T5Bias(4)],
        "FIRE": lambda: [FIRE(4)], "FoX": lambda: [ForgetGate(8, num_heads=4)],
        "CoPE": lambda: [CoPE(WIDTH, max_position=16)], "stick-breaking": lambda: [StickBreaking()],
        "a sink": lambda: [AttentionSink(4)],
    }  # fmt: skip
    for name, make in encodings.items():
        yield name, make, {}
    for name in ("no encoding", "T5", "FoX"):
        yield f"{name}, window and documents", encodings[name], {"window": 40, "segments": documents}


def _call(make: Callable[[], list[nn.Module]]) -> tuple[list[Tensor], list[nn.Module], Tensor]:
    """q, k and v with shared key heads, encodings with the same numbers each time, and the layer's input."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 4, 150, WIDTH), (1, 2, 150, WIDTH), (1, 2, 150, WIDTH))
    qkv = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    encodings = [encoding.double() for encoding in make()]
    for parameter in (p for encoding in encodings for p in encoding.parameters()):
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return qkv, encodings, torch.randn(1, 150, 8, generator=generator, dtype=torch.float64)


def _serves(make: Callable[[], list[nn.Module]], backend: str, options: dict[str, Any]) -> bool:
    """Whether a backend takes a call that asks for it by name."""
    qkv, encodings, x = _call(make)
    try:
        _explain(*qkv, encodings, x=x, backend=backend, **options)
    except ValueError:
        return False
    return True


def _results(make: Callable[[], list[nn.Module]], backend: str, options: dict[str, Any]) -> list[Tensor]:
    """The result and all gradients."""
    qkv, encodings, x = _call(make)
    learned = [*qkv, *(p for encoding in encodings for p in encoding.parameters() if p.requires_grad)]
    out = _attend(*qkv, encodings, x=x, backend=backend, **options)
    target = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad(out, learned, target, materialize_grads=True)]


def call_timings(device: torch.device, until: float) -> Iterator[Record]:
    """Copies and products as ceilings; one query, forward and training under no encoding, ALiBi, T5 and FoX."""
    yield _copy_timing(device)
    yield _product_timing(device)
    makes: dict[str, Callable[[], list[nn.Module]]] = {
        "no encoding": list, "ALiBi": lambda: [ALiBi(16)], "T5": lambda: [T5Bias(16)],
        "FoX": lambda: [ForgetGate(64, num_heads=16)],
    }  # fmt: skip
    cases = [("one query", 1, n) for n in (4096, 32768)] + [("forward", n, n) for n in (4096, 16384)]
    for kind, queries, keys in [*cases, ("training", 4096, 4096)]:
        for name, make in makes.items():
            what = f"{kind}, {keys} keys, {name}"
            if time.monotonic() > until:
                yield {"kind": "timing", "what": what, "status": "not reached"}
                continue
            yield _attention_timing(what, kind, queries, keys, make, device)


def _copy_timing(device: torch.device) -> Record:
    memory = torch.empty(1 << 28, dtype=torch.uint8, device=device)
    return _timed("copy", memory.clone, 0.0, 2.0 * memory.numel())


def _product_timing(device: torch.device) -> Record:
    square = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    return _timed("matrix product", lambda: square @ square, 2.0 * 8192**3, 0.0)


def _attention_timing(
    what: str, kind: str, queries: int, keys: int, make: Callable[[], list[nn.Module]], device: torch.device
) -> Record:
    """One call in bfloat16, with 16 heads of 128 channels, 4 of them keys' in a step."""
    training, kv_heads = kind == "training", 4 if queries == 1 else 16
    shapes = ((1, 16, queries, 128), (1, kv_heads, keys, 128), (1, kv_heads, keys, 128))
    qkv = [torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_(training) for shape in shapes]
    encodings = [encoding.to(device) for encoding in make()]
    states = [
        e.token_state(torch.randn(1, keys, 64, device=device)).detach() if isinstance(e, ForgetGate) else None  # type: ignore[union-attr]
        for e in encodings
    ]
    learned = [
        *qkv,
        *(p for e in encodings for p in e.parameters() if p.requires_grad and not isinstance(e, ForgetGate)),
    ]

    def run() -> object:
        with torch.set_grad_enabled(training):
            out = _attend(*qkv, encodings, token_states=states)
        return torch.autograd.grad(out, learned, torch.ones_like(out)) if training else out

    pairs = queries * keys / (1 if queries == 1 else 2)
    flops = 4.0 * 16 * pairs * 128 * (3.5 if training else 1.0)
    moved = 2.0 * sum(x.numel() for x in qkv)
    record = _timed(what, run, flops, moved)
    with torch.set_grad_enabled(training):
        return record | {"backend": _explain(*qkv, encodings, token_states=states).backend}


def _timed(what: str, run: Callable[[], object], flops: float, moved: float) -> Record:
    """The seconds of a call, the device's and the host's, and what the device achieves."""
    record: Record = {"kind": "timing", "what": what}
    try:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        device_seconds, way = _device_seconds(run)
        host_seconds = _host_seconds(run)
    except Exception as error:  # one case less, and the others go on
        return record | {"status": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    achieved = {"flops_per_second": flops / device_seconds} if flops else {}
    achieved |= {"bytes_per_second": moved / device_seconds} if moved else {}
    return record | {
        "status": "timed", "device_seconds": device_seconds, "by": way, "host_seconds": host_seconds, **achieved
    }  # fmt: skip


def _device_seconds(run: Callable[[], object]) -> tuple[float, str]:
    """Of a captured graph that is replayed; where a call cannot be captured, of calls one after another."""
    replay, way = run, "calls"
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
        replay, way = graph.replay, "graph"
    except RuntimeError:
        torch.cuda.synchronize()

    def once(repeats: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(repeats):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repeats

    repeats = max(1, min(200, round(LEAST / max(once(2), 1e-6))))
    seconds = statistics.median(once(repeats) for _ in range(ROUNDS))
    if seconds <= 0:
        raise RuntimeError("no time passed on the device")
    return seconds, way


def _host_seconds(run: Callable[[], object]) -> float:
    """Until a call returns, without waiting for the device."""
    taken = []
    for _ in range(20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    return statistics.median(taken)
