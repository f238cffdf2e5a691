"""Bits by length of the extensions, without training and with it: the same two panels as PNG and on the page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.lab.extension.settings import CONTINUED, WINDOW, ExtensionSettings
from posenc.lab.extension.table import FIXED, TUNED, ExtensionRow, order
from posenc.lab.extension.words import title
from posenc.lab.files import write_atomically
from posenc.lab.report.palette import NAMED
from posenc.lab.report.traces import curve, meta
from posenc.lab.text.figures import MARKERS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#8a8f94"
_COLOURS = (*NAMED[:-1], "#882255", "#44AA99", "#999933", "#AA4499", "#B15928")  # the last one there is near the grey
UNTRAINED, TRAINED = "Without training", "Fine-tuned"


def panels(rows: list[ExtensionRow]) -> dict[str, list[ExtensionRow]]:
    """The rows of each panel that has any, in the order of methods, the control of each last."""
    trained = [row for row in rows if row.kind == TUNED]
    untrained = [row for row in rows if not row.reading.training and row.spec != WINDOW]
    found = {}
    for name, members, control in ((UNTRAINED, untrained, WINDOW), (TRAINED, trained, CONTINUED)):
        beside = [row for row in rows if row.spec == control]
        if members:
            found[name] = [*sorted(members, key=lambda row: order(row.spec)), *beside]
    return found


def looks(rows: list[ExtensionRow]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each row; those of one method share the colour, a control is grey."""
    methods = sorted({row.reading.method for row in rows}, key=order)
    chosen = {}
    for row in rows:
        reading = row.reading
        number = methods.index(reading.method)
        second = number // len(_COLOURS) + 2 * reading.resonance + 3 * (reading.factor is not None)
        colour = _GREY if reading.window else _COLOURS[number % len(_COLOURS)]
        chosen[row.spec] = (colour, MARKERS[second % len(MARKERS)])
    return chosen


def draw_figure(path: Path, rows: list[ExtensionRow], settings: ExtensionSettings) -> Path:
    """Write the panels beside each other, with one scale."""
    shown = panels(rows) or {UNTRAINED: rows}
    import matplotlib as mpl  # not before: a worker draws nothing
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7 * len(shown), 6), dpi=150)
        axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for part, (name, members) in zip(axes, shown.items(), strict=True):
            _draw(part, name, members, looks(rows), settings)
        axes[0].set_ylabel("bits per byte, same bytes scored at every length")
        figure.suptitle(title(settings), x=0.01, ha="left", weight="bold")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())
    return path


def _draw(
    axes: Axes, name: str, rows: list[ExtensionRow], look: dict[str, tuple[str, str]], settings: ExtensionSettings
) -> None:
    places = range(len(settings.lengths))
    for row in rows:
        (colour, marker), bar = look[row.spec], row.reading.window
        axes.plot(
            places, row.bits, color=colour, marker="" if bar else marker, markersize=5, label=row.spec,
            linestyle="--" if row.kind == FIXED else "-", linewidth=7 if bar else 1.4, alpha=0.4 if bar else 1.0,
        )  # fmt: skip
    axes.set_xticks(places, [f"{k}×\n{k * settings.train_length}" for k in settings.lengths])
    axes.set_xlabel("bytes of text the model reads")
    axes.set_title(name, fontsize=10)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def charts(rows: list[ExtensionRow], settings: ExtensionSettings) -> list[dict[str, Any]]:
    """The panels as data for Plotly, with ids ``extension-untrained`` and ``extension-trained``."""
    ids = {UNTRAINED: "extension-untrained", TRAINED: "extension-trained"}
    look, labels = looks(rows), [f"{k}×<br>{k * settings.train_length:,}" for k in settings.lengths]
    return [
        {
            "id": ids[name],
            "traces": [_trace(row, look[row.spec][0], labels) for row in members],
            "ends": True,
            "height": 520,
            "xaxis": {"title": {"text": "bytes of text that the model reads"}, "type": "category"},
            "yaxis": {"title": {"text": "bits per byte"}},
        }
        for name, members in panels(rows).items()
    ]


def _trace(row: ExtensionRow, colour: str, labels: list[str]) -> dict[str, Any]:
    bar = row.reading.window
    line = {"color": colour, "width": 9 if bar else 2.2, "dash": "dash" if row.kind == FIXED else "solid"}
    seeds = [[sum(run["bits"][k]) / len(run["bits"][k]) for run in row.runs] for k in range(len(labels))]
    columns = {
        "lowest seed": [round(min(found), 5) for found in seeds],
        "highest seed": [round(max(found), 5) for found in seeds],
    }
    return curve(
        row, colour, labels, row.bits, markers=not bar, line=line, opacity=0.45 if bar else 1.0,
        hovertemplate=f"<b>{row.spec}</b>: %{{y:.3f}} bits per byte<extra>{row.verdict}</extra>",
        meta=meta(row, columns=columns),
    )  # fmt: skip
