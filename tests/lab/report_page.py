"""A report's page as data: its tables, the numbers in its sentences and its text, for comparison with the records."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import pandas as pd
import pytest

VOID = {"meta", "link", "br", "img", "use"}


@dataclass
class Page:
    """What a page consists of."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # tag and attributes, in order
    tables: dict[str, list[list[str]]] = field(default_factory=dict)  # by id: lines of cells, the first the headings
    numbers: list[tuple[str, float, str]] = field(default_factory=list)  # in sentences: encoding, value, text
    text: str = ""  # outside of scripts and styles, on one line

    def count(self, tag: str) -> int:
        """How many elements have a tag."""
        return sum(name == tag for name, _ in self.elements)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page, self.stack, self.pieces = Page(), list[str](), list[str]()
        self.table: list[list[str]] = []
        self.number: tuple[str, float] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.page.elements.append((tag, attributes))
        if tag not in VOID:
            self.stack.append(tag)
        if tag == "table":
            self.table = self.page.tables.setdefault(attributes.get("id", ""), [])
        elif tag == "tr":
            self.table.append([])
        elif tag in ("td", "th"):
            self.table[-1].append("")
        elif tag == "data":
            self.number = (attributes["data-encoding"], float(attributes["value"]))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.stack:
            while self.stack.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "script" in self.stack or "style" in self.stack:
            return
        self.pieces.append(data)
        if self.stack and self.stack[-1] == "data" and self.number:
            self.page.numbers.append((*self.number, data))
        if "td" in self.stack or "th" in self.stack:
            self.table[-1][-1] += data


def read_page(html: str) -> Page:
    """Parse a page."""
    reader = _Reader()
    reader.feed(html)
    reader.page.text = " ".join("".join(reader.pieces).split())
    return reader.page


def first_number(cell: str) -> float:
    """The mean of a cell such as ``−1.720 ± 0.012 (ν 4)``."""
    return float(cell.split()[0].replace("−", "-").replace(",", ""))


def assert_numbers_are_recorded(page: Page, records: pd.DataFrame, metric: str, trained: int) -> int:
    """Compare the main table and every number of a sentence with means of the records; returns how many there were.

    For runs in which every seed of a row learned the task or none did, and whose documents have equally many items.
    """
    lines = records[(records["metric"] == metric) & (records["length"] > 0)].astype({"spec": str, "view": str})
    means = lines.groupby(["spec", "view", "length"])["value"].mean()
    last = int(lines["length"].max())
    checked = 0

    def mean(spec: str, length: int, view: str = "full") -> float:
        return float(means.get((spec, view, length), float("nan")))

    heads, *rows = page.tables["numbers-1"]
    for cells in rows:
        spec = cells[0]
        if spec not in set(lines["spec"]):  # a baseline
            continue
        expected = {f"{length // trained}×": mean(spec, length) for length in sorted(set(lines["length"]))}
        expected[f"{last // trained}× − 1×"] = mean(spec, last) - mean(spec, trained)
        expected[f"own window, {last // trained}×"] = mean(spec, last, "window")
        expected["− own window"] = mean(spec, last) - mean(spec, last, "window")
        expected["− alibi"] = mean(spec, last) - mean("alibi", last)
        expected["− rope under its window"] = mean(spec, last) - mean("rope", last, "window")
        for head, cell in zip(heads, cells, strict=True):
            if head in expected and cell != "–":
                assert first_number(cell) == pytest.approx(expected[head], abs=6e-4), (spec, head)
                checked += 1
    for spec, value, shown in page.numbers:
        change = mean(spec, last) - mean(spec, trained)
        sources = (change,) if shown[0] in "+−" else (mean(spec, trained), mean(spec, last))
        assert any(value == pytest.approx(source, abs=1e-6) for source in sources), (spec, shown)
        assert first_number(shown) == pytest.approx(value, abs=6e-4), (spec, shown)
        checked += 1
    return checked
