"""Kernels in Triton: on a GPU where there is one, else in Triton's interpreter, against the definition in float64.

Random calls of attention are in `test_triton_softmax`; here are extreme ones, rotations, and what is refused.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, T5Bias
from posenc.backends import triton as backend
from posenc.backends.triton import launch
from posenc.bias import FIRE
from posenc.call import AttentionCall, prepare_call
from posenc.score import CoPE, Shaw, StreamingLLM
from posenc.weight import AttentionSink, StickBreaking
from tests.interpreted import DEVICE, HERE, in_the_interpreter
from tests.samples import gap, qkv

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
kernels = pytest.mark.skipif(not HERE, reason="runs in the interpreter's own process")


@pytest.mark.skipif(HERE, reason="the kernels run in this process")
@pytest.mark.slow
def test_some_in_the_interpreter():
    in_the_interpreter(__file__, "-k", "test_rotation and 40")


@pytest.mark.slow
@pytest.mark.skipif(HERE, reason="the kernels run in this process")
def test_all_in_the_interpreter():
    in_the_interpreter(__file__)


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    """Several tiles in short lengths; and products in float32, as the interpreter has none in bfloat16."""
    if DEVICE == "cpu":
        monkeypatch.setattr(launch, "TILE", 16)
        monkeypatch.setattr(launch, "exact", lambda q: True)


def prepared(q, k, v, encodings, **options) -> AttentionCall:
    default = dict.fromkeys(("q_pos", "k_pos", "x", "token_states", "mask", "segments", "scale"))
    return prepare_call(q, k, v, encodings, **(default | {"causal": True} | options))


@kernels
def test_what_is_left_may_be_tiny_and_right():
    importlib.import_module("posenc.backends.triton.sticks")  # registers the operator
    q, k, v = (t.to(DEVICE) for t in qkv(1, 1, 1, 200, 16))
    used = torch.ops.posenc.attend_sticks(q, k, v, None, None, 0.25, True, 0, True, 1e9, False)[1]
    right = torch.nn.functional.softplus(q.double() @ k.double().mT * 0.25).sum(-1) / torch.log(torch.tensor(2.0))
    assert right.min() > 100, "1 − Σ weights would be 0"
    assert gap(used, right) < 1e-3


def rotate(x, cos, sin, layout):
    """The rotation in PyTorch, by tables ``([batch, 1,] tokens, pairs)``."""
    table = [t.squeeze(1) if t.ndim == 4 else t for t in (cos, sin)]
    return RoPE(x.shape[-1], rotary_dim=2 * cos.shape[-1], layout=layout).rotate(x, table)


@kernels
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("width", "pairs"), [(32, 16), (40, 12), (6, 3), (48, 24)])
@pytest.mark.parametrize("batch", [None, 1, 2])
def test_rotation(batch, width, pairs, layout):
    from posenc.backends.triton.rotation import rotate_queries_and_keys

    q, k, _ = (t.to(DEVICE).requires_grad_() for t in qkv(2, 3, 35, 35, width, num_kv_heads=1, transposed=True))
    generator = torch.Generator().manual_seed(0)
    angles = torch.randn(*(() if batch is None else (batch, 1)), 35, pairs, generator=generator).to(DEVICE)
    cos, sin = angles.cos(), angles.sin()
    got = rotate_queries_and_keys(q, k, cos, sin, layout)
    right = [rotate(x, cos, sin, layout) for x in (q, k)]
    targets = [torch.randn_like(x) for x in right]
    for a, b in zip(
        (*got, *torch.autograd.grad(got, (q, k), targets)),
        (*right, *torch.autograd.grad(right, (q, k), targets)),
        strict=True,
    ):
        assert gap(a, b) < 1e-6


@kernels
@pytest.mark.parametrize(("queries", "num_kv_heads"), [(1, 2), (33, 1), (35, 0)])
def test_queries_are_the_last_of_the_keys(queries, num_kv_heads):
    from posenc.backends.triton.rotation import rotate_queries_and_keys

    q, k, _ = (t.to(DEVICE) for t in qkv(2, 2, queries, 35, 16, num_kv_heads=max(1, num_kv_heads)))
    angles = torch.randn(35, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    cos, sin = angles.cos(), angles.sin()
    new_q, new_k = rotate_queries_and_keys(q, k[:, :num_kv_heads], cos, sin, "half")
    assert gap(new_q, rotate(q, cos[35 - queries :], sin[35 - queries :], "half")) < 1e-6
    assert new_k.shape[1] == num_kv_heads
    if num_kv_heads:
        assert gap(new_k, rotate(k, cos, sin, "half")) < 1e-6


@kernels
@pytest.mark.parametrize("gain", [1.0, 1.1386])
def test_rotation_table(gain):
    from posenc.backends.triton.rotation import rotation_table

    rope = RoPE(24, base=500_000.0)
    frequencies = rope._constant_table.frequencies
    positions = torch.tensor([[0, 1, 4095], [-7, 2**31 + 5, 2**50]])
    cos, sin = rotation_table(positions.to(DEVICE), frequencies.fractions(torch.device(DEVICE)), gain)
    right = rope._constant_table._replace(gain=gain).computed(positions, torch.float64)
    assert max(gap(a, b) for a, b in zip((cos, sin), right, strict=True)) < 7e-8


@kernels
def test_rotation_rounds_once():
    from posenc.backends.triton.rotation import rotate_queries_and_keys

    q, k, _ = (t.to(DEVICE, torch.bfloat16) for t in qkv(1, 2, 40, 40, 32))
    angles = torch.randn(40, 16, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    for got, x in zip(rotate_queries_and_keys(q, k, angles.cos(), angles.sin(), "half"), (q, k), strict=True):
        right = rotate(x.float(), angles.cos(), angles.sin(), "half")
        unit = 2**-8 if DEVICE == "cuda" else 2**-7  # the interpreter cuts where hardware rounds
        assert bool(((got.float() - right).abs() <= right.abs() * unit + 1e-6).all())


@kernels
@pytest.mark.parametrize("make", [lambda: StickBreaking(remainder="own"), lambda: CoPE(16, max_position=9)])
def test_compilers_see_one_node_for_all_lengths(make):
    encodings, graphs = [make().to(DEVICE)], []

    def keep_graph(graph, inputs):
        graphs.append(graph)
        return graph

    def call(q, k, v):
        return backend.run(prepared(q, k, v, encodings))

    compiled = torch.compile(call, backend=keep_graph, fullgraph=True)
    for length in (17, 18, 20, 33):
        tensors = [t.to(DEVICE) for t in qkv(1, 2, length, length, 16)]
        assert gap(compiled(*tensors), call(*tensors)) < 1e-5
    assert len(graphs) <= 2


def test_refusals():
    q, k, v = qkv(1, 4, 20, 20, 16)
    assert "GPU" in backend.refuses(prepared(q, k, v, [StickBreaking()]))

    def reason(encodings, *, tensors=(q, k, v), **options):
        return backend.unsupported(prepared(*tensors, encodings, **options))

    assert reason([StickBreaking()]) is None
    assert reason([CoPE(16, max_position=255)]) is None
    assert reason([]) is None
    assert reason([ALiBi(4), T5Bias(4), AttentionSink(4)], softcap=2.0, dropout=0.5, window=3) is None
    assert reason([ForgetGate(32, num_heads=4)], x=torch.zeros(1, 20, 32)) is None
    assert reason([FIRE(4), ALiBi(4)]) is None
    assert "network" in reason([FIRE(4), T5Bias(4)])
    assert "network" in reason([FIRE(4), FIRE(4)])
    assert "127" in reason([FIRE(4, hidden=128)])
    assert "positions" in reason([ALiBi(4)], q_pos=torch.arange(20), k_pos=torch.arange(20))
    assert "hides" in reason([StreamingLLM(RoPE(16), sinks=1, window=3)])
    assert "dropout" in reason([], dropout=1.0)
    assert "256" in reason([], tensors=qkv(1, 1, 4, 4, 264))
    assert "one term" in reason([ForgetGate(32, num_heads=4)] * 2, x=torch.zeros(1, 20, 32))
    assert "bias" in reason([ALiBi(4), StickBreaking()])
    assert "terms" in reason([CoPE(16, max_position=4), StickBreaking()])
    assert "gates" in reason([Shaw(16, max_distance=4)])
    assert "gates" in reason([CoPE(16, max_position=4, relative=8)])
    assert "255" in reason([CoPE(16, max_position=256)])
    assert "float32" in reason([StickBreaking()], tensors=(q.double(), k.double(), v.double()))
    assert "128" in reason([StickBreaking()], tensors=qkv(1, 1, 4, 4, 136))
    assert "indices" in reason([StickBreaking()], causal="positions")
    assert "masks" in reason([StickBreaking()], mask=torch.ones(1, 20, 20, dtype=torch.bool))
    separate = CoPE(16, max_position=4, gates="separate", dim=32, num_kv_heads=2)
    assert "key heads" in reason([separate], x=torch.zeros(1, 20, 32))


def test_gradients_of_counts_are_refused_where_runs_must_be_alike():
    q, k, v = (t.requires_grad_() for t in qkv(1, 1, 4, 4, 16))
    cope = [CoPE(16, max_position=4)]
    torch.use_deterministic_algorithms(True)
    try:
        assert "atomics" in backend.unsupported(prepared(q, k, v, cope))
        with torch.no_grad():
            assert backend.unsupported(prepared(q, k, v, cope)) is None
        assert backend.unsupported(prepared(q, k, v, [StickBreaking()])) is None
    finally:
        torch.use_deterministic_algorithms(False)


def test_strategy_speaks():
    assert "sticks" in backend.strategy(prepared(*qkv(1, 1, 2), [StickBreaking()]))
