"""What lies behind the values of a run: the curves that a task declares, and the course of its trainings."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from posenc.lab.metrics import Curve
from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.chart import chart, multiples, order_of
from posenc.lab.report.measured import PROBE
from posenc.lab.report.rows import Table
from posenc.lab.runs import Run

POINTS = 24  # of a curve, evenly spaced on its axis
WIDE_RANGE = 20  # from the largest place to the smallest: from there on the axis is logarithmic
CURVE = (
    "Means over seeds at the longest length where it was measured, one encoding each, all the others grey; dashed the "
    "same weights under a sliding window of the trained length."
)


@chart(
    "training",
    title="How the trainings went",
    caption="The deciding metric at the trained length on a few items, from step to step, mean over seeds: who is "
    "still learning at the end would be judged otherwise by a longer training.",
)
def training(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples of the probes."""
    frame = _points(run, PROBE)
    if frame.empty:
        return None
    axis = alt.Axis(title=None, tickCount=2, format="~s", grid=False)
    x = alt.X("x:Q", axis=axis, scale=alt.Scale(zero=True, nice=False))
    return multiples(frame, order_of(table), run.decides, x, "training step")


def curve_chart(run: Run, table: Table, curve: Curve) -> alt.TopLevelMixin | None:
    """Small multiples of what a task measures by something else than length."""
    frame = _points(run, curve.name)
    if frame.empty:
        return None
    wide = frame["x"].max() > WIDE_RANGE * frame["x"].min() > 0
    scale = alt.Scale(type="log", base=2, nice=False) if wide else alt.Scale(zero=False, nice=False)
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(title=None, tickCount=3, format="~s", grid=False))
    metric = next(metric for metric in run.metrics if metric.name == curve.of)
    return multiples(frame, order_of(table), metric, x, curve.axis)


def _points(run: Run, name: str) -> pd.DataFrame:
    """Means over seeds by encoding, view and item at the longest length, neighbours joined to at most `POINTS`."""
    found = run.records[(run.records["metric"] == name) & run.records["view"].isin([FULL, WINDOW])]
    found = found[found["length"] == found["length"].max()].astype({"spec": str, "view": str})
    found = found.rename(columns={"spec": "encoding", "item": "x"})
    places = np.sort(found["x"].unique())
    if len(places) > POINTS:
        wide = places[-1] > WIDE_RANGE * max(places[0], 1)
        at = np.log2(np.maximum(found["x"], 1)) if wide else found["x"].astype(float)
        found = found.assign(x=found["x"].groupby(pd.cut(at, POINTS, labels=False)).transform("mean"))
    return found.groupby(["encoding", "view", "x"], as_index=False)["value"].mean()
