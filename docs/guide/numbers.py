"""The numbers of pages, compared with the records and filled in by ``python docs/build.py --pages``.

A page says where a number comes from in a comment behind it, which no reader of the page sees:

    RoPE has 2.560<!-- value: text.mean("rope under its window", 16) --> bits at 16×

The expression is Python; its vocabulary is `guide.quantities`, `guide.tables` and `guide.models`, with each recorded
run under the name of its folder (``text-long`` is ``text_long``). The number is written as it was: with as many
decimals, with a sign if it had one, with ± if it had one. A word such as **three** or **supported** is filled in the
same way. There are two more comments:

    <!-- begin: text.changes("holds") -->`stick-breaking` (−0.000), …<!-- end -->      all that stands between is made
    <!-- check: text.with_verdict("gains") == set() -->                                must be true

So prose is free, and a site with a number that differs from its record is not built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from guide.models import MODELS
from guide.quantities import QUANTITIES, Estimate, recorded
from guide.records import ROOT, runs
from guide.tables import TABLES

NUMBER = r"(?P<sign>[+−])?\d[\d,]*(?:\.(?P<decimals>\d+))?(?P<half> ± \d[\d,]*(?:\.(?P<more>\d+))?)?"
VALUE = re.compile(rf"(?P<shown>{NUMBER}|\*\*[^*\n]+\*\*|[A-Za-z]+)<!-- value: (?P<expression>.+?) -->", re.S)
REGION = re.compile(r"<!-- begin: (?P<expression>.+?) -->(?P<body>.*?)<!-- end -->", re.S)
CHECK = re.compile(r"<!-- check: (?P<expression>.+?) -->", re.S)
OPENING = re.compile(r"<!-- (?:value|begin|check):")
MARKS = re.compile(r"<!-- (?:(?:value|begin|check): .+?|end) -->", re.S)
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
BUILTINS = (abs, all, any, dict, len, list, max, min, round, set, sorted, sum)


class Problem(NamedTuple):
    """A place of a page that does not say what the records say."""

    line: int
    shown: str
    expected: str
    expression: str

    def __str__(self) -> str:
        """One line: of a table, the first of its lines that differs."""
        pairs = zip_longest(self.shown.strip().splitlines(), self.expected.strip().splitlines(), fillvalue="")
        shown, expected = next((pair for pair in pairs if pair[0] != pair[1]), (self.shown, self.expected))
        return f"line {self.line}: {shown!r} should be {expected!r}: {self.expression}"


@cache
def vocabulary() -> dict[str, Any]:
    """What expressions may name."""
    functions: list[Callable[..., Any]] = [*QUANTITIES, *TABLES, *MODELS, *BUILTINS]
    return {
        "__builtins__": {},
        **{function.__name__: function for function in functions},
        **{name.replace("-", "_"): recorded(name) for name in runs()},
    }


def pages() -> list[Path]:
    """Pages that people write, in which numbers may be marked."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.parent.name != "results"]
    return sorted([ROOT / "README.md", ROOT / "benchmarks" / "README.md", *docs])


def filled(text: str) -> tuple[str, list[Problem]]:
    """A page with its marked numbers as the records have them, and what differed."""
    problems: list[Problem] = []

    def fill(match: re.Match[str], shown: str, make: Callable[[Any], str]) -> str:
        expression = " ".join(match["expression"].split())
        try:
            expected = make(eval(f"({expression})", dict(vocabulary())))
        except Exception as error:  # whatever an expression raises is a problem of the page, and named with its line
            expected = f"an expression without error: {type(error).__name__}: {error}"
        if shown != expected:
            problems.append(Problem(text.count("\n", 0, text.find(match[0])) + 1, shown, expected, expression))
            return match[0] if "error: " in expected else match[0].replace(shown, expected, 1)
        return match[0]

    marked = sum(len(pattern.findall(text)) for pattern in (VALUE, REGION, CHECK))
    if marked != len(OPENING.findall(text)):
        lines = [n for n, line in enumerate(text.splitlines(), 1) if re.search(r"(?<![\w*])<!-- value:", line)]
        problems.append(Problem(lines[0] if lines else 1, "a comment", "a number or word right before it", "value"))
    new = VALUE.sub(lambda m: fill(m, m["shown"], lambda value: like(m, value)), text)
    new = REGION.sub(lambda m: fill(m, m["body"], region), new)
    new = CHECK.sub(lambda m: fill(m, "True", str), new)
    return new, problems


def like(match: re.Match[str], value: float | str) -> str:
    """A value in the form of what stands in the page."""
    shown = match["shown"]
    if isinstance(value, str):
        return f"**{value}**" if shown.startswith("**") else value
    if shown[0].isalpha():
        word = WORDS[int(value)]
        return word.capitalize() if shown[0].isupper() else word
    number = f"{value:{'+' if match['sign'] else ''},.{len(match['decimals'] or '')}f}".replace("-", "−")
    if number.startswith("−") and not match["sign"]:
        raise ValueError(f"{number} is negative, and the page has it without a sign")
    if not match["half"]:
        return number
    if not isinstance(value, Estimate):
        raise ValueError(f"{number} has no interval, and the page has one")
    return f"{number} ± {value.half:,.{len(match['more'] or '')}f}"


def region(text: str) -> str:
    """Generated text between its marks: a table in lines of its own, a list in its paragraph."""
    return f"\n\n{text}\n\n" if "\n" in text else text


def without_marks(text: str) -> str:
    """A page as it is read."""
    return MARKS.sub("", text)


def problems_of_pages(*, write: bool = False) -> Iterator[str]:
    """What differs from the records on every page; with ``write`` it is put right."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new, problems = filled(text)
        yield from (f"{page.relative_to(ROOT)}, {problem}" for problem in problems)
        if write and new != text:
            page.write_text(new, encoding="utf-8")
