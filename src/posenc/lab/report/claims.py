"""How claims about positional encodings are held against what runs have measured.

A claim is data (`posenc.lab.report.said`): what is said, by whom, and a test of a run. What a test finds is one of four
words, and a fifth where runs disagree. "contradicted" means that the opposite was found beyond chance, in these models
on these data; where the run differs from the source in something that may decide (``gap``), it is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posenc.lab.records import FULL
from posenc.lab.report.measured import Key, Measured, measured
from posenc.lab.report.rows import Cell, Table
from posenc.lab.report.said_numbers import with_error
from posenc.lab.runs import Run
from posenc.lab.stats import Contrast, Interval, contrasts

OUTCOMES = {1: "supported", 0: "not found here", -1: "contradicted", None: "not testable here"}
SOME = "supported in some runs"  # and not in others


class Finding(NamedTuple):
    """What a test found: 1 for the claim, −1 for its opposite, 0 for neither; and the numbers in words.

    Where too little was seen for a verdict (``decided`` is False), runs that saw more are asked alone.
    """

    says: int
    words: str
    decided: bool = True


class Evidence(NamedTuple):
    """A run as tests ask it."""

    name: str  # what the run is called
    run: Run
    table: Table
    found: Measured

    def learnt(self, *specs: str) -> bool:
        """Whether all of them are there and learnt the task."""
        return all((row := self.table.row(spec)) is not None and row.learnt for spec in specs)

    def verdict(self, spec: str, says: Mapping[str, int], view: str = FULL) -> Finding | None:
        """What the verdict on a row says, at the longest length or under another view."""
        row = self.table.row(spec, view)
        if row is None or not row.learnt or row.change is None:
            return None
        where = f"at {self.table.times}×" if view == FULL else f"under {view}"
        words = f"{spec} {row.verdict} {where}: {self.text(row.change)}."
        return Finding(says.get(row.verdict, 0), words, row.verdict != "undecided")

    def differences(self, key: Key, others: Sequence[Key], times: float) -> list[Contrast]:
        """A row less each of some others at a length, adjusted together; nothing unless all are there."""
        length = round(times * self.table.trained)
        tables = {one: self.found.values.get(one, {}).get(length) for one in (key, *others)}
        there = {one: table for one, table in tables.items() if table is not None}
        if len(there) < len(tables):
            return []
        both = [there[key].align(there[other], join="inner") for other in others]
        if any(a.size < 2 for a, _ in both):
            return []
        seeds = {f"{spec} ({view})": table.mean(axis=1).to_numpy() for (spec, view), table in there.items()}
        return contrasts([(a.to_numpy(), b.to_numpy()) for a, b in both], seeds, untrained=self.run.given)

    def text(self, found: Cell | Interval) -> str:
        """A difference in words."""
        return with_error(found, self.table.metric, change=True)


@dataclass(frozen=True)
class Check:
    """Of which specs a claim speaks, which it names beside them, and what a run says to it.

    A run says nothing (None) where what the claim speaks of was not measured, or not learnt.
    """

    of: tuple[str, ...]
    beside: tuple[str, ...]
    ask: Callable[[Evidence], Finding | None]

    def __call__(self, evidence: Evidence) -> Finding | None:
        """What a run says."""
        return self.ask(evidence)


@dataclass(frozen=True)
class Claim:
    """What is said, who says it and where, the tasks that it is tested in, and how."""

    text: str
    source: str
    task: str  # names with spaces between them
    test: Check
    gap: str = ""  # in what the run differs from the source


@dataclass(frozen=True)
class Judged:
    """A claim and what all runs together say to it."""

    claim: Claim
    outcome: str
    words: str  # empty where nothing could be tested


def asked(claims: Sequence[Claim], parts: Mapping[str, tuple[Run, Table]]) -> list[Claim]:
    """Those claims that speak of a task of some runs."""
    tasks = {run.task for run, _ in parts.values()}
    return [claim for claim in claims if tasks & set(claim.task.split())]


def judged(claims: Sequence[Claim], parts: Mapping[str, tuple[Run, Table]]) -> list[Judged]:
    """Each claim with its outcome; where runs disagree, each is told with its own."""
    evidence = [Evidence(name, run, table, measured(run)) for name, (run, table) in parts.items()]
    return [_judged(claim, [one for one in evidence if one.run.task in claim.task.split()]) for claim in claims]


def _judged(claim: Claim, evidence: Sequence[Evidence]) -> Judged:
    found = {one.name: finding for one in evidence if (finding := claim.test(one)) is not None}
    if not found:
        return Judged(claim, OUTCOMES[None], "")
    least = 0 if claim.gap else -1
    answers = {max(one.says, least) for one in found.values() if one.decided} or {0}
    agreed = len(answers) == 1
    words = [finding.words for finding in found.values()]
    if len(found) > 1:
        each = [(name, "" if agreed else f" ({OUTCOMES[max(one.says, least)]})") for name, one in found.items()]
        words = [f"{name}{outcome}: {told}" for (name, outcome), told in zip(each, words, strict=True)]
    outcome = OUTCOMES[answers.pop()] if agreed else SOME if 1 in answers else OUTCOMES[0]
    return Judged(claim, outcome, " ".join([*words, claim.gap]).strip())
