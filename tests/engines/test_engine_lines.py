"""The record of printed lines is of the lines that posenc prints today, and none of them is wrong in its engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
RERUN = "run benchmarks/engine_lines.py for the engine, and mend what prints a line that is wrong"


# Lines that changed since the record: the same rotation in other words, or another recipe. They are to be run next.
NOT_RUN = {
    ("google/gemma-3-1b-it", "extend --config-only", "sglang"),  # YaRN, and not the linear scaling of larger sizes
    ("internlm/internlm3-8b-instruct", "serve-flags", "vllm"),  # dynamic NTK within its original length
    ("internlm/internlm3-8b-instruct", "serve-flags", "sglang"),
    ("internlm/internlm3-8b-instruct", "serve-flags", "llama_cpp"),
    ("microsoft/phi-4", "extend --config-only", "llama_cpp"),  # a factor for each pair, the only type of its class
}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import engine_lines

    return engine_lines


def test_the_lines_of_today_are_in_the_record(lines: Any) -> None:
    """Of every fourth config; the others are printed by the same code."""
    _, recorded = lines.read()
    known = {(line["model"], line["command"], line["engine"], lines.meaning(line["line"])) for line in recorded}
    printed = {line.key for model, config in lines.published()[::4] for line in lines.printed(model, config)}
    assert {key[:3] for key in printed - known} <= NOT_RUN, RERUN
    assert len(printed & known) > 0.9 * len(printed)


def test_every_line_is_parsed_and_none_is_wrong(lines: Any) -> None:
    heads, recorded = lines.read()
    assert {head["engine"] for head in heads} == set(lines.ENGINES)
    assert all(head["version"] and head["date"] and head["command"] for head in heads)
    failed = [line for line in recorded if line["state"] not in ("right", "parsed", "not built")]
    assert failed == [], RERUN
    assert len({line["model"] for line in recorded}) >= 30
    assert len({line["model"] for line in recorded if line["state"] == "right"}) >= 30
    assert all(line["gap"] <= lines.TOLERANCE for line in recorded if line["state"] == "right")


def test_a_wrong_frequency_is_not_right(lines: Any) -> None:
    """The tolerance lets float32 pass and nothing else: a frequency that is 0.1 % off fails, at the far end too."""
    from posenc.engines.check import cos_and_sin

    theta, at = [1.0, 0.01, 0.0001], lines.positions(8192, 32768)
    assert at == (0, 1, 4096, 8192, 16384, 32767)
    rows = cos_and_sin(theta, 1.1, at)
    assert lines.ratio(rows.float(), theta, 1.1, at) < 1
    assert lines.ratio(cos_and_sin([1.0, 0.01001, 0.0001], 1.1, at), theta, 1.1, at) > 1
    assert lines.ratio(cos_and_sin(theta, 1.1005, at), theta, 1.1, at) > 1
    assert lines.ratio(rows[:, :4], theta, 1.1, at) == float("inf")
