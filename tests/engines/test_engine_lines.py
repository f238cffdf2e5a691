"""The record of printed lines: each was parsed by its engine, and none is wrong there."""

from __future__ import annotations

from benchmarks.engines import lines


def test_every_line_is_parsed_and_none_is_wrong() -> None:
    heads, recorded = lines.read()
    assert {head["engine"] for head in heads} == set(lines.ENGINES)
    assert all(head["version"] and head["date"] and head["command"] for head in heads)
    failed = [line for line in recorded if line["state"] not in ("right", "parsed", "not built")]
    assert failed == []
    assert len({line["model"] for line in recorded}) >= 30
    assert len({line["model"] for line in recorded if line["state"] == "right"}) >= 30
    assert all(line["gap"] <= lines.TOLERANCE for line in recorded if line["state"] == "right")
