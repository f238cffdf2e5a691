"""torch.compile and torch.export: one graph for all lengths, with the values of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from posenc.encoding import BiasEncoding, EmbeddingEncoding, RotaryEncoding
from posenc.testing.cases import EVERYWHERE, Case, Probe, applies_to, spread, tokens_of
from posenc.testing.compare import expect, expect_close

LENGTHS = (5, 8, 11, 16, 21, 27, 33, 40, 52, 64)


def lengths_of(case: Case) -> list[int]:
    """Growing lengths that the case's table, if any, can serve."""
    return [length for length in LENGTHS if length <= case.max_length]


def positions_of(case: Case, length: int) -> Tensor | None:
    """None where attention can count by itself, so that the paths for plain rows are compiled."""
    return case.positions(torch.arange(length)) if case.axes > 1 else None


@applies_to(*EVERYWHERE)
def compiles_once(case: Case) -> None:
    """Ten growing lengths make at most two graphs under ``fullgraph=True``: one for the first, one for all lengths."""
    for what, explicit in (("counted", False), ("given", True)):
        graphs = compiled_graphs(case, f"positions {what}", explicit or case.axes > 1)
        expect(graphs <= 2, f"positions {what}: {graphs} graphs for {len(lengths_of(case))} lengths")


def compiled_graphs(case: Case, what: str, explicit: bool) -> int:
    """How many graphs a tracing backend receives; the compiled values equal the eager ones."""
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    probe = Probe(case, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(probe, fullgraph=True, dynamic=None, backend=count)
    with torch.no_grad():
        for length in lengths_of(case):
            x = tokens_of(case, length, batch=2, dtype=torch.float32)
            positions = case.positions(torch.arange(length)) if explicit else None
            expect_close(f"{what}, compiled for {length} tokens", compiled(x, positions), probe(x, positions))
    torch._dynamo.reset()
    return len(graphs)


@applies_to(*EVERYWHERE)
def compiles_with_inductor(case: Case) -> None:
    """The default backend gives the values and gradients of eager mode, at several lengths, in training. Slow."""
    probe = Probe(case, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(probe, fullgraph=True, dynamic=None)
    for length in lengths_of(case)[::3]:
        expected, got = (trained(case, probe, call, length) for call in (probe, compiled))
        for name, value in expected.items():
            expect_close(f"inductor, {length} tokens: {name}", got[name], value)
    torch._dynamo.reset()


def trained(case: Case, probe: Probe, call: Callable[..., Any], length: int) -> dict[str, Tensor]:
    """The result, and the gradients of x and all parameters, of one step."""
    x = tokens_of(case, length, batch=2, dtype=torch.float32).requires_grad_()
    inputs = {"x": x, **dict(probe.named_parameters())}
    out: Tensor = call(x, positions_of(case, length))
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    gradients = torch.autograd.grad((out * weights).sum(), list(inputs.values()), materialize_grads=True)
    return {"result": out, **{f"gradient of {name}": g for name, g in zip(inputs, gradients, strict=True)}}


@applies_to("embedding", "rotary", "bias", all_of_them=False)
def compiles_alone_with_inductor(case: Case) -> None:
    """Tables, biases and embeddings of counted positions, compiled by themselves, equal eager mode's. Slow.

    A C++ compiler then handles positions and constants in one loop. It may assume that products of int64 never wrap
    around, and gcc -O3 ends such a loop at the first position that would.
    """
    encodings, axes = case.make(), case.axes

    def alone(x: Tensor) -> list[Tensor]:
        positions = spread(torch.arange(x.shape[1]), axes)
        results: list[Tensor] = []
        for encoding in encodings:
            if isinstance(encoding, EmbeddingEncoding):
                results.append(encoding(x, positions))
            elif isinstance(encoding, RotaryEncoding):
                heads = x.view(*x.shape[:2], case.num_heads, case.head_dim).transpose(1, 2)
                results.extend(encoding(heads, heads[:, :: case.num_heads // case.num_kv_heads], positions, positions))
            elif isinstance(encoding, BiasEncoding):
                results.append(encoding(positions, positions))
        return results

    torch._dynamo.reset()
    compiled = torch.compile(alone, fullgraph=True, dynamic=None)
    with torch.no_grad():
        for length in lengths_of(case)[::3]:
            x = tokens_of(case, length, dtype=torch.float32)
            for got, expected in zip(compiled(x), alone(x), strict=True):
                expect_close(f"inductor, {length} tokens", got, expected)
    torch._dynamo.reset()


@applies_to(*EVERYWHERE)
def exports(case: Case) -> None:
    """``torch.export`` with a dynamic length, and positions as an input, gives a program that serves another length."""
    probe = Probe(case, dtype=torch.float32)
    tokens = torch.export.Dim("tokens", min=2, max=case.max_length)
    example = (tokens_of(case, 8, dtype=torch.float32), case.positions(torch.arange(8)))
    with torch.no_grad():
        program = torch.export.export(probe, example, dynamic_shapes=({1: tokens}, {0: tokens})).module()
        for length in (8, 13):
            x, positions = tokens_of(case, length, dtype=torch.float32), case.positions(torch.arange(length) + 2)
            expect_close(f"exported, {length} tokens", program(x, positions), probe(x, positions))
