"""Whatever eager mode serves compiles in one piece: given positions, masks, documents, windows, orders, any length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, DynamicNTK, Encoding, ForgetGate, RoPE, T5Bias, attention
from posenc.bias import Sandwich
from posenc.score import CoPE, PaTH, Shaw, XPos
from posenc.weight import StickBreaking
from tests.samples import gap, qkv

HEADS, WIDTH, DIM, LENGTHS = 4, 8, 16, (7, 12, 19)
LISTS: dict[str, Callable[[], Sequence[Encoding]]] = {
    "nope": list,
    "rope": lambda: [RoPE(WIDTH)],
    "interleaved": lambda: [RoPE(WIDTH, layout="interleaved")],
    "dynamic": lambda: [RoPE(WIDTH, scaling=DynamicNTK(original_length=4))],
    "xpos": lambda: [XPos(WIDTH)],
    "alibi": lambda: [ALiBi(HEADS)],
    "t5": lambda: [T5Bias(HEADS, bidirectional=True)],
    "rope_alibi": lambda: [RoPE(WIDTH), ALiBi(HEADS)],
    "shaw": lambda: [Shaw(WIDTH, max_distance=5)],
    "cope": lambda: [CoPE(WIDTH, max_position=6)],
    "fox": lambda: [RoPE(WIDTH), ForgetGate(DIM, num_heads=HEADS)],
    "path": lambda: [PaTH(DIM, head_dim=WIDTH, num_kv_heads=HEADS)],
    "stick": lambda: [StickBreaking()],
}
CAUSAL_ONLY = ("xpos", "cope", "fox", "path", "stick")


def places(tokens: int) -> dict[str, Tensor]:
    return {"q_pos": torch.arange(3, tokens + 3), "k_pos": torch.arange(3, tokens + 3)}


SITUATIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "counted": lambda tokens: {},
    "given": places,
    "mask": lambda tokens: {"mask": torch.arange(tokens).expand(2, 1, 1, tokens) > 1},
    "given_mask": lambda tokens: {**places(tokens), "mask": torch.arange(tokens).expand(tokens, tokens) != 2},
    "segments": lambda tokens: {"segments": (torch.arange(tokens) > 3).long()},
    "window": lambda tokens: {"window": 4},
    "by_positions": lambda tokens: {**places(tokens), "causal": "positions"},
    "window_by_positions": lambda tokens: {**places(tokens), "causal": "positions", "window": 4},
    "both_ways": lambda tokens: {"causal": False},
    "both_ways_given": lambda tokens: {**places(tokens), "causal": False},
}
QUICK = {("rope_alibi", True)}
OFTEN = ("given_mask", "window_by_positions")  # in the quick suite


def calls() -> Iterator[object]:
    """Every list in every situation; compiled for one length after another, or at once for all."""
    for name in LISTS:
        for situation in SITUATIONS:
            if "both" in situation and name in CAUSAL_ONLY:
                continue
            for dynamic in (True, None):
                marks = [] if (name, dynamic) in QUICK and situation in OFTEN else [pytest.mark.slow]
                yield pytest.param(name, situation, dynamic, marks=marks, id=f"{name}-{situation}-{dynamic}")


@pytest.mark.parametrize(("name", "situation", "dynamic"), list(calls()))
def test_compiles_in_one_piece(name: str, situation: str, dynamic: bool | None) -> None:
    """Values and gradients equal eager mode, at several lengths, with two graphs at most."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    encodings = LISTS[name]()
    graphs: list[object] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    def call(q: Tensor, k: Tensor, v: Tensor, x: Tensor, options: dict[str, Any]) -> Tensor:
        return attention(q, k, v, encodings, x=x, **options)

    compiled = torch.compile(call, backend=count, fullgraph=True, dynamic=dynamic)
    for tokens in LENGTHS:
        shapes = ((2, HEADS, tokens, WIDTH), (2, HEADS, tokens, WIDTH), (2, HEADS, tokens, WIDTH), (2, tokens, DIM))
        values = [torch.randn(shape, requires_grad=True) for shape in shapes]
        options = SITUATIONS[situation](tokens)
        expected, got = (results(built(*values, options), values[:3]) for built in (call, compiled))
        for first, other in zip(expected, got, strict=True):
            assert gap(other, first) < 1e-5 * max(1.0, first.abs().max().item())
    torch._dynamo.reset()
    assert len(graphs) <= 2, "one graph for the first length, one for all"


def results(out: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """A result with its gradients."""
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), inputs)]


@pytest.mark.slow
@pytest.mark.parametrize("value_dim", [4, 12])
def test_values_of_another_width_and_strides_compile_for_every_length(value_dim: int) -> None:
    """A width that a compiler does not know must not make it guess the strides of what is padded."""
    torch._dynamo.reset()
    heads_last = (torch.randn(2, 7, HEADS, WIDTH, dtype=torch.float64, requires_grad=True) for _ in "qk")
    q, k = (x.transpose(1, 2) for x in heads_last)
    v = torch.randn(2, HEADS, 7, value_dim, dtype=torch.float64)
    bias = T5Bias(HEADS, bidirectional=True).double()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, [bias], backend="sdpa")

    assert gap(torch.compile(call, backend="aot_eager", dynamic=True)(q, k, v), call(q, k, v)) < 1e-12
    torch._dynamo.reset()


def test_shared_key_heads_of_any_number_compile():
    """Whether heads share keys is a symbol under dynamic sizes, which SDPA does not take for a bool."""
    torch._dynamo.reset()
    q, k, v = qkv(1, 6, 2, num_kv_heads=3)
    built = torch.compile(lambda *qkv: attention(*qkv), backend="eager", fullgraph=True, dynamic=True)
    assert gap(built(q, k, v), attention(q, k, v)) < 1e-6
    torch._dynamo.reset()


@pytest.mark.slow
def test_documents_that_a_graph_closes_over_with_a_batch_of_any_size() -> None:
    """One size, written as a number here and as a compiler's symbol there."""
    torch._dynamo.reset()
    parts = torch.arange(9).expand(3, 9) // 4
    (q, k, v), encodings = torch.randn(3, 3, HEADS, 9, WIDTH).unbind(0), [RoPE(WIDTH)]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, encodings, segments=(parts, parts))

    built = torch.compile(call, backend="eager", fullgraph=True, dynamic=True)
    assert gap(built(q, k, v), call(q, k, v)) < 1e-6
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "encoding",
    [
        ALiBi(HEADS, bias_scale=0.5), Sandwich(HEADS), XPos(WIDTH),
        ForgetGate(DIM, num_heads=HEADS, kind="fixed", decay_time=(2, 9)),
        RoPE(WIDTH, scaling=DynamicNTK(original_length=4)),
    ],
    ids=lambda encoding: type(encoding).__name__,
)  # fmt: skip
def test_numbers_of_a_module_are_constants_of_its_graph(encoding: Encoding) -> None:
    """Under dynamic sizes too: a tensor of inputs would be copied to a GPU in each call, and never captured."""
    torch._dynamo.reset()
    made: list[object] = []

    def look(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        of_numbers = [node.args[0] for node in graph.graph.nodes if getattr(node.target, "__name__", "") == "tensor"]
        made.extend(of_numbers)
        return graph.forward

    q, k, v = qkv(1, HEADS, 6)
    built = torch.compile(lambda *qkv: attention(*qkv, [encoding]), backend=look, fullgraph=True, dynamic=True)
    with torch.no_grad():
        assert gap(built(q, k, v), attention(q, k, v, [encoding])) < 1e-5
    assert made
    assert not [x for numbers in made for x in numbers if isinstance(x, torch.fx.Node)]
    torch._dynamo.reset()
