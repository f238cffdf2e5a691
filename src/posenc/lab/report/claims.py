"""Claims about positional encodings, and tests that hold them against measured runs.

A claim is data (`posenc.lab.report.literature`): a text, its source, and a test. The outcome of a test is "supported",
"contradicted" (the opposite was found, in these models on these data) or "not found here" (neither); "not testable
here" where no run measured what the claim is about, and "supported in some runs" where runs disagree. A claim whose
source used a setting that may decide the question (``gap``) is never called contradicted.

Each claim is tested by itself at 5 %; differences within one claim are adjusted together by Holm. Tests use the
equivalence margin and the failure bound of the run's metric, see `posenc.lab.report.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from posenc.lab.metrics import FULL, WINDOW, Metric
from posenc.lab.report.numbers import (
    ROPE_WINDOW,
    UNMODIFIED,
    Cell,
    Key,
    Measured,
    NamedTables,
    Table,
    Verdict,
    VerdictKind,
    measured,
)
from posenc.lab.run.folder import Run
from posenc.lab.stats import Caution, Contrast, Interval, contrasts

Outcome = Literal[
    "supported", "supported in some runs", "not found here", "contradicted", "not testable here"
]  # fmt: skip
OUTCOMES: Mapping[int, Outcome] = {1: "supported", 0: "not found here", -1: "contradicted"}
UNTESTED: Outcome = "not testable here"
DISAGREED: Outcome = "supported in some runs"


@dataclass(frozen=True)
class VerdictEvidence:
    """The verdict on a row at the longest length, or under another view, with its change (95 % interval)."""

    spec: str
    verdict: Verdict
    change: Interval
    times: float  # the longest length in training lengths
    view: str = FULL


@dataclass(frozen=True)
class DifferenceEvidence:
    """A row minus another at so many training lengths."""

    spec: str
    other: str  # a spec, or the label of a baseline
    times: float
    difference: Cell | Interval


class Finding(NamedTuple):
    """What a test found in one run: 1 for the claim, −1 for its opposite, 0 for neither, and the numbers behind it.

    An inconclusive finding (``decided`` is False) counts only where no other run has a conclusive one.
    """

    sign: int
    evidence: tuple[VerdictEvidence | DifferenceEvidence, ...]
    decided: bool = True

    @property
    def cautions(self) -> list[Caution]:
        """Why differences of the evidence must not be claimed."""
        cautions = (getattr(getattr(item, "difference", None), "caution", None) for item in self.evidence)
        return list(dict.fromkeys(caution for caution in cautions if caution is not None))


class RunData(NamedTuple):
    """A run as tests query it."""

    run: Run
    table: Table
    records: Measured

    def learned(self, *specs: str) -> bool:
        """Whether all of the specs are in the run and learned the task."""
        return all((row := self.table.row(spec)) is not None and row.learned for spec in specs)

    def verdict(self, spec: str, signs: Mapping[VerdictKind, int], view: str = FULL) -> Finding | None:
        """The finding from the verdict on a row at the longest length or under another view."""
        row = self.table.row(spec, view)
        if row is None or not row.learned or row.change is None:
            return None
        evidence = VerdictEvidence(spec, row.verdict, row.change, self.table.times, view)
        return Finding(signs.get(row.verdict.kind, 0), (evidence,), row.verdict.kind != "inconclusive")

    def differences(self, key: Key, compared: Sequence[Key], times: float) -> list[Contrast]:
        """A row minus each of some other rows at a length, adjusted together; empty unless all of them are there."""
        length = round(times * self.table.trained)
        values = {name: self.records.values.get(name, {}).get(length) for name in (key, *compared)}
        tables = {name: table for name, table in values.items() if table is not None}
        if len(tables) < len(values):
            return []
        pairs = [tables[key].align(tables[other], join="inner") for other in compared]
        if any(a.size < 2 for a, _ in pairs):
            return []
        seed_means = {f"{spec} ({view})": table.mean(axis=1).to_numpy() for (spec, view), table in tables.items()}
        return contrasts([(a.to_numpy(), b.to_numpy()) for a, b in pairs], seed_means, untrained=self.run.given)


@dataclass(frozen=True)
class ClaimTest:
    """A test of a claim: which specs the claim is about, which it compares them with, and what a run says to it.

    A run gives no finding (None) where a spec that the test needs was not measured, or did not learn the task.
    """

    about: tuple[str, ...]
    compared: tuple[str, ...]
    find: Callable[[RunData], Finding | None]


@dataclass(frozen=True)
class Claim:
    """A claim with its source, the tasks that it is tested in, and its test."""

    text: str
    source: str
    tasks: tuple[str, ...]
    test: ClaimTest
    gap: str = ""  # how the runs differ from the source in something that may decide


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its outcome over all runs, and the finding and outcome of each run."""

    claim: Claim
    outcome: Outcome
    findings: Mapping[str, Finding]  # by the run's label; empty where nothing could be tested
    outcomes: Mapping[str, Outcome]
    metrics: Mapping[str, Metric]  # of the findings' numbers

    @property
    def tested(self) -> bool:
        """Whether some run could test the claim."""
        return bool(self.findings)

    @property
    def agreed(self) -> bool:
        """Whether all runs that decide give one outcome."""
        return len({self.outcomes[label] for label, finding in self.findings.items() if finding.decided}) < 2


def relevant_claims(claims: Sequence[Claim], tables: NamedTables) -> list[Claim]:
    """The claims that are tested in a task of some runs."""
    tasks = {run.task for run, _ in tables.values()}
    return [claim for claim in claims if tasks & set(claim.tasks)]


def judge(claims: Sequence[Claim], tables: NamedTables) -> list[JudgedClaim]:
    """Test each claim in every run of its tasks."""
    data = {label: RunData(run, table, measured(run)) for label, (run, table) in tables.items()}
    return [_judged(claim, {k: v for k, v in data.items() if v.run.task in claim.tasks}) for claim in claims]


def outcome_counts(judged: Sequence[JudgedClaim]) -> dict[Outcome, int]:
    """How many claims have which outcome, in the order of OUTCOMES; disagreements and untested claims come last."""
    return {
        outcome: sum(claim.outcome == outcome for claim in judged)
        for outcome in (*OUTCOMES.values(), DISAGREED, UNTESTED)
    }


def _judged(claim: Claim, runs: Mapping[str, RunData]) -> JudgedClaim:
    findings = {label: finding for label, data in runs.items() if (finding := claim.test.find(data)) is not None}
    least = 0 if claim.gap else -1
    signs = {label: max(finding.sign, least) for label, finding in findings.items()}
    decisive = {signs[label] for label, finding in findings.items() if finding.decided} or {0}
    if not findings:
        outcome = UNTESTED
    elif len(decisive) == 1:
        outcome = OUTCOMES[next(iter(decisive))]
    else:
        outcome = DISAGREED if 1 in decisive else OUTCOMES[0]
    metrics = {label: runs[label].run.decides for label in findings}
    return JudgedClaim(claim, outcome, findings, {label: OUTCOMES[sign] for label, sign in signs.items()}, metrics)


# ---- Tests ----


def keeps(spec: str) -> ClaimTest:
    """The row is stable at the longest length; "worse" is neither support nor its opposite."""
    return _by_verdict(spec, {"better": 1, "equivalent": 1, "fails": -1})


def loses(spec: str) -> ClaimTest:
    """The row is worse at the longest length than at the training length."""
    return _by_verdict(spec, {"better": -1, "equivalent": -1, "worse": 1, "fails": 1})


def gains(spec: str) -> ClaimTest:
    """The row is better at the longest length than at the training length."""
    return _by_verdict(spec, {"better": 1, "fails": -1})


def unmoved(spec: str, view: str, *, opposite: bool = False) -> ClaimTest:
    """The row is equivalent under another view; or, with ``opposite``, it is not."""
    same = -1 if opposite else 1
    return _by_verdict(spec, {"equivalent": same, "better": -same, "worse": -same, "fails": -same}, view)


def better(spec: str, *compared: str, times: int | None = None, must_learn: bool = True) -> ClaimTest:
    """The row is significantly better than each row that it is compared with, at a length.

    Args:
        spec, compared: encodings.
        times: the length in training lengths; default the longest.
        must_learn: whether all of them must have learned the task at the training length.
    """

    def find(data: RunData) -> Finding | None:
        at = times or data.table.times
        differences = data.differences((spec, FULL), [(other, FULL) for other in compared], at)
        if not differences or (must_learn and not data.learned(spec, *compared)):
            return None
        sign = 1 if data.table.metric.better == "higher" else -1
        gains = [sign * contrast.mean for contrast in differences if contrast.significant]
        supported = len(gains) == len(differences) and min(gains) > 0
        evidence = [
            DifferenceEvidence(spec, other, at, contrast)
            for other, contrast in zip(compared, differences, strict=True)
        ]  # fmt: skip
        return Finding(1 if supported else -1 if gains and max(gains) < 0 else 0, tuple(evidence))

    return ClaimTest((spec,), compared, find)


def harmless(spec: str, other: str, times: int = 1) -> ClaimTest:
    """The row is not worse than another by as much as the equivalence margin."""

    def find(data: RunData) -> Finding | None:
        differences = data.differences((spec, FULL), [(other, FULL)], times)
        if not differences or not data.learned(other):
            return None
        evidence = DifferenceEvidence(spec, other, times, differences[0])
        return Finding(_below(differences[0], data.table.metric.margin, data.table.metric), (evidence,))

    return ClaimTest((spec,), (other,), find)


def serves(spec: str, times: int, least: int | None = None) -> ClaimTest:
    """The row is less than the failure bound behind RoPE under a sliding window of the training length.

    For a released model: behind the unmodified model at 1×, on a text that is cut to its training length.

    Args:
        spec: an encoding, or a method of context extension.
        times: the length in training lengths.
        least: a run that ends before ``times``, at so many training lengths or later, is tested at its end.
    """

    def find(data: RunData) -> Finding | None:
        longest = data.table.times
        at = longest if times > longest >= (least or times) else times
        difference: Cell | Interval | None
        if data.run.given:
            row, other = data.table.row(spec), f"{UNMODIFIED} at 1×"
            difference = row.over_unmodified.get(round(at * data.table.trained)) if row else None
        else:
            other = ROPE_WINDOW
            difference = next(iter(data.differences((spec, FULL), [("rope", WINDOW)], at)), None)
        if difference is None or math.isnan(difference.low):
            return None
        evidence = DifferenceEvidence(spec, other, at, difference)
        return Finding(_below(difference, data.table.metric.fails, data.table.metric), (evidence,))

    return ClaimTest((spec,), ("rope",), find)


def both(*tests: ClaimTest) -> ClaimTest:
    """Several tests together: for the claim if all of them are, against it if one is."""

    def find(data: RunData) -> Finding | None:
        findings = [finding for test in tests if (finding := test.find(data)) is not None]
        if len(findings) < len(tests):
            return None
        evidence = tuple(item for finding in findings for item in finding.evidence)
        return Finding(min(f.sign for f in findings), evidence, all(f.decided for f in findings))

    about = tuple(spec for test in tests for spec in test.about)
    return ClaimTest(about, tuple(spec for test in tests for spec in test.compared), find)


def _by_verdict(spec: str, signs: Mapping[VerdictKind, int], view: str = FULL) -> ClaimTest:
    return ClaimTest((spec,), (), lambda data: data.verdict(spec, signs, view))


def _below(difference: Cell | Interval, bound: float, metric: Metric) -> int:
    """1 where a loss is certainly smaller than ``bound``, −1 where it is certainly larger, else 0."""
    least, most = difference.low, difference.high
    if metric.better == "higher":
        least, most = -most, -least
    return 1 if most < bound else -1 if least > bound else 0
