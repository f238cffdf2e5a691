"""Often-repeated claims about positional encodings, and what the rows of a report say to them.

A claim is data: what is said, and a function from evidence to a finding. It finds nothing where what it speaks of was
not measured. A small model on one corpus decides for itself alone; the page says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from posenc.lab.report.evidence import Evidence
from posenc.lab.text.verdict import DEGRADES, FLAT, UNDEFINED, USES_CONTEXT
from posenc.lab.words import join

AGREES, IN_PART, CONTRADICTED, UNMEASURED = "agrees", "in part", "contradicted", "not measured here"
GENTLE = 1.5  # growth of perplexity from 1× to 2× that may still be called a gentle rise
NEAR = 0.02  # of a ratio of times: closer than that, two numbers are called equal


class Finding(NamedTuple):
    """What was measured."""

    agrees: bool | None  # None: in part
    words: str


Judge = Callable[[Evidence], Finding | None]


@dataclass(frozen=True)
class Claim:
    """What is said, and who decides."""

    text: str
    judge: Judge

    def outcome(self, evidence: Evidence) -> tuple[str, str]:
        """One word, and the numbers."""
        found = self.judge(evidence)
        if found is None:
            return UNMEASURED, ""
        outcomes: dict[bool | None, str] = {True: AGREES, False: CONTRADICTED, None: IN_PART}
        return outcomes[found.agrees], found.words


def survives(spec: str, evidence: Evidence) -> Finding | None:
    """The claim that an encoding serves past the trained length."""
    row, growth = evidence.row("text", spec), evidence.to_the_end(spec)
    if row is None or growth is None:
        return None
    words = f"{spec} {row.verdict} at {evidence.longest('text')}×: {growth.words}."
    return Finding(_served(row.verdict), words)


def _served(verdict: str) -> bool | None:
    """Whether an encoding serves past the trained length; one that degrades does in part."""
    return {FLAT: True, USES_CONTEXT: True, DEGRADES: None}.get(verdict, False)


def rises_gently(specs: Sequence[str], evidence: Evidence) -> Finding | None:
    """The claim that perplexity rises by a seventh to a fifth at twice the length."""
    found = {spec: growth for spec in specs if (growth := evidence.growth(spec, 2)) is not None}
    if not found:
        return None
    words = "; ".join(f"{spec} at 2×: {growth.words}, × {growth.ratio:.1f}" for spec, growth in found.items())
    return Finding(all(growth.ratio <= GENTLE for growth in found.values()), f"{words}.")


def grows_by(spec: str, low: float, high: float, evidence: Evidence, task: str = "text") -> Finding | None:
    """The claim that perplexity at 16× is between ``low`` and ``high`` times that at 1×."""
    growth = evidence.growth(spec, 16, task)
    if growth is None:
        return None
    return Finding(low <= growth.ratio <= high, f"{spec} at 16×: {growth.words}, × {growth.ratio:.2f}.")


def leads(spec: str, evidence: Evidence) -> Finding | None:
    """The claim that nobody is better on long text."""
    found = evidence.ranked.get(spec)
    if found is None:
        return None
    where, first = f"At {evidence.longest('text')}×", next(iter(evidence.ranked))
    if found.best == 1:
        open_to = (
            "" if spec == first else f"; the lowest mean is that of {first}, and {spec} ranks from 1 to {found.worst}"
        )
        return Finding(
            True if spec == first else None, f"{where}, nobody is better than {spec} beyond chance{open_to}."
        )
    ahead = join(list(found.beaten_by)) if len(found.beaten_by) <= 6 else f"{len(found.beaten_by)} others"
    return Finding(False, f"{where}, {ahead} {'is' if len(found.beaten_by) == 1 else 'are'} better beyond chance.")


def infinite(evidence: Evidence) -> Finding | None:
    """The claim that a learned table has infinite loss past its end."""
    row = evidence.row("text", "learned")
    if row is None or row.verdict != UNDEFINED:
        return None
    length = evidence.settings["text"].train_length
    return Finding(False, f"It has {length} rows and no number past them: undefined, which is not infinite.")


def holds_to(spec: str, times: int, evidence: Evidence, *, trained_counts: bool = False) -> Finding | None:
    """The claim that a scaled model serves at ``times`` its length; in part if it does so only after training.

    Args:
        spec: the row without training.
        times: the length, in trained ones.
        evidence: what was measured.
        trained_counts: whether the claim says nothing of training.
    """
    reached: dict[str, int] = {}
    for name in (spec, f"{spec}+tuned") if trained_counts else (spec,):
        row = evidence.row("extension", name)
        if row is not None and row.holds_to is not None and times in row.lengths:
            reached[name] = row.holds_to
    if spec not in reached:
        return None
    said = [f"{name} {f'up to {to}×' if to > 1 else 'not even at 2×'}" for name, to in reached.items()]
    after = True if reached[spec] >= times else None if max(reached.values()) >= times else False
    return Finding(after, f"Within 0.3 bit of a sliding window: {'; '.join(said)}.")


def rescues(spec: str, plain: str, evidence: Evidence) -> Finding | None:
    """The claim that one encoding repairs what another breaks on long text."""
    better, worse = evidence.to_the_end(spec), evidence.to_the_end(plain)
    row, other = evidence.row("text", spec), evidence.row("text", plain)
    if better is None or worse is None or row is None or other is None or other.verdict in (FLAT, USES_CONTEXT):
        return None
    words = f"{plain}: {worse.words}; {spec}: {better.words}."
    return Finding(_served(row.verdict), words)


def costs_as_said(said: Mapping[str, float], evidence: Evidence) -> Finding | None:
    """The claim that encodings add certain shares to the time of an attention layer."""
    found = {spec: ratio for spec in said if (ratio := evidence.ratio(spec, "forward")) is not None}
    if not found:
        return None
    parts = [f"{spec} {100 * (ratio - 1):+.0f} %, said {100 * said[spec]:.1f} %" for spec, ratio in found.items()]
    agrees = all(abs(ratio - 1 - said[spec]) <= NEAR for spec, ratio in found.items())
    return Finding(agrees, f"One layer, forward, at the longest length measured: {'; '.join(parts)}.")


def trains_in_order(order: Sequence[str], evidence: Evidence) -> Finding | None:
    """The claim that models with these encodings train in this order, the fastest first."""
    found = {spec: ratio for spec in order if (ratio := evidence.ratio(spec, "model")) is not None}
    if len(found) < 2:
        return None
    ratios = list(found.values())
    agrees = all(a <= b + NEAR for a, b in itertools.pairwise(ratios)) and ratios[-1] > ratios[0] + NEAR
    words = ", ".join(f"{spec} {ratio:.2f}" for spec, ratio in found.items())
    return Finding(agrees, f"Time of a training step of the whole model, over that without encoding: {words}.")


def calmest(evidence: Evidence) -> Finding | None:
    """The claim that ALiBi's gradients are the calmest and those of learned positions are not."""
    rows = {spec: row for spec in ("alibi", "rope", "sinusoidal", "learned") if (row := evidence.row("text", spec))}
    if not {"alibi", "learned"} <= set(rows):
        return None
    jolts = {s: row.training["grad_norm_max"] / max(row.training["grad_norm_median"], 1e-12) for s, row in rows.items()}
    words = ", ".join(f"{spec} {jolt:.1f}" for spec, jolt in jolts.items())
    agrees = min(jolts, key=jolts.__getitem__) == "alibi" and max(jolts, key=jolts.__getitem__) == "learned"
    return Finding(agrees, f"Largest over median gradient norm: {words}.")


def trainable(evidence: Evidence) -> Finding | None:
    """The claim that ALiBi is learned."""
    row = evidence.row("text", "alibi")
    if row is None:
        return None
    count = row.training["encoding_parameters"]
    if count:
        return Finding(True, f"It has {count:,.0f} parameters.")
    return Finding(False, "It has no parameters: its slopes are fixed.")


def counts(task: str, evidence: Evidence) -> Finding | None:
    """The claim that CoPE can do at length what RoPE cannot."""
    cope, rope = evidence.accuracy(task, "cope"), evidence.accuracy(task, "rope")
    if cope is None or rope is None:
        return None
    words = f"{task}, 1× → {evidence.longest(task)}×: " + "; ".join(
        f"{spec} {100 * first:.0f} → {100 * last:.0f} %" for spec, (first, last) in (("cope", cope), ("rope", rope))
    )
    return Finding(cope[1] > 0.9 and rope[1] < 0.9 * cope[1], f"{words}.")


def commutes(spec: str, unmoved: bool, evidence: Evidence) -> Finding | None:
    """The claim that a constant added to all positions changes nothing, or that it does."""
    row = evidence.row("images", spec)
    if row is None:
        return None
    return Finding((row.verdict == "unmoved") == unmoved, f"{spec}, a constant added to all positions: {row.verdict}.")


CLAIMS: tuple[Claim, ...] = (
    Claim("RoPE extrapolates: it works seamlessly on sequences longer than trained.", partial(survives, "rope")),
    Claim("Sinusoidal encodings generalise well to other lengths.", partial(survives, "sinusoidal")),
    Claim(
        "Past the trained length, RoPE and sinusoidal encodings get worse gently: at twice the length, perplexity is a "
        "seventh to a fifth higher.",
        partial(rises_gently, ("rope", "sinusoidal")),
    ),
    Claim("ALiBi extrapolates excellently.", partial(survives, "alibi")),
    Claim("ALiBi's perplexity grows by about 30 % from 1× to 16×.", partial(grows_by, "alibi", 1.2, 1.4)),
    Claim("ALiBi is the best choice for long sequences.", partial(leads, "alibi")),
    Claim("ALiBi's biases are learned.", trainable),
    Claim("FIRE serves texts of unlimited length.", partial(survives, "fire")),
    Claim("Relative biases as in T5 generalise well to longer sequences.", partial(survives, "t5")),
    Claim("CoPE generalises excellently to longer text.", partial(survives, "cope")),
    Claim("CoPE counts what matters, out of the trained range too, where RoPE cannot.", partial(counts, "counting")),
    Claim("CoPE keeps track of a state over any distance, where RoPE cannot.", partial(counts, "flipflop")),
    Claim("Past their table, learned positions have infinite perplexity.", infinite),
    Claim("Attention with a forget gate serves longer text without positional encoding.", partial(survives, "fox")),
    Claim(
        "Stick-breaking attention serves longer text without positional encoding.", partial(survives, "stick-breaking")
    ),
    Claim("Where RoPE degrades on long text, Resonance RoPE helps.", partial(rescues, "resonance", "rope")),
    Claim(
        "Position interpolation serves extensions of 2 to 4 times.",
        partial(holds_to, "pi", 4, trained_counts=True),
    ),
    Claim("NTK-aware scaling extends 2 to 8 times without fine-tuning.", partial(holds_to, "ntk", 8)),
    Claim("YaRN's perplexity grows by about a fifth up to 16×.", partial(grows_by, "yarn", 0.9, 1.3, task="extension")),
    Claim(
        "LongRoPE's perplexity grows by a tenth up to 16×.", partial(grows_by, "longrope", 0.9, 1.15, task="extension")
    ),
    Claim(
        "Encodings cost next to nothing: RoPE adds 2.4 % to attention, ALiBi 1.6 %, FIRE 4.1 %, sinusoids 0.8 %.",
        partial(costs_as_said, {"sinusoidal": 0.008, "alibi": 0.016, "rope": 0.024, "fire": 0.041}),
    ),
    Claim(
        "Sinusoidal encodings train fastest, then ALiBi, then RoPE; learned ones are the slowest.",
        partial(trains_in_order, ("sinusoidal", "alibi", "rope", "learned")),
    ),
    Claim("Gradients are very stable with ALiBi, and can be unstable with learned positions.", calmest),
    Claim("LieRE's rotations do not commute, so it is not exactly relative.", partial(commutes, "liere", False)),
    Claim("ComRoPE's rotations commute: only differences of positions count.", partial(commutes, "comrope_ap", True)),
)
