"""Claims about positional encodings, and tests that hold them against measured runs.

    python docs/results/claims.py         prints what each recorded run says to them

A claim is data (`CLAIMS`): a text, its source, and a test. The outcome of a test is "supported",
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

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from posenc.lab.metrics import FULL, WINDOW, Metric
from posenc.lab.report.numbers import (
    ROPE_WINDOW,
    UNMODIFIED,
    Key,
    Measured,
    NamedTables,
    Table,
    build_table,
    measured,
)
from posenc.lab.report.tables import with_error
from posenc.lab.report.verdicts import Verdict
from posenc.lab.run.folder import Run, read_run
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


# ---- Claims ----

TEXT, EXTENSION, CHECKPOINT = ("text",), ("extension",), ("checkpoint",)
EXTENDED = (*EXTENSION, *CHECKPOINT)  # a small model and a released one, both tested beyond their training length
SHORT = "The source trains larger models, and far longer."
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Sinusoidal positions may extrapolate to sequences longer than those seen in training.",
        "Vaswani et al., arXiv 1706.03762, section 3.5", TEXT, keeps("sinusoidal"),
    ),
    Claim(
        "Sinusoidal and rotary positions do not extrapolate.",
        "Press et al., arXiv 2108.12409, section 2.2", TEXT,
        both(loses("sinusoidal"), loses("rope")),
    ),
    Claim(
        "ALiBi extrapolates beyond its training length.",
        "Press et al., arXiv 2108.12409, abstract", TEXT, keeps("alibi"),
    ),
    Claim(
        "T5's bias extrapolates better than sinusoidal and rotary positions.",
        "Press et al., arXiv 2108.12409, section 2.2", TEXT, better("t5", "sinusoidal", "rope"),
    ),
    Claim(
        "Clipped relative positions generalise to sequence lengths not seen in training.",
        "Shaw et al., arXiv 1803.02155, section 3.2", TEXT, keeps("shaw"),
    ),
    Claim(
        "Transformer-XL's relative positions generalise to attention lengths longer than those seen in training.",
        "Dai et al., arXiv 1901.02860, section 1", TEXT, keeps("transformer_xl"),
        "The source trains with a memory of the previous segment, which these runs do not have.",
    ),
    Claim(
        "KERPLE's logarithmic kernel extrapolates.", "Chi et al., arXiv 2205.09921, abstract", TEXT, keeps("kerple")
    ),
    Claim(
        "Sandwich uses context beyond its training length.",
        "Chi et al., arXiv 2212.10356, abstract", TEXT, gains("sandwich"), SHORT,
    ),
    Claim(
        "FIRE generalises to longer contexts better than T5, ALiBi and KERPLE.",
        "Li et al., arXiv 2310.04418, abstract", TEXT, better("fire", "t5", "alibi", "kerple"), SHORT,
    ),
    Claim(
        "xPos extrapolates better than RoPE.", "Sun et al., arXiv 2212.10554, abstract", TEXT, better("xpos", "rope"),
        "The source tests with block-wise causal attention, which these runs do not use.",
    ),
    Claim(
        "Rounding RoPE's wavelengths to whole tokens helps beyond the training length.",
        "Wang et al., arXiv 2403.00071, abstract", TEXT, better("resonance", "rope"),
        "The source rounds the wavelengths of models that were trained on long contexts or extended by YaRN.",
    ),
    Claim(
        "RoPE without its lowest frequencies is the better model.",
        "Barbero et al., arXiv 2410.06205, abstract", TEXT, better("proportional", "rope", times=1), SHORT,
    ),
    Claim(
        "DAPE is better at long context than encodings that do not adapt to the input.",
        "Zheng et al., arXiv 2405.14722, abstract", TEXT, better("dape", "alibi", "kerple", "fire"), SHORT,
    ),
    Claim("PaTH models text better than RoPE.", "Yang et al., arXiv 2505.16381, abstract", TEXT,
          better("path", "rope", times=1), SHORT),
    Claim(
        "With a forget gate, models extrapolate beyond the training length without positions.",
        "Lin et al., arXiv 2503.02130, abstract", TEXT, keeps("fox"),
    ),
    Claim(
        "Stick-breaking attention gets better beyond its training length.",
        "Tan et al., arXiv 2410.17980, abstract", TEXT, gains("stick-breaking"), SHORT,
    ),
    Claim(
        "A softmax scaled by a learned factor of log n generalises better to length.",
        "Nakanishi, arXiv 2501.19399, abstract", TEXT, better("rope+ssmax", "rope"), SHORT,
    ),
    Claim(
        "Attention logits times log n generalise better from short to longer inputs.",
        "Chiang and Cholak, arXiv 2202.12172, abstract", TEXT, better("rope+log_n", "rope"),
        "The source learns formal languages and translation.",
    ),
    Claim(
        "NoPE layers between windowed RoPE layers are better at long context than RoPE.",
        "Yang et al., arXiv 2501.18795, abstract", TEXT, better("rope@16/nope:4", "rope"),
    ),
    Claim(
        "A sink in every layer does no harm at the training length.", "Xiao et al., arXiv 2309.17453, section 4.2",
        TEXT, harmless("rope+sink", "rope"), "The source trains a token as a sink, not one logit per head.",
    ),
    Claim("PoPE models text better than RoPE.", "Gopalakrishnan et al., arXiv 2509.10534, abstract", TEXT,
          better("pope", "rope", times=1), SHORT),
    Claim(
        "PoPE extrapolates beyond its training length without changes.",
        "Gopalakrishnan et al., arXiv 2509.10534, abstract", TEXT,
        keeps("pope"), SHORT,
    ),
    Claim(
        "FoPE is more stable over context lengths than RoPE and ALiBi.", "Hua et al., arXiv 2412.17739, abstract", TEXT,
        better("fope", "rope", "alibi"), SHORT,
    ),
    Claim(
        "Softly clipping RoPE's lowest frequencies helps at long context.",
        "Li et al., arXiv 2602.05258, abstract", TEXT,
        better("clipped", "rope"), "The source clips trained models and fine-tunes them on long contexts.",
    ),
    Claim(
        "Heads that score by the imaginary part of RoPE's dot product improve on RoPE.",
        "Liu et al., arXiv 2512.07525, abstract", TEXT, better("rope_pp", "rope", times=1), SHORT,
    ),
    Claim(
        "Position states that layers update by content (TAPE) model text better than fixed positions.",
        "Zhu et al., arXiv 2501.00712, abstract", TEXT, better("tape", "rope", "alibi", times=1), SHORT,
    ),
    Claim(
        "Input-dependent rotations are better than RoPE's.", "Movahedi et al., arXiv 2511.17388, abstract",
        TEXT, better("selective_rope", "rope", times=1), "The source adds them to transformers with forget gates.",
    ),
    Claim(
        "CoPE solves counting, where popular encodings fail.", "Golovneva et al., arXiv 2405.18719, abstract",
        ("counting",), both(keeps("cope"), better("cope", "rope")),
    ),
    Claim(
        "CoPE solves flip-flops, where popular encodings fail.", "Golovneva et al., arXiv 2405.18719, abstract",
        ("flipflop",), both(keeps("cope"), better("cope", "rope")),
    ),
    Claim(
        "PaTH tracks state over long sequences better than RoPE.",
        "Yang et al., arXiv 2505.16381, section on experiments", ("flipflop",), better("path", "rope"),
    ),
    Claim(
        "Transformers make errors on long flip-flops.", "Liu et al., arXiv 2306.00946, abstract", ("flipflop",),
        loses("rope"),
    ),
    *(
        Claim(
            f"Without positions, small tasks generalise to length better than with RoPE, ALiBi or T5's bias: {task}.",
            "Kazemnejad et al., arXiv 2305.19466, abstract", (task,), better("nope", "rope", "alibi", "t5"),
            "The source uses other tasks.",
        )
        for task in ("passkey", "recall", "counting", "copy")
    ),
    Claim(
        "With a forget gate, distant needles are still retrieved.",
        "Lin et al., arXiv 2503.02130, abstract", ("passkey",),
        keeps("fox"),
    ),
    Claim(
        "Abacus embeddings add numbers far longer than those seen in training.",
        "McLeish et al., arXiv 2405.17399, abstract",
        ("addition",), keeps("abacus"), "The source trains longer and uses recurrent layers.",
    ),
    Claim(
        "After a short fine-tuning, position interpolation extends a model's context many times.",
        "Chen et al., arXiv 2306.15595, abstract", EXTENSION, serves("pi+tuned", 8),
        "The source fine-tunes larger models, for more than the 150 steps here.",
    ),
    Claim(
        "NTK-aware scaling extends the context without fine-tuning.",
        "bloc97 (2023), in Peng et al., arXiv 2309.00071, section 3.1",
        EXTENSION, serves("ntk", 4), SHORT,
    ),
    Claim(
        "Dynamic NTK-aware scaling extends the context without fine-tuning.",
        "emozilla (2023), in Peng et al., arXiv 2309.00071, section 3.3", CHECKPOINT, serves("dynamic_ntk", 2),
    ),
    Claim(
        "Dynamic YaRN extends the context to twice the training length and more without fine-tuning.",
        "Peng et al., arXiv 2309.00071, section 1", EXTENDED, serves("yarn", 2), SHORT,
    ),
    Claim(
        "YaRN extends a model better than position interpolation.", "Peng et al., arXiv 2309.00071, abstract",
        EXTENSION, better("yarn+tuned", "pi+tuned", times=8, must_learn=False),
    ),
    Claim(
        "A model whose rotation is dropped after training needs no long texts for longer contexts, after a short "
        "recalibration at its training length.",
        "Gelberg et al., arXiv 2512.12167, abstract", EXTENSION, serves("drope+continued", 4), SHORT,
    ),
    Claim(
        "A model whose rotation is dropped and that is recalibrated is better at longer contexts than scaled RoPE "
        "without training.",
        "Gelberg et al., arXiv 2512.12167, abstract", EXTENSION,
        better("drope+continued", "pi", "ntk", "yarn", times=8), SHORT,
    ),
    Claim(
        "LongRoPE's searched factors extend the context 8 times without fine-tuning.",
        "Ding et al., arXiv 2402.13753, abstract",
        EXTENSION, serves("longrope", 8), SHORT,
    ),
    Claim(
        "CLEX extrapolates to 4 times the length of its fine-tuning.",
        "Chen et al., arXiv 2310.16450, abstract", EXTENSION,
        serves("clex+tuned", 32), "The source samples other positions in training and clips less.",
    ),
    Claim(
        "Self-Extend extends the context without fine-tuning.", "Jin et al., arXiv 2401.01325, abstract", EXTENDED,
        serves("self_extend", 4),
    ),
    Claim(
        "ReRoPE extends the context to any length without fine-tuning.", "Su (2023), kexue.fm 9708", EXTENSION,
        serves("rerope", 16), SHORT,
    ),
    Claim(
        "Leaky ReRoPE extends the context without fine-tuning.", "Su (2023), kexue.fm 9708", EXTENSION,
        serves("leaky_rerope", 16), SHORT,
    ),
    Claim(
        "Dual chunk attention extends the context tens of times without fine-tuning.",
        "An et al., arXiv 2402.17463, abstract", EXTENSION, serves("dual_chunk", 16), SHORT,
    ),
    Claim(
        "Shifting large distances to frequent ones (STRING) makes a model better within its training length.",
        "An et al., arXiv 2410.18745, abstract", EXTENSION, better("string", "rope", times=1),
        "The source tests distant context in models whose longest distances were rare in training.",
    ),
    Claim(
        "LM-Infinite's mask and distance limit keep a model fluent at any length.",
        "Han et al., arXiv 2308.16137, abstract", EXTENDED, serves("lm_infinite", 16, 4),
    ),
    Claim(
        "A sliding window plus the first tokens (StreamingLLM) keep a model stable at any length.",
        "Xiao et al., arXiv 2309.17453, abstract", EXTENDED, serves("streaming_llm", 16, 4),
    ),
    Claim(
        "ComRoPE's rotations commute, so that a constant added to all positions changes nothing.",
        "Yu et al., arXiv 2506.03737, abstract", ("images",), unmoved("comrope_ap", "+20"),
    ),
    Claim(
        "LieRE's rotations need not commute: a constant added to all positions changes the result.",
        "Ostmeier et al., arXiv 2406.10322, section on the method", ("images",), unmoved("liere", "+20", opposite=True),
        "Learned rotations may come to commute.",
    ),
)  # fmt: skip


# ---- Pages ----


def page_of(judged: Sequence[JudgedClaim]) -> str:
    """A table of the claims that the runs test, and a list of the others."""
    tested, untested = ([each for each in judged if each.tested is yes] for yes in (True, False))
    counts = [f"{number} {outcome}" for outcome, number in outcome_counts(tested).items() if number]
    lines = ["# Claims of the literature and what these runs show", ""]
    if tested:
        noun = "claim" if len(tested) == 1 else "claims"
        lines += [f"Of {len(tested)} {noun} that can be tested here: {', '.join(counts)}.", ""]
    lines += [PROCEDURE if judged else "The collection has no claim about these tasks.", ""]
    if tested:
        lines += ["| claim | source | outcome | evidence |", "| --- | --- | --- | --- |"]
        lines += [f"| {e.claim.text} | {e.claim.source} | {e.outcome} | {evidence_of(e)} |" for e in tested]
        lines += [""]
    if untested:
        lines += ["Not testable with these runs:", ""]
        lines += [f"- {each.claim.text} ({each.claim.source})" for each in untested]
    return "\n".join(lines).rstrip() + "\n"


PROCEDURE = (
    "Each outcome holds for these model sizes, data and budgets. All differences of this list are adjusted together by "
    "Holm, at 5 %. That a claim holds beyond the training length is tested only with models that are shown to use far "
    "context, and against the other encoding under a sliding window of the training length."
)


def evidence_of(judged: JudgedClaim) -> str:
    """The numbers behind a claim's outcome, in words."""
    parts = list[str]()
    for label, finding in judged.findings.items():
        metric = judged.metrics[label]
        for n, item in enumerate(finding.evidence):
            if isinstance(item, VerdictEvidence):
                kind = item.verdict.kind
                where = f"at {item.times}×" if item.view == FULL else f"under {item.view}"
                verb = "is " if kind in ("flat", "inconclusive") else ""
                parts.append(f"{item.spec} {verb}{kind} {where}: {with_error(item.change, metric, change=True)}.")
            else:
                first = n == 0 or isinstance(finding.evidence[n - 1], VerdictEvidence)
                end = "." if n == len(finding.evidence) - 1 else ";"
                difference = with_error(item.difference, metric, change=True)
                parts.append(f"{f'At {item.times}×: ' if first else ''}{item.spec} − {item.other} {difference}{end}")
        for caution in finding.cautions:
            parts.append(
                "Caution: one seed."
                if caution.kind == "one seed"
                else f"Caution: some seeds of {caution.row} reach {caution.below:.3g} and others {caution.above:.3g}, "
                f"so with {caution.seeds} seeds the difference may be one of seeds."
            )
    return " ".join([*parts, judged.claim.gap]).strip()


def main() -> None:
    """Print the claims that each recorded run tests."""
    for path in sorted(Path(__file__).parent.glob("*/run.json")):
        run = read_run(path.parent)
        tables = {run.task: (run, build_table(run))}
        page = page_of(judge(relevant_claims(CLAIMS, tables), tables))
        sys.stdout.write(page.replace("# Claims", f"# {path.parent.name}: claims", 1) + "\n")


if __name__ == "__main__":
    main()
