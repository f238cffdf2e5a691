"""What `dry_run.py` calls: rotation, attention and layers' steps, in the sizes of a model of 32 heads of 128.

A row is made in a process of its own, whose device is the null device. What control flow reads of the device's memory
must be written there by hand (`write`), as no kernel does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from work import least

from posenc import ALiBi, ForgetGate, RoPE, ScoreEncoding, T5Bias, attention
from posenc.bias import FIRE, KERPLE, Sandwich
from posenc.layers import KVCache, SelfAttention
from posenc.positions import from_cu_seqlens, segments_from_cu_seqlens
from posenc.positions.checking import default_positions
from posenc.score import CoPE
from posenc.weight import StickBreaking

Run = Callable[[], object]

HEADS, KEYS = 16, 4096
EDGES = (0, 700, 1900, 1937, 3000, KEYS)  # of the documents of a packed row
LAYER_HEADS, LAYER_KV, WIDTH, CAPACITY = 32, 8, 128, 8192
ENCODINGS = ("NoPE", "RoPE", "ALiBi", "T5", "KERPLE", "Sandwich", "FIRE", "FoX", "stick-breaking", "CoPE")
STEPS = ("NoPE", "RoPE", "ALiBi", "T5", "FIRE", "FoX", "stick-breaking", "CoPE")


class Row(NamedTuple):
    """What makes a call, the SDPA call that its host time is compared with, whether a CUDA graph is tried."""

    make: Callable[[], Run]
    peer: Callable[[], Run] | None = None
    graph: bool = False
    least: tuple[int, int] | None = None  # bytes and FLOPs, where they are known


class Setting(NamedTuple):
    """How a call of attention differs from the plain one."""

    batch: int = 1
    kv_heads: int = HEADS
    width: int = WIDTH
    dtype: torch.dtype = torch.bfloat16
    window: int | None = None
    packed: bool = False
    placed: bool = False  # positions given, of each document from 0 on
    padded: bool = False
    autocast: bool = False
    checkpointed: bool = False


SETTINGS = {
    "shared key heads": Setting(kv_heads=4), "packed": Setting(packed=True), "padded": Setting(batch=4, padded=True),
    "batch 4": Setting(batch=4), "width 64": Setting(width=64), "window": Setting(window=1024),
    "float16": Setting(dtype=torch.float16), "autocast": Setting(dtype=torch.float32, autocast=True),
    "activation checkpointing": Setting(checkpointed=True),
}  # fmt: skip
DEFAULT = Setting()


def rows() -> dict[str, Row]:
    """All rows by name."""
    by_name: dict[str, Row] = {}
    for layout in ("half", "interleaved"):
        for way in ("eager", "compiled"):
            by_name[f"rotation, {way}, {layout}"] = Row(partial(rotation, way, layout), graph=way == "eager")
    for kind in ("one query", "forward", "training"):
        for name in ENCODINGS:
            by_name[f"{kind}, {name}"] = attention_row(kind, name, DEFAULT)
    for difference, setting in SETTINGS.items():
        for kind in ("forward", "training"):
            for name in ("NoPE", "RoPE", "ALiBi"):
                if kind == "training" or not setting.checkpointed:
                    by_name[f"{kind}, {name}, {difference}"] = attention_row(kind, name, setting)
    placed = Setting(packed=True, placed=True)
    by_name["forward, ALiBi, packed, given positions"] = attention_row("forward", "ALiBi", placed)
    for name in ("NoPE", "ALiBi"):
        by_name[f"one query, {name}, growing"] = Row(partial(growing, name), partial(sdpa, "one query", DEFAULT))
    for name in STEPS:
        by_name[f"step, KVCache, {name}"] = Row(partial(step, name, "KVCache"))
        by_name[f"step, StaticKVCache, {name}"] = Row(partial(step, name, "StaticKVCache"), graph=True)
    for name in ("NoPE", "RoPE", "ALiBi", "FoX"):
        for way in ("compiled", "compiled, dynamic"):
            by_name[f"step, {way}, {name}"] = Row(partial(step, name, way), graph=True)
    by_name["kinds in one process"] = Row(kinds)
    return by_name


def attention_row(kind: str, name: str, setting: Setting) -> Row:
    some, queries = None, 1 if kind == "one query" else KEYS
    if setting == DEFAULT:
        some = least(HEADS, queries, KEYS, WIDTH, kind == "training")
    return Row(partial(attention_call, name, kind, setting), partial(sdpa, kind, setting), kind != "training", some)


# Encodings and tensors ------------------------------------------------------------------------------------------------


def encoding(name: str, heads: int, dim: int, width: int = WIDTH) -> list[nn.Module]:
    """The encodings of a name, on the device."""
    constructors: dict[str, Callable[[], list[nn.Module]]] = {
        "NoPE": list, "RoPE": lambda: [RoPE(width)], "ALiBi": lambda: [ALiBi(heads)],
        "T5": lambda: [T5Bias(heads)], "KERPLE": lambda: [KERPLE(heads)], "Sandwich": lambda: [Sandwich(heads)],
        "FIRE": lambda: [FIRE(heads)], "FoX": lambda: [ForgetGate(dim, num_heads=heads)],
        "stick-breaking": lambda: [StickBreaking()], "CoPE": lambda: [CoPE(width, max_position=64)],
    }  # fmt: skip
    return [module.to("cuda") for module in constructors[name]()]


def zeros(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> Tensor:
    return torch.zeros(shape, device="cuda", dtype=dtype).requires_grad_(grad)


def inputs(queries: int, setting: Setting, grad: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and the layer's input."""
    tensor = partial(zeros, dtype=setting.dtype, grad=grad)
    q = tensor(setting.batch, HEADS, queries, setting.width)
    k, v = (tensor(setting.batch, setting.kv_heads, KEYS, setting.width) for _ in "kv")
    return q, k, v, tensor(setting.batch, KEYS, HEADS * setting.width)


def write(tensor: Tensor, value: int) -> None:
    """Put a number into a tensor of int64 on the null device, where no kernel would."""
    assert tensor.is_contiguous()
    assert tensor.dtype == torch.int64
    for i in range(tensor.numel()):
        ctypes.c_int64.from_address(tensor.data_ptr() + 8 * i).value = value


def without_gradients(run: Run) -> Run:
    def call() -> object:
        with torch.no_grad():
            return run()

    return call


# Calls ----------------------------------------------------------------------------------------------------------------


def rotation(way: str, layout: Any) -> Run:
    """Queries and keys of four sequences of 2,048 tokens, which lie with their heads next to each other.

    Eager ones are at the positions that calls without any take, so that the table is there from the call before.
    """
    q, k = (zeros(4, 2048, LAYER_HEADS, WIDTH).transpose(1, 2) for _ in "qk")
    rope, where = RoPE(WIDTH, layout=layout), default_positions(2048, torch.device("cuda"))
    call: Callable[..., object] = rope
    if way == "compiled":
        call = torch.compile(lambda q, k, where: rope(q, k, where, where), dynamic=False)
        return without_gradients(lambda: call(q, k, where))
    return without_gradients(lambda: call(q, k, where, where))


def attention_call(name: str, kind: str, setting: Setting) -> Run:
    """One call of `attention`, and its gradients where the kind is training."""
    training = kind == "training"
    q, k, v, x = inputs(1 if kind == "one query" else KEYS, setting, training)
    encodings = encoding(name, HEADS, HEADS * setting.width, setting.width)
    reads = any(
        isinstance(e, ScoreEncoding) and type(e).token_state is not ScoreEncoding.token_state for e in encodings
    )
    options: dict[str, Any] = {"window": setting.window}
    if reads and kind == "one query":  # as a cache would hand it over
        with torch.no_grad():
            options["token_states"] = [e.token_state(x) if isinstance(e, ScoreEncoding) else None for e in encodings]
    elif reads:
        options["x"] = x
    if setting.packed:
        options["segments"] = segments_from_cu_seqlens(torch.tensor(EDGES).cuda())
    if setting.placed:
        options["q_pos"] = options["k_pos"] = from_cu_seqlens(torch.tensor(EDGES).cuda())
    if setting.padded:
        options["mask"] = torch.ones(setting.batch, 1, KEYS, device="cuda", dtype=torch.bool)

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=setting.autocast):
            return attention(q, k, v, encodings, **options)

    if not training:
        return without_gradients(lambda: forward(q, k, v))
    leaves = [q, k, v, *([x] if reads else []), *(p for e in encodings for p in e.parameters())]
    grad = torch.zeros_like(q)

    def step() -> object:
        out = checkpoint(forward, q, k, v, use_reentrant=False) if setting.checkpointed else forward(q, k, v)
        return torch.autograd.grad(out, leaves, grad.to(out.dtype), allow_unused=True)

    return step


def sdpa(kind: str, setting: Setting) -> Run:
    """PyTorch's own attention in the same sizes, without any encoding."""
    q, k, v, _ = inputs(1 if kind == "one query" else KEYS, setting, kind == "training")
    call = partial(F.scaled_dot_product_attention, is_causal=kind != "one query", enable_gqa=setting.kv_heads != HEADS)
    if setting.checkpointed:
        call = partial(checkpoint, call, use_reentrant=False)
    if kind == "training":
        grad = torch.zeros_like(q)
        return lambda: torch.autograd.grad(call(q, k, v), [q, k, v], grad)
    return without_gradients(lambda: call(q, k, v))


def growing(name: str) -> Run:
    """One query a call, each over one key more than the last: what a plan or a compiled form by length costs."""
    q, k, v, _ = inputs(1, DEFAULT, grad=False)
    encodings = encoding(name, HEADS, HEADS * WIDTH)

    def lengths() -> Iterator[int]:
        while True:
            yield from range(KEYS // 2, KEYS)

    turns = lengths()

    def run() -> object:
        n = next(turns)
        return attention(q, k[:, :, :n], v[:, :, :n], encodings)

    return without_gradients(run)


def step(name: str, way: str) -> Run:
    """One token of a layer of 32 query and 8 key heads, after 4,096 others."""
    dim = LAYER_HEADS * WIDTH
    encodings = encoding(name, LAYER_HEADS, dim)
    layer = SelfAttention(dim, LAYER_HEADS, num_kv_heads=LAYER_KV, encodings=encodings).to("cuda", torch.bfloat16)
    layer.eval()
    x = zeros(1, 1, dim)
    if way == "KVCache":
        cache = KVCache()
        with torch.no_grad():
            layer(zeros(1, KEYS, dim), cache=cache)
        return without_gradients(lambda: layer(x, cache=cache))
    static = layer.static_cache(1, CAPACITY)
    call: Callable[..., object] = layer
    if way.startswith("compiled"):
        call = torch.compile(layer, fullgraph=True, dynamic="dynamic" in way)

    def run() -> object:
        write(static.seen, KEYS)
        write(static.count, KEYS)
        with torch.no_grad():
            return call(x, cache=static)

    return run


def kinds() -> Run:
    """One process that meets three encodings, two lengths, a window and two dtypes; the last call is the row."""
    lists = [encoding(name, HEADS, HEADS * WIDTH) for name in ("ALiBi", "T5", "FIRE")]
    calls = [
        (encodings, length, window, dtype)
        for encodings in lists
        for dtype in (torch.bfloat16, torch.float16)
        for length in (256, 384)
        for window in (None, 64)
    ]

    def call(encodings: list[nn.Module], length: int, window: int | None, dtype: torch.dtype) -> object:
        q, k, v = (zeros(1, HEADS, length, WIDTH, dtype=dtype) for _ in "qkv")
        return attention(q, k, v, encodings, window=window)

    with torch.no_grad():
        for each in calls:
            call(*each)
    return without_gradients(lambda: call(*calls[-1]))
