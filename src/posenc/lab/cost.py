"""``posenc cost``: what encodings and scalings cost one layer of attention, in milliseconds and in bytes of cache.

encoding    what is computed before attention: the rotation of queries and keys with its table, or what is added to
            tokens. A bias, a score or a weight is part of attention, so its time is there
attention   the call of `posenc.attention` without that
total       both; × NoPE is the total relative to the same call without encodings
training    total, forward and backward
decoding    one query after all tokens, with the rotations of a step
cache       bytes a token that a layer's key/value cache keeps: keys, values, and what scores read of a token

Projections are left out, being the same for all. Rounds are interleaved and their order alternates, so that load hits
all alike; a number is the median. On one processor thread it is the thread's own time, which other programs do not add
to. A scaling (yarn, clex, longrope, …) is RoPE with it, for a model that was trained at a quarter of the length.
"""

from __future__ import annotations

import os
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posenc.attend import attention, explain_backend
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, ScoreEncoding
from posenc.lab.cli_options import add_classes_from, from_one
from posenc.lab.console import plain_console, stoppable
from posenc.lab.files import write_atomically, write_json
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.report.tables import TextTable, markdown, terminal
from posenc.lab.run.machine import describe_machine, describe_versions, device_of
from posenc.lab.specs import Shape, build_encodings, encoding_names, entry_of, is_schedule, plugin_names
from posenc.layers import KVCache, SelfAttention
from posenc_cli.parsing import Parser

FORMAT = "posenc-cost/3"
NOPE = "nope"
DEFAULT = (
    "sinusoidal", "learned", "rope", "xpos", "yarn", "longrope", "clex", "alibi", "t5", "fire", "cope", "fox",
    "stick-breaking",
)  # fmt: skip
SHARE = 4  # a scaled model was trained at so small a part of the length
CACHED = 32  # tokens that the bytes of a cache are counted on
MEASURES = ("encoding", "attention", "total", "training", "decoding")
HEADS = ("method", "encoding, ms", "attention, ms", "total, ms", "× NoPE", "training, ms", "× NoPE", "decoding, ms",
         "× NoPE", "cache, bytes a token", "own parameters", "backend")  # fmt: skip


@dataclass(frozen=True)
class Conditions:
    """What decides a cost, apart from the machine."""

    batch: int
    length: int  # tokens
    heads: int
    kv_heads: int
    head_dim: int
    device: str
    dtype: torch.dtype
    rounds: int


def cost_options(parser: Parser) -> None:
    """The options of ``posenc cost``."""
    add = parser.add_argument
    text = "a name, a mix like rope+alibi, or a scaling like yarn (default: thirteen methods)"
    add("encodings", nargs="*", metavar="ENCODING", help=text)
    for name, default, text in (
        ("--length", 4096, "tokens"), ("--batch", 1, "sequences in a batch"), ("--heads", 8, "attention heads"),
        ("--head-dim", 64, "channels of a head"), ("--threads", 1, "processor threads"),
        ("--rounds", 7, "rounds that medians are taken over"),
    ):  # fmt: skip
        add(name, type=from_one, default=default, help=f"{text} (default: %(default)s)")
    add("--kv-heads", type=from_one, help="heads of keys and values (default: as many)")
    add("--device", default="auto", help="auto, cpu, cuda or mps (default: %(default)s)")
    precisions = ("float32", "bfloat16", "float16")
    add("--precision", choices=precisions, default="float32", help="default: %(default)s")
    add_classes_from(parser)
    add("--out", type=Path, metavar="FOLDER", help="for cost.json and cost.md (default: print only)")


def cost_command(o: Namespace, command: str) -> None:
    """Measure what encodings and scalings cost: milliseconds of encoding, attention and in total, and cache bytes.

    One layer without its projections, all methods in interleaved rounds in one process.
    """
    if o.heads % (o.kv_heads or o.heads):
        raise ValueError(f"--kv-heads {o.kv_heads}: --heads {o.heads} must be a multiple of it")
    conditions = Conditions(
        o.batch, o.length, o.heads, o.kv_heads or o.heads, o.head_dim, device_of(o.device), getattr(torch, o.precision),
        o.rounds,
    )  # fmt: skip
    names, console = list(o.encodings or DEFAULT), plain_console()
    with allow_imports(ImportAllowlist(frozenset(plugin_names(names)), o.classes_from)), stoppable(command):
        before = torch.get_num_threads()
        torch.set_num_threads(o.threads)
        try:
            with console.status(f"Measuring {len(names)} methods at {o.length:,} tokens …"):
                costs = measure(names, conditions)
        finally:
            torch.set_num_threads(before)
    words = {**vars(conditions), "dtype": o.precision, "threads": o.threads}
    console.print(terminal(table_of(costs)))
    console.print(SENTENCE.format(**words), style="dim")
    if o.out is not None:
        record = {
            "format": FORMAT, "conditions": words, "costs": costs,
            "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else [], "versions": describe_versions(),
            "machine": describe_machine(conditions.device), "command": command,
        }  # fmt: skip
        o.out.mkdir(parents=True, exist_ok=True)
        write_json(o.out / "cost.json", record)
        write_atomically(o.out / "cost.md", page(record).encode())
        console.print(f"\nWritten to {o.out}: cost.json, cost.md")


class Layer:
    """One layer's calls under the encodings of a method, without projections.

    Args:
        name: a mix of encodings, or a scaling.
        conditions: sizes.
    """

    def __init__(self, name: str, conditions: Conditions) -> None:
        c = self.conditions = conditions
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.encodings = [encoding.to(c.device) for encoding in encodings_of(name, c)]
        self.embedding = [e for e in self.encodings if isinstance(e, EmbeddingEncoding)]
        self.rotary = [e for e in self.encodings if isinstance(e, RotaryEncoding)]
        self.inside = [e for e in self.encodings if not isinstance(e, EmbeddingEncoding | RotaryEncoding)]
        if any(isinstance(e, ScoreEncoding) and e.reads.unrotated for e in self.inside):  # it takes part in scores
            self.inside, self.rotary = [*self.rotary, *self.inside], []
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(1))
        self.x = draw(c.batch, c.length, c.heads * c.head_dim).to(c.device, c.dtype)
        self.q, self.k, self.v = (
            draw(c.batch, heads, c.length, c.head_dim).to(c.device, c.dtype)
            for heads in (c.heads, c.kv_heads, c.kv_heads)
        )
        self.positions = torch.arange(c.length, device=c.device)

    def encode(self, q: Tensor, k: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is computed before attention."""
        for embedding in self.embedding:
            x = embedding(x, self.positions)
        for rotary in self.rotary:
            span = (self.conditions.length,) if rotary.length_dependent else ()
            q, k = nn.Module.__call__(rotary, q, k, self.positions, self.positions, *span)
        return q, k

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention with what is left."""
        states = [e.token_state(self.x) if isinstance(e, ScoreEncoding) else None for e in self.inside]
        return attention(q, k, v, self.inside, token_states=states)

    def total(self) -> Tensor:
        """Both."""
        return self.attend(*self.encode(self.q, self.k, self.x), self.v)

    def learn(self) -> tuple[Tensor | None, ...]:
        """Both with the backward pass."""
        q, k, v = (tensor.detach().requires_grad_() for tensor in (self.q, self.k, self.v))
        x = self.x.detach().requires_grad_() if self.embedding else self.x
        out = self.attend(*self.encode(q, k, x), v)
        learned = [p for e in self.encodings for p in e.parameters() if p.requires_grad]
        gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
            out.float().square().mean(), [q, k, v, *learned], allow_unused=True
        )
        return gradients

    def decode(self) -> Callable[[], Tensor]:
        """A step: the newest query and its key are rotated, and the query attends to all keys.

        Where a rotation depends on more than a token's position, keys are cached as they were projected, and each step
        rotates all of them.
        """
        last, fixed = self.positions[-1:], all(rotary.cacheable() for rotary in self.rotary)
        left = self.inside if fixed else [*self.rotary, *self.inside]
        states = [e.token_state(self.x) if isinstance(e, ScoreEncoding) else None for e in left]
        k = self.encode(self.q, self.k, self.x)[1] if fixed else self.k
        q = self.q[:, :, -1:].contiguous()

        def step() -> Tensor:
            for embedding in self.embedding:
                embedding(self.x[:, -1:], last)
            rotated = q
            for rotary in self.rotary if fixed else ():
                rotated, _ = nn.Module.__call__(rotary, rotated, self.k[:, :, -1:], last, last)
            return attention(rotated, k, self.v, left, token_states=states, q_pos=last, k_pos=self.positions)

        return step

    def cache_bytes(self) -> float:
        """Bytes a token that the cache of a layer with these encodings keeps."""
        c, dim = self.conditions, self.conditions.heads * self.conditions.head_dim
        acting = [e for e in self.encodings if not isinstance(e, EmbeddingEncoding)]
        layer = SelfAttention(dim, c.heads, num_kv_heads=c.kv_heads, encodings=acting).to(c.device, c.dtype)
        cache = KVCache()
        with torch.inference_mode():
            layer(self.x[:1, :CACHED].contiguous(), cache=cache)
        tensors = [cache.k, cache.v, *cache.token_states]
        tokens = min(CACHED, c.length)
        return sum(t.numel() * t.element_size() for t in tensors if t is not None) / tokens

    def backend(self) -> str:
        """The path of attention."""
        states = [e.token_state(self.x) if isinstance(e, ScoreEncoding) else None for e in self.inside]
        return explain_backend(self.q, self.k, self.v, self.inside, token_states=states).backend


def encodings_of(name: str, c: Conditions) -> list[Encoding]:
    """The encodings of a mix; what extends a context acts on a model that was trained at a `SHARE` of the length."""
    if is_schedule(name):
        raise ValueError(f"{name}: one layer is measured here, which has no window and no other kinds of layers")
    options = dict[str, dict[str, object]]()
    for entry in map(entry_of, encoding_names(name)):
        options[entry.name] = {"num_kv_heads": c.kv_heads}
        if entry.extends_context:
            options[entry.name]["train_length"] = max(1, c.length // SHARE)
    built = build_encodings(name, Shape(c.heads * c.head_dim, c.heads, 1, c.length, options))
    return [*built.embedding, *built.attention[0]]


def measure(names: Sequence[str], conditions: Conditions) -> dict[str, dict[str, Any]]:
    """The costs of methods by name, NoPE first: milliseconds, ratios, bytes, parameters and the path of attention.

    Raises:
        ValueError: for an unknown name, and for one that a layer alone cannot have.
    """
    layers = {name: Layer(name, conditions) for name in dict.fromkeys([NOPE, *names])}
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    with torch.no_grad():
        for name, layer in layers.items():
            q, k = layer.encode(layer.q, layer.k, layer.x)
            calls[name, "encoding"] = partial(layer.encode, layer.q, layer.k, layer.x)
            calls[name, "attention"] = partial(layer.attend, q, k, layer.v)
            calls[name, "total"], calls[name, "training"] = layer.total, layer.learn
            calls[name, "decoding"] = layer.decode()
    taken = _interleaved(calls, conditions)
    costs = dict[str, dict[str, Any]]()
    for name, layer in layers.items():
        times = {what: 1000 * statistics.median(taken[name, what]) for what in MEASURES}
        times["encoding"] = times["encoding"] if layer.embedding or layer.rotary else 0.0
        base = costs.get(NOPE, times)
        costs[name] = {
            **{what: _digits(times[what]) for what in MEASURES},
            **{f"{what}_over_nope": _digits(times[what] / base[what]) for what in MEASURES[2:]},
            "cache_bytes_per_token": layer.cache_bytes(),
            "parameters": sum(p.numel() for e in layer.encodings for p in e.parameters()),
            "backend": layer.backend(),
        }
    return costs


def _interleaved(
    calls: dict[tuple[str, str], Callable[[], object]], conditions: Conditions
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each call in each round; the first round is not counted."""
    clock = time.thread_time if conditions.device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    device = torch.device(conditions.device)
    taken: dict[tuple[str, str], list[float]] = {name: [] for name in calls}
    for turn in range(conditions.rounds + 1):
        for name in reversed(calls) if turn % 2 else calls:
            with torch.set_grad_enabled(name[1] == "training"):
                repeats = 1 if turn == 0 else _repeats(taken[name])
                _wait(device)
                start = clock()
                for _ in range(repeats):
                    calls[name]()
                _wait(device)
                taken[name].append((clock() - start) / repeats)
    return {name: times[1:] for name, times in taken.items()}


def _repeats(times: list[float]) -> int:
    """How often a call is made in one timing: short ones so often that no clock and no cold cache decides."""
    return min(64, max(1, round(2e-3 / max(times[-1], 1e-9))))


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def table_of(costs: dict[str, dict[str, Any]]) -> TextTable:
    """The costs as cells."""
    lines = []
    for name, c in costs.items():
        times = [f"{c['encoding']:.3g}" if c["encoding"] else "–", f"{c['attention']:.4g}"]
        for what in MEASURES[2:]:
            times += [f"{c[what]:.4g}", f"{c[f'{what}_over_nope']:.2f}"]
        bytes_ = f"{c['cache_bytes_per_token']:,.0f}"
        lines.append([name, *times, bytes_, f"{c['parameters']:,}", c["backend"]])
    return TextTable(HEADS, lines)


SENTENCE = (
    "One layer without its projections, batch {batch}, {length:,} tokens, {heads} heads of {head_dim} channels, "
    "{dtype} on {device}; medians of {rounds} interleaved rounds. A bias, a score or a weight is part of attention."
)


def page(record: dict[str, Any]) -> str:
    """cost.md: the table, and what it was measured with."""
    facts = {**record["conditions"], **record["machine"], **record["versions"]}
    load = ", ".join(f"{value:.1f}" for value in record["load"])
    return "\n\n".join([
        "# What encodings cost one layer of attention", SENTENCE.format(**record["conditions"]),
        markdown(table_of(record["costs"])), f"Command:\n\n    {record['command']}",
        "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        + (f"; load of the machine at the end {load}" if load else "") + ".",
    ]) + "\n"  # fmt: skip
