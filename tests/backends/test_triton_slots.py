"""Steps of layers over caches by the kernels, against one call of the layer in float64, and what they check themselves.

On a GPU the kernels run as they are, else in Triton's interpreter: see `tests.interpreted`.
"""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, ForgetGate, RoPE, T5Bias
from posenc.backends import triton as backend
from posenc.backends.triton import encodings, guard, launch, slots
from posenc.backends.triton.guard import Kind
from posenc.bias import FIRE, KERPLE
from posenc.layers import SelfAttention, StaticKVCache, self_attention
from posenc.layers.cache import by_kernels
from posenc.score import CoPE
from posenc.weight import AttentionSink, StickBreaking
from tests.interpreted import DEVICE, HERE, in_the_interpreter
from tests.samples import gap

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
kernels = pytest.mark.skipif(not HERE, reason="runs in the interpreter's own process")
DIM, HEADS, KV_HEADS, WIDTH, LENGTH, CLOSE = 24, 4, 2, 16, 38, 2e-5

LAYERS: dict[str, list[Any]] = {
    "nothing": [],
    "rotation": [RoPE(WIDTH)],
    "pairs side by side, in part": [RoPE(WIDTH, layout="interleaved", rotary_dim=12)],
    "two rotations": [RoPE(WIDTH, rotary_dim=4), RoPE(WIDTH, rotary_dim=8)],
    "slopes": [ALiBi(HEADS)],
    "table": [RoPE(WIDTH), T5Bias(HEADS, num_buckets=8, max_distance=20)],
    "row": [KERPLE(HEADS), ALiBi(HEADS)],
    "network": [FIRE(HEADS, hidden=8, threshold=12.0)],
    "gates": [RoPE(WIDTH), ForgetGate(DIM, num_heads=HEADS)],
    "gates and a row": [ForgetGate(DIM, num_heads=HEADS), T5Bias(HEADS, num_buckets=8, max_distance=20)],
    "sink": [AttentionSink(HEADS)],
    "sticks": [StickBreaking()],
    "counts": [CoPE(WIDTH, max_position=7)],
    "counts of keys of their own": [CoPE(WIDTH, max_position=7, gates="separate", dim=DIM, num_kv_heads=KV_HEADS)],
}


def test_in_the_interpreter() -> None:
    if not HERE:
        in_the_interpreter(__file__, "-k", "equal_one_call and (table or sticks)")


@pytest.mark.slow
def test_all_in_the_interpreter() -> None:
    if not HERE:
        in_the_interpreter(__file__)


@pytest.fixture(autouse=True)
def _kernels_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off a GPU too, unchecked, and in several tiles."""
    monkeypatch.setenv(guard.VARIABLE, "1")
    if DEVICE == "cpu":
        from posenc.backends.triton import decode

        monkeypatch.setattr(backend, "refuses_by_name", backend.unsupported)
        monkeypatch.setattr(decode, "BLOCK", 16)
        monkeypatch.setattr(launch, "TILE", 16)
        monkeypatch.setattr(self_attention, "is_step", lambda q: q.shape[2] == 1)


def layer(name: str, **options: Any) -> SelfAttention:
    generator = torch.manual_seed(3)
    encodings = copy.deepcopy(LAYERS[name])
    for encoding in encodings:
        for label, parameter in encoding.named_parameters():
            if not isinstance(encoding, KERPLE) and label not in ("c", "multiplier"):
                parameter.data = torch.randn(parameter.shape, generator=generator)
    sizes = {"num_kv_heads": KV_HEADS, "head_dim": WIDTH}
    return SelfAttention(DIM, HEADS, encodings=encodings, **sizes, **options).requires_grad_(False)


def tokens(length: int = LENGTH) -> Tensor:
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(5))


class Served:
    """How many steps the kernels served."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps, attend = 0, by_kernels.run

        def run(call: Any, of: launch.Slots) -> Tensor:
            self.steps += 1
            return attend(call, of)

        monkeypatch.setattr(by_kernels, "run", run)


def decoded(module: SelfAttention, cache: StaticKVCache, x: Tensor, first: int, **mask: Tensor) -> Tensor:
    """The first tokens in one call, all others one by one."""
    parts = [module(x[:, :first], cache=cache, **mask)]
    parts += [module(x[:, at : at + 1], cache=cache) for at in range(first, x.shape[1])]
    return torch.cat(parts, 1)


@kernels
@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_steps_equal_one_call(name: str, window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = layer(name, softcap=2.0 if name == "nothing" else None), tokens()
    expected = copy.deepcopy(module).double()(x.double(), window=window)
    module, served = module.to(DEVICE), Served(monkeypatch)
    cache = module.static_cache(2, 14 if window else LENGTH, window=window)
    first = 6 if window else LENGTH - 5  # more than one tile, and slots that are used again
    got = decoded(module, cache, x.to(DEVICE)[:, : first + (14 if window else 5)], first)
    length = got.shape[1]
    assert gap(got.cpu().double(), expected[:, :length]) < CLOSE
    assert served.steps == length - first
    assert int(cache.seen) == length
    assert cache.real.sum(1).tolist() == [14 if window else length] * 2
    if module.axes:
        assert cache.positions.max(1).values.tolist() == [length - 1] * 2


@kernels
@pytest.mark.parametrize("name", ["rotation", "slopes", "table", "network", "gates", "sticks", "counts"])
@torch.no_grad()
def test_rows_with_padding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = layer(name), tokens(10)
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, :3] = False
    alone = copy.deepcopy(module).double()(x[1:, 3:].double())
    module, served = module.to(DEVICE), Served(monkeypatch)
    got = decoded(module, module.static_cache(2, 30), x.to(DEVICE), 7, attention_mask=real.to(DEVICE))
    assert gap(got[1:, 3:].cpu().double(), alone) < CLOSE
    assert served.steps == 3


@kernels
@torch.no_grad()
def test_padding_among_new_tokens_and_cropped_ones_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = layer("gates"), tokens(12).to(DEVICE)
    cache, served = module.to(DEVICE).static_cache(2, 30), Served(monkeypatch)
    module(x[:, :6], cache=cache)
    module(x[:, 8:9], cache=cache)
    cache.crop(1)
    last = torch.tensor([[True], [False]], device=DEVICE)
    module(x[:, 6:7], cache=cache, attention_mask=last)
    got = module(x[:, 7:8], cache=cache)
    assert served.steps == 3
    wide = copy.deepcopy(module).double().cpu()
    first, second = x[:1, :8].double().cpu(), torch.cat([x[1:, :6], x[1:, 7:8]], 1).double().cpu()
    for row, text in enumerate((first, second)):
        assert gap(got[row : row + 1].cpu().double(), wide(text)[:, -1:]) < CLOSE


@kernels
@torch.no_grad()
def test_rows_by_distance_end_where_the_slots_do(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, served = layer("table"), tokens(10).to(DEVICE), Served(monkeypatch)
    module, places = module.to(DEVICE), torch.arange(10, device=DEVICE) * 7
    cache = module.static_cache(2, 12)
    parts = [module(x[:, at : at + 1], places[at : at + 1], cache=cache) for at in range(10)]
    assert served.steps == 0
    assert gap(torch.cat(parts, 1), module(x, places)) < CLOSE
    cache.clear()
    module(x[:, :1], cache=cache)
    assert served.steps == 1


KINDS = [
    Kind("few queries", ("row", "slopes", "causal", "padding", "slots"), torch.float32, 16, 16, False),
    Kind("few queries", ("row", "gates", "sink", "causal", "window", "padding", "slots"), torch.float32, 24, 16, False),
    Kind("few queries", ("network", "softcap", "causal", "padding", "slots"), torch.float32, 16, 40, False),
    Kind("few queries", ("sticks", "drop", "causal", "window", "padding", "slots"), torch.float32, 16, 16, False),
    Kind("few queries", ("counts", "own gates", "causal", "padding", "slots"), torch.float32, 16, 16, False),
]


@kernels
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_checks_tell_right_from_wrong(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SIZES", ((2, 4, 2, 20, 100), (1, 2, 1, 25, 31)))
    monkeypatch.setattr(guard, "FEW_SIZES", guard.SIZES)
    device = torch.device(DEVICE)
    assert guard.check(kind, device, backend.run, slots.results) is None

    def late(call: Any, of: launch.Slots) -> Tensor:
        return backend.run(call, of._replace(counts=of.counts - 1))

    assert guard.check(kind, device, late, slots.results) is not None


@kernels
@pytest.mark.parametrize("flags", [(), ("ring",), ("half", "8 pairs"), ("ring", "interleaved", "5 pairs")])
def test_the_check_of_append_tells_right_from_wrong(flags: tuple[str, ...]) -> None:
    kind = Kind("append", flags, torch.float32, 16, 24, False)
    device = torch.device(DEVICE)
    assert guard.check(kind, device, slots.append, slots.appended) is None

    def elsewhere(q: Tensor, newest: slots.Newest, of: launch.Slots, *held: Tensor) -> Tensor:
        return slots.append(q, newest, of._replace(counts=of.counts - 1), *held)

    def unturned(q: Tensor, newest: slots.Newest, *rest: Any) -> Tensor:
        return slots.append(q, newest._replace(table=None), *rest)

    assert guard.check(kind, device, elsewhere, slots.appended) is not None
    if any("pairs" in flag for flag in flags):
        assert guard.check(kind, device, unturned, slots.appended) is not None


@kernels
def test_the_check_of_a_growing_cache_tells_right_from_wrong() -> None:
    kind, device = Kind("append", ("at",), torch.float32, 16, 24, False), torch.device(DEVICE)
    assert guard.check(kind, device, slots.write, slots._written) is None
    assert guard.check(kind, device, lambda at, *rest: slots.write(at + 1, *rest), slots._written) is not None
    assert guard.check(kind, device, lambda at, *rest: None, slots._written) is not None


GATES = Kind("log gates", ("bias",), torch.float32, 1100, 5, False)


@kernels
@pytest.mark.parametrize("kind", [GATES, GATES._replace(flags=(), dtype=torch.float16, width=40)], ids=str)
def test_the_check_of_gates_tells_right_from_wrong(kind: Kind) -> None:
    device = torch.device(DEVICE)
    assert guard.check(kind, device, encodings._log_gates, encodings._right_gates) is None

    def wrong(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return encodings._log_gates(x, weight * 1.1, bias)

    assert guard.check(kind, device, wrong, encodings._right_gates) is not None


@kernels
@pytest.mark.parametrize("flags", [("log",), ("power",), ("bam",), ("bam", "shift")])
def test_the_check_of_kerple_tells_right_from_wrong(flags: tuple[str, ...]) -> None:
    kind, device = Kind("kerple row", flags, torch.float32, 1, 1, True), torch.device(DEVICE)
    assert guard.check(kind, device, encodings._kerple_row, encodings._right_row) is None

    def wrong(p: Tensor, *rest: Any) -> Tensor:
        return encodings._kerple_row(p + (0.01 * p).detach(), *rest)

    def wrong_gradient(p: Tensor, *rest: Any) -> Tensor:
        return encodings._kerple_row(p * 1.01 - (0.01 * p).detach(), *rest)

    assert guard.check(kind, device, wrong, encodings._right_row) is not None
    assert guard.check(kind, device, wrong_gradient, encodings._right_row) is not None


@kernels
@pytest.mark.parametrize("kind", ["log", "power", "bam"])
def test_kerple_outside_of_its_bounds(kind: Any) -> None:
    """Values are of the bounded parameters, and their gradients reach those beyond a bound."""
    bias = KERPLE(3, kind=kind)
    for parameter in bias.parameters():
        parameter.data = torch.tensor([-0.5, 0.3, 2.5])
    distance = torch.arange(3, -40, -1)
    factor = bias.a if bias.log_a is None else bias.log_a
    assert factor is not None
    right, learned = bias.double().of_distance(distance.double()), [bias.p, factor]
    near = [t.detach().to(DEVICE, torch.float32).requires_grad_() for t in learned]
    got = encodings._kerple_row(*near, None, distance.to(DEVICE), kind, 0.01, 1e-5)
    target = torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
    results = got, *torch.autograd.grad(got, near, target.to(DEVICE))
    expected = right, *torch.autograd.grad(right, learned, target.double())
    for one, other in zip(results, expected, strict=True):
        assert gap(one.detach().cpu().double(), other.detach()) < 1e-5 * max(1.0, float(other.detach().abs().max()))


@pytest.mark.parametrize("multiprocessors", [58, 82, 108, 132, 148, 170])
@pytest.mark.parametrize("key_heads", [8, 16, 32])
def test_a_step_at_4096_keys_fills_the_device(key_heads: int, multiprocessors: int) -> None:
    from posenc.backends.triton import decode

    parts = decode.number_of_parts(key_heads, 4096 // decode.BLOCK, multiprocessors)
    assert parts * key_heads >= 2 * multiprocessors
    assert parts <= decode.MOST_PARTS
