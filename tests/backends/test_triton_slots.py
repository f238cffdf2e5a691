"""Steps of layers over caches by the kernels, against one call of the layer in float64, and what they check themselves.

On a GPU the kernels run as they are, else in Triton's interpreter: see `tests.interpreted`.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, ForgetGate, RoPE, T5Bias
from posenc.backends import triton as backend
from posenc.backends.triton import encodings, guard, launch
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


Fault = Callable[[guard.Run], guard.Run]


def _late(run: guard.Run) -> guard.Run:
    """A token too few."""
    return lambda call, of: run(call, of._replace(counts=of.counts - 1))


def _elsewhere(run: guard.Run) -> guard.Run:
    return lambda q, newest, of, *held: run(q, newest, of._replace(counts=of.counts - 1), *held)


def _unturned(run: guard.Run) -> guard.Run:
    return lambda q, newest, *rest: run(q, newest._replace(table=None), *rest)


def _next(run: guard.Run) -> guard.Run:
    return lambda at, *rest: run(at + 1, *rest)


def _nothing(run: guard.Run) -> guard.Run:
    return lambda *call: None


def _heavier(run: guard.Run) -> guard.Run:
    return lambda x, weight, bias: run(x, weight * 1.1, bias)


def _larger(run: guard.Run) -> guard.Run:
    return lambda p, *rest: run(p + (0.01 * p).detach(), *rest)


def _steeper(run: guard.Run) -> guard.Run:
    return lambda p, *rest: run(p * 1.01 - (0.01 * p).detach(), *rest)


GATES = Kind("log gates", ("bias",), torch.float32, 1100, 5, False)
FEW, APPEND = "few queries", "append"
PLANTED: list[tuple[Kind, list[Fault]]] = [
    (Kind(FEW, ("row", "slopes", "causal", "padding", "slots"), torch.float32, 16, 16, False), [_late]),
    (Kind(FEW, ("row", "gates", "sink", "causal", "window", "padding", "slots"), torch.float32, 24, 16, False),
     [_late]),
    (Kind(FEW, ("network", "softcap", "causal", "padding", "slots"), torch.float32, 16, 40, False), [_late]),
    (Kind(FEW, ("sticks", "drop", "causal", "window", "padding", "slots"), torch.float32, 16, 16, False), [_late]),
    (Kind(FEW, ("counts", "own gates", "causal", "padding", "slots"), torch.float32, 16, 16, False), [_late]),
    (Kind(APPEND, (), torch.float32, 16, 24, False), [_elsewhere]),
    (Kind(APPEND, ("ring",), torch.float32, 16, 24, False), [_elsewhere]),
    (Kind(APPEND, ("half", "8 pairs"), torch.float32, 16, 24, False), [_elsewhere, _unturned]),
    (Kind(APPEND, ("ring", "interleaved", "5 pairs"), torch.float32, 16, 24, False), [_elsewhere, _unturned]),
    (Kind(APPEND, ("at",), torch.float32, 16, 24, False), [_next, _nothing]),
    (GATES, [_heavier]),
    (GATES._replace(flags=(), dtype=torch.float16, width=40), [_heavier]),
    *((Kind("kerple row", flags, torch.float32, 1, 1, True), [_larger, _steeper])
      for flags in (("log",), ("power",), ("bam",), ("bam", "shift"))),
]  # fmt: skip


def _named(value: Kind | list[Fault]) -> str:
    return str(value) if isinstance(value, Kind) else "+".join(fault.__name__.strip("_") for fault in value)


@kernels
@pytest.mark.parametrize(("kind", "planted"), PLANTED, ids=_named)
def test_checks_tell_right_from_wrong(kind: Kind, planted: list[Fault], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SIZES", ((2, 4, 2, 20, 100), (1, 2, 1, 25, 31)))
    monkeypatch.setattr(guard, "FEW_SIZES", guard.SIZES)
    device, (run, results) = torch.device(DEVICE), backend.check_of(kind)
    assert guard.check(kind, device, run, results) is None
    for fault in planted:
        assert guard.check(kind, device, fault(run), results) is not None


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
