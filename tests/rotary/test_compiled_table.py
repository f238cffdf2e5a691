"""The rotation table under torch.compile: one operator, made once a step, with the numbers of eager calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from posenc import LongRoPE, RoPE, YaRN
from posenc.layers import SelfAttention
from posenc.rotary import AxialRoPE, MixedRoPE, MRoPE
from posenc.rotary import _rotation_table as rotation_table
from tests.samples import gap

FAR = 5_000_000


def graph_of(run, *inputs):
    """The operators of the graph of a compiled call, and its result."""
    names: list[str] = []

    def backend(graph, example_inputs):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    return names, torch.compile(run, fullgraph=True, backend=backend)(*inputs)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The positions of tables that were computed."""
    seen: list[Tensor] = []
    right = rotation_table.RotationTable.computed

    def watched(self, positions, dtype):
        seen.append(positions)
        return right(self, positions, dtype)

    monkeypatch.setattr(rotation_table.RotationTable, "computed", watched)
    monkeypatch.setattr(rotation_table, "_LAST", {})
    return seen


ROTATIONS = {
    "rope": lambda: RoPE(32),
    "yarn": lambda: RoPE(32, scaling=YaRN(4.0, original_length=64)),
    "partial": lambda: RoPE(32, rotary_dim=8, layout="interleaved"),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ROTATIONS)
def test_a_compiled_table_is_that_of_eager_calls(name: str, dynamic: bool) -> None:
    rope, (q, k) = ROTATIONS[name](), torch.randn(2, 1, 2, 40, 32)
    torch._dynamo.reset()  # forms of the function of another rotation count against its limit
    compiled = torch.compile(lambda q, k, at: rope(q, k, at, at), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for tokens in (40, 24):
        at = torch.arange(tokens) + FAR
        got, right = compiled(q[:, :, :tokens], k[:, :, :tokens], at), rope(q[:, :, :tokens], k[:, :, :tokens], at, at)
        assert max(gap(a, b) for a, b in zip(got, right, strict=True)) < 2e-6


def test_images_take_the_operator_too() -> None:
    encoding, at = MRoPE(24, sections=(4, 4, 4)), torch.randint(0, 500, (2, 10, 3))
    q, k = torch.randn(2, 2, 2, 10, 24)
    names, got = graph_of(lambda q, k: encoding(q, k, at, at), q, k)
    assert [name for name in names if "rotation_table" in name]
    assert max(gap(a, b) for a, b in zip(got, encoding(q, k, at, at), strict=True)) < 2e-6
    gains = AxialRoPE(16, axes_dims=(8, 8), base=100.0)
    places = torch.randint(0, 50, (10, 2))
    names, (first, second) = graph_of(lambda q, k: gains(q, k, places, places), q[..., :16], k[..., :16])
    right = gains(q[..., :16], k[..., :16], places, places)
    assert max(gap(first, right[0]), gap(second, right[1])) < 2e-6


def test_fractional_positions_are_differentiated() -> None:
    rope, (q, k) = RoPE(32, scaling=YaRN(4.0, original_length=64)), torch.randn(2, 1, 2, 20, 32)
    at, weight = (torch.rand(20) * 100).requires_grad_(), torch.randn(32)

    def total(at: Tensor) -> Tensor:
        return (rope(q, k, at, at)[0] * weight).sum()

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    (got,), (right,) = torch.autograd.grad(compiled(at), at), torch.autograd.grad(total(at), at)
    assert gap(got, right) < 1e-5 * float(right.abs().max())


def test_learned_and_length_dependent_frequencies_stay_plain_operations() -> None:
    learned, at = MixedRoPE(16, num_heads=2), torch.randint(0, 9, (10, 2))
    q, k = torch.randn(2, 1, 2, 10, 16)
    names, got = graph_of(lambda q, k: learned(q, k, at, at), q, k)
    assert not [name for name in names if "rotation_table" in name]
    assert torch.autograd.grad(got[0].square().sum() + (got[0] * k).sum(), learned.theta)[0].abs().max() > 0
    spanning = RoPE(16, scaling=LongRoPE([1.0] * 8, [4.0] * 8, original_length=64, factor=4.0))
    names, _ = graph_of(lambda q, k: spanning(q, k, torch.arange(10), torch.arange(10)), q, k)
    assert not [name for name in names if "rotation_table" in name]


def test_no_guard_per_frequency() -> None:
    counts = []
    for width in (16, 128):
        rope, (q, k) = RoPE(width), torch.randn(2, 1, 2, 6, width)
        torch._dynamo.reset()

        def keep_all(guards):
            counts.append(len(guards))
            return [True] * len(guards)

        compiled = torch.compile(
            lambda q, k, rope=rope: rope(q, k, torch.arange(6), torch.arange(6)),
            fullgraph=True, backend="eager", options={"guard_filter_fn": keep_all},
        )  # fmt: skip
        compiled(q, k)
    assert counts[0] == counts[-1] > 0


class Model(nn.Module):
    """Layers that share one rotation; ``checkpointed``: their activations are computed anew."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        rope, self.checkpointed = RoPE(16), checkpointed
        self.layers = nn.ModuleList(SelfAttention(32, 2, encodings=[rope]) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + (checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x))
        return x


@pytest.mark.parametrize("by_layer", [False, True])
def test_layers_share_one_table_a_step(computed: list[Tensor], by_layer: bool) -> None:
    model, x = Model(), torch.randn(1, 12, 32)
    if by_layer:
        for layer in model.layers:
            layer.compile(backend="aot_eager", fullgraph=True)
        run = model
    else:
        run = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        run(x)
        computed.clear()
        rotation_table._LAST.clear()
        run(x)
        assert len(computed) == 1
        first = rotation_table._LAST[model.layers[0].encodings[0]._constant_table.text].table[0].clone()
        run(x * 2)
        assert torch.equal(first, rotation_table._LAST[model.layers[0].encodings[0]._constant_table.text].table[0])


@pytest.mark.parametrize("checkpointed", [False, True])
def test_training_with_and_without_activation_checkpointing(checkpointed: bool) -> None:
    x, plain = torch.randn(2, 12, 32), Model()
    model = torch.compile(Model(checkpointed=checkpointed), fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    right = torch.autograd.grad(plain(x).square().sum(), list(plain.parameters()))
    for a, b in zip(got, right, strict=True):
        assert gap(a, b) < 2e-4 * float(b.abs().max())


def test_one_compiled_query_goes_to_the_fused_kernel() -> None:
    layer = SelfAttention(32, 2, encodings=[RoPE(16)]).eval()
    cache, x = layer.static_cache(1, 20), torch.randn(1, 1, 32)
    names: list[str] = []

    def backend(graph, example_inputs):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    with torch.no_grad():
        torch.compile(layer, fullgraph=True, backend=backend)(x, cache=cache)
    assert any("scaled_dot_product_attention" in name for name in names)
    assert not any("attend_tiles" in name or "attend_tiled" in name for name in names)
