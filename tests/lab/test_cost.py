"""posenc cost: how time and memory are measured, what a call is, what is kept, and what cannot be measured."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from tests.lab.conftest import tiny

from posenc.attend import BACKENDS
from posenc.lab import commands
from posenc.lab.config import Config, Machine, Model, Training
from posenc.lab.console import plain_console
from posenc.lab.cost import measure, timing
from posenc.lab.cost.costs import COLUMNS, HEADS, LAYER_PASSES, PASSES, Costs, read_costs, write_costs
from posenc.lab.cost.measure import GIB, Known, costs_of_run, measure_costs, refusal, too_long_a_record
from posenc.lab.cost.passes import Conditions, decode, fill_cache, make_call, make_layer
from posenc.lab.cost.timing import Candidate, Rounds, interleaved, relative
from posenc.lab.specs import standard_encodings
from posenc.layers import KVCache

CPU = torch.device("cpu")
TINY = Config("text", Model(16, 2, 2), Training(train_length=8, batch_size=4), machine=Machine("cpu"))
SMALL = Conditions(TINY, lengths=(70,), seconds=0.1)
SPECS, LENGTHS = ("rope", "learned", "t5", "cope", "rope+alibi"), (8, 128)
EVERY = [*standard_encodings(), "rope+alibi", "sinusoidal+fox"]


@pytest.fixture(scope="module")
def costs() -> Costs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "LEAST", math.inf)  # however busy the machine is
        return measure_costs(SPECS, TINY, lengths=LENGTHS, seconds=0.01, command="posenc cost of a test")


def cell(costs: Costs, spec: str, work: str, length: int) -> pd.Series[float]:
    frame = costs.frame
    return frame[(frame["spec"] == spec) & (frame["pass"] == work) & (frame["length"] == length)].iloc[0]


class Clock:
    """Time that passes only where a call says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, list[str]()
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def call(self, name: str, *seconds: float) -> Candidate:
        """A call that takes these seconds, one after the other, then always the last."""
        left = list(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return Candidate(run, seconds[0])


def test_rounds_turn_round_and_slow_calls_sit_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    # The machine becomes ten times slower after the first round: medians of times would say 4 and 20.
    taken = interleaved({"nope": clock.call("nope", 1, 10), "two": clock.call("two", 2, 20)}, "nope", seconds=30)
    assert taken["two"] == pytest.approx({0: 2, 1: 20, 2: 20})
    assert relative(taken["two"], taken["nope"]) == pytest.approx((2, 2, 2))
    assert clock.calls == ["nope", "two", "two", "nope", "nope", "two"]
    calls = {name: clock.call(name, took) for name, took in (("nope", 0.5), ("slow", 9), ("some", 0.8))}
    taken = interleaved(calls, "nope", seconds=2.0)
    assert {name: len(rounds) for name, rounds in taken.items()} == {"nope": 3, "slow": 1, "some": 3}
    before = len(clock.calls)
    taken = interleaved({"short": clock.call("short", 1e-4)}, rounds=4)  # repeated until a clock can tell
    assert (len(clock.calls) - before, taken["short"][3]) == (80, pytest.approx(1e-4))


def test_the_interval_of_a_median_ratio() -> None:
    def interval(*ratios: float) -> tuple[float, float, float]:
        rounds: Rounds = dict(enumerate(ratios))
        return relative(rounds, dict.fromkeys(rounds, 1.0))

    assert interval(3, 1, 2) == (2, 1, 3)
    assert interval(*range(1, 18)) == (9, 5, 13)  # the table of the sign test: ranks 5 and 13 of 17, 95.1 %
    samples = torch.randn(2000, 25, generator=torch.Generator().manual_seed(0)).exp()
    held = sum(low <= 1 <= high for _, low, high in (interval(*row.tolist()) for row in samples))
    assert 0.94 < held / 2000 < 0.975


def test_memory_is_what_lives_at_the_same_time(tmp_path: Path) -> None:
    def alone() -> torch.Tensor:
        return torch.empty(2**20, dtype=torch.uint8)

    def after_each_other() -> None:
        for _ in range(3):
            alone()

    assert timing.memory_of(after_each_other, CPU).bytes == 2**20
    assert timing.memory_of(lambda: torch.cat([alone(), alone()]), CPU).bytes == 4 * 2**20
    assert timing.memory_of(alone, torch.device("meta")) == (None, 0)
    assert 2**24 < (timing.free_memory(CPU) or 0) < 2**60
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable: 4 kB\n")
    assert timing.free_memory(CPU, meminfo, tmp_path) == 4096
    for name, text in {"max": "900", "current": "870", "stat": "anon 800\ninactive_file 10"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert timing.free_memory(CPU, meminfo, tmp_path) == 40  # a container may have less than its machine
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60)
    assert timing.out_of_memory(refused.value)
    assert not timing.out_of_memory(RuntimeError("shapes do not match"))


@pytest.mark.parametrize("spec", EVERY)
def test_a_decoding_step_reads_its_cache(spec: str) -> None:
    layer, x = make_layer(spec, SMALL), torch.randn(1, 11, 16)
    with torch.inference_mode():
        cache, expected = fill_cache(layer, x[:, :10], size=4), layer(x)[:, -1:]
    for _ in range(2):  # the cache is as full in every round
        torch.testing.assert_close(decode(layer, x[:, 10:], cache), expected, atol=1e-5, rtol=1e-4)
        assert len(cache) == 10
    assert not torch.allclose(decode(layer, x[:, 10:], KVCache()), expected, atol=1e-3)


@pytest.mark.parametrize("spec", EVERY)
def test_the_path_is_the_one_that_runs(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def watched(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **options: object) -> object:
            out = real(*arguments, **options)
            ran.extend([name] if out is not None else [])
            return out

        return run

    for name, module in BACKENDS.items():
        monkeypatch.setattr(module, "run", watched(name, module.run))
    for work in PASSES:
        call = make_call(spec, work, 8 if work.startswith("model") else 70, SMALL)  # more than one block of queries
        ran.clear()
        out = call.run()
        assert call.path in ran
        tensors = [tensor for tensor in (out if isinstance(out, tuple) else (out,)) if tensor is not None]
        assert len(tensors) == (len(out) if isinstance(out, tuple) else 1)
        for tensor in tensors:
            assert isinstance(tensor, torch.Tensor)
            assert tensor.isfinite().all()


def test_every_encoding_has_a_cell_for_every_pass_and_length(costs: Costs) -> None:
    frame, specs = costs.frame, ["nope", *SPECS]
    expected = [(w, n) for n in LENGTHS for w in LAYER_PASSES] + [("model-forward", 8), ("model", 8)]
    assert [tuple(row) for row in frame[["spec", "pass", "length"]].values] == [
        (s, *w) for w in expected for s in specs
    ]
    assert list(frame) == list(COLUMNS)
    assert (frame[["milliseconds", "low", "memory"]] > 0).all().all()
    assert ((frame["low"] <= frame["relative"]) & (frame["relative"] <= frame["high"])).all()
    assert set(frame.loc[frame["spec"] == "nope", "relative"]) == {1.0}
    for spec in specs:
        forward, train = (cell(costs, spec, work, 128)["memory"] for work in ("forward", "train"))
        assert train > forward > cell(costs, spec, "decode", 128)["memory"]
    assert {spec: parameters for spec, (_, parameters) in costs.parameters.items()}["learned"] == 8 * 16
    assert len({total - parameters for total, parameters in costs.parameters.values()}) == 1
    rope = dict(zip(HEADS, costs.overview()[1], strict=True))
    assert (rope["encoding"], float(rope["kT/s"])) == (
        "rope",
        pytest.approx(32 / cell(costs, "rope", "model", 8)["milliseconds"], abs=0.06),
    )
    half = measure_costs(["rope"], TINY.replaced({"precision": "bfloat16"}), lengths=(8,), seconds=1e-6)
    assert cell(half, "rope", "decode", 8)["memory"] < cell(costs, "rope", "decode", 8)["memory"]


def test_files_are_read_back_and_damage_is_named(costs: Costs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*cost\.json: No such file"):
        read_costs(tmp_path)
    assert [path.name for path in write_costs(tmp_path, costs)] == ["cost.csv", "cost.json"]
    again = read_costs(tmp_path)
    pd.testing.assert_frame_equal(again.frame, costs.frame, rtol=1e-5)
    assert dataclasses.replace(again, frame=costs.frame) == costs
    for name in ("cost.csv", "cost.json"):
        content = (tmp_path / name).read_text()
        (tmp_path / name).write_text(content[:-40])
        with pytest.raises(ValueError, match=r"cost\.(csv|json)"):
            read_costs(tmp_path)
        (tmp_path / name).write_text(content)
    (tmp_path / "cost.json").write_text(content.replace('"parameters": {', '"parameters": {"../x": [1, 1],'))
    with pytest.raises(ValueError, match=r"cost\.json: parameters"):
        read_costs(tmp_path)


def test_a_busy_machine_is_told(costs: Costs) -> None:
    assert not [line for line in costs.remarks() if not line.startswith("In ")]
    shaken = costs.frame.assign(relative=2.0, low=1.6, high=2.4, rounds=9)
    assert dataclasses.replace(costs, frame=shaken).remarks()[0].startswith("In 40 of 40 cells")
    assert not dataclasses.replace(costs, frame=shaken.assign(low=1.9, high=2.1)).remarks()


def test_estimates_grow_as_the_path_does() -> None:
    second, large, long = Known(100, 1.0), Known(1000, 0.0, GIB), Known(100, 0.0, 0, 50_000)
    assert refusal(second, "forward", "tiled", 200, SMALL) is None  # 4 s
    assert (
        refusal(second, "forward", "tiled", 300, SMALL)
        == "a call would take about 9 s; with more --seconds it is measured"
    )
    assert refusal(second, "decode", "tiled", 300, SMALL) is None  # 3 s
    assert "about 9 s" in (refusal(second, "decode", "dense", 300, SMALL) or "")
    assert refusal(large, "train", "tiled", 1001, SMALL) is None
    for known in (large, Known()):
        assert "it would need about" in (refusal(known, "train", "dense", 1_000_000, SMALL) or "")
    assert too_long_a_record(long, "forward", "tiled", 400) is None
    assert too_long_a_record(long, "forward", "tiled", 800) == "memory: its record would have about 3 million events"
    assert too_long_a_record(long, "forward", "dense", 800) is too_long_a_record(long, "decode", "tiled", 800) is None


def test_cells_that_cannot_be_measured_say_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = measure.make_call

    def failing(spec: str, work: str, length: int, conditions: Conditions) -> object:
        if spec == "nope" and work == "train":
            raise torch.OutOfMemoryError("CUDA out of memory")
        if work == "decode":
            monkeypatch.setattr(measure, "RECORD", -1)
        return real(spec, work, length, conditions)

    # 128 tokens on the dense path need four matrices of 2 × 128 × 128 numbers; everything else fits.
    monkeypatch.setattr(measure, "free_memory", lambda device: 600_000)
    for name in ("tiled", "rows", "flex"):
        monkeypatch.setattr(BACKENDS[name], "refuses", lambda problem: "not today")
    monkeypatch.setattr(measure, "make_call", failing)
    measured = measure_costs(["cope"], TINY, lengths=(128,), seconds=0.001)
    forward = cell(measured, "cope", "forward", 128)
    assert (forward["path"], forward["rounds"]) == ("dense", 0)
    assert forward[["milliseconds", "relative", "memory"]].isna().all()
    assert forward["why"] == "it would need about 0.0 GiB, and 0.0 GiB are free"
    assert cell(measured, "nope", "train", 128)["why"] == "there was not enough memory"
    decoded = cell(measured, "cope", "decode", 128)
    assert decoded["why"].startswith("memory: its record would have")
    assert decoded["relative"] > 0
    write_costs(tmp_path, measured)
    pd.testing.assert_frame_equal(read_costs(tmp_path).frame, measured.frame, rtol=1e-5)
    assert any(line.startswith("cope, forward, 128 tokens: it would need") for line in measured.remarks())
    assert measured.overview()[1][2] == "–"


def arguments(out: Path, *more: str) -> list[str]:
    """A command line that takes a second."""
    numbers = "--lengths 4,16 --seconds 0.0001 --dim 16 --heads 2 --layers 1 --precision float32 --device cpu"
    return ["cost", "rope", *numbers.split(), "--out", str(out), *more]


STOPPING = """
from posenc import ALiBi


class Stopping(ALiBi):
    def forward(self, q_pos, k_pos):
        raise KeyboardInterrupt
"""


def test_the_command_writes_shows_and_can_be_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, before = tmp_path / "new" / "folder", torch.get_num_threads()
    assert commands.run(arguments(out)) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("nope is measured too", "rope", "cost.csv, cost.json"))
    earlier = read_costs(out)
    assert (list(earlier.parameters), earlier.numbers["lengths"]) == (["nope", "rope"], "4, 16")
    assert earlier.command.startswith("posenc cost rope --lengths 4,16")
    assert torch.get_num_threads() == before
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "stopping.py").write_text(STOPPING)
    more = ("stopping:Stopping", "--classes-from", str(tmp_path), "--threads", "2")
    assert commands.run(arguments(out, *more)) == 130
    assert "results of an earlier run are as they were" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written


def test_the_command_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "did you mean '?rope": ["ropee"], "--lengths '4;16': tokens separated": ["--lengths", "4;16"],
        "--lengths 16,8: .* must grow": ["--lengths", "16,8"], "--seconds 0.0: a positive": ["--seconds", "0"],
        "--dim 15: .*multiple of --heads 2": ["--dim", "15"], "--device nowhere: not": ["--device", "nowhere"],
        "cannot write .*: .*xists": ["--out", __file__],
    }  # fmt: skip
    for words, more in cases.items():
        assert commands.run(arguments(tmp_path, *more)) == 2
        assert re.match(f"error: .*{words}", capsys.readouterr().err)
        assert list(tmp_path.iterdir()) == []


def test_costs_of_a_run_are_measured_once(tmp_path: Path) -> None:
    console = plain_console(quiet=True)
    small = tiny("text", device="cpu")
    first = costs_of_run(tmp_path, ["rope"], small, (4, 8), 0.01, console, command="posenc compare rope")
    assert set(first.frame["spec"].astype(str)) == {"nope", "rope"}
    stored = (tmp_path / "cost.csv").read_bytes()  # other timings would be written if they were measured again
    again = costs_of_run(tmp_path, ["rope"], small, (4, 8), 0.01, console, command="posenc compare rope")
    assert again.frame.equals(read_costs(tmp_path).frame)
    assert (tmp_path / "cost.csv").read_bytes() == stored
    more = costs_of_run(tmp_path, ["rope", "alibi"], small, (4, 8), 0.01, console, command="posenc compare rope alibi")
    assert set(more.frame["spec"].astype(str)) == {"nope", "rope", "alibi"}
    assert (tmp_path / "cost.csv").read_bytes() != stored
