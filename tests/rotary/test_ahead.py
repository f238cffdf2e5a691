"""Steps by waves that were made ahead: the numbers of a whole call, and nothing kept that should not be."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from posenc import PositionInterpolation, RoPE, YaRN
from posenc.rotary._decode_table_cache import BLOCK
from tests.samples import gap, qkv

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
    whole = make()(q, k, positions, positions)
    for step in range(tokens):
        at = positions[step : step + 1]
        turned = rope(q[:, :, step : step + 1], k[:, :, step : step + 1], at, at)
        for got, wanted in zip(turned, whole, strict=True):
            bound = {torch.float64: 1e-15, torch.float32: 5e-7}.get(dtype, 0.02)
            assert gap(got, wanted[:, :, step : step + 1]) <= bound


def test_the_waves_of_a_block_are_made_once(monkeypatch):
    rope, made = RoPE(8), list[int]()
    (q, k, _), table = qkv(1, 2, 1, head_dim=8), type(rope._fixed).table
    monkeypatch.setattr(type(rope._fixed), "table", lambda *given: made.append(given[1].numel()) or table(*given))
    for step in range(2 * BLOCK):
        at = torch.tensor([[step]])
        for _ in range(2):  # two layers that share a module
            rope(q, k, at, at)
    assert made == [1, BLOCK, BLOCK]


def test_steps_of_texts_in_turn_and_back_again():
    """Nobody's block is taken for another's."""
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in [0, 1, 500, 2, 501, 502, 3, 4, 4, 3, 64, 63, 62, -1, 0]:
        place = torch.tensor([at])
        assert gap(rope(q, k, place, place)[1], RoPE(8)(q, k, place, place)[1]) < 5e-7


def test_gradients_transforms_and_other_positions():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in (3, 4, 5):
        place = torch.tensor([at])
        leaf = q.clone().requires_grad_()
        (found,) = torch.autograd.grad(rope(leaf, k, place, place)[0].sum(), leaf)
        (wanted,) = torch.autograd.grad(RoPE(8)(leaf, k, place, place)[0].sum(), leaf)
        assert gap(found, wanted) < 1e-6
        mapped = torch.func.vmap(lambda q, place=place: rope(q, k, place, place)[0])(torch.stack([q, q]))
        assert gap(mapped[1], rope(q, k, place, place)[0]) < 1e-6
        for other in (place.double(), place.int(), torch.tensor([at + 0.5])):
            assert gap(rope(q, k, other, other)[0], RoPE(8)(q, k, other, other)[0]) < 5e-7


def test_waves_made_in_inference_mode_serve_training():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    with torch.inference_mode():
        for at in (0, 1, 2):
            rope(q, k, *[torch.tensor([at])] * 2)
    place, leaf = torch.tensor([3]), q.clone().requires_grad_()
    rope(leaf, k, place, place)[0].sum().backward()
    assert leaf.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_tracer_never_sees_them():
    """A trace of one step serves every other."""
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in (0, 1, 2):
        rope(q, k, *[torch.tensor([at])] * 2)

    def step(q, k, place):
        return rope(q, k, place, place)[0]

    traced = torch.jit.trace(step, (q, k, torch.tensor([3])), check_trace=False)
    graph = torch.fx.experimental.proxy_tensor.make_fx(step)(q, k, torch.tensor([3]))
    for made in (traced, graph):
        assert gap(made(q, k, torch.tensor([40])), step(q, k, torch.tensor([40]))) < 5e-7


def test_copies_begin_anew():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    for at in (0, 1, 2):
        rope(q, k, *[torch.tensor([at])] * 2)
    assert rope._decode_tables._blocks
    for copied in (copy.deepcopy(rope), pickle.loads(pickle.dumps(rope))):
        assert not copied._decode_tables._blocks
        place = torch.tensor([3])
        assert gap(copied(q, k, place, place)[0], rope(q, k, place, place)[0]) < 5e-7


def test_waves_lie_where_the_position_does_whatever_the_default_device():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    places = torch.arange(4).split(1)
    with torch.device("meta"):
        turned = [rope(q, k, place, place)[0] for place in places]
    assert rope._decode_tables._blocks
    for got, place in zip(turned, places, strict=True):
        assert gap(got, RoPE(8)(q, k, place, place)[0]) < 5e-7
