"""What rows of --task checkpoint need to be measured: cells, each of them a job, which rows that mean the same share.

rope                      the model as it is; under its view "window" a sliding window of the trained length
METHOD  METHOD+resonance  of `posenc.hf.extend`, for texts as long as each test; up to the trained length that is rope
METHOD@4                  for four times the trained length, whatever is read, as a server has it; it ends there

dynamic_ntk is ntk for the text at hand, so both are one without the @.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

BASE, WINDOWED, SEARCHED = "rope", "rope+window", "longrope"
DYNAMIC = {"dynamic_ntk": "ntk"}  # methods that go by the length, and what they are for one length
_ROW = re.compile(r"([a-z0-9_]+(?:\+resonance)?)(?:@([0-9]{1,4}))?")
_CELL = re.compile(r"(.+?)(?:\+to([0-9]+))?\+(search|part([0-9]+))@([0-9]+)")
Reaches = Callable[[str, int, int], bool]  # whether a method gets from a trained length to another


class Row(NamedTuple):
    """What a row says."""

    method: str
    times: int | None  # trained lengths that it is for; None: as long as each test

    @classmethod
    def parse(cls, text: str) -> Row:
        """From text; a ValueError that says what is wrong."""
        found = _ROW.fullmatch(text)
        if found is None:
            raise ValueError(f"{text}: --task checkpoint has rows like rope, yarn, yarn+resonance and yarn@4")
        times = int(found[2]) if found[2] else None
        if times is not None and (times < 2 or found[1] == BASE or found[1] in DYNAMIC):
            told = "at least 2 is needed after the @" if times < 2 else "it has no factor that could be fixed"
            raise ValueError(f"{text}: {told}")
        return cls(found[1], times)

    def at(self, length: int, trained: int, reaches: Reaches) -> tuple[str, int] | None:
        """The method and the length that it is for, in texts of ``length`` tokens; None where it has ended."""
        target = length if self.times is None else self.times * trained
        if self.method == BASE or target <= trained:
            return BASE, 0
        if length > target or not reaches(self.method, trained, target):
            return None
        return DYNAMIC.get(self.method, self.method), target


class Cell(NamedTuple):
    """One job: a method on some windows at one length, or a search."""

    method: str
    target: int  # tokens that it is for; 0: none, the model as it is
    part: int | None  # of the windows; None: a search
    length: int

    @property
    def spec(self) -> str:
        """As the name of a job."""
        head = f"{self.method}+to{self.target}" if self.target else self.method
        return f"{head}+{'search' if self.part is None else f'part{self.part}'}@{self.length}"

    @classmethod
    def parse(cls, spec: str) -> Cell:
        """From the name of a job."""
        found = _CELL.fullmatch(spec)
        if found is None:
            raise ValueError(f"{spec} is no job of --task checkpoint")
        return cls(found[1], int(found[2] or 0), int(found[4]) if found[4] else None, int(found[5]))


class Size(NamedTuple):
    """Numbers that cells go by."""

    trained: int  # tokens
    lengths: tuple[int, ...]  # tokens, growing
    windows: int  # up to the trained length

    def count(self, length: int) -> int:
        """Windows at a length: past the trained one as many tokens at each, but three windows at least,
        where there are as many."""
        fewer = max(3, -(-self.windows * self.trained // length))
        return self.windows if length <= self.trained else min(self.windows, fewer)

    def part(self, number: int, length: int) -> range:
        """Windows of a part: no more tokens than the longest one has, so that a part is soon done."""
        each = max(1, self.lengths[-1] // length)
        return range(number * each, min(self.count(length), (number + 1) * each))

    def parts(self, length: int) -> range:
        """Numbers of the parts at a length."""
        return range(-(-self.count(length) // max(1, self.lengths[-1] // length)))


def cells_of(rows: Sequence[str], size: Size, reaches: Reaches, *, windowed: bool = True) -> dict[Cell, list[str]]:
    """The cells that rows need, with the rows of each; searches come before what they are for.

    Args:
        rows: as texts.
        size: numbers.
        reaches: of methods.
        windowed: whether the model is measured under a sliding window as well.
    """
    found: dict[Cell, list[str]] = {}
    for row in rows:
        read = Row.parse(row)
        for length in size.lengths:
            at = read.at(length, size.trained, reaches)
            if at is None:
                continue
            if at[0] == SEARCHED:
                found.setdefault(Cell(*at, None, at[1]), []).append(row)
            both = [at, (WINDOWED, 0)] if row == BASE and windowed and length > size.trained else [at]
            for method, target in both:
                for part in size.parts(length):
                    found.setdefault(Cell(method, target, part, length), []).append(row)
    return {cell: list(dict.fromkeys(names)) for cell, names in found.items()}
