"""The rows of the table of engines for a config, and the record of printed lines: each was parsed by its engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.engines import lines
from benchmarks.engines.cases import cases

from posenc_cli import run


def test_the_table_of_posenc_on_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(c for c in cases() if c.model == "llama" and c.row == "yarn: attention_factor" and c.spelling == "v4")
    (tmp_path / "config.json").write_text(json.dumps(case.config))
    line = ["engines", "check", "--checkpoint", str(tmp_path), "--json"]
    assert run(line) == 1
    states = {line["engine"]: line["state"] for line in json.loads(capsys.readouterr().out)}
    assert (states["vllm"], states["sglang"]) == ("right", "ignored")
    assert run([*line, "--engine", "vllm"]) == 0
    assert run([*line, "--engine", "vlm"]) == 2
    assert run(["engines", "check"]) == 2
    assert run(["engines", "check", "--endpoint", "http://localhost:1"]) == 2
    assert run(["engines", "probe"]) == 2


def test_the_record_of_a_disputed_config_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "llama/yarn: one of mscale and mscale_all_dim/v4/256/1024"
    (tmp_path / "config.json").write_text(json.dumps(next(c.config for c in cases() if c.name == name)))
    assert run(["engines", "check", "--checkpoint", str(tmp_path), "--json"]) == 1, "others are off"
    found = {line["engine"]: line for line in json.loads(capsys.readouterr().out)}
    assert {found[name]["state"] for name in ("vllm", "sglang", "mlx_lm")} == {"disputed"}
    assert "this engine: as in posenc and transformers" in found["vllm"]["text"]
    assert "this engine: as in deepseek-ai/DeepSeek-VL2" in found["mlx_lm"]["text"]


def test_every_line_is_parsed_and_none_is_wrong() -> None:
    heads, recorded = lines.read()
    assert {head["engine"] for head in heads} == set(lines.ENGINES)
    assert all(head["version"] and head["date"] and head["command"] for head in heads)
    failed = [line for line in recorded if line["state"] not in ("right", "parsed", "not built")]
    assert failed == []
    assert len({line["model"] for line in recorded}) >= 30
    assert len({line["model"] for line in recorded if line["state"] == "right"}) >= 30
    assert all(line["gap"] <= lines.TOLERANCE for line in recorded if line["state"] == "right")
