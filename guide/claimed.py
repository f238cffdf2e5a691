"""What is claimed of a method, by whom, and what the recorded runs say to it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from posenc.catalogue import CATALOGUE, Entry
from posenc.lab.report.claims import Claim, Judged, judged
from posenc.lab.report.said import CLAIMS
from posenc.lab.report.writing import parts_of
from posenc.lab.runs import FILE, pooled, read_run

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@cache
def outcomes() -> tuple[Judged, ...]:
    """Every claim with what all recorded runs together say to it."""
    runs = [read_run(file.parent) for file in sorted(RESULTS.glob(f"*/{FILE}"))]
    return tuple(judged(CLAIMS, parts_of(pooled([run for run in runs if not run.records.empty]))))


def claims_of(entry: Entry) -> list[Judged]:
    """Claims that speak of an entry, and not only name it beside another."""
    return [one for one in outcomes() if entry.name in subjects(one.claim)]


def subjects(claim: Claim) -> set[str]:
    """The entries of the catalogue that a claim speaks of.

    >>> from posenc.lab.report.checks import better
    >>> subjects(Claim("Sinks help.", "somebody", "text", better("rope+sink", "rope")))
    {'sink'}
    """
    of, beside = ({name for spec in specs for name in _names(spec)} for specs in (claim.test.of, claim.test.beside))
    return of - beside


def _names(spec: str) -> set[str]:
    return set(re.findall(r"[a-z0-9_-]+", spec)) & set(CATALOGUE)
