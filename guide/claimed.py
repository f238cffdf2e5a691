"""Claims from the literature about a method, and whether the recorded runs support them."""

from __future__ import annotations

import gc
import re
from functools import cache

from guide.measured import records_frame, run_of
from posenc.catalogue import CATALOGUE, Entry
from posenc.catalogue.measured import RECORDED
from posenc.lab.report.claims import Claim, JudgedClaim, judge
from posenc.lab.report.literature import CLAIMS
from posenc.lab.report.summary import named_tables
from posenc.lab.run.folder import pooled

_DROPPED = {"drope": "nope"}  # what a model has once DroPE has dropped its rotation


@cache
def outcomes() -> tuple[JudgedClaim, ...]:
    """Every claim with what each recorded run says to it, or where none alone can, those together that may be."""
    names = list(RECORDED)
    gc.freeze()  # statsmodels collects garbage for every table, which takes as long as all the rest
    try:
        alone = judge(CLAIMS, {name: (run_of(name), records_frame(name)) for name in names})
        together = judge(CLAIMS, named_tables(pooled([run_of(name) for name in names])))
    finally:
        gc.unfreeze()
    return tuple(single if single.tested else both for single, both in zip(alone, together, strict=True))


def claims_of(entry: Entry) -> list[JudgedClaim]:
    """Claims about an entry; not claims that name it only as a baseline."""
    return [outcome for outcome in outcomes() if entry.name in subjects(outcome.claim)]


def subjects(claim: Claim) -> set[str]:
    """The entries of the catalogue that a claim speaks of.

    >>> from posenc.lab.report.claims import better
    >>> subjects(Claim("Sinks help.", "somebody", ("text",), better("rope+sink", "rope")))
    {'sink'}
    """
    of, compared = (
        {name for spec in specs for name in _names(spec)} for specs in (claim.test.about, claim.test.compared)
    )
    return of - compared


def _names(spec: str) -> set[str]:
    return {_DROPPED.get(name, name) for name in re.findall(r"[a-z0-9_-]+", spec)} & set(CATALOGUE)
