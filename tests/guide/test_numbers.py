"""Numbers of the docs equal the records: every marked number of every page, and the marks themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra lab")

from guide.numbers import filled, problems_of_pages, without_marks
from guide.quantities import Estimate, recorded
from guide.records import PAGES, RECORDS, RESULTS, compact, runs, write_report

from posenc.lab.run.records import read_records

TEXT = recorded("text")
CHANGE = TEXT.change("rope")


def shown(text: str) -> str:
    """A page without problems as its readers see it."""
    new, problems = filled(text)
    assert not problems, problems
    return without_marks(new)


def test_every_marked_number_of_every_page_equals_its_record() -> None:
    assert list(problems_of_pages()) == [], "python -m guide.numbers fills them in"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('9.999<!-- value: text.change("rope") -->', f"{CHANGE:.3f}"),
        ('(0.0<!-- value: text.change("rope") --> bits)', f"({CHANGE:.1f} bits)"),
        ('+9.99 ± 9.9<!-- value: text.change("rope") -->', f"+{CHANGE:.2f} ± {CHANGE.half:.1f}"),
        ("−1<!-- value: -3 -->", "−3"),
        ("1,000<!-- value: 12345 -->", "12,345"),
        ("five<!-- value: 3 --> seeds, Two<!-- value: 11 --> rows", "three seeds, Eleven rows"),
        ('**fails**<!-- value: "supported" --> is worse<!-- value: "equivalent" -->', "**supported** is equivalent"),
        ("a <!-- begin: 'x' -->old<!-- end --> b", "a x b"),
        ("<!-- begin: 'x\\ny' -->old<!-- end -->", "\n\nx\ny\n\n"),
    ],
)
def test_a_number_is_filled_in_as_it_stands(page: str, expected: str) -> None:
    new, problems = filled(page)
    assert len(problems) == page.count("value:") + page.count("begin:")
    assert without_marks(new) == expected
    assert filled(new) == (new, [])


def test_prose_around_a_number_is_free_and_a_number_is_not() -> None:
    page = f'RoPE loses {CHANGE:.3f}<!-- value: text.change("rope") --> bits.'
    assert shown(page.replace("RoPE loses", "In this table the rotation costs")).startswith("In this table")
    wrong = page.replace(f"{CHANGE:.3f}", f"{CHANGE + 0.001:.3f}")
    ((line, actual, expected, expression),) = filled(f"\n\n{wrong}")[1]
    assert (line, actual, expected) == (3, f"{CHANGE + 0.001:.3f}", f"{CHANGE:.3f}")
    assert expression == 'text.change("rope")'


@pytest.mark.parametrize(
    "page",
    [
        "1.0<!-- value: -1 -->",  # the sentence says "more" where the records say "less"
        "<!-- check: 1 > 2 -->",
        "1<!-- value: nothing_of_this_name -->",
        "1<!-- value: text.mean('no such row') -->",
        "1<!-- value: __import__('os') -->",
        "no number before it: <!-- value: 1 -->",
        "1<!-- value: 1",  # nothing ends the comment
        "<!-- begin: 'x' --> nothing ends it",
    ],
)
def test_what_cannot_be_filled_in_is_a_problem_and_stays_as_it_is(page: str) -> None:
    new, problems = filled(page)
    assert problems
    assert new == page


def test_a_row_of_one_length_has_no_change() -> None:
    with pytest.raises(ValueError, match="axial"):
        recorded("images").change("axial")


def test_an_estimate_is_a_number_with_its_interval() -> None:
    estimate = Estimate(0.5, 0.4, 0.6, scale=100)
    assert estimate == 50
    assert estimate.half == pytest.approx(10)
    assert estimate - 1 == 49


@pytest.mark.parametrize("name", runs())
def test_the_table_of_a_run_has_the_means_of_its_records(name: str) -> None:
    run, table = recorded(name), (RESULTS / name / "table.md").read_text(encoding="utf-8")
    lines = {line.split(" | ")[0].strip("| "): line for line in reversed(table.splitlines()) if "±" in line}
    decimals = 1 if run.scale == 100 else 3
    checked = 0
    for row in run.rows:
        for times in (1, 2, 4, 8, 16):
            if run.has(row, times):
                mean = run.mean(row, times)
                assert f"{mean:.{decimals}f} ± {mean.half:.{decimals}f}" in lines[row], (row, times)
                checked += 1
    assert checked >= len(run.rows)


def test_compact_records_are_the_same_records(tmp_path: Path) -> None:
    source = RESULTS / "quick" / RECORDS
    compact(source, tmp_path / RECORDS)
    (frame, facts), (again, same_facts) = read_records(source), read_records(tmp_path / RECORDS)
    assert frame.equals(again)
    assert facts == same_facts


@pytest.mark.slow
@pytest.mark.parametrize("name", runs())
def test_a_report_made_again_has_the_numbers_of_the_recorded_pages(name: str, tmp_path: Path) -> None:
    for file in ("run.json", RECORDS):
        (tmp_path / name).mkdir(exist_ok=True)
        shutil.copyfile(RESULTS / name / file, tmp_path / name / file)
    write_report(tmp_path / name, tmp_path / "report")
    for page in PAGES:
        recorded_page, built = (
            (folder / page).read_text(encoding="utf-8") for folder in (RESULTS / name, tmp_path / "report")
        )
        assert numbers(recorded_page) == numbers(built), page


def numbers(page: str) -> list[tuple[str, list[str]]]:
    """The numbers of each line of each table, by the first cell."""
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [(line[0], re.findall(r"[+−]?\d[\d,]*\.?\d*", " | ".join(line[1:]))) for line in cells]


def test_numbers_of_the_context_study_are_the_same_without_posenc(tmp_path: Path) -> None:
    page = "".join(
        f"{text}<!-- value: context_study({part!r}).{expression} -->\n"
        for part, text, expression in (
            ("likelihood", "1.0 ± 0.1", "mean('cut', 12288)"),
            ("likelihood", "+1.00000 ± 0.00001", "difference('yarn', 'cut', 2048)"),
            ("likelihood", "1", "documents('yarn', 12288)"),
            ("pilot/retrieval", "1", "mean('yarn', 12288, 'niah_single')"),
            ("pilot/retrieval", "−1", "difference('yarn', 'chunked', 12288, 'niah_single')"),
        )
    )
    file = tmp_path / "page.md"
    file.write_text(page, encoding="utf-8")
    command = [sys.executable, str(RESULTS / "recompute_findings.py"), "--page", str(file)]
    assert "7 numbers compared, 5 differ" in subprocess.run(command, capture_output=True, text=True).stdout
    file.write_text(filled(page)[0], encoding="utf-8")
    assert "7 numbers compared, 0 differ" in subprocess.run(command, capture_output=True, text=True).stdout


def test_findings_recomputed_without_posenc_are_the_same(tmp_path: Path) -> None:
    """The script of docs/results, which imports pandas and scipy alone; and it sees a digit that is wrong."""
    script = RESULTS / "recompute_findings.py"
    assert "posenc" not in {
        line.split()[1].split(".")[0] for line in script.read_text().splitlines() if " import " in line
    }
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    compared = int(re.match(r"(\d+) numbers compared, 0 differ", done.stdout)[1])  # type: ignore[index]
    page = (RESULTS.parent / "findings.md").read_text(encoding="utf-8")
    assert compared >= page.count("<!-- value:") > 50
    wrong = page.replace("+3.284", "+3.283", 1)
    assert wrong != page
    (tmp_path / "findings.md").write_text(wrong, encoding="utf-8")
    done = subprocess.run([*command, "--page", str(tmp_path / "findings.md")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "+3.283" in done.stdout
