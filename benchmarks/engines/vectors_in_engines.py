"""Runs engines on the published test vectors: which of them pass, case by case.

    python -m benchmarks.engines.vectors_in_engines vllm=/envs/vllm/bin/python sglang=/envs/sglang/bin/python

The numbers to compare with are in examples/vectors/rope-v1.json, nothing else: no formula of posenc or transformers
runs here. The rotary classes run through the bench's adapters. A case passes where gain cos and gain
sin of the file's pairs are within 3e-4 in every kind of layers, at the file's positions as far as the text and the
declared length reach (past the declared length under dynamic scaling, which acts there). The result is written to
benchmarks/results/vectors_in_engines.json, an engine at a time.
"""

from __future__ import annotations

import datetime
import json
import math
import sys
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Question
from benchmarks.engines.process import EngineProcess

VECTORS = Path(__file__).parents[2] / "examples" / "vectors" / "rope-v1.json"
RECORD = Path(__file__).parents[1] / "results" / "vectors_in_engines.json"
PASS = 3e-4


def gap_of(rows: list[list[float]], entry: dict[str, Any]) -> float:
    """The largest difference from one kind of layers of a vector; infinite for another number of pairs.

    Args:
        rows: of all cos and then all sin, for the first positions of the vector.
        entry: the vector's ``kinds`` entry.
    """
    pairs = len(entry["inv_freq"])
    if any(len(row) != 2 * pairs for row in rows):
        return math.inf
    return max(
        abs(row[pair + shift] - right)
        for row, cos, sin in zip(rows, entry["cos"], entry["sin"], strict=False)
        for shift, values in ((0, cos), (pairs, sin))
        for pair, right in zip(entry["pairs"], values, strict=True)
    )


def result_of(process: EngineProcess, vector: dict[str, Any]) -> dict[str, Any]:
    """An engine's result for one vector: "pass" or "fail" with the gap, "refused", or "not run", with the reason."""
    declared = vector["length"] if "/dynamic/" in vector["name"] else vector["config"]["max_position_embeddings"]
    positions = tuple(at for at in vector["positions"] if at < min(vector["length"], declared))
    gaps = []
    for kind, entry in vector["kinds"].items():
        if entry is None:
            continue
        answer = process.ask(Question(vector["config"], positions, vector["length"], kind))
        if "rows" not in answer:
            result = "not run" if "not_run" in answer else "refused"
            return {"result": result, "text": answer.get("not_run") or answer.get("refused")}
        if len(answer["rows"]) != len(positions):
            raise ValueError(f"{vector['name']}: {len(answer['rows'])} rows for {len(positions)} positions")
        gaps.append(gap_of(answer["rows"], entry))
    gap = max(gaps)
    return {"result": "pass" if gap <= PASS else "fail", **({"gap": float(f"{gap:.3g}")} if math.isfinite(gap) else {})}


def main(engines: list[str]) -> None:
    content = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    vectors = json.loads(VECTORS.read_text())["cases"]
    for engine in engines:
        name, _, python = engine.partition("=")
        with EngineProcess(name, python or sys.executable) as process:
            if process.version is None:
                raise ValueError(f"{name} is not installed in {python or sys.executable}: {process.reason}")
            cases = {vector["name"]: result_of(process, vector) for vector in vectors}
            date = datetime.datetime.now(datetime.UTC).date().isoformat()
            content[name] = {"version": process.version, "date": date, "cases": cases}
        lines = []
        for key, entry in content.items():
            head = (
                f' {json.dumps(key)}: {{"version": {json.dumps(entry["version"])}, "date": {json.dumps(entry["date"])}'
            )
            rows = ",\n".join(f"  {json.dumps(case)}: {json.dumps(result)}" for case, result in entry["cases"].items())
            lines.append(f'{head}, "cases": {{\n{rows}\n }}}}')
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
