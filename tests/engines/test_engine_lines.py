"""The record of printed lines: each was parsed by its engine, and none is wrong there."""

from __future__ import annotations

from benchmarks.engines import lines
from benchmarks.engines.check import cos_and_sin


def test_every_line_is_parsed_and_none_is_wrong() -> None:
    heads, recorded = lines.read()
    assert {head["engine"] for head in heads} == set(lines.ENGINES)
    assert all(head["version"] and head["date"] and head["command"] for head in heads)
    failed = [line for line in recorded if line["state"] not in ("right", "parsed", "not built")]
    assert failed == []
    assert len({line["model"] for line in recorded}) >= 30
    assert len({line["model"] for line in recorded if line["state"] == "right"}) >= 30
    assert all(line["gap"] <= lines.TOLERANCE for line in recorded if line["state"] == "right")


def test_a_wrong_frequency_is_not_right() -> None:
    """The tolerance lets float32 pass and nothing else: a frequency that is 0.1 % off fails, at the far end too."""
    theta, at = [1.0, 0.01, 0.0001], lines.positions(8192, 32768)
    assert at == (0, 1, 4096, 8192, 16384, 32767)
    rows = cos_and_sin(theta, 1.1, at)
    assert lines.ratio(rows.float(), theta, 1.1, at) < 1
    assert lines.ratio(cos_and_sin([1.0, 0.01001, 0.0001], 1.1, at), theta, 1.1, at) > 1
    assert lines.ratio(cos_and_sin(theta, 1.1005, at), theta, 1.1, at) > 1
    assert lines.ratio(rows[:, :4], theta, 1.1, at) == float("inf")
