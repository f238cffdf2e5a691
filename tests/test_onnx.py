"""Models in onnxruntime against PyTorch at several lengths, with plain operators and with RotaryEmbedding."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from posenc import ALiBi, ForgetGate, RoPE, T5Bias, YaRN
from posenc.bias import FIRE, KERPLE
from posenc.layers import SelfAttention
from posenc.onnx import OPSET, rotary_operator

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
LENGTHS = (3, 16, 70)


class Decoder(nn.Module):
    """Two layers over tokens."""

    def __init__(self, *encodings: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(SelfAttention(32, 4, num_kv_heads=2, encodings=encodings) for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x, positions=positions)
        out: Tensor = self.head(x)
        return out


class Turn(nn.Module):
    """A rotation alone."""

    def __init__(self, rope: RoPE) -> None:
        super().__init__()
        self.rope = rope

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.rope(q, k, positions, positions)


def exported(model: nn.Module, inputs: dict[str, Tensor], axes: dict[str, int], path: Path, *, operator: bool) -> Any:
    """A session of the exported model, and the kinds of its nodes."""
    length = torch.export.Dim("length", min=2, max=2**31)
    shapes = {name: {axis: length} for name, axis in axes.items()}
    with rotary_operator() if operator else contextlib.nullcontext():
        program = torch.onnx.export(
            model.eval(), kwargs=inputs, dynamo=True, opset_version=OPSET, dynamic_shapes=shapes, verbose=False
        )
    program.save(path)
    return ort.InferenceSession(path), [node.op_type for node in program.model.graph]


def largest_gap(session: Any, model: nn.Module, inputs: dict[str, Tensor]) -> float:
    with torch.no_grad():
        right = model(**inputs)
    got = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    pairs = zip(got, right if isinstance(right, tuple) else (right,), strict=True)
    return max((torch.from_numpy(first) - other).abs().max().item() for first, other in pairs)


@pytest.mark.parametrize(
    ("rope", "operator"),
    [
        (RoPE(16), True),
        (RoPE(16, layout="interleaved", rotary_dim=8, scaling=YaRN(4.0, original_length=64)), True),
        pytest.param(RoPE(16), False, marks=pytest.mark.slow),
    ],
)
def test_a_rotation_is_exact_at_far_positions(tmp_path: Path, rope: RoPE, operator: bool) -> None:
    def inputs(length: int) -> dict[str, Tensor]:
        q, k = torch.randn(2, 2, 4, length, 16)
        return {"q": q, "k": k, "positions": torch.arange(length) + 10**9}

    model = Turn(rope)
    session, nodes = exported(
        model, inputs(9), {"q": 2, "k": 2, "positions": 0}, tmp_path / "m.onnx", operator=operator
    )
    assert nodes.count("RotaryEmbedding") == (2 if operator else 0)
    assert max(largest_gap(session, model, inputs(length)) for length in LENGTHS) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("make", [RoPE, ALiBi, T5Bias, FIRE, KERPLE, ForgetGate], ids=lambda make: make.__name__)
def test_whole_models(tmp_path: Path, make: Any) -> None:
    torch.manual_seed(0)
    size = {RoPE: {"head_dim": 8}, ForgetGate: {"dim": 32, "num_heads": 4}}.get(make, {"num_heads": 4})
    model = Decoder(make(**size))

    def inputs(length: int) -> dict[str, Tensor]:
        return {"tokens": torch.randint(0, 50, (2, length)), "positions": torch.arange(length)}

    session, nodes = exported(model, inputs(9), {"tokens": 1, "positions": 0}, tmp_path / "m.onnx", operator=True)
    assert nodes.count("RotaryEmbedding") == (4 if make is RoPE else 0)
    assert max(largest_gap(session, model, inputs(length)) for length in LENGTHS) < 1e-5
