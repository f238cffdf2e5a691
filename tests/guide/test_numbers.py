"""Numbers of the docs equal the records: every marked number of every page, and the marks themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra lab")

from guide.numbers import filled
from guide.quantities import recorded
from guide.records import RESULTS

from posenc.catalogue.studies import Study, studies

TEXT = recorded("text")
CHANGE = TEXT.gap("rope", 16, "rope", 1)


@pytest.mark.parametrize(
    ("page", "numbers", "expected"),
    [
        ("It is 9.999.", ["It is ", 'text.gap("rope", 16, "rope", 1)'], f"It is {CHANGE:.3f}."),
        ("(0.0 bits)", ["(", 'text.gap("rope", 16, "rope", 1)'], f"({CHANGE:.1f} bits)"),
        ("by +9.99 ± 9.9 at", ["by ", 'text.gap("rope", 16, "rope", 1)'], f"by +{CHANGE:.2f} ± {CHANGE.half:.1f} at"),
        ("has −1", ["has ", "-3"], "has −3"),
        ("has 1,000", ["has ", "12345"], "has 12,345"),
        ("five seeds", ["", "3"], "three seeds"),
        ("x Two rows", ["x ", "11"], "x Eleven rows"),
        ("it **fails** there", ["it ", '"supported"'], "it **supported** there"),
        ("is worse here", ["is ", '"equivalent"'], "is equivalent here"),
        ("a: old. b", ["a: ", "'x, y'", ". "], "a: x, y. b"),
        ("<div>\n\nold\nold\n\n</div>", ["<div> ", "'x\\ny'", " <"], "<div>\n\nx\ny\n\n</div>"),
    ],
)
def test_a_number_is_filled_in_as_it_stands(page: str, numbers: list[str], expected: str) -> None:
    new, problems = filled(page, [numbers])
    assert (new, len(problems)) == (expected, 1)
    assert filled(new, [numbers]) == (new, [])


def test_a_number_between_other_words_is_compared_and_lost_words_are_named() -> None:
    numbers = [["RoPE loses ", 'text.gap("rope", 16, "rope", 1)'], ["and then ", "12345"]]
    page = f"First 7 words.\n\nRoPE\nloses {CHANGE:.3f} bits, and then 12,345."
    assert filled(page, numbers) == (page, [])
    new, ((line, actual, expected, expression),) = filled(page.replace("12,345", "12,346"), numbers)
    assert (new, line, actual, expected, expression) == (page, 4, "12,346", "12,345", "12345")
    with pytest.raises(ValueError, match="and then"):
        filled(page.replace("and then", "later"), numbers)


@pytest.mark.parametrize(
    ("expression", "check"),
    [
        ("-1", False),  # the sentence says "more" where the records say "less"
        ("1 > 2", True), ("nothing_of_this_name", False), ("text.mean('no such row')", False),
        ("__import__('os')", False),
    ],
)  # fmt: skip
def test_what_cannot_be_filled_in_is_a_problem_and_stays_as_it_is(expression: str, check: bool) -> None:
    page = "It is 1.0 there."
    new, problems = filled(page, [] if check else [["It is ", expression]], [expression] if check else [])
    assert (new, len(problems)) == (page, 1)


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.name)
def test_a_second_computation_has_the_means_and_intervals_of_the_report(study: Study) -> None:
    """`recompute_findings` shares no code with `posenc.lab`, whose numbers the package's file has."""
    run = recorded(study.name)
    for name, row in study.rows.items():
        for length, (mean, low, high) in row.means.items():
            number = run.mean(name, length / study.train_length)
            assert number / run.scale == pytest.approx(mean, rel=1e-5, abs=1e-9)
            if high > low:
                assert number.half / run.scale == pytest.approx((high - low) / 2, rel=1e-5, abs=6e-6)  # six digits


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
