"""What claims ask of a run: whether a row keeps, loses or gains with length, is better than others, does no harm."""

from __future__ import annotations

import math

from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.claims import Check, Evidence, Finding
from posenc.lab.report.rows import GIVEN, Cell
from posenc.lab.report.said_numbers import caution_words
from posenc.lab.stats import Interval


def keeps(spec: str) -> Check:
    """It keeps what it learnt at the longest length; some decline is no failure, and no support either."""
    return Check((spec,), (), lambda evidence: evidence.verdict(spec, {"gains": 1, "holds": 1, "fails": -1}))


def loses(spec: str) -> Check:
    """It loses what it learnt at the longest length."""
    says = {"gains": -1, "holds": -1, "declines": 1, "fails": 1}
    return Check((spec,), (), lambda evidence: evidence.verdict(spec, says))


def gains(spec: str) -> Check:
    """It is better at the longest length than at the trained one."""
    return Check((spec,), (), lambda evidence: evidence.verdict(spec, {"gains": 1, "fails": -1}))


def unmoved(spec: str, view: str, *, opposite: bool = False) -> Check:
    """Under another view it gives the same; or, with ``opposite``, it does not."""
    same = -1 if opposite else 1
    says = {"holds": same, "gains": -same, "declines": -same, "fails": -same}
    return Check((spec,), (), lambda evidence: evidence.verdict(spec, says, view))


def better(spec: str, *others: str, times: int | None = None, learnt: bool = True) -> Check:
    """It is better than each of some others at so many trained lengths, default the longest.

    Args:
        spec, others: encodings.
        times: the length.
        learnt: whether all must have learnt the task at the trained length.
    """

    def ask(evidence: Evidence) -> Finding | None:
        at = times or evidence.table.times
        found = evidence.differences((spec, FULL), [(other, FULL) for other in others], at)
        if not found or (learnt and not evidence.learnt(spec, *others)):
            return None
        sign = 1 if evidence.table.metric.better == "higher" else -1
        real = [sign * contrast.mean for contrast in found if contrast.significant]
        says = 1 if len(real) == len(found) and min(real) > 0 else -1 if real and max(real) < 0 else 0
        told = [f"{spec} − {other} {evidence.text(one)}" for other, one in zip(others, found, strict=True)]
        cautions = dict.fromkeys(f"Caution: {caution_words(one.caution)}." for one in found if one.caution)
        return Finding(says, " ".join([f"At {at}×: {'; '.join(told)}.", *cautions]))

    return Check((spec,), others, ask)


def harmless(spec: str, other: str, times: int = 1) -> Check:
    """At so many trained lengths it is not worse than another by as much as counts."""

    def ask(evidence: Evidence) -> Finding | None:
        found = evidence.differences((spec, FULL), [(other, FULL)], times)
        if not found or not evidence.learnt(other):
            return None
        (one,), metric = found, evidence.table.metric
        best, worst = (one.low, one.high) if metric.better == "lower" else (-one.high, -one.low)
        says = 1 if worst < metric.margin else -1 if best > metric.margin else 0
        return Finding(says, f"At {times}×, {spec} − {other}: {evidence.text(one)}.")

    return Check((spec,), (other,), ask)


def serves(spec: str, times: int, least: int | None = None) -> Check:
    """At so many trained lengths it is less than a failure behind RoPE under a window of the trained length.

    Of a model that is given: behind the same model at 1×, on a text that is cut there.

    Args:
        spec: an encoding, or a way to stretch one.
        times: the length.
        least: a run that ends before it, at so many trained lengths or later, is asked at its end.
    """

    def ask(evidence: Evidence) -> Finding | None:
        at = evidence.table.times if times > evidence.table.times >= (least or times) else times
        if evidence.run.given:
            row, other = evidence.table.row(spec), f"{GIVEN} at 1×"
            one: Cell | Interval | None = row.beside.get(round(at * evidence.table.trained)) if row else None
        else:
            other = "rope under its window"
            one = next(iter(evidence.differences((spec, FULL), [("rope", WINDOW)], at)), None)
        if one is None or math.isnan(one.low):
            return None
        metric = evidence.table.metric
        best, worst = (one.low, one.high) if metric.better == "lower" else (-one.high, -one.low)
        says = 1 if worst < metric.fails else -1 if best > metric.fails else 0
        return Finding(says, f"At {at}×, {spec} − {other}: {evidence.text(one)}.")

    return Check((spec,), ("rope",), ask)


def also(*tests: Check) -> Check:
    """What several tests say together: for the claim if all are, against it if one is."""

    def ask(evidence: Evidence) -> Finding | None:
        found = [finding for one in tests if (finding := one(evidence)) is not None]
        if len(found) < len(tests):
            return None
        decided = all(one.decided for one in found)
        return Finding(min(one.says for one in found), " ".join(one.words for one in found), decided)

    of, beside = (tuple(s for one in tests for s in getattr(one, side)) for side in ("of", "beside"))
    return Check(of, beside, ask)
