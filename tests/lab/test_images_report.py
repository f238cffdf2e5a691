"""What a run of images leaves for its readers, and that it claims no more than its seeds show."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from tests.lab.test_report import Page

from posenc.lab.images import words
from posenc.lab.images.measure import FINER, LARGE, SHIFT, TRAINED, names_of
from posenc.lab.images.pictures import PictureFacts
from posenc.lab.images.report import markdown, terminal_table, write_report
from posenc.lab.images.settings import ImageSettings
from posenc.lab.images.table import ImageRow, rows_of
from posenc.lab.record import RunRecord
from posenc.lab.report.page import Page as Report
from posenc.lab.report.page import Part

SETTINGS = ImageSettings(constants=(1, 20), train_images=1297)
FACTS = PictureFacts("digits & <more>", tuple("0123456789"), 8, 1297, "aa" * 32, 500, "bb" * 32)
TRAINING = {
    "parameters": 84000.0, "encoding_parameters": 0.0, "images_per_second": 2000.0, "loss": 0.01,
    "grad_norm_median": 0.5, "grad_norm_p95": 1.1, "grad_norm_max": 4.0, "clipped_share": 0.07, "peak_memory": 5e8,
    "seconds": 900.0,
}  # fmt: skip
RECORD = RunRecord(SETTINGS, FACTS, {"torch": "2.13"}, {"processor": "<cpu>"}, "posenc compare --task images")


def row(
    spec: str, trained: list[float], one: list[float] | None, twenty: list[float] | None, finer: list[float]
) -> ImageRow:
    low = [0.2 + 0.01 * i for i in range(len(trained))]
    counted = None if one is None else finer if spec == "nope" else low
    tests = {TRAINED: trained, SHIFT: low, "+1": one, "+20": twenty}
    tests |= {FINER[0]: finer, FINER[1]: counted, LARGE[0]: low, LARGE[1]: counted}
    return ImageRow(spec, len(trained), tests, TRAINING)


NOPE = row("nope", [0.70, 0.71, 0.72], [0.70, 0.71, 0.72], [0.70, 0.71, 0.722], [0.28, 0.28, 0.28])
SINUSOIDAL = row("sinusoidal_grid", [0.96, 0.97, 0.98], [0.2, 0.1, 0.15], [0.1, 0.1, 0.1], [0.88, 0.89, 0.91])
LEARNED = row("learned_grid", [0.93, 0.95, 0.97], None, None, [0.68, 0.70, 0.83])
AXIAL = row("axial", [0.92, 0.94, 0.961], [0.92, 0.94, 0.961], [0.924, 0.94, 0.961], [0.51, 0.67, 0.88])
LIERE = row("liere", [0.96, 0.97, 0.98], [0.58, 0.70, 0.84], [0.30, 0.39, 0.47], [0.75, 0.84, 0.90])
ROWS = [NOPE, SINUSOIDAL, LEARNED, AXIAL, LIERE]


def test_verdicts_follow_from_what_a_constant_does_with_every_seed() -> None:
    verdicts = [r.verdict for r in ROWS]
    assert verdicts == ["unmoved", "collapses", "past its table", "unmoved", "leaks"]
    assert row("axial", [0.92, 0.94], [0.92, 0.934], [0.92, 0.94], [0.5, 0.5]).verdict == "leaks"


def test_rows_stand_in_the_order_of_the_catalogue_whatever_they_score() -> None:
    def runs(accuracy: float) -> list[dict[str, object]]:
        return [{"accuracy": {TRAINED: accuracy, "+1": None}, "training": {"loss": seed}} for seed in (1.0, 3.0)]

    rows = rows_of({"axial": runs(0.9), "mine:Class": runs(0.99), "learned_grid": runs(0.8), "nope": runs(0.1)})
    assert [r.spec for r in rows] == ["nope", "learned_grid", "axial", "mine:Class"]
    assert rows[0].training == {"loss": 2.0}
    assert rows[0].of_seeds == {TRAINED: [0.1, 0.1], "+1": None}


def test_the_summary_ranks_nothing_inside_the_spread() -> None:
    text = words.summary(ROWS, SETTINGS, FACTS)
    assert "5 small vision transformers" in text
    assert "with 3 seeds on 1,297 pictures of 6 × 6 tokens" in text
    assert "sinusoidal_grid, learned_grid, axial and liere cannot be told from the best (92 to 98 %)" in text
    assert "nope (71 %) is behind with every seed" in text
    assert "changes nothing for nope and axial" in text
    assert "liere (97 → 39 % at +20) loses by it" in text
    assert "sinusoidal_grid (97 → 10 % at +20) collapses" in text
    assert "learned_grid ends at its table" in text
    assert "better than counted ones for all encodings that have both, with every seed" in text
    assert "best on finer" not in text


def test_one_seed_ranks_nothing() -> None:
    rows = [row(r.spec, (r.of_seeds[TRAINED] or [])[:1], [0.5], [0.5], [0.6]) for r in (NOPE, AXIAL)]
    text = words.summary(rows, SETTINGS, FACTS)
    assert "One seed ranks nothing" in text
    assert "behind" not in text
    assert "best" not in text
    assert "every seed" not in text


def test_who_is_ahead_with_every_seed_is_said_to_be() -> None:
    text = words.summary([NOPE, AXIAL], SETTINGS, FACTS)
    assert "axial is ahead of all others with every seed (92 to 96 %)" in text
    assert "No job is finished" in words.summary([], SETTINGS, FACTS)
    assert "One small vision transformer, trained" in words.summary([AXIAL], SETTINGS, FACTS)


def test_all_files_are_written(tmp_path: Path) -> None:
    paths = write_report(tmp_path, ROWS, RECORD)
    assert [path.name for path in paths] == [
        "table.md", "results.jsonl", "accuracy_by_constant.png", "accuracy_by_grid.png"
    ]  # fmt: skip
    for path in paths[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")
    lines = [json.loads(line) for line in paths[1].read_text().splitlines()]
    assert lines[2]["accuracy"]["+1"] is None
    assert lines[3]["accuracy"][TRAINED] == {"mean": pytest.approx(0.94, abs=0.001), "low": 0.92, "high": 0.961}
    assert lines[0]["settings"]["task"] == "images"
    assert lines[0]["corpus"]["train_sha256"] == "aa" * 32


def test_the_table_has_ranges_and_dashes() -> None:
    table = markdown(ROWS, RECORD)
    assert "| axial | 94 (92–96) | 21 (20–22) | 94 (92–96) | 94 (92–96) | 69 (51–88) |" in table
    assert "| learned_grid | 95 (93–97) | 21 (20–22) | – | – |" in table
    for fact in ("500 held-out pictures", "6 × 6", "11 × 11", "12 × 12", "liere block 8", "SHA-256", "2.13"):
        assert fact in table
    assert markdown([], RECORD)


def test_the_page_loads_nothing_and_holds_everything(tmp_path: Path) -> None:
    page = Page(Report([Part(ROWS, RECORD)]).write(tmp_path).read_text())
    assert [link for link in page.loads if not link.startswith("#")] == ["data:,"]
    data = json.loads(page.scripts[0])
    assert [chart["id"] for chart in data["charts"]] == ["images-by-constant", "images-by-grid"]
    assert {trace["name"] for trace in data["charts"][0]["traces"]} == {r.spec for r in ROWS}
    assert {r["spec"]: r["verdict"] for r in data["results"]["images"]}["liere"] == "leaks"
    shown = " ".join(page.text)
    for fact in ("digits & <more>", "aa" * 32, "posenc compare --task images", "<cpu>", words.CAUTION):
        assert fact in shown


def test_the_terminal_table_fits_eighty_columns() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(terminal_table(ROWS, SETTINGS))
    text = out.getvalue()
    assert "sinusoidal_grid" in text
    assert "51–88" in text
    assert "…" not in text
    assert len(names_of(SETTINGS)) == 8
