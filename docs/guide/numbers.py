"""The numbers of pages, compared with the records and filled in by ``python docs/build.py --pages``.

``numbers.toml`` says where the numbers of a page come from, in the order of the page: the words before a number, and an
expression,

    ["RoPE has ", 'text.mean("rope under its window", 16)']

The expression is Python; its vocabulary is `guide.quantities` and `guide.models`, with each recorded
run under the name of its folder (``text-long`` is ``text_long``). The number is written as it was: with as many
decimals, with a sign if it had one, with ± if it had one. A word such as **three** or **supported** is filled in the
same way. A third text is where a list or a table ends, all of which is made. What ``checks`` lists must be true.

So prose is free but for the words before a number, and a site with a number that differs from its record is not built.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from results.recompute_findings import Number

from guide.models import MODELS
from guide.quantities import QUANTITIES, recorded
from guide.records import ROOT, runs

_NUMBER = r"(?P<sign>[+−])?\d+(?:,\d{3})*(?:\.(?P<decimals>\d+))?(?P<half> ± \d+(?:,\d{3})*(?:\.(?P<more>\d+))?)?"
_SHOWN = rf"(?P<shown>{_NUMBER}|\*\*[^*\n]+\*\*|[A-Za-z]+)"
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
    functions: list[Callable[..., Any]] = [*QUANTITIES, *MODELS, *BUILTINS]
    return {
        "__builtins__": {},
        **{function.__name__: function for function in functions},
        **{name.replace("-", "_"): recorded(name) for name in runs()},
    }


@cache
def places() -> dict[str, dict[str, Any]]:
    """What ``numbers.toml`` says, by page."""
    return tomllib.loads(PLACES.read_text(encoding="utf-8"))


def filled(text: str, numbers: Iterable[Sequence[str]], checks: Iterable[str] = ()) -> tuple[str, list[Problem]]:
    """A page with its numbers as the records have them, and what differed.

    Raises:
        ValueError: naming words of ``numbers.toml`` that are not on the page.
    """
    parts, at, problems = list[str](), 0, list[Problem]()

    def compared(shown: str, start: int, expression: str, make: Callable[[Any], str]) -> str:
        try:
            expected = make(eval(f"({expression})", dict(vocabulary())))
        except Exception as error:  # whatever an expression raises is a problem of the page, and named with its line
            problem = f"an expression without error: {type(error).__name__}: {error}"
            problems.append(Problem(text.count("\n", 0, start) + 1, shown, problem, expression))
            return shown
        if shown != expected:
            problems.append(Problem(text.count("\n", 0, start) + 1, shown, expected, expression))
        return expected

    for before, expression, *until in numbers:
        place = re.compile(_words(before) + ("()" if until else _SHOWN)).search(text, at)
        end = place and re.compile(_words(until[0]) if until else "").search(text, place.end() + bool(until))
        if place is None or end is None:
            raise ValueError(f"the words {until[0] if place else before!r} of {PLACES.name} are not on the page")
        start, stop = place.start(1), end.start()
        value = compared(text[start:stop], start, expression, str if until else partial(like, place))
        parts += [text[at:start], value]
        at = stop
    for check in checks:
        compared("True", len(text), check, str)
    return "".join([*parts, text[at:]]), problems


def _words(text: str) -> str:
    """A pattern for words of a page, wherever its lines break."""
    return r"\s+".join(map(re.escape, text.split(" ")))


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
    if not isinstance(value, Number):
        raise ValueError(f"{number} has no interval, and the page has one")
    return f"{number} ± {value.half:,.{len(match['more'] or '')}f}"


def problems_of_pages(*, write: bool = False) -> Iterator[str]:
    """What differs from the records on every page; with ``write`` it is put right."""
    for name, here in places().items():
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        try:
            new, problems = filled(text, here.get("numbers", ()), here.get("checks", ()))
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        yield from (f"{name}, {problem}" for problem in problems)
        if write and new != text:
            page.write_text(new, encoding="utf-8")
