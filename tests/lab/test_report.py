"""What a run leaves for its readers."""

from __future__ import annotations

import io
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from posenc.lab.record import RunRecord
from posenc.lab.report.page import Page as Report
from posenc.lab.report.page import Part
from posenc.lab.report.palette import colours
from posenc.lab.report.summary import summary
from posenc.lab.text.corpus import Facts
from posenc.lab.text.figures import spread
from posenc.lab.text.profiles import Settings
from posenc.lab.text.report import markdown, terminal_table, training_table, write_report
from posenc.lab.text.table import Row, thinned
from posenc.lab.text.verdict import Change

SETTINGS = Settings(train_length=64, lengths=(1, 16))
FACTS = Facts("books & <tales>", 9000, 3, "aa" * 32, 1000, 1, "bb" * 32, 4.5, 2.02, 1.72)
TRAINING = {
    "parameters": 869504.0, "encoding_parameters": 0.0, "bytes_per_second": 13000.0, "loss_bits": 1.8,
    "grad_norm_median": 0.5, "grad_norm_p95": 1.1, "grad_norm_max": 4.0, "clipped_share": 0.07, "peak_memory": 5e8,
    "seconds": 900.0,
}  # fmt: skip


def row(spec: str, first: float, last: float | None, error: float = 0.004) -> Row:
    change = None if last is None else Change(last - first, error)
    positions = [(8.0, first), (24.0, last or first)]
    return Row(spec, 1, [first, last], [None, None], [Change(0.0, 0.0), change], positions, TRAINING)


ROWS = [
    row("rope+window", 1.887, 1.89), row("alibi", 1.98, 1.984), row("t5", 1.807, 1.95, 0.01),
    row("nope", 2.728, 3.52, 0.03), row("rope", 1.887, 4.68, 0.09), row("learned", 2.2, None),
]  # fmt: skip
RECORD = RunRecord(SETTINGS, FACTS, {"torch": "2.13"}, {"processor": "<cpu>"}, "posenc compare --lr 1")


class Page(HTMLParser):
    """What a browser would load and show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_script = tag == "script"
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data", "action", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def handle_data(self, data: str) -> None:
        (self.scripts if self.in_script else self.text).append(data)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(folder, ROWS, RECORD)
    Report([Part(ROWS, RECORD)]).write(folder)
    return folder


def test_the_page_loads_nothing_and_holds_everything(out: Path) -> None:
    text = (out / "report.html").read_text()
    page = Page(text)
    assert [link for link in page.loads if not link.startswith("#")] == ["data:,"]
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    data = json.loads(page.scripts[0])
    results = {r["spec"]: r for r in data["results"]["text"]}
    assert results["rope"]["bits"] == [1.887, 4.68]
    assert results["learned"]["verdict"] == "past its table"
    assert [chart["id"] for chart in data["charts"]] == ["text-by-length", "text-by-position", "text-against-cost"]
    for chart in data["charts"]:
        assert f'<div id="{chart["id"]}" class="chart"></div>' in text
    assert {trace["name"] for trace in data["charts"][0]["traces"]} == {r.spec for r in ROWS}
    assert any("Plotly" in script and len(script) > 1e6 for script in page.scripts)
    shown = " ".join(page.text)
    for fact in ("aa" * 32, "bb" * 32, "posenc compare --lr 1", "2.13", "<cpu>", "books & <tales>", "zlib -9 2.020"):
        assert fact in shown
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text


def test_the_table_has_verdicts_controls_and_compressors(out: Path) -> None:
    table = (out / "table.md").read_text()
    assert "| rope | 1.887 | 4.680 | +2.793 ± 0.090 | 3.70 → 25.63 | fails |" in table
    assert "| learned | 2.200 | – | – | 4.59 → – | past its table |" in table
    assert "| rope+window | 1.887 | 1.890 | +0.003 ± 0.004 | 3.70 → 3.71 | flat |" in table
    assert "Each model was trained on 1.02 MB, drawn from 0.009 MB: 114 times all of it." in table
    assert "entropy of single bytes 4.500, zlib -9 2.020, lzma 1.720" in table
    widths = [line.count("|") for line in table.splitlines() if line.startswith("|")]
    assert len(set(widths[:8])) == 1
    assert not re.search(r"^\| rope\+window.*kB", table, re.M)


def test_results_are_one_line_a_row_and_complete(out: Path) -> None:
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [line["encoding"] for line in lines] == [r.spec for r in ROWS]
    learned = lines[-1]
    assert learned["bits_per_byte"] == [2.2, None]
    assert learned["change"] == [0.0, None]
    assert lines[0]["lengths"] == [64, 1024]
    assert lines[0]["corpus"]["train_sha256"] == "aa" * 32
    assert lines[0]["settings"]["lr"] == 2e-3
    assert lines[0]["command"] == "posenc compare --lr 1"


def test_the_figures_are_pictures(out: Path) -> None:
    for name in ("bits_by_length.png", "loss_by_position.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_in_a_narrow_terminal_long_names_are_broken_and_numbers_are_whole() -> None:
    name, out = "rope+my_own_module:QueryALiBi+window", io.StringIO()
    console = Console(file=out, width=72, highlight=False, markup=False)
    console.print(terminal_table([row(name, 1.887, 1.89)], (1, 16)))
    console.print(training_table([row(name.removesuffix("+window"), 1.887, 1.89)]))
    for number in ("1.887", "1.890", "+0.003 ± 0.004", "flat", "869,504", "13.0", "1.10", "500"):
        assert number in out.getvalue()
    assert "…" not in out.getvalue()


def test_the_summary_says_what_the_numbers_say() -> None:
    text = summary(ROWS, SETTINGS, FACTS)
    assert "rope+window and alibi stay flat" in text
    assert "t5 (+0.14) degrades" in text
    assert "nope (+0.79) and rope (+2.79) fail" in text
    assert "learned has no meaning past the trained rows" in text
    assert "t5 needs the fewest, 1.807 bits per byte" in text
    assert "nope and learned need more than zlib even at 1×" in text


def test_a_run_too_short_to_judge_says_so() -> None:
    text = summary([row("nope", 5.0, 5.0), row("rope", 4.0, 4.0)], SETTINGS, FACTS)
    assert "None of them needs less than zlib at 1×" in text
    assert "None of them" not in summary(ROWS, SETTINGS, FACTS)


def test_words_for_gains_and_for_nothing() -> None:
    assert "rope gains from longer text" in summary([row("rope", 1.8, 1.7)], SETTINGS, FACTS)
    assert "No job is finished" in summary([], SETTINGS, FACTS)
    assert markdown([], RECORD)


def test_a_control_has_the_colour_of_its_checkpoint_and_results_move_no_colour() -> None:
    chosen = colours(ROWS)
    assert chosen["rope"] == chosen["rope+window"]
    assert len(set(chosen.values())) == 5
    assert colours(ROWS[::-1]) == chosen


def test_names_at_the_ends_of_curves_do_not_overlap_and_stay_near() -> None:
    assert spread([1.0, 5.0], gap=1.0) == [1.0, 5.0]
    assert spread([2.0, 2.0, 2.0, 9.0], gap=1.0) == [1.0, 2.0, 3.0, 9.0]
    moved = spread([1.0, 1.1, 1.9, 2.2, 2.3], gap=0.5)
    assert all(b - a >= 0.5 - 1e-9 for a, b in itertools.pairwise(moved))
    assert sum(moved) == pytest.approx(1.0 + 1.1 + 1.9 + 2.2 + 2.3)


def test_thinned_curves_keep_their_mean_and_their_start() -> None:
    curve = [(8.0 + 16 * i, float(i % 2)) for i in range(64)]
    thin = thinned(curve)
    assert thin[:3] == curve[:3]
    assert len(thin) < 40
    assert thin[-1][1] == pytest.approx(0.5, abs=0.1)
