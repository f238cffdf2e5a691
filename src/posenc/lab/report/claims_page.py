"""Often-repeated claims beside what a report has measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from posenc.lab.report import frame
from posenc.lab.report.claims import AGREES, CLAIMS, CONTRADICTED, IN_PART, UNMEASURED, Claim
from posenc.lab.report.evidence import Evidence
from posenc.lab.report.markdown import markdown_table
from posenc.lab.report.palette import AMBER, GREEN, RED
from posenc.lab.report.section import Section
from posenc.lab.words import join

_COLOURS = {CONTRADICTED: RED, IN_PART: AMBER, AGREES: GREEN}  # also their order on the page
CAUTION = (
    "What tutorials and tables often say, and what the numbers of this page say to it. A small model decides for its "
    "size and its data: a contradiction shows that a claim is not true of all models, and an agreement that it holds "
    "at least here."
)


def claims_section(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> Section:
    """A card for each claim that was measured, contradicted ones first; the others as a list."""
    measured, open_ones = _outcomes(evidence, claims)
    html = frame.note(CAUTION)
    if measured:
        html += frame.paragraph(f"{verdicts(outcome for _, outcome, _ in measured)}.")
    html += f'<div class="claims">{"".join(_card(*one) for one in measured)}</div>'
    if open_ones:
        listed = "".join(f"<li>{escape(text)}</li>" for text in open_ones)
        html += f"<details><summary>{len(open_ones)} more, not measured here</summary><ul>{listed}</ul></details>"
    return Section("claims", "Often-repeated claims, beside what was measured", html, [])


def claims_markdown(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> str:
    """The same as a file."""
    measured, open_ones = _outcomes(evidence, claims)
    total = [f"{verdicts(outcome for _, outcome, _ in measured)}.", ""] if measured else []
    lines = ["# Often-repeated claims, beside what was measured", "", CAUTION, "", *total]
    cells = [[cell.replace("|", "\\|") for cell in one] for one in measured]
    lines += markdown_table(["claim", "here", "measured"], cells, words=True)
    if open_ones:
        lines += ["", "Not measured here:", "", *(f"- {text}" for text in open_ones)]
    return "\n".join([*lines, ""])


def _outcomes(evidence: Evidence, claims: Sequence[Claim]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Claims with their outcomes and numbers, contradicted ones first; those that were not measured."""
    outcomes = [(claim.text, *claim.outcome(evidence)) for claim in claims]
    measured = sorted((one for one in outcomes if one[1] in _COLOURS), key=lambda one: list(_COLOURS).index(one[1]))
    return measured, [text for text, outcome, _ in outcomes if outcome == UNMEASURED]


def verdicts(outcomes: Iterable[str]) -> str:
    """``Of 5 claims that were measured here, 2 are contradicted, 1 agrees in part and 2 agree``."""
    counts = Counter(outcomes)
    forms = {CONTRADICTED: ("is contradicted", "are contradicted"), IN_PART: ("agrees in part", "agree in part")}
    forms[AGREES] = ("agrees", "agree")
    parts = [f"{counts[word]} {forms[word][counts[word] > 1]}" for word in _COLOURS if counts[word]]
    total = sum(counts.values())
    return f"Of {total} claim{'s' if total > 1 else ''} that could be measured here, {join(parts)}"


def _card(text: str, outcome: str, words: str) -> str:
    colour = _COLOURS[outcome]
    return f'<div style="--c:{colour}"><q>{escape(text)}</q>{frame.badge(outcome, colour)}<p>{escape(words)}</p></div>'
