"""Kernels in Triton: on a GPU where there is one, else in Triton's interpreter, against the definition in float64.

The interpreter (`tests.interpreted`) shows that kernels are right, not that they compile: that is tested too, as it
needs no GPU.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, T5Bias, attention
from posenc.backends import triton as backend
from posenc.backends.triton import launch
from posenc.bias import FIRE
from posenc.call import AttentionCall, prepare_call
from posenc.score import CoPE, Shaw, StreamingLLM
from posenc.weight import AttentionSink, StickBreaking
from tests.interpreted import DEVICE, HERE, INTERPRETED, in_the_interpreter
from tests.samples import gap, mostly_slow, qkv

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
kernels = pytest.mark.skipif(not HERE, reason="runs in the interpreter's own process")
DOCUMENTS = torch.arange(40) // 9
PADDING = torch.rand(2, 1, 40, generator=torch.Generator().manual_seed(1)) > 0.3
SEEN = {
    "causal": {},
    "all": {"causal": False},
    "window": {"window": 15},
    "window both ways": {"window": 9, "causal": False},
    "documents and padding": {"segments": (DOCUMENTS[-25:], DOCUMENTS), "mask": PADDING, "window": 20},
}


@pytest.mark.skipif(HERE, reason="the kernels run in this process")
@pytest.mark.slow
def test_some_in_the_interpreter():
    in_the_interpreter(__file__, "-k", "test_rows_without_keys_give_zeros or (test_rotation and 40)")


@pytest.mark.slow
@pytest.mark.skipif(HERE, reason="the kernels run in this process")
def test_all_in_the_interpreter():
    in_the_interpreter(__file__)


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    """Several tiles in short lengths; and products in float32, as the interpreter has none in bfloat16."""
    if DEVICE == "cpu":
        monkeypatch.setattr(launch, "tile", lambda q: 16)
        monkeypatch.setattr(launch, "exact", lambda q: True)


def prepared(q, k, v, encodings, **options) -> AttentionCall:
    default = dict.fromkeys(("q_pos", "k_pos", "x", "token_states", "mask", "segments", "scale"))
    return prepare_call(q, k, v, encodings, **(default | {"causal": True} | options))


def gaps(make, q, k, v, **options) -> list[float]:
    """Of the result and of all gradients, relative to the largest entry of the definition's."""
    generator = torch.Generator().manual_seed(9)
    results = []
    for dtype in (torch.float64, q.dtype):
        torch.manual_seed(0)
        device = "cpu" if dtype == torch.float64 else DEVICE
        encodings = [encoding.to(dtype=torch.float64).to(device) for encoding in make()]
        for parameter in (p for encoding in encodings for p in encoding.parameters()):
            parameter.data = torch.randn(parameter.shape, generator=generator.manual_seed(8), dtype=torch.float64).to(
                device
            )
        placed = {name: _placed(value, device) for name, value in options.items()}
        tensors = [t.to(device, dtype).requires_grad_() for t in (q, k, v)]
        if dtype == torch.float64:
            out = attention(*tensors, encodings, backend="dense", **placed)
            target = torch.randn(out.shape, generator=generator.manual_seed(7)).to(q.dtype)
        else:
            posed = prepared(*tensors, encodings, **placed)
            assert backend.unsupported(posed) is None
            out = backend.run(posed)
            assert out.dtype == q.dtype
        learned = [*tensors, *(p for encoding in encodings for p in encoding.parameters())]
        results.append([out, *torch.autograd.grad(out, learned, target.to(out.device, out.dtype))])
    return [gap(got.cpu(), right) / max(right.abs().max().item(), 1e-3) for right, got in zip(*results, strict=True)]


def _placed(value, device):
    if isinstance(value, tuple):
        return tuple(t.to(device) for t in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value


def sticks(remainder, *, current=False, heads=4, value_dim=16):
    return lambda: [
        StickBreaking(attend_current=current, remainder=remainder, num_heads=heads, value_dim=value_dim)
    ]  # fmt: skip


@kernels
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("current", [False, True])
@pytest.mark.parametrize("remainder", ["drop", "own", "vector"])
def test_sticks(remainder, current, seen):
    q, k, v = qkv(2, 2, 25, 40, 24, num_kv_heads=1, value_dim=16, transposed=True)
    result = gaps(sticks(remainder, current=current, heads=2), q, k, v, **SEEN[seen])
    if remainder == "vector" and seen == "all":  # of 40 keys nothing is left, and the definition finds it as 1 − Σ
        result = result[:-1]
    assert max(result) < 1e-5


@kernels
@pytest.mark.parametrize(("queries", "keys"), [(1, 53), (1, 1), (16, 16), (17, 33), (17, 40)])
def test_sticks_of_other_lengths(queries, keys):
    assert max(gaps(sticks("own", heads=2), *qkv(1, 2, queries, keys, 16, num_kv_heads=1))) < 1e-5


@kernels
@pytest.mark.parametrize(("logits", "bound"), [(1e-3, 1e-6), (80.0, 2e-5)])
def test_sticks_of_small_and_large_logits(logits, bound):
    q, k, v = qkv(1, 2, 100, 100, 16)
    scores = q.double() @ k.double().mT * 0.25
    q = q * (logits / scores.abs().max())
    assert max(gaps(sticks("own", heads=2), q, k, v)) < bound


@kernels
def test_what_is_left_may_be_tiny_and_right():
    importlib.import_module("posenc.backends.triton.sticks")  # registers the operator
    q, k, v = (t.to(DEVICE) for t in qkv(1, 1, 1, 200, 16))
    used = torch.ops.posenc.attend_sticks(q, k, v, None, None, 0.25, True, 0, True, 1e9, False)[1]
    right = torch.nn.functional.softplus(q.double() @ k.double().mT * 0.25).sum(-1) / torch.log(torch.tensor(2.0))
    assert right.min() > 100, "1 − Σ weights would be 0"
    assert gap(used, right) < 1e-3


@kernels
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.05), (torch.float16, 5e-3)])
def test_half_precision(dtype, bound):
    q, k, v = (t.to(dtype) for t in qkv(1, 2, 50, 50, 16))
    assert max(gaps(sticks("own", heads=2), q, k, v)) < bound
    assert max(gaps(lambda: [CoPE(16, max_position=9, rotated=True)], q, k, v)) < bound


def cope(last, *, gates="keys", scaled=False, width=24, **options):
    return lambda: [CoPE(width, max_position=last, gates=gates, scaled=scaled, **options)]


@kernels
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("gates", ["keys", "values"])
@pytest.mark.parametrize("last", [1, 7, 200])
def test_counts(last, gates, seen):
    q, k, v = qkv(2, 2, 25, 40, 24, num_kv_heads=1, transposed=True)
    assert max(gaps(cope(last, gates=gates), q, k, v, **SEEN[seen])) < 3e-5


@kernels
@pytest.mark.parametrize(("queries", "keys"), [(1, 53), (16, 16), (17, 33), (17, 40)])
def test_counts_of_other_lengths(queries, keys):
    q, k, v = qkv(1, 2, queries, keys, 24, num_kv_heads=1, value_dim=20)
    assert max(gaps(cope(5, scaled=True), q, k, v)) < 3e-5


@kernels
def test_counts_of_content_under_rotations():
    q, k, v = qkv(1, 2, 40, 40, 24)
    assert max(gaps(lambda: [RoPE(24), *cope(9)()], q, k, v)) < 3e-5


@kernels
def test_counts_of_large_logits():
    q, k, v = qkv(1, 2, 100, 100, 24)
    scores = q.double() @ k.double().mT * 24**-0.5
    assert max(gaps(cope(20), q * (80.0 / scores.abs().max()), k, v)) < 2e-3


@kernels
@pytest.mark.parametrize("make", [sticks("own", heads=2), cope(9, width=16)])
def test_backward_in_pieces(make, monkeypatch):
    q, k, v = qkv(1, 2, 60, 60, 16)
    full = gaps(make, q, k, v)
    monkeypatch.setattr(launch, "ROOM", 1)
    assert len(launch.chunks(60, 8, 16)) == 4
    assert max(gaps(make, q, k, v)) < max(*full, 1e-6) * 2


@kernels
@pytest.mark.parametrize("make", [sticks("vector", heads=2), cope(9, width=16)])
def test_rows_without_keys_give_zeros(make):
    q, k, v = qkv(2, 2, 20, 20, 16)
    mask = torch.ones(2, 1, 20, dtype=torch.bool)
    mask[1] = False
    placed = [t.to(DEVICE).requires_grad_() for t in (q, k, v)]
    posed = prepared(*placed, [e.to(DEVICE) for e in make()], mask=mask.to(DEVICE))
    out = backend.run(posed)
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.sum(), placed):
        assert not gradient[1].any()
        assert bool(gradient.isfinite().all())


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
@pytest.mark.parametrize("make", [sticks("own", heads=2), cope(9, width=16)])
def test_compilers_see_one_node_for_all_lengths(make):
    encodings, graphs = [e.to(DEVICE) for e in make()], []

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


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="compilers are for other processes")
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", ["walk", "queries_backward", "keys_backward"])
@pytest.mark.parametrize("subject", ["sticks", "counts", "counts of others"])
def test_compiles_for_hopper(subject, name, dtype):
    """Down to machine code, and in the shared memory that it has; Triton needs no GPU for that."""
    from posenc.backends.triton import count_kernels, stick_kernels

    module, tile = stick_kernels if subject == "sticks" else count_kernels, 64 if dtype == "bf16" else 32
    constants = {"CAUSAL": True, "WINDOW": True, "IDS": True, "EXACT": dtype == "fp32", "ROWS": tile, "COLUMNS": tile}
    constants |= {
        "WIDTH": 128,
        "VALUES": 128,
        "CURRENT": False,
        "KEEP": False,
        "MORE": True,
        "GATES": 128,
        "SLOTS": True,
    }
    constants["SEPARATE"] = "of" in subject
    compiled = compile_for_hopper(getattr(module, name), constants, dtype)
    assert compiled.metadata.shared <= launch.SHARED


@pytest.mark.skipif(INTERPRETED, reason="compilers are for other processes")
@pytest.mark.parametrize("half", mostly_slow([True, False], True))
def test_rotation_compiles_for_hopper(half):
    from posenc.backends.triton import rotation

    constants = {"HALF": half, "INVERSE": True, "ROWS": 32, "PAIRS": 64, "REST": 16}
    compile_for_hopper(rotation._rotate, constants, "bf16")
    compile_for_hopper(rotation._table, {"RADIANS": 3.4e-19, "GAIN": 1.1, "ROWS": 32, "PAIRS": 64}, "bf16")


@pytest.mark.skipif(INTERPRETED, reason="compilers are for other processes")
def test_a_token_too_many_is_an_assertion_on_the_device():
    from posenc.backends.triton import slot_kernels

    flags = ("COUNTED", "HALF", "ROTATES", "PLACES", "PADDED", "RING")
    constants = dict.fromkeys(flags, True) | {"STATES": 16, "WIDTH": 64, "VALUES": 64, "PAIRS": 32}
    assert slot_kernels.append.debug
    compiled = compile_for_hopper(slot_kernels.append, constants, "bf16", debug=True, sanitize_overflow=False)
    assert "__assertfail" in compiled.asm["ptx"]
    assert "capacity of a static cache" in str(compiled.asm["ttir"])


def compile_for_hopper(kernel, constants, dtype, **others):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    assert {name for name in names if name.isupper()} <= constants.keys(), "a constant of the kernel has another name"
    inputs = {
        "q",
        "k",
        "v",
        "gate_q",
        "gate_k",
        "grad",
        "d_q",
        "d_gate_q",
        "out",
        "new_q",
        "new_k",
        "k_slots",
        "v_slots",
    }
    wide = {
        "state",
        "state_slots",
        "z",
        "used_out",
        "carries",
        "behind",
        "delta",
        "norms",
        "grad_used",
        "d_k",
        "d_v",
        "d_z",
        "d_gate_k",
    }
    kinds = dict.fromkeys(inputs | {"k_slots", "v_slots"}, f"*{dtype}")
    kinds |= dict.fromkeys(wide | {"cos", "sin", "state", "state_slots"}, "*fp32")
    kinds |= {"positions": "*i64", "turns": "*i64", "q_ids": "*i64", "k_ids": "*i64", "scale": "fp32", "enough": "fp32"}
    kinds |= dict.fromkeys(("counts", "places", "written"), "*i64") | dict.fromkeys(("real", "is_real"), "*u8")
    kinds |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        fn=kernel,
        signature={name: kinds.get(name, "i32") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items() if name in names},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in names if kinds.get(name, "")[:1] == "*"},
    )
    options = {"num_warps": launch.WARPS, "num_stages": launch.STAGES, **others}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


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


@pytest.mark.slow
def test_import_does_not_load_triton():
    code = "import sys, posenc.backends.triton; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
