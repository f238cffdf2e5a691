"""One part of a report's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it; every task is free in what it says.

    Attributes:
        id: unique in a page; where links to this part lead.
        title: the heading, plain text.
        html: what stands below it. It holds an empty ``<div class="chart" id="…"></div>`` for each chart, with its id.
        charts: data for Plotly. Of each ``id``, ``traces``, ``xaxis``, ``yaxis``, and whatever else of a layout it
            needs; what depends on day or night, and on the width of the screen, the page adds itself.
    """

    id: str
    title: str
    html: str
    charts: list[dict[str, Any]]
