"""Decode steps whose tables were computed in advance: equal to one whole call, and never copied or traced."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from posenc import PositionInterpolation, RoPE, YaRN
from posenc.layers import KVCache, SelfAttention
from posenc.rotary._rotate import rotate_doubled
from tests.samples import gap, qkv

BLOCK = 64  # positions whose tables a module computes together
KINDS = [
    lambda: RoPE(16),
    lambda: RoPE(16, layout="interleaved"),
    lambda: RoPE(16, rotary_dim=8),
    lambda: RoPE(16, scaling=YaRN(4.0, original_length=64)),
    lambda: RoPE(16, scaling=PositionInterpolation(3.0)),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [0, -70, 2**31 + 5])
def test_steps_are_rows_of_a_whole_call(make, dtype, first):
    rope, tokens = make(), BLOCK + 7
    q, k, _ = (t.to(dtype) for t in qkv(2, 4, tokens, head_dim=16, num_kv_heads=2))
    positions = torch.arange(first, first + tokens)
    full = make()(q, k, positions, positions)
    for step in range(tokens):
        at = positions[step : step + 1]
        rotated = rope(q[:, :, step : step + 1], k[:, :, step : step + 1], at, at)
        for got, expected in zip(rotated, full, strict=True):
            bound = {torch.float64: 1e-15, torch.float32: 5e-7}.get(dtype, 0.02)
            assert gap(got, expected[:, :, step : step + 1]) <= bound


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_known_position_is_rotated_as_any(make, dtype):
    rope, other, (q, k, _) = make(), make(), (t.to(dtype) for t in qkv(2, 4, 1, head_dim=16, num_kv_heads=2))
    table_count, tables = 0, rope.newest_tables()
    assert (tables is None) == (rope.layout == "interleaved" or rope.rotary_dim == 8)
    for at in [5, 6, 7, 64, 65, 2**31 + 5, 2**31 + 6] if tables else []:
        place, table = torch.tensor([at]), tables(at, torch.float64 if dtype == torch.float64 else torch.float32)
        expected = other(q, k, place, place)
        if table is not None:
            table_count += 1
            assert torch.equal(rotate_doubled(q, *table), expected[0])
            assert torch.equal(rotate_doubled(k, *table), expected[1])
    assert table_count == (4 if tables else 0)  # where the step before was near


class Backwards(RoPE):
    def forward(self, q, k, q_pos, k_pos):
        return super().forward(q, k, -q_pos, -k_pos)


def test_steps_of_a_layer_call_a_rotation_that_a_global_hook_watches():
    layer, x, cache = SelfAttention(32, 2, encodings=[RoPE(16)]).eval(), torch.randn(1, 8, 32), KVCache()
    with torch.no_grad():
        layer(x[:, :3], cache=cache)
        for at in range(3, 6):  # the plan is made, and tables are kept
            layer(x[:, at : at + 1], cache=cache)
        watched = []
        handle = register_module_forward_hook(lambda module, inputs, outputs: watched.append(type(module)))
        try:
            layer(x[:, 6:7], cache=cache)
        finally:
            handle.remove()
        layer(x[:, 7:], cache=cache)
    assert watched.count(RoPE) == 1
    assert watched.count(torch.nn.Linear) == 4


@pytest.mark.parametrize("static", [False, True])
def test_steps_of_a_layer_ask_subclasses_and_hooks(static):
    torch.manual_seed(0)
    for watched in (False, True):
        layer = SelfAttention(32, 2, encodings=[RoPE(16) if watched else Backwards(16)]).eval()
        if watched:
            layer.encodings[0].register_forward_hook(lambda module, inputs, rotated: (-rotated[0], rotated[1]))
        x, cache = torch.randn(1, 6, 32), layer.static_cache(1, 9) if static else KVCache()
        with torch.no_grad():
            expected = layer(x)
            steps = torch.cat([layer(token, cache=cache) for token in x.split(1, 1)], 1)
        assert gap(steps, expected) < 1e-5


def test_a_block_of_positions_is_computed_once():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    with torch.autograd.profiler.profile() as profile:
        for step in range(2 * BLOCK):
            position = torch.tensor([[step]])
            for _ in range(2):  # two layers that share a module
                rope(q, k, position, position)
    assert sum(event.name == "aten::cos" for event in profile.function_events) == 3  # the first step, and two blocks


def test_interleaved_texts():
    """A block of one text is never used for another."""
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in [0, 1, 500, 2, 501, 502, 3, 4, 4, 3, 64, 63, 62, -1, 0]:
        place = torch.tensor([at])
        assert gap(rope(q, k, place, place)[1], RoPE(8)(q, k, place, place)[1]) < 5e-7


def test_gradients_transforms_and_other_positions():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in (3, 4, 5):
        place = torch.tensor([at])
        leaf = q.clone().requires_grad_()
        (got,) = torch.autograd.grad(rope(leaf, k, place, place)[0].sum(), leaf)
        (expected,) = torch.autograd.grad(RoPE(8)(leaf, k, place, place)[0].sum(), leaf)
        assert gap(got, expected) < 1e-6
        mapped = torch.func.vmap(lambda q, place=place: rope(q, k, place, place)[0])(torch.stack([q, q]))
        assert gap(mapped[1], rope(q, k, place, place)[0]) < 1e-6
        for other in (place.double(), place.int(), torch.tensor([at + 0.5])):
            assert gap(rope(q, k, other, other)[0], RoPE(8)(q, k, other, other)[0]) < 5e-7


def test_tables_from_inference_mode_serve_training():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    with torch.inference_mode():
        for at in (0, 1, 2):
            rope(q, k, *[torch.tensor([at])] * 2)
    place, leaf = torch.tensor([3]), q.clone().requires_grad_()
    rope(leaf, k, place, place)[0].sum().backward()
    assert leaf.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_traces_serve_other_positions():
    """A trace of one step serves every other."""
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in (0, 1, 2):
        rope(q, k, *[torch.tensor([at])] * 2)

    def step(q, k, place):
        return rope(q, k, place, place)[0]

    traced = torch.jit.trace(step, (q, k, torch.tensor([3])), check_trace=False)
    graph = torch.fx.experimental.proxy_tensor.make_fx(step)(q, k, torch.tensor([3]))
    for call in (traced, graph):
        assert gap(call(q, k, torch.tensor([40])), step(q, k, torch.tensor([40]))) < 5e-7


def test_copies_start_without_tables():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    unused = pickle.dumps(rope)
    for at in (0, 1, 2):
        rope(q, k, *[torch.tensor([at])] * 2)
    for copied in (copy.deepcopy(rope), pickle.loads(pickle.dumps(rope))):
        assert pickle.dumps(copied) == unused, "tables are not copied"
        place = torch.tensor([3])
        assert gap(copied(q, k, place, place)[0], rope(q, k, place, place)[0]) < 5e-7


def test_tables_follow_the_position_and_not_the_default_device():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    places = torch.arange(4).split(1)
    with torch.device("meta"):
        rotated = [rope(q, k, place, place)[0] for place in places]
    for got, place in zip(rotated, places, strict=True):
        assert gap(got, RoPE(8)(q, k, place, place)[0]) < 5e-7
