"""benchmarks/gpu without a GPU: what is counted, and card.py, whose failing rows are recorded: none is mended there."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks/gpu"
needs_the_cuda_build = pytest.mark.skipif(
    torch.version.cuda is None or shutil.which("g++") is None, reason="needs PyTorch's CUDA build and g++"
)


def measured(tmp_path: Path, row: str, *options: str) -> dict[str, object]:
    records = tmp_path / "rows.jsonl"
    command = [sys.executable, str(FOLDER / "dry_run.py"), "--rows", row, "--json", str(records), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=500)
    found: dict[str, object] = json.loads(records.read_text().splitlines()[0])
    return found


@needs_the_cuda_build
@pytest.mark.slow
def test_one_query_without_an_encoding_is_two_launches(tmp_path: Path) -> None:
    record = measured(tmp_path, "one query, NoPE")
    assert (record["launches"], record["waits"], record["graph"], record["faults"]) == (2, 0, "yes", [])


@needs_the_cuda_build
@pytest.mark.slow
def test_the_device_is_the_card_that_was_asked_for() -> None:
    command = [sys.executable, str(FOLDER / "dry_run.py"), "--rows", "none of them", "--sm", "89"]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=500).stdout
    assert out.startswith("Null L4, sm_89, 58 multiprocessors, 22 GiB")


def test_each_row_has_a_goal() -> None:
    goals = tomllib.loads((FOLDER / "goals.toml").read_text())
    assert all(
        {"words", "why"} <= goal.keys() <= {"words", "why", "launches", "beyond_sdpa", "host"} for goal in goals["goal"]
    )
    names = subprocess.run(
        [sys.executable, "-c", "import dry_rows; print(*dry_rows.rows(), sep='\\n')"],
        cwd=FOLDER, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(names) > 90
    assert [name for name in names if not any(goal["words"] in name for goal in goals["goal"])] == []
    assert set(goals["missed"]) <= set(names)


def test_a_goal_may_be_what_sdpa_takes_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    dry_run = importlib.import_module("dry_run")
    goal = {"words": "training", "launches": 4, "beyond_sdpa": 2, "why": ""}
    monkeypatch.setattr(dry_run, "goals", lambda: {"goal": [goal]})
    record = {"row": "training, RoPE", "waits": 0, "plans": 0, "mallocs": 0, "graph": ""}
    for launches, of_sdpa, most in ((4, 1, 4), (5, 1, 4), (8, 6, 8), (9, 6, 8)):
        expected = [] if launches <= most else [f"{launches} launches, goal {most}"]
        assert dry_run.faults(record | {"launches": launches, "of_sdpa": of_sdpa}) == expected


def test_the_record_judges_by_the_goals_of_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    dry_run = importlib.import_module("dry_run")
    goals = {"goal": [{"words": "one query", "launches": 3, "why": ""}], "missed": {"one query, FIRE": ["sm_80"]}}
    monkeypatch.setattr(dry_run, "goals", lambda: goals)
    counts = {"copies": 0, "waits": 0, "plans": 0, "mallocs": 0, "graph": "yes", "faults": ["7 launches, goal 1"]}
    records = [
        {"row": f"one query, {name}", "way": way, "versions": "torch 2", "launches": launches, **counts}
        for way in ("sm_90", "sm_80")
        for name, launches in (("ALiBi", 3), ("FIRE", 44 if way == "sm_80" else 3))
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    text = dry_run.rendered(file)
    assert "| one query, ALiBi | 3 | 3 | 3 | yes |  |" in text
    assert "| one query, FIRE | 3 | 44 | 3 | yes | 44 launches, goal 3 |" in text
    assert "sm_90: 2 of 2 rows meet their goals; sm_80: 1 of 2" in text
    judged = list(map(dry_run.judged, records))
    assert dry_run.unannounced(judged[:2], "sm_90") == dry_run.unannounced(judged[2:], "sm_80") == []
    assert len(dry_run.unannounced(judged[2:], "sm_90")) == 1


def test_a_token_too_many_is_an_assertion_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    from posenc.backends.triton import launch

    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(launch, "shared_memory", launch.shared_memory)  # which is replaced by a target's
    offline = importlib.import_module("offline")
    launches = offline.launches([64], [torch.bfloat16], 90, variants=False)
    append = next(each for each in launches if each.name == "slot_kernels.append")
    assert append.options["debug"]
    parts = {"signature": append.signature, "constexprs": append.constants, "attrs": append.attributes}
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    source = triton.compiler.ASTSource(fn=append.fn, **parts)
    compiled = triton.compile(source, target=target, options=append.options)
    assert "__assertfail" in compiled.asm["ptx"]
    assert "capacity of a static cache" in str(compiled.asm["ttir"])


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
    pytest.importorskip("scipy", reason="needs the extra lab")
    monkeypatch.syspath_prepend(str(FOLDER))
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
    pytest.importorskip("scipy", reason="needs the extra lab")
    out = tmp_path / "dry.jsonl"
    command = [sys.executable, str(FOLDER / "card.py"), "--dry", "--warm", "1", "--seconds", "600"]
    subprocess.run([*command, "--out", str(out)], check=True, cwd=FOLDER.parents[1], capture_output=True)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    results = {r["row"]: r for r in records if r.get("status") not in (None, "started")}
    assert len(results) >= 50

    def fault(record: dict) -> str | None:
        if record["status"] != "measured" or not record["correct"]:
            return str(record)
        return next((p["status"] for p in record["peers"].values() if "failed" in p.get("status", "")), None)

    assert {row: reason for row, record in results.items() if (reason := fault(record))} == {}
