"""The operator as others see it: PyTorch's checks, compilers, gradcheck, its text in graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import ALiBi, AttentionSink, ForgetGate, T5Bias, attention
from posenc.score import CoPE, Shaw
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import build_encodings, called, differentiated, expect_same, situation
from tests.samples import gap, mostly_slow, qkv

FORWARD, BACKWARD = torch.ops.posenc.attend_tiled.default, torch.ops.posenc.attend_tiled_backward.default


class Arguments(TorchDispatchMode):
    """What a call hands to the operator."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is FORWARD:
            self.caught = args
        return func(*args, **(kwargs or {}))


def arguments(name: str, **options) -> tuple:
    leaves = [t.requires_grad_() for t in called(5, 7, dtype=torch.float32)]
    with Arguments() as seen:
        attention(*leaves[:3], build_encodings(name, torch.float32), x=leaves[3], backend="tiled", **options)
    learned, *rest = seen.caught
    return [t.detach().requires_grad_() for t in learned], *rest


CHECKED = {
    "nope": "causal by positions",
    "t5": "mask, bidirectional",
    "per key, one batch": "packed documents",
    "fox": "",
    "shaw": "",
    "xl": "window, bidirectional",
    "cope separate": "mask with a row that attends to no key",
    "fire": "",
    "sticks vector": "window and packed documents",
    "everything": "window",
}


@pytest.mark.parametrize("name", mostly_slow(CHECKED, "fox"))
def test_opcheck(name):
    inputs = arguments(name, **(situation(CHECKED[name], 5, 7) if CHECKED[name] else {}))
    opcheck(FORWARD, inputs)
    learned, *rest = inputs
    with torch.no_grad():
        out, norm = FORWARD(*inputs)
        known = torch.ones_like(out), torch.zeros_like(norm), out, norm
        opcheck(BACKWARD, (*known, [t.detach() for t in learned], *rest))


COMPILED = {
    "functions of the distance": ("t5+fox", {}),
    "vectors and counts": ("everything", {}),
    "sticks under a window": ("sticks vector", {"window": 20}),
    "waves": ("xl", {"causal": False}),
}


@pytest.mark.parametrize("what", mostly_slow(COMPILED, "functions of the distance"))
def test_compiled_training(what):
    """Growing lengths make at most two graphs, traced ahead of time with their gradients."""
    name, options = COMPILED[what]
    encodings, graphs = build_encodings(name, torch.float32), []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def loss(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return attention(q, k, v, encodings, x=x, backend="tiled", **options).square().sum()

    parameters = [p for e in encodings for p in e.parameters()]
    torch.compiler.reset()
    compiled = torch.compile(loss, backend=count, fullgraph=True)
    for length in (5, 17, 64, 300):
        leaves = [t.requires_grad_() for t in called(length, batch=2, dtype=torch.float32)]
        inputs = [*leaves, *parameters]
        value, expected = compiled(*leaves), loss(*leaves)
        assert gap(value / expected, torch.ones(())) < 1e-5
        actual, right = (torch.autograd.grad(out, inputs, materialize_grads=True) for out in (value, expected))
        for a, b in zip(actual, right, strict=True):
            assert gap(a, b) < 1e-4 * max(1.0, float(b.abs().max()))
    torch.compiler.reset()
    assert len(graphs) <= 2


@pytest.mark.parametrize("trained", ["q", "k", "v", "parameters", "x"])
@pytest.mark.parametrize("name", ["t5", "fox", "everything", "sticks vector"])
def test_gradients_of_some_equal_those_of_all_inputs(name, trained):
    """Whatever of q, k, v, x and the parameters is trained, with the others fixed."""
    encodings, tensors = build_encodings(name), dict(zip("qkvx", called(70), strict=True))
    everything = differentiated(encodings, list(tensors.values()))
    for encoding in encodings:
        encoding.requires_grad_(trained == "parameters")
    leaves = {side: t.requires_grad_(side == trained) for side, t in tensors.items()}
    q, k, v, x = leaves.values()
    out = attention(q, k, v, encodings, x=x, backend="tiled")
    if not out.requires_grad:
        assert trained in ("x", "parameters")
        return
    signs = torch.randint(0, 2, out.shape, generator=torch.Generator().manual_seed(5)) * 2.0 - 1
    inputs = {side: t for side, t in leaves.items() if t.requires_grad}
    for at, encoding in enumerate(encodings):
        inputs |= {
            f"{at} {type(encoding).__name__}.{name}": p for name, p in encoding.named_parameters() if p.requires_grad
        }
    result = torch.autograd.grad(out, list(inputs.values()), signs.double(), materialize_grads=True)
    expect_same(dict(zip(inputs, result, strict=True)), {name: everything[name] for name in inputs})


TOKENS = 40
LISTS = {
    "t5": lambda: [T5Bias(4, init_std=1.0)],
    "shaw+alibi": lambda: [Shaw(8, max_distance=4, init_std=1.0), ALiBi(4)],
    "cope+fox": lambda: [CoPE(8, max_position=6), ForgetGate(dim=16, num_heads=4)],
    "sticks": lambda: [StickBreaking()],
    "sink": lambda: [ALiBi(4), AttentionSink(4)],
}


class Recorded(TorchDispatchMode):
    """Keeps what the tiled operator was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[tuple[list[Tensor], list[Tensor], list[int], str]] = []  # learned, fixed, numbers, text

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.posenc.attend_tiled.default:
            self.arguments.append(args)
        return func(*args, **(kwargs or {}))


class Replay(nn.Module):
    """The tiled operator with a recorded text."""

    def __init__(self, numbers: list[int], text: str) -> None:
        super().__init__()
        self.numbers, self.text = numbers, text

    def forward(self, learned: list[Tensor], fixed: list[Tensor]) -> Tensor:
        return torch.ops.posenc.attend_tiled(learned, fixed, self.numbers, self.text)[0]


def recorded(name: str, **options: object) -> tuple[Tensor, tuple[list[Tensor], list[Tensor], list[int], str]]:
    """The definition's result of a call, and what the tiled operator is given for it."""
    torch.manual_seed(0)
    q, k, v = (t.requires_grad_() for t in qkv(2, 4, TOKENS, dtype=torch.float64))
    encodings = [encoding.double() for encoding in LISTS[name]()]
    keywords = {"x": torch.randn(2, TOKENS, 16, dtype=torch.float64), **options}
    with Recorded() as mode:
        attention(q, k, v, encodings, backend="tiled", **keywords)
    (arguments,) = mode.arguments
    return attention(q, k, v, encodings, backend="dense", **keywords).detach(), arguments


RUN = """
import sys
import torch
import posenc.backends  # registers the operator

for number in range(int(sys.argv[2])):
    program = torch.export.load(f"{sys.argv[1]}/{number}.pt2")
    inputs = torch.load(f"{sys.argv[1]}/{number}.pt")
    torch.save(program.module()(*inputs), f"{sys.argv[1]}/{number}.out.pt")
"""


def test_an_exported_graph_means_the_same_in_another_process(tmp_path: Path) -> None:
    expected = []
    for name in LISTS:
        out, (tensors, fixed, numbers, text) = recorded(name)
        inputs = [t.detach().clone() for t in tensors], [t.clone() for t in fixed]
        program = torch.export.export(Replay(list(numbers), text), inputs)
        torch.export.save(program, tmp_path / f"{len(expected)}.pt2")
        torch.save(inputs, tmp_path / f"{len(expected)}.pt")
        expected.append(out)
    subprocess.run([sys.executable, "-c", RUN, str(tmp_path), str(len(expected))], check=True)
    for number, out in enumerate(expected):
        assert gap(torch.load(tmp_path / f"{number}.out.pt"), out) < 1e-10, list(LISTS)[number]


@pytest.mark.parametrize("change", [("Row", "Rows"), ("VisibilityMask", "Exception"), ("'tuple'", "'list'")])
def test_an_unknown_name_is_an_error(change: tuple[str, str]) -> None:
    """A text makes structures and nothing else, whoever wrote it."""
    _, (learned, fixed, numbers, text) = recorded("t5")
    assert change[0] in text
    with pytest.raises(ValueError, match="unknown"):
        torch.ops.posenc.attend_tiled(learned, fixed, numbers, text.replace(*change))
