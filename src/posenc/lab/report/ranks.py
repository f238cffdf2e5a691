"""The part of a page about ranks, in any task that has numbers of each seed and window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posenc.lab.report import frame
from posenc.lab.report.rank_charts import pair_chart, rank_chart
from posenc.lab.report.section import Section
from posenc.lab.report.standings import Standing, leading, remarks
from posenc.lab.tasks.task import Row

RANKS_NOTE = (
    "A bar reaches from the best rank that an encoding may have to the worst; where bars overlap, the order is open."
)
PAIRS_NOTE = "Green: the encoding of the line is better than that of the column, beyond chance. Red: worse. Grey: open."


def ranks_section(task: str, rows: Sequence[Row], standings: Sequence[Standing], colour: Mapping[str, str]) -> Section:
    """Ranks, who is better than whom; without a text where nothing can be ranked.

    Args:
        task: its name, for ids.
        rows: of the table.
        standings: by test length.
        colour: of each spec.
    """
    if not standings:
        return Section(f"{task}-ranks", "Ranks", "", [])
    ranks, pairs = rank_chart(f"{task}-ranking", standings, rows, colour), pair_chart(f"{task}-pairs", standings)
    html = (
        frame.paragraph(" ".join(leading(found) for found in standings))
        + frame.chart_div(ranks["id"])
        + frame.note(RANKS_NOTE)
        + "<h3>Who is better than whom</h3>"
        + frame.chart_div(pairs["id"])
        + frame.note(f"{PAIRS_NOTE} {remarks(standings[-1])}")
    )
    return Section(f"{task}-ranks", "Ranks", html, [ranks, pairs])
