"""All charts of a run, those of a report and one's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from posenc.lab.own import called
from posenc.lab.report import charts_lengths as charts_lengths
from posenc.lab.report.chart import CHARTS
from posenc.lab.report.charts_curves import CURVE, curve_chart
from posenc.lab.report.drawing import Drawn
from posenc.lab.report.rows import Table
from posenc.lab.runs import Run


def charts_of(run: Run, table: Table, own: Iterable[str] = ()) -> Iterator[Drawn]:
    """The charts that a run has numbers for; ``own`` are further ones, ``module:function``, which must be permitted."""
    for name, known in CHARTS.items():
        if (found := known.draw(run, table)) is not None:
            yield Drawn(name, known.title, known.caption, found)
    for curve in run.curves:
        if (found := curve_chart(run, table, curve)) is not None:
            yield Drawn(curve.name.replace("_", "-"), f"By {curve.axis.partition(',')[0]}", CURVE, found)
    for name in own:
        draw = called(name)
        if (found := draw(run, table)) is not None:
            title = (draw.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            yield Drawn(name.rpartition(":")[2], title or name, f"Drawn by {name}.", found)
