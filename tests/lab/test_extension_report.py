"""What a run of extensions leaves for its readers, and that it claims no more than its rows show."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from posenc.lab.extension import words
from posenc.lab.extension.figures import TRAINED, UNTRAINED, charts, looks, panels
from posenc.lab.extension.page import sections
from posenc.lab.extension.report import markdown, terminal_table, write_report
from posenc.lab.extension.settings import CONTINUED, WINDOW, ExtensionSettings
from posenc.lab.extension.table import CONTROLS, FIXED, FOLLOWS, TUNED, ExtensionRow, rows_of
from posenc.lab.record import RunRecord
from posenc.lab.tasks.task import Measured
from posenc.lab.text.corpus import Facts

SETTINGS = ExtensionSettings(train_length=64, lengths=(1, 2, 8), windows=6)
FACTS = Facts("texts & <more>", 9000, 9, "a" * 64, 1000, 2, "b" * 64, 4.5, 2.1, 1.8)
RECORD = RunRecord(SETTINGS, FACTS, {"torch": "2.13"}, {"processor": "<cpu>"}, "posenc compare --task extension")
TRAINING = {
    "parameters": 870000.0, "encoding_parameters": 0.0, "bytes_per_second": 9000.0, "loss_bits": 1.7,
    "grad_norm_median": 0.5, "grad_norm_p95": 1.1, "grad_norm_max": 4.0, "clipped_share": 0.07, "peak_memory": 5e8,
    "steps": 500.0, "seconds": 60.0, "grad_norm_mean": 0.6,
}  # fmt: skip
_OF_WINDOWS = (-0.3, -0.1, 0.0, 0.1, 0.1, 0.2)  # texts are harder or easier, for every row alike


def runs(*bits: float, seeds: tuple[int, ...] = (0, 1, 2), noise: float = 0.0) -> list[Measured]:
    """Bits by length, of windows that differ; ``noise``: half of the windows gain what the others lose."""
    signs = (1, -1, 1, -1, 1, -1)
    found = [[b + w + noise * sign for w, sign in zip(_OF_WINDOWS, signs, strict=True)] for b in bits]
    common: dict[str, Any] = {"lengths": [1, 2, 8], "judged": 8, "positions": [2.0], "bin": 16, "training": TRAINING}
    return [{**common, "bits": [[b + 0.001 * seed for b in of] for of in found], "seed": seed} for seed in seeds]


MEASURED = {
    "yarn+tuned": runs(1.76, 1.75, 1.70), "rope+tuned": runs(1.77, 1.77, 1.76), "pi": runs(1.80, 2.60, 3.60),
    "pi@8": runs(4.60, 4.50, 4.40), "yarn": runs(1.80, 1.85, 2.05), "yarn@8": runs(2.15, 2.30, 2.40),
    "rope": runs(1.80, 2.80, 4.00), WINDOW: runs(1.80, 1.80, 1.80), "rope+continued": runs(1.75, 2.8, 4.0),
    CONTINUED: runs(1.75, 1.75, 1.75),
}  # fmt: skip
ROWS = rows_of(MEASURED)
BY_SPEC = {row.spec: row for row in ROWS}


def test_rows_stand_by_kind_and_within_it_by_their_bits_at_the_judged_length() -> None:
    assert [(row.kind, row.spec) for row in ROWS] == [
        (CONTROLS, "rope"), (CONTROLS, "rope+continued"), (CONTROLS, CONTINUED), (CONTROLS, WINDOW),
        (FOLLOWS, "yarn"), (FOLLOWS, "pi"), (FIXED, "yarn@8"), (FIXED, "pi@8"), (TUNED, "yarn+tuned"),
        (TUNED, "rope+tuned"),
    ]  # fmt: skip


def test_untrained_rows_are_compared_with_the_window_and_trained_ones_with_the_one_of_as_much_training() -> None:
    windows = {row.spec: row.window for row in ROWS if row.kind != CONTROLS}
    untrained, trained = ("yarn", "pi", "yarn@8", "pi@8"), ("yarn+tuned", "rope+tuned")
    assert windows == dict.fromkeys(untrained, WINDOW) | dict.fromkeys(trained, CONTINUED)
    against = BY_SPEC["yarn+tuned"].at_judged
    assert against is not None
    assert against.mean == pytest.approx(-0.05)
    assert against.error == pytest.approx(0.0, abs=1e-9)  # the same windows, so what they differ in cancels


@pytest.mark.parametrize(
    ("row", "verdict", "holds_to", "better_at"),
    [
        ("yarn+tuned", "uses context", 8, [8]), ("rope+tuned", "flat", 8, []), ("yarn", "degrades", 8, []),
        ("pi", "fails", 1, []), ("pi@8", "fails", 0, []), ("yarn@8", "fails", 0, []), (WINDOW, "flat", 8, []),
    ],
)  # fmt: skip
def test_verdicts_follow_from_the_window(row: str, verdict: str, holds_to: int, better_at: list[int]) -> None:
    found = BY_SPEC[row]
    assert (found.verdict, found.holds_to, found.better_at) == (verdict, holds_to, better_at)


def test_what_may_be_chance_is_no_gain_and_no_loss() -> None:
    noisy = {**MEASURED, "ntk+tuned": runs(1.75, 1.75, 1.70, noise=0.2), "ntk": runs(1.8, 1.8, 1.85, noise=0.2)}
    verdicts = {row.spec: row.verdict for row in rows_of(noisy)}
    assert (verdicts["ntk+tuned"], verdicts["ntk"]) == ("flat", "flat")


def test_rows_are_paired_over_the_seeds_that_both_have() -> None:
    measured = {"yarn": runs(1.8, 1.9, 2.0, seeds=(0, 2)), WINDOW: runs(1.8, 1.8, 1.8, seeds=(1, 2))}
    against = rows_of(measured)[1].at_judged
    assert against is not None
    assert (against.seeds, against.mean) == (1, pytest.approx(0.2))


def test_without_a_window_nothing_is_claimed() -> None:
    (row,) = rows_of({"yarn": MEASURED["yarn"]})
    assert (row.verdict, row.holds_to, row.better_at, row.at_judged) == ("not compared", None, [], None)
    assert "the sliding window was left out" in words.summary([row], SETTINGS)
    assert words.cells(row)[-2:] == ["–", "not compared"]
    assert words.summary([], SETTINGS) == "No job is finished yet."


def test_the_summary_says_what_the_rows_say() -> None:
    text = words.summary(ROWS, SETTINGS)
    assert "3 small models with RoPE, trained on 64 bytes at a time and read up to 8×" in text
    assert "Without training: nobody beats the sliding window at any length." in text
    assert "Within 0.3 bit of it stay yarn up to 8×; pi at no longer length." in text
    assert "A factor fixed at the start costs at 1×: yarn@8 +0.35, pi@8 +2.80 bits." in text
    assert "After 100 steps at 8×: yarn+tuned beats the sliding window at 8×." in text
    assert "Against rope+tuned, which has no scaling, at 8×: better: yarn+tuned (-0.060)." in text
    assert "Their price at 1×: yarn+tuned +0.01, rope+tuned +0.02 bits." in text
    untrained = words.summary([row for row in ROWS if not row.reading.training], SETTINGS)
    assert "After" not in untrained


def test_the_protocol_states_the_numbers_of_the_run() -> None:
    text = words.protocol_text(SETTINGS)
    assert "the last 32 of each of 6 windows" in text
    assert "100 steps from the same trained model, on texts of 8× its length" in text
    assert "turns 10 times in the trained length" in text
    assert "more than 4 times" in text


def test_all_files_are_written(tmp_path: Path) -> None:
    paths = write_report(tmp_path, ROWS, RECORD)
    assert [path.name for path in paths] == ["table.md", "results.jsonl", "bits_by_length.png"]
    assert (tmp_path / "bits_by_length.png").read_bytes().startswith(b"\x89PNG")
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    found = {line["encoding"]: line for line in lines}
    assert found["yarn+tuned"]["against_window"][-1] == pytest.approx(-0.05)
    assert found["yarn+tuned"]["runs"][2]["bits"][2][0] == pytest.approx(1.402)
    assert found["pi@8"]["settings"]["task"] == "extension"
    table = (tmp_path / "table.md").read_text()
    for fact in (
        "## Factor follows the length",
        "| yarn | 5 | 1.801 ± 0.001",
        "rank at 8×",
        "## Fine-tuned",
        "| flat |",
        "SHA-256",
    ):
        assert fact in table
    assert table.count("| rope+tuned |") == 2  # its numbers, and what its training took


def test_a_table_of_the_terminal_holds_every_row() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(terminal_table(ROWS, SETTINGS))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(row.spec in text for row in ROWS)
    assert "nowhere" in text


def test_each_panel_has_its_rows_and_its_window() -> None:
    shown = {name: [row.spec for row in rows] for name, rows in panels(ROWS).items()}
    assert shown == {
        UNTRAINED: ["rope", "pi", "pi@8", "yarn", "yarn@8", WINDOW], TRAINED: ["rope+tuned", "yarn+tuned", CONTINUED],
    }  # fmt: skip
    look = looks(ROWS)
    assert look["yarn"][0] == look["yarn@8"][0] == look["yarn+tuned"][0] != look["pi"][0]
    assert len({look["yarn"], look["yarn@8"]}) == 2
    drawn = charts(ROWS, SETTINGS)
    assert [chart["id"] for chart in drawn] == ["extension-untrained", "extension-trained"]
    assert [trace["y"] for trace in drawn[1]["traces"]][1] == pytest.approx(BY_SPEC["yarn+tuned"].bits, abs=1e-5)
    only = [row for row in ROWS if row.kind != TUNED]
    assert list(panels(only)) == [UNTRAINED]


def test_the_page_has_a_part_for_each_panel_one_for_the_numbers_and_one_for_the_trainings() -> None:
    parts = sections(ROWS, RECORD)
    assert [part.id for part in parts] == [
        "extension-untrained-part", "extension-trained-part", "extension-ranks",
        "extension-numbers", "extension-training",
    ]  # fmt: skip
    for part in parts:
        assert all(f'id="{chart["id"]}"' in part.html for chart in part.charts)
    text = " ".join(part.html for part in parts)
    assert all(f"</span>{row.spec}</td>" in text for row in ROWS)


def test_a_report_of_one_row_can_be_written(tmp_path: Path) -> None:
    (row,) = rows_of({"rope": MEASURED["rope"]})
    write_report(tmp_path, [row], RECORD)
    assert "rope" in markdown([row], dataclasses.replace(RECORD, command="again"))
    assert isinstance(row, ExtensionRow)
