"""The page on extending as its reader uses it: its code in files outside the package, its commands as they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.conftest import TINY

from posenc.lab import commands
from posenc.lab.run.folder import read_run

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL))
COMMANDS = re.findall(r"^(posenc .*)$", PAGE.read_text(), re.MULTILINE)
LINES = {"mine": 20, "puzzles": 40, "halves": 20, "texts": 10}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's folder with the files of the page."""
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name, None)


def typed(part: str) -> list[str]:
    """The page's command with these words, made tiny."""
    (matching,) = [command for command in COMMANDS if part in command]
    return [*matching.split()[1:], *TINY, "--out", "run", "--seeds", "1"]


def test_the_page_is_as_short_as_it_says() -> None:
    assert FILES.keys() == LINES.keys()
    assert all(len(FILES[name].splitlines()) <= most for name, most in LINES.items())


def test_a_task_and_its_numbers(folder: Path, here: None) -> None:
    assert commands.run(typed("puzzles:Parity")) == 0
    run = read_run(folder / "run")
    assert run.numbers["period"] == 3
    assert run.words.title == "The parity of the last few bits"
    assert run.decides.chance == 0.5
    assert {"full", "window"} == set(run.records["view"].astype(str))
    assert run.words.title in (folder / "run" / "report.html").read_text()


def test_a_metric_is_measured_beside_the_first(folder: Path, here: None) -> None:
    command = [word.replace("puzzles:Parity", "halves:Halves") for word in typed("puzzles:Parity")]
    assert commands.run(command) == 0
    run = read_run(folder / "run")
    assert [metric.name for metric in run.metrics] == ["accuracy", "perfect"]
    records = run.records[run.records["metric"] == "perfect"]
    assert len(records) > 0
    assert set(records["value"]) <= {0.0, 1.0}


def test_a_corpus(folder: Path, here: None) -> None:
    (folder / "notes").mkdir()
    for number in range(40):
        (folder / "notes" / f"{number}.txt").write_text(" ".join(f"word{(number * k) % 97}" for k in range(200)))
    assert commands.run(typed("texts:notes")) == 0
    assert "texts:notes" in " ".join(read_run(folder / "run").facts.values())


def test_an_encoding_of_ones_own_and_a_report_that_imports_nothing_of_it(folder: Path, here: None) -> None:
    assert commands.run([*typed("puzzles:Parity"), "mine:Recent"]) == 0
    assert set(read_run(folder / "run").records["spec"].astype(str)) == {"rope", "alibi", "mine:Recent"}
    for name in FILES:
        sys.modules.pop(name, None)
        (folder / f"{name}.py").write_text("raise SystemExit('code of a folder was run')")
    assert commands.run(["report", "run", "--out", "again"]) == 0
    assert not set(FILES) & set(sys.modules)
