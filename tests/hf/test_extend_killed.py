"""Progressive extension in a process of its own, killed again and again, ends as one that was left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors.torch import load_file

from tests.hf.extended import saved, small

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def begun(folder: Path, out: str) -> subprocess.Popen[bytes]:
    given = ["--length", "112", "--method", "progressive", "--out", str(folder / out), "--text", str(folder / "text")]
    given += ["--windows", "2", "--lengths", "64,112", "--search", "8", "--generations", "2", "--pieces", "1"]
    given += ["--intermediate", "96", "--steps", "12", "--save-every", "1", "--warmup", "2", "--lr", "0.001"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "posenc_cli", "extend", str(folder / "model"), *given]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_at_any_moment(tmp_path: Path) -> None:
    saved(tmp_path / "model", small())
    (tmp_path / "text").write_text("the position of a token, and its distance from another, " * 20)
    model = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    whole = begun(tmp_path, "whole")
    assert whole.wait(600) == 0
    work = tmp_path / "parts.work"
    moments = (
        lambda: lines(work / "measured.jsonl") > 0,
        lambda: lines(work / "search-middle.jsonl") > 3,
        lambda: (work / "tuned.pt").exists(),
        lambda: lines(work / "search-target.jsonl") > 2,
        lambda: lines(work / "search-short.jsonl") > 2,
        lambda: (work / "folder").exists(),
    )
    for moment in moments:
        running = begun(tmp_path, "parts")
        while not moment() and running.poll() is None:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        running.wait()
    last = begun(tmp_path, "parts")
    assert last.wait(600) == 0
    one, other = (json.loads((tmp_path / name / "extension.json").read_text()) for name in ("whole", "parts"))
    for record in (one, other):
        for name in ("before", "after"):
            record[name] = {length: told["windows"] for length, told in record[name].items()}
    assert one == other
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not work.exists()
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == model
