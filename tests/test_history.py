"""The table of speeds grows by a column a measurement, and keeps what an earlier set of calls had."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="needs the extra lab")


def test_a_measurement_is_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import history

    table = tmp_path / "history.csv"
    history.append(table, {"rotate": 1.5, "old": 2.0}, "aaaaaaa")
    history.append(table, {"rotate": 1.25, "new": 3.0}, "bbbbbbb+")
    assert [(entry.revision, entry.call, entry.ratio) for entry in history.read(table)] == [
        ("aaaaaaa", "rotate", 1.5), ("aaaaaaa", "old", 2.0), ("bbbbbbb+", "rotate", 1.25), ("bbbbbbb+", "new", 3.0)
    ]  # fmt: skip
    lines = history.rendered(history.read(table)).splitlines()
    assert lines[-3:] == ["| rotate | 1.50 | 1.25 |", "| old | 2.00 |  |", "| new |  | 3.00 |"]
    assert lines[-5].count("aaaaaaa") == lines[-5].count("bbbbbbb+") == 1
    assert history.measured(8, 1).keys() >= {"rotate", "forward ALiBi", "train T5", "decode RoPE"}


def test_the_page_matches_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import history

    remaining = history.RESULTS / "history.csv"
    assert (history.RESULTS / "history.md").read_text() == history.rendered(history.read(remaining))
