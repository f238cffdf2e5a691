"""Claims about positional encodings, and tests that hold them against measured runs.

A claim is data (`posenc.lab.report.literature`): a text, its source, and a test. The outcome of a test is "supported",
"contradicted" (the opposite was found, in these models on these data) or "not found here" (neither); "not testable
here" where no run measured what the claim is about, and "supported in some runs" where runs disagree. A claim whose
source used a setting that may decide the question (``gap``) is never called contradicted.

A claim about one row rests on the verdict in the row's table. That a loss rises is shown by any language model; that it
stays flat counts for a claim only where the model is shown to use far context. All differences of a list of claims are
one family, adjusted together by Holm at 5 %. They use the margin of the metric's unit and the rules of
`posenc.lab.report.numbers`: only rows that learned the task and whose rates were tuned alike are compared, never with a
loss above the entropy of single tokens. Language models must be better than the n-gram to be compared; where length is
the question they must use far context, and the other row has a sliding window of the training length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from posenc.lab.metrics import FULL, WINDOW, Metric
from posenc.lab.report.numbers import (
    ROPE_WINDOW,
    UNMODIFIED,
    Key,
    Measured,
    NamedTables,
    Table,
    measured,
)
from posenc.lab.report.verdicts import Verdict
from posenc.lab.run.folder import Run
from posenc.lab.stats import LEVEL, Array, Caution, Contrast, Interval, contrasts, holm, p_above, paired

Outcome = Literal[
    "supported", "supported in some runs", "not found here", "contradicted", "not testable here"
]  # fmt: skip
OUTCOMES: Mapping[int, Outcome] = {1: "supported", 0: "not found here", -1: "contradicted"}
Side = Literal["better", "flat", "worse"]  # of a verdict
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
    difference: Contrast


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


@dataclass
class Family:
    """The p-values of all tests of a list of claims. They are collected in a first pass, and accepted in a second."""

    p: list[float] = field(default_factory=list)
    adjusted: dict[float, float] | None = None

    def accepts(self, p: float) -> bool:
        """Whether a p-value, adjusted over all of them by Holm, is at most 5 %; in the first pass none is."""
        if self.adjusted is None:
            self.p.append(p)
            return False
        return self.adjusted[p] <= LEVEL

    def close(self) -> None:
        """End the first pass. Equal p-values have equal adjusted ones, so they may stand for their tests."""
        self.adjusted = dict(zip(self.p, holm(self.p), strict=True))


class RunData(NamedTuple):
    """A run as tests query it."""

    run: Run
    table: Table
    records: Measured
    family: Family

    @property
    def language(self) -> bool:
        """Whether models of language were trained in this run."""
        return self.table.metric.language and not self.run.pretrained

    def learned(self, *specs: str) -> bool:
        """Whether all of the specs are in the run and learned the task, or as language models more than an n-gram."""
        rows = [self.table.row(spec) for spec in specs]
        shares = [row.ngram_share if self.language else row.learned_share for row in rows if row is not None]
        return len(shares) == len(specs) and all(share is not None and share.mean >= 0.5 for share in shares)

    def uses_context(self, spec: str) -> bool:
        """Whether the models of a spec can show what more context than in training does."""
        row = self.table.row(spec)
        return not self.language or (row is not None and row.far is not None and row.far.kind == "shown")

    def opponent(self, spec: str, times: float) -> Key:
        """The row of another encoding that one is compared with at a length: beyond 1×, under its window."""
        length, windowed = round(times * self.table.trained), (spec, WINDOW)
        beyond = self.language and times > 1 and length in self.records.values.get(windowed, {})
        return windowed if beyond else (spec, FULL)

    def verdict(self, spec: str, signs: Mapping[Side, int], view: str = FULL) -> Finding | None:
        """The finding from the verdict on a row at the longest length or under another view."""
        row = self.table.row(spec, view)
        if row is None or row.change is None or row.verdict.change is None:
            return None
        evidence = VerdictEvidence(spec, row.verdict, row.change, self.table.times, view)
        if row.verdict.kind == "inconclusive":
            return Finding(0, (evidence,), decided=False)
        if row.verdict.stable and not self.uses_context(spec):
            return None
        kind: Side = "flat" if row.verdict.kind == "flat" else "better" if row.verdict.stable else "worse"
        return Finding(signs.get(kind, 0), (evidence,))

    def pairs(self, key: Key, compared: Sequence[Key], times: float) -> list[tuple[Array, Array]]:
        """The values of a row and of each of some other rows at a length; empty unless all of them may be compared."""
        length, counting = round(times * self.table.trained), self.table.baselines
        values = {name: self.records.values.get(name, {}).get(length) for name in (key, *compared)}
        tables = {name: table for name, table in values.items() if table is not None}
        if len(tables) < len(values) or len({self.run.tuning_of(spec) for spec, _ in tables}) > 1:
            return []
        if counting and any(table.to_numpy().mean() > counting.unigram for table in tables.values()):
            return []
        aligned = [tables[key].align(tables[other], join="inner") for other in compared]
        return [] if any(a.size < 2 for a, _ in aligned) else [(a.to_numpy(), b.to_numpy()) for a, b in aligned]

    def differences(self, key: Key, compared: Sequence[Key], times: float) -> list[Contrast]:
        """A row minus each of some other rows at a length; empty unless all of them may be compared."""
        pairs = self.pairs(key, compared, times)
        if not pairs:
            return []
        tables = {name: self.records.values[name][round(times * self.table.trained)] for name in (key, *compared)}
        seed_means = {f"{spec} ({view})": table.mean(axis=1).to_numpy() for (spec, view), table in tables.items()}
        return contrasts(pairs, seed_means, untrained=self.run.pretrained)

    def over_unmodified(self, spec: str, times: float) -> tuple[Array, Array] | None:
        """The values of a row of a released model at a length, and of the unmodified model at 1×, by document."""
        table = self.records.values.get((spec, FULL), {}).get(round(times * self.table.trained))
        unmodified = self.records.at_trained.get(UNMODIFIED)
        if table is None or unmodified is None:
            return None
        a, b = table.align(unmodified, join="inner")
        return a.to_numpy(), b.to_numpy()

    def within_margin(self, pair: tuple[Array, Array]) -> int:
        """1 where a − b is shown to be a loss smaller than the margin, −1 where it is shown to be larger, else 0."""
        loss = (pair[1] - pair[0]) if self.table.metric.better == "higher" else (pair[0] - pair[1])
        margin = self.table.metric.margin
        smaller, larger = self.family.accepts(p_above(-loss, -margin)), self.family.accepts(p_above(loss, margin))
        return 1 if smaller else -1 if larger else 0


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
    family = Family()
    data = {label: RunData(run, table, measured(run), family) for label, (run, table) in tables.items()}
    runs = [{label: run for label, run in data.items() if run.run.task in claim.tasks} for claim in claims]
    for claim, of_claim in zip(claims, runs, strict=True):
        for run in of_claim.values():
            claim.test.find(run)
    family.close()
    return [_judged(claim, of_claim) for claim, of_claim in zip(claims, runs, strict=True)]


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
    """The row is as good at the longest length as at the training length, or better."""
    return _by_verdict(spec, {"better": 1, "flat": 1, "worse": -1})


def loses(spec: str) -> ClaimTest:
    """The row is worse at the longest length than at the training length."""
    return _by_verdict(spec, {"better": -1, "flat": -1, "worse": 1})


def gains(spec: str) -> ClaimTest:
    """The row is better at the longest length than at the training length; that it is as good is not the opposite."""
    return _by_verdict(spec, {"better": 1, "worse": -1})


def unmoved(spec: str, view: str, *, opposite: bool = False) -> ClaimTest:
    """The row is as good under another view; or, with ``opposite``, it is not."""
    same = -1 if opposite else 1
    return _by_verdict(spec, {"flat": same, "better": -same, "worse": -same}, view)


def better(spec: str, *compared: str, times: int | None = None, must_learn: bool = True) -> ClaimTest:
    """The row is significantly better than each row that it is compared with, at a length.

    Args:
        spec, compared: encodings.
        times: the length in training lengths; default the longest.
        must_learn: whether all of them must have learned the task at the training length; models of language always.
    """

    def find(data: RunData) -> Finding | None:
        at = times or data.table.times
        if (must_learn or data.language) and not data.learned(spec, *compared):
            return None
        if at > 1 and not data.uses_context(spec):
            return None
        opponents = [data.opponent(other, at) for other in compared]
        differences = data.differences((spec, FULL), opponents, at)
        if not differences:
            return None
        sign = 1 if data.table.metric.better == "higher" else -1
        accepted = [data.family.accepts(contrast.p) and contrast.caution is None for contrast in differences]
        gains = [sign * contrast.mean for contrast, yes in zip(differences, accepted, strict=True) if yes]
        supported = len(gains) == len(differences) and min(gains) > 0
        evidence = [
            DifferenceEvidence(spec, f"{other} under its window" if view == WINDOW else other, at, contrast)
            for (other, view), contrast in zip(opponents, differences, strict=True)
        ]
        return Finding(1 if supported else -1 if gains and max(gains) < 0 else 0, tuple(evidence))

    return ClaimTest((spec,), compared, find)


def harmless(spec: str, other: str, times: int = 1) -> ClaimTest:
    """The row is not worse than another by as much as the margin."""

    def find(data: RunData) -> Finding | None:
        pairs = data.pairs((spec, FULL), [(other, FULL)], times)
        if not pairs or not data.learned(other):
            return None
        (difference,) = data.differences((spec, FULL), [(other, FULL)], times)
        evidence = DifferenceEvidence(spec, other, times, difference)
        return Finding(data.within_margin(pairs[0]), (evidence,))

    return ClaimTest((spec,), (other,), find)


def serves(spec: str, times: int, least: int | None = None) -> ClaimTest:
    """The row is less than the margin behind RoPE under a sliding window of the training length.

    For a released model: behind the unmodified model at 1×, on a text that is cut to its training length.

    Args:
        spec: an encoding, or a method of context extension.
        times: the length in training lengths.
        least: a run that ends before ``times``, at so many training lengths or later, is tested at its end.
    """

    def find(data: RunData) -> Finding | None:
        longest = data.table.times
        at = longest if times > longest >= (least or times) else times
        if data.run.pretrained:
            other, pair = f"{UNMODIFIED} at 1×", data.over_unmodified(spec, at)
        else:
            other, pairs = ROPE_WINDOW, data.pairs((spec, FULL), [("rope", WINDOW)], at)
            able = data.learned(spec, "rope") and data.uses_context(spec)
            pair = pairs[0] if pairs and able else None
        if pair is None or pair[0].size < 2:
            return None
        evidence = DifferenceEvidence(spec, other, at, paired(*pair))
        return Finding(data.within_margin(pair), (evidence,))

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


def _by_verdict(spec: str, signs: Mapping[Side, int], view: str = FULL) -> ClaimTest:
    return ClaimTest((spec,), (), lambda data: data.verdict(spec, signs, view))
