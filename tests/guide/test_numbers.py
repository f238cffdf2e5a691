"""Numbers of the docs equal the records: every marked number of every page, and the marks themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra lab")

from guide.numbers import filled, marked, places, unmarked, without_marks
from guide.quantities import Estimate, recorded
from guide.records import RECORDS, RESULTS, ROOT, compact

from posenc.lab.run.records import read_records

TEXT = recorded("text")
CHANGE = TEXT.change("rope")


def shown(text: str) -> str:
    """A page without problems as its readers see it."""
    new, problems = filled(text)
    assert not problems, problems
    return without_marks(new)


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


def test_compact_records_are_the_same_records(tmp_path: Path) -> None:
    source = RESULTS / "quick" / RECORDS
    compact(source, tmp_path / RECORDS)
    (frame, facts), (again, same_facts) = read_records(source), read_records(tmp_path / RECORDS)
    assert frame.equals(again)
    assert facts == same_facts


def test_the_places_of_every_page_are_found_and_leave_no_trace() -> None:
    for name, here in places().items():
        text = (ROOT / name).read_text(encoding="utf-8")
        with_places = marked(text, here.get("numbers", ()), here.get("checks", ()))
        assert with_places.count("<!-- ") >= len(here.get("numbers", ())) + len(here.get("checks", ())) > 0
        assert unmarked(with_places, here) == text, name


def test_a_number_between_other_words_is_compared_and_lost_words_are_named() -> None:
    numbers = [["RoPE loses ", 'text.change("rope")'], ["and then ", "12345"]]
    page = f"First 7 words. RoPE\nloses {CHANGE:.3f} bits, and then 12,345."
    assert filled(marked(page, numbers))[1] == []
    ((_, actual, expected, _),) = filled(marked(page.replace("12,345", "12,346"), numbers))[1]
    assert (actual, expected) == ("12,346", "12,345")
    with pytest.raises(ValueError, match="and then"):
        marked(page.replace("and then", "later"), numbers)


def test_findings_are_computed_without_posenc_and_a_wrong_digit_is_seen(tmp_path: Path) -> None:
    """The script of docs/results; the build of the site compares the page with posenc's own statistics."""
    script = RESULTS / "recompute_findings.py"
    assert not re.search(r"^(?:from|import) posenc", script.read_text(encoding="utf-8"), re.M)
    page = (RESULTS.parent / "findings.md").read_text(encoding="utf-8")
    (tmp_path / "findings.md").write_text(page.replace("+3.284", "+3.283", 1), encoding="utf-8")
    command = [sys.executable, str(script), "--page", str(tmp_path / "findings.md")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"(\d+) numbers compared, 1 differ", done.stdout)
    assert "+3.283" in done.stdout
