"""A tiled call as text: the same in every process, and an error for names of another version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import ALiBi, AttentionSink, ForgetGate, T5Bias, attention
from posenc.score import CoPE, Shaw
from posenc.weight import StickBreaking
from tests.samples import gap, qkv

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
