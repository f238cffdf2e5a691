"""posenc cost: what is measured, how it is kept, and what happens where something cannot be."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
import torch

from posenc.attention.call import PATHS
from posenc.lab import commands
from posenc.lab.cost import Costs, estimate, measure, measure_costs, measured, read_cost, write_cost
from posenc.lab.cost.results import LAYER_PASSES, PASSES
from posenc.lab.cost.tables import all_tables, markdown, missing, overview, unsteady
from posenc.lab.text.profiles import Settings

TINY = Settings(
    train_length=8, batch_size=4, dim=16, layers=2, heads=2, precision="float32", device="cpu", threads=1
)  # fmt: skip
SPECS = ("rope", "learned", "t5", "cope", "rope+alibi")
LENGTHS = (8, 128)
FIELDS = {
    "encoding", "pass", "length", "milliseconds", "relative", "low", "high", "memory", "path", "rounds", "why",
}  # fmt: skip


@pytest.fixture(scope="module")
def costs() -> Costs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "LEAST", math.inf)  # however busy the machine is
        return measure_costs(SPECS, TINY, lengths=LENGTHS, seconds=0.01, command="posenc cost of a test")


def test_every_encoding_has_a_cell_for_every_pass_and_length(costs: Costs) -> None:
    wanted = [(work, n) for n in LENGTHS for work in LAYER_PASSES] + [("model-forward", 8), ("model", 8)]
    assert costs.encodings == ("nope", *SPECS)
    assert [(c.encoding, c.work, c.length) for c in costs.cells] == [(s, *w) for w in wanted for s in costs.encodings]
    for cell in costs.cells:
        assert cell.milliseconds is not None
        assert cell.milliseconds > 0
        assert cell.low is not None
        assert cell.high is not None
        assert 0 < cell.low <= (cell.relative or 0) <= cell.high
        assert (cell.memory or 0) > 0
        assert cell.path in PATHS
        assert cell.rounds >= 1
        assert cell.why is None


def test_the_base_costs_as_much_as_itself(costs: Costs) -> None:
    base = [c for c in costs.cells if c.encoding == "nope"]
    assert {(c.relative, c.low, c.high) for c in base} == {(1.0, 1.0, 1.0)}


def test_more_work_holds_more(costs: Costs) -> None:
    for spec in costs.encodings:
        forward, train = costs.cell(spec, "forward", 128), costs.cell(spec, "train", 128)
        assert (train.memory or 0) > (forward.memory or 0) > (costs.cell(spec, "forward", 8).memory or 0)
        assert (costs.cell(spec, "decode", 128).memory or 0) < (forward.memory or 0)


def test_parameters_and_throughput_are_those_of_the_whole_model(costs: Costs) -> None:
    own = {spec: p.own for spec, p in costs.parameters.items()}
    assert (own["nope"], own["rope"], own["rope+alibi"]) == (0, 0, 0)
    assert own["learned"] == TINY.train_length * TINY.dim
    assert all(p.total - p.own == costs.parameters["nope"].total for p in costs.parameters.values())
    took = costs.cell("rope", "model", 8).milliseconds
    assert took
    assert costs.tokens_per_second("rope") == pytest.approx(1000 * 4 * 8 / took)


def test_files_hold_everything_and_are_read_back(costs: Costs, tmp_path: Path) -> None:
    paths = write_cost(tmp_path, costs)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cost.jsonl", "cost.md"] == [p.name for p in paths]
    assert read_cost(tmp_path) == costs
    head, *lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert head["format"] == "posenc-lab-cost/1"
    assert head["command"] == "posenc cost of a test"
    assert head["versions"]["torch"] == torch.__version__
    assert {"settings", "machine", "parameters"} <= set(head)
    assert all(set(line) == FIELDS and line["pass"] in PASSES for line in lines)


def test_a_file_that_is_not_whole_or_not_ours_is_named(costs: Costs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*cost\.jsonl: No such file"):
        read_cost(tmp_path)
    path, _ = write_cost(tmp_path, costs)
    whole = path.read_text()
    for damaged in (whole[:-40], whole[: whole.rindex('{"encoding"')], whole.replace("cost/1", "cost/0"), "[1]\n", ""):
        path.write_text(damaged)
        with pytest.raises(ValueError, match="truncated, or not of the format posenc-lab-cost/1"):
            read_cost(tmp_path)


def test_tables_have_a_line_for_each_encoding(costs: Costs) -> None:
    tables = [overview(costs), *all_tables(costs)]
    assert len(tables) == 9
    for table in tables:
        assert [line[0] for line in table.lines] == list(costs.encodings)
        assert all(len(line) == len(table.heads) for line in table.lines)
    text = markdown(costs)
    assert all(f"## {table.title}\n" in text for table in tables)
    assert "Not measured" not in text
    assert missing(costs) == []


def _with_ratios(costs: Costs, low: float, high: float, rounds: int) -> Costs:
    cells = (
        dataclasses.replace(c, relative=2.0, low=low, high=high, rounds=rounds) if c.encoding != "nope" else c
        for c in costs.cells
    )
    return dataclasses.replace(costs, cells=tuple(cells))


def test_a_busy_machine_and_single_rounds_are_told(costs: Costs) -> None:
    steady, shaken = (_with_ratios(costs, 2 - apart, 2 + apart, 9) for apart in (0.1, 0.4))
    single = _with_ratios(costs, 2.0, 2.0, 1)
    assert unsteady(steady) == unsteady(single) == []
    (told,) = unsteady(shaken)
    assert told.startswith("In 40 of 40 cells")
    assert told in markdown(shaken)
    assert "2.00 (1.90–2.10)" in markdown(steady)
    assert "2.00 (1 round)" in markdown(single)


@pytest.mark.parametrize(
    ("specs", "lengths", "seconds", "changed", "words"),
    [
        (["ropee"], (8,), 0.1, {}, "did you mean '?rope"),
        (["rope"], (), 0.1, {}, "--lengths : tokens from 1 on"),
        (["rope"], (16, 8), 0.1, {}, "--lengths 16,8: .* must grow"),
        (["rope"], (0, 8), 0.1, {}, "--lengths 0,8: tokens from 1 on"),
        (["rope"], (8,), 0.0, {}, "--seconds 0.0: a positive number"),
        (["rope"], (8,), 0.1, {"precision": "auto"}, "precision is auto"),
        (["rope"], (8,), 0.1, {"device": "auto"}, "device is auto"),
    ],
)
def test_what_cannot_be_measured_is_named_at_the_door(
    specs: list[str], lengths: tuple[int, ...], seconds: float, changed: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        measure_costs(specs, dataclasses.replace(TINY, **changed), lengths=lengths, seconds=seconds)


def test_controls_and_repetitions_cost_nothing_more() -> None:
    found = measure_costs(["rope+window", "RoPE", "nope"], TINY, lengths=(4,), seconds=1e-6)
    assert found.encodings == ("nope", "rope")


def test_half_precision_is_measured_too(costs: Costs) -> None:
    half = measure_costs(["rope"], dataclasses.replace(TINY, precision="bfloat16"), lengths=(8,), seconds=1e-6)
    assert missing(half) == []
    for spec in half.encodings:
        assert (half.cell(spec, "decode", 8).memory or 0) < (costs.cell(spec, "decode", 8).memory or 0)


def test_threads_are_set_and_given_back() -> None:
    before, seen = torch.get_num_threads(), set()
    measure_costs(
        [], dataclasses.replace(TINY, threads=before + 1), lengths=(4,), seconds=1e-6,
        on_progress=lambda share, words: seen.add(torch.get_num_threads()) if share < 1 else None,
    )  # fmt: skip
    assert seen == {before + 1}
    assert torch.get_num_threads() == before


def test_progress_grows_to_the_end() -> None:
    told: list[tuple[float, str]] = []
    measure_costs(["rope"], TINY, lengths=(4,), seconds=1e-6, on_progress=lambda *what: told.append(what))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert told[0] == (0.0, "forward, 4 tokens: nope")


def test_what_would_not_fit_is_left_out_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # 128 tokens on the dense path need four matrices of 2 × 128 × 128 numbers; everything else fits.
    monkeypatch.setattr(estimate, "free_memory", lambda device: 600_000)
    monkeypatch.setattr(PATHS["tiled"], "refuses", lambda problem: "not today")
    monkeypatch.setattr(PATHS["rows"], "refuses", lambda problem: "not today")
    monkeypatch.setattr(PATHS["flex"], "refuses", lambda problem: "not today")
    found = measure_costs(["cope"], TINY, lengths=(128,), seconds=0.001)
    cell = found.cell("cope", "forward", 128)
    assert cell.path == "dense"
    assert (cell.milliseconds, cell.relative, cell.low, cell.high, cell.memory, cell.rounds) == (None,) * 5 + (0,)
    assert cell.why == "it would need about 0.0 GiB, and 0.0 GiB are free"
    assert found.cell("nope", "forward", 128).relative == 1.0
    assert found.cell("cope", "decode", 128).why is None
    write_cost(tmp_path, found)
    assert read_cost(tmp_path) == found
    assert "- cope, forward, 128 tokens: it would need" in (tmp_path / "cost.md").read_text()


def test_without_a_base_times_stay_and_ratios_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    real = measure.make_call

    def failing(spec: str, work: str, length: int, conditions: object) -> object:
        if spec == "nope" and work == "train":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(spec, work, length, conditions)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "make_call", failing)
    found = measure_costs(["rope"], TINY, lengths=(4,), seconds=1e-6)
    assert found.cell("nope", "train", 4).why == "there was not enough memory"
    rope = found.cell("rope", "train", 4)
    assert rope.milliseconds
    assert rope.relative is None
    assert rope.why == "nope could not be measured here, so there is nothing to compare with"
    assert len(missing(found)) == 2
    assert "| nope | – |" in markdown(found)


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*what: object) -> object:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(measure, "make_call", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        measure_costs(["rope"], TINY, lengths=(4,), seconds=1e-6)


def test_memory_that_cannot_be_recorded_is_null_beside_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "RECORD", 100)
    found = measure_costs(["cope"], TINY, lengths=(32, 128), seconds=1e-3)
    first, second = (found.cell("cope", "train", n) for n in (32, 128))
    assert first.memory
    assert second.memory is None
    assert second.milliseconds
    assert second.relative
    assert (second.why or "").startswith("memory: its record would have about")


def arguments(out: Path, *more: str) -> list[str]:
    """A command line that takes a second."""
    numbers = "--lengths 4,16 --seconds 0.0001 --dim 16 --heads 2 --layers 1 --precision float32 --device cpu"
    return ["cost", "rope", *numbers.split(), "--out", str(out), *more]


def test_the_command_writes_and_shows_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(arguments(tmp_path / "new" / "folder")) == 0
    shown = capsys.readouterr().out
    assert "nope is measured too" in shown
    assert "rope" in shown
    assert "cost.jsonl, cost.md" in shown
    found = read_cost(tmp_path / "new" / "folder")
    assert found.encodings == ("nope", "rope")
    assert found.conditions.lengths == (4, 16)
    assert found.command.startswith("posenc cost rope --lengths 4,16")


def test_stopped_or_failed_it_leaves_an_earlier_result_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(arguments(tmp_path)) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"cost.jsonl", "cost.md"}

    def stopped(share: float, spec: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measured.Progress, "update", lambda self, bar, completed, description: stopped(completed, ""))
    assert commands.run(arguments(tmp_path, "--threads", "2")) == 130
    assert "results of an earlier run are as they were" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["rope+window"], r"rope\+window: a control is not a model of its own"),
        (["ropee"], "did you mean '?rope"),
        (["--lengths", "4;16"], "--lengths '4;16': tokens separated by commas"),
        (["--profile", "quik"], "did you mean '?quick"),
        (["--dim", "15"], "--dim 15: it must be a multiple of --heads 2"),
        (["--threads", "0"], "--threads 0: at least 1"),
        (["--device", "nowhere"], "--device nowhere: not available here"),
        (["--out", __file__], "--out .*: file exists"),
    ],
)
def test_the_command_names_what_is_wrong(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(arguments(tmp_path, *more)) == 2
    assert re.match(f"error: .*{words}", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []
