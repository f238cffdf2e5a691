"""Progressive extension in a process of its own, killed again and again, ends as one that was left alone."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors.torch import load_file

import posenc_cli
from tests.hf.extend.extended import saved, small

pytestmark = pytest.mark.slow


def extended(folder: Path, out: str) -> None:
    """What the command does, in a process of its own."""
    torch.set_num_threads(1)
    arguments = [
        "--length",
        "112",
        "--method",
        "progressive",
        "--out",
        str(folder / out),
        "--text",
        str(folder / "text"),
    ]
    arguments += ["--windows", "2", "--lengths", "64,112", "--search", "8", "--generations", "2", "--pieces", "1"]
    arguments += ["--intermediate", "96", "--steps", "12", "--save-every", "1", "--warmup", "2", "--lr", "0.001"]
    raise SystemExit(posenc_cli.run(["extend", str(folder / "model"), *arguments]))


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_at_any_moment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")  # which imports everything once, and computes nothing itself
    context.set_forkserver_preload(
        ["tests.hf.extend.test_extend_killed", "posenc.cli.extend", "posenc.hf.extend", "accelerate"]
    )
    saved(tmp_path / "model", small())
    (tmp_path / "text").write_text("the position of a token, and its distance from another, " * 20)
    model = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    unbroken = context.Process(target=extended, args=(tmp_path, "whole"))
    unbroken.start()
    unbroken.join(600)
    assert unbroken.exitcode == 0
    work = tmp_path / "parts.work"
    moments = (
        lambda: lines(work / "measured.jsonl") > 0,
        lambda: lines(work / "search-middle.jsonl") > 3,
        lambda: (work / "tuned.pt").exists(),
        lambda: lines(work / "search-target.jsonl") > 2,
        lambda: lines(work / "search-short.jsonl") > 2,
        lambda: (work / "folder").exists(),
    )
    killed = 0
    for moment in moments:
        running = context.Process(target=extended, args=(tmp_path, "parts"))
        running.start()
        while not moment() and running.is_alive():
            time.sleep(0.002)
        running.kill()
        running.join()
        killed += running.exitcode != 0
    assert killed >= 5  # the last moment is short
    last = context.Process(target=extended, args=(tmp_path, "parts"))
    last.start()
    last.join(600)
    assert last.exitcode == 0
    expected, other = (json.loads((tmp_path / name / "extension.json").read_text()) for name in ("whole", "parts"))
    for record in (expected, other):
        for name in ("before", "after"):
            record[name] = {length: entry["windows"] for length, entry in record[name].items()}
    assert expected == other
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not work.exists()
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == model
