"""benchmarks/gpu/card.py: all rows can be walked without a GPU; one that fails, hangs or ends its process is recorded.

Nobody can mend a script on a GPU that is lent for minutes.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("scipy", reason="needs the extra lab")
ROOT = Path(__file__).parents[1]
WORKER = """
import json, os, sys, time
out = sys.argv[1]
def append(record):
    with open(out, "a") as file:
        file.write(json.dumps(record) + "\\n")
done = [json.loads(line)["row"] for line in open(out)] if os.path.exists(out) else []
for row in ("ends", "hangs", "works"):
    if row in done:
        continue
    append({"row": row, "status": "started"})
    if row == "ends":
        os._exit(9)
    if row == "hangs":
        time.sleep(60)
    append({"row": row, "status": "skipped: this test measures nothing"})
"""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/gpu"))
    import card

    return card


def test_a_row_that_ends_or_hangs_its_process_has_failed(gpu: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    gpu.supervise([sys.executable, "-c", WORKER, str(out)], out, time.time() + 60, 1.5)
    records = {record["row"]: record["status"] for record in gpu.read(out)}
    assert "ended with 9" in records["ends"]
    assert "longer than 1.5 s" in records["hangs"]
    assert records["works"].startswith("skipped")


def test_a_process_that_never_starts_a_row_is_not_started_for_ever(gpu: ModuleType, tmp_path: Path) -> None:
    started = time.time()
    gpu.supervise([sys.executable, "-c", "raise SystemExit(1)"], tmp_path / "out.jsonl", time.time() + 60, 1.0)
    assert time.time() - started < 30


def test_a_wrong_result_meets_no_goal_and_a_failing_peer_is_named(gpu: ModuleType) -> None:
    import torch

    def fails() -> None:
        raise RuntimeError("no such kernel")

    comparison = gpu.Comparison(
        run=lambda: None, peers={"peer": lambda: sum(range(10_000)), "other": fails, "third": "not installed"},
        check=lambda: {"result": 0.5}, tolerance=0.1, goals={"peer": 1e9},
    )  # fmt: skip
    record = gpu.measured(comparison, torch.device("cpu"))
    assert not record["correct"]
    assert [goal["met"] for goal in record["goals"]] == [False]
    assert "no such kernel" in record["peers"]["other"]["status"]
    assert record["peers"]["third"] == {"status": "not installed"}
    record = gpu.measured(comparison._replace(tolerance=1.0), torch.device("cpu"))
    assert [goal["met"] for goal in record["goals"]] == [True]
    text = gpu.rendered([{"header": "# title\n", "device": "cpu"}, {"row": "a", "status": "measured", **record}])
    assert "≤ 1e+09 × peer: met" in text
    assert "third not installed" in text


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_all_rows_run_on_small_tensors(tmp_path: Path) -> None:
    out = tmp_path / "dry.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks/gpu/card.py"), "--dry", "--warm", "1", "--seconds", "600"]
    subprocess.run([*command, "--out", str(out)], check=True, cwd=ROOT, capture_output=True)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    results = {r["row"]: r for r in records if r.get("status") not in (None, "started")}
    assert len(results) >= 50

    def fault(record: dict) -> str | None:
        if record["status"] != "measured" or not record["correct"]:
            return str(record)
        return next((p["status"] for p in record["peers"].values() if "failed" in p.get("status", "")), None)

    assert {row: reason for row, record in results.items() if (reason := fault(record))} == {}
