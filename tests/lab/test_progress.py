"""What a terminal shows while one waits: both clocks by name, and something that moves while data are read."""

from __future__ import annotations

import io
import time

from rich.console import Console

from posenc.lab.console import working
from posenc.lab.run.progress import Display


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=160, color_system=None), file


def test_the_bar_names_its_clocks() -> None:
    console, file = terminal()
    with Display(console, [], 2, 0.5, lambda: None) as display:
        display.poll([])
        console.print(display.progress)
    line = next(line for line in file.getvalue().splitlines() if "all jobs" in line and "2 of 2 done" in line)
    left, so_far = line.index(" left,"), line.index(" so far")
    assert "%" in line[:left]
    assert ":" in line[left:so_far]


def test_reading_moves_on_a_terminal_and_is_one_line_elsewhere() -> None:
    console, file = terminal()
    with working(console, "Reading the data (python)"):
        time.sleep(0.5)
    shown = file.getvalue()
    assert shown.count("Reading the data (python)") > 2, "drawn again and again"
    assert "0:00:00 so far" in shown
    plain = Console(file=(elsewhere := io.StringIO()), force_terminal=False)
    with working(plain, "Reading the data (python)"):
        pass
    assert elsewhere.getvalue() == "Reading the data (python) …\n"
