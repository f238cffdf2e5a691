"""The numbers of pages, compared with the records and filled in by ``python docs/build.py --pages``.

``numbers.toml`` says where the numbers of a page come from, in the order of the page: the words before a number, and an
expression,

    ["RoPE has ", 'text.mean("rope under its window", 16)']

The expression is Python; its vocabulary is `guide.quantities`, `guide.tables` and `guide.models`, with each recorded
run under the name of its folder (``text-long`` is ``text_long``). The number is written as it was: with as many
decimals, with a sign if it had one, with ± if it had one. A word such as **three** or **supported** is filled in the
same way. A third text is where a list or a table ends, all of which is made. What ``checks`` lists must be true.

A page is compared with these places marked by comments (`marked`), which may also stand in a page itself:

    2.560<!-- value: text.mean("rope under its window", 16) -->
    <!-- check: encodings() > 70 -->
    <!-- begin: models_named("raised") -->10 (ERNIE-4.5-21B-A3B-PT, …)<!-- end -->

So prose is free but for the words before a number, and a site with a number that differs from its record is not built.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from guide.models import MODELS
from guide.quantities import QUANTITIES, Estimate, recorded
from guide.records import ROOT, runs
from guide.tables import TABLES

NUMBER = r"(?P<sign>[+−])?\d+(?:,\d{3})*(?:\.(?P<decimals>\d+))?(?P<half> ± \d+(?:,\d{3})*(?:\.(?P<more>\d+))?)?"
SHOWN = rf"(?:\*\*[^*\n]+\*\*|{re.sub(r'[?]P<[a-z]+>', '?:', NUMBER)}|[A-Za-z]+)"
VALUE = re.compile(rf"(?P<shown>{NUMBER}|\*\*[^*\n]+\*\*|[A-Za-z]+)<!-- value: (?P<expression>.+?) -->", re.S)
REGION = re.compile(r"<!-- begin: (?P<expression>.+?) -->(?P<body>.*?)<!-- end -->", re.S)
CHECK = re.compile(r"<!-- check: (?P<expression>.+?) -->", re.S)
OPENING = re.compile(r"<!-- (?:value|begin|check):")
MARKS = re.compile(r"<!-- (?:(?:value|begin|check): .+?|end) -->", re.S)
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
BUILTINS = (abs, all, any, dict, len, list, max, min, round, set, sorted, sum)


PLACES = Path(__file__).with_name("numbers.toml")


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


@cache
def places() -> dict[str, dict[str, Any]]:
    """What ``numbers.toml`` says, by page."""
    return tomllib.loads(PLACES.read_text(encoding="utf-8"))


def marked(text: str, numbers: Iterable[Sequence[str]], checks: Iterable[str] = ()) -> str:
    """A page with a comment at each of its places; a ValueError names words that are not there."""
    parts, at = [], 0
    for before, expression, *until in numbers:
        place = re.compile(_words(before) + ("()" if until else f"({SHOWN})")).search(text, at)
        end = place and re.compile(_words(until[0]) if until else "").search(text, place.end() + bool(until))
        if place is None or end is None:
            raise ValueError(f"the words {until[0] if place else before!r} of {PLACES.name} are not on the page")
        start, end_of_value = place.start(1), end.start()
        shown, opening = text[start:end_of_value], "" if not until else f"<!-- begin: {expression} -->"
        closing = "<!-- end -->" if until else f"<!-- value: {expression} -->"
        parts += [text[at:start], opening, f"\n\n{shown}\n\n" if until and "\n" in shown else shown, closing]
        at = end_of_value
    return "".join([*parts, text[at:], *(f"<!-- check: {check} -->" for check in checks)])


def _words(text: str) -> str:
    """A pattern for words of a page, wherever its lines break."""
    return r"\s+".join(map(re.escape, text.split(" ")))


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
        text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
        here = places().get(name, {})
        try:
            with_places = marked(text, here.get("numbers", ()), here.get("checks", ()))
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        new, problems = filled(with_places)
        yield from (f"{name}, {problem}" for problem in problems)
        if write and new != with_places:
            page.write_text(unmarked(new, here) if here else new, encoding="utf-8")


def unmarked(text: str, here: dict[str, Any]) -> str:
    """A page without the comments of `marked`; those of its own stay."""
    for _, expression, *until in here.get("numbers", ()):
        opening, closing = (f"<!-- begin: {expression} -->", "<!-- end -->") if until else ("", "")
        if until:
            head, _, rest = text.partition(opening)
            body, _, tail = rest.partition(closing)
            text = head + body.strip("\n") + tail
        else:
            text = text.replace(f"<!-- value: {expression} -->", "", 1)
    for check in here.get("checks", ()):
        text = text.replace(f"<!-- check: {check} -->", "", 1)
    return text
