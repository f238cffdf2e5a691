"""How posenc cost measures: rounds, memory, caches, paths, and estimates."""

from __future__ import annotations

import time
from functools import partial
from types import ModuleType

import pytest
import torch

from posenc.attention.call import PATHS
from posenc.encoding import Encoding
from posenc.lab.cost import memory, passes, timing
from posenc.lab.cost.conditions import Conditions
from posenc.lab.cost.estimate import GIB, Known, refusal, too_long_a_record
from posenc.lab.cost.memory import free_memory, memory_of, out_of_memory
from posenc.lab.cost.passes import decode, fill_cache, make_call, make_layer
from posenc.lab.cost.timing import Candidate, interleaved
from posenc.lab.specs import standard_encodings
from posenc.layers import KVCache

CPU = torch.device("cpu")
SMALL = Conditions(
    dim=16, heads=2, layers=1, hidden=64, train_length=16, batch_size=2, precision="float32", device="cpu", threads=1,
    lengths=(70,), seconds=0.1,
)  # fmt: skip
EVERY = [*standard_encodings(), "rope+alibi", "sinusoidal+fox"]


class Clock:
    """Time that passes only where a call says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, []  # type: float, list[str]
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def call(self, name: str, *seconds: float) -> Candidate:
        """A call that takes these seconds, one after the other, then always the last."""
        left = list(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return Candidate(run, seconds[0])


def test_ratios_are_taken_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    # The machine becomes ten times slower after the first round: medians of times would say 4 and 20.
    timed = interleaved({"nope": clock.call("nope", 1, 10), "two": clock.call("two", 2, 20)}, "nope", 30, CPU)
    assert timed["two"] == (20_000, 2.0, 2.0, 2.0, 3, 2000)
    assert timed["nope"][1:4] == (1.0, 1.0, 1.0)
    assert clock.calls == ["nope", "two", "two", "nope", "nope", "two"]


def test_quartiles_tell_how_rounds_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    timed = interleaved({"nope": clock.call("nope", 1), "odd": clock.call("odd", 1, 2, 3, 4, 5)}, "nope", 15, CPU)
    assert timed["odd"] == (3000, 3.0, 2.0, 4.0, 5, 1000)


def test_slow_calls_sit_out_and_the_base_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    calls = {"nope": clock.call("nope", 0.5), "slow": clock.call("slow", 9), "some": clock.call("some", 0.8)}
    timed = interleaved(calls, "nope", 2.0, CPU)
    assert timed["slow"].rounds == 1  # one call was more than its whole time
    assert timed["some"].rounds == 3
    assert timed["nope"].rounds == 3
    assert timed["slow"].relative == 18


def test_short_calls_are_repeated_until_a_clock_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    timed = interleaved({"nope": clock.call("nope", 1e-4)}, "nope", 0.009, CPU)
    assert len(clock.calls) == 20 * timed["nope"].rounds
    assert timed["nope"].milliseconds == pytest.approx(0.1)


def test_without_a_base_there_are_times_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = interleaved({"rope": Clock(monkeypatch).call("rope", 1)}, "nope", 3, CPU)
    assert timed["rope"] == (1000, None, None, None, 3, 1000)


def test_real_time_is_what_passes() -> None:
    naps = {name: Candidate(partial(time.sleep, nap), nap) for name, nap in (("nope", 0.002), ("rope", 0.03))}
    timed = interleaved(naps, "nope", 0.01, CPU)
    assert timed["rope"].milliseconds >= 30
    assert (timed["rope"].relative or 0) > 1


def test_memory_is_what_lives_at_the_same_time() -> None:
    def after_each_other() -> None:
        for _ in range(3):
            torch.empty(2**20, dtype=torch.uint8)

    def together() -> torch.Tensor:
        return torch.cat([torch.empty(2**20, dtype=torch.uint8), torch.empty(2**20, dtype=torch.uint8)])

    assert memory_of(after_each_other, CPU).bytes == 2**20
    held = memory_of(together, CPU)
    assert held.bytes == 4 * 2**20
    assert held.events >= 6  # three tensors that come and go


def test_memory_of_a_device_that_does_not_tell_is_none() -> None:
    ran: list[int] = []
    assert memory_of(lambda: ran.append(1), torch.device("meta")) == (None, 0)
    assert ran == [1]
    assert free_memory(torch.device("meta")) is None


def test_free_memory_is_less_than_all_and_not_nothing() -> None:
    assert 2**24 < (free_memory(CPU) or 0) < 2**60


def test_a_container_may_have_less_than_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_system", lambda: 100)
    monkeypatch.setattr(memory, "_control_group", lambda: 40)
    assert free_memory(CPU) == 40
    monkeypatch.setattr(memory, "_control_group", lambda: None)
    assert free_memory(CPU) == 100


def test_a_lack_of_memory_is_told_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60)
    assert out_of_memory(refused.value)
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not out_of_memory(RuntimeError("shapes do not match"))


@pytest.mark.parametrize("spec", EVERY)
def test_a_decoding_step_reads_its_cache(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PIECE", 4)
    layer = make_layer(spec, SMALL)
    x = torch.randn(1, 11, 16)
    with torch.inference_mode():
        cache = fill_cache(layer, x[:, :10])
        kept = [cache.k.clone(), cache.v.clone()]
        expected = layer(x)[:, -1:]
    for _ in range(2):  # the cache is as full in every round
        torch.testing.assert_close(decode(layer, x[:, 10:], cache), expected, atol=1e-5, rtol=1e-4)
        assert len(cache) == 10
        assert torch.equal(cache.k, kept[0])
        assert torch.equal(cache.v, kept[1])
    assert not torch.allclose(decode(layer, x[:, 10:], KVCache()), expected, atol=1e-3)


@pytest.mark.parametrize("spec", EVERY)
@pytest.mark.parametrize("work", ["forward", "train", "decode", "model-forward", "model"])
def test_the_path_is_the_one_that_runs(spec: str, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    length = 16 if work.startswith("model") else 70  # more than one block of queries
    call = make_call(spec, work, length, SMALL)
    ran: list[str] = []
    for name, module in PATHS.items():
        _watch(name, module, ran, monkeypatch)
    call.run()
    # Paths may hand blocks on to one another: the first one was chosen.
    assert ran[0] == call.path


def _watch(name: str, module: ModuleType, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.run

    def run(problem: object) -> object:
        ran.append(name)
        return real(problem)

    monkeypatch.setattr(module, "run", run)
    if name == "sdpa":  # which is asked first for calls without encodings
        at_once = module.at_once

        def asked(*given: object) -> object:
            out = at_once(*given)
            ran.extend([name] if out is not None else [])
            return out

        monkeypatch.setattr(module, "at_once", asked)


def test_training_gives_every_gradient_and_reading_none() -> None:
    gradients = make_call("t5", "train", 8, SMALL).run()
    assert isinstance(gradients, tuple)
    layer = make_layer("t5", SMALL)
    assert [None if g is None else g.shape for g in gradients] == [(1, 8, 16), *(p.shape for p in layer.parameters())]
    out = make_call("t5", "forward", 8, SMALL).run()
    assert isinstance(out, torch.Tensor)
    assert not out.requires_grad
    loss_gradients = make_call("t5", "model", 16, SMALL).run()
    assert isinstance(loss_gradients, tuple)
    assert all(g is not None and g.isfinite().all() for g in loss_gradients)


def test_tables_reach_as_far_as_is_measured() -> None:
    layer = make_layer("learned", SMALL)
    rows = [p.shape[0] for e in layer.embeddings if isinstance(e, Encoding) for p in e.parameters()]
    assert rows == [71]  # 70 tokens in the cache, and the next one


def test_estimates_grow_as_the_path_does() -> None:
    def refused(work: str, path: str, length: int, known: Known | None) -> str | None:
        return refusal(known, work, path, length, SMALL)

    second = Known(100, 1.0, 0, 0)
    assert refused("forward", "tiled", 200, second) is None  # 4 s
    assert refused("forward", "tiled", 300, second) == "a call would take about 9 s; with more --seconds it is measured"
    assert refused("decode", "tiled", 300, second) is None  # 3 s
    assert "about 9 s" in (refused("decode", "dense", 300, second) or "")
    large = Known(1000, 0.0, GIB, 0)
    assert refused("train", "tiled", 1001, large) is None
    assert "it would need about" in (refused("train", "dense", 1_000_000, large) or "")
    assert "it would need about" in (refused("train", "dense", 1_000_000, None) or "")
    assert refused("train", "tiled", 1_000_000, None) is None


def test_records_that_would_be_too_long_are_not_made() -> None:
    known = Known(100, 0.0, 0, 50_000)
    assert too_long_a_record(None, "forward", "tiled", 10**6) is None
    assert too_long_a_record(known, "forward", "tiled", 400) is None
    assert too_long_a_record(known, "forward", "tiled", 800) == "memory: its record would have about 3 million events"
    assert too_long_a_record(known, "forward", "dense", 800) is None
    assert too_long_a_record(known, "decode", "tiled", 800) is None
