"""The parts of a report's page that are about extension."""

from __future__ import annotations

from html import escape

from posenc.lab.extension import words
from posenc.lab.extension.figures import TRAINED, UNTRAINED, charts, looks, panels
from posenc.lab.extension.settings import ExtensionSettings
from posenc.lab.extension.table import KINDS, ExtensionRow
from posenc.lab.record import RunRecord
from posenc.lab.report import frame
from posenc.lab.report.palette import verdict_colour
from posenc.lab.report.ranks import ranks_section
from posenc.lab.report.section import Section
from posenc.lab.report.standings import Standing
from posenc.lab.report.training import training_section
from posenc.lab.text.corpus import Facts
from posenc.lab.words import TRAINING_HEADS

_NOTES = {
    UNTRAINED: "The trained model as it is. Solid: the factor follows the length; dashed: it is fixed. The broad band "
    "is the sliding window.",
    TRAINED: "Each after the same short fine-tuning. The broad band is the sliding window on the model that had as "
    "many bytes more at its trained length.",
}


def sections(rows: list[ExtensionRow], record: RunRecord[ExtensionSettings, Facts]) -> list[Section]:
    """Curves, ranks, numbers, trainings."""
    settings, drawn, ranked = record.settings, charts(rows, record.settings), words.standings(rows, record.settings)
    colour = {spec: colour for spec, (colour, _) in looks(rows).items()}
    found = [
        Section(
            f"{chart['id']}-part",
            name,
            frame.note(_NOTES[name]) + frame.chart_div(chart["id"]),
            [chart],
        )
        for name, chart in zip(panels(rows), drawn, strict=True)
    ]
    numbers = Section("extension-numbers", "The numbers", _numbers(rows, settings, ranked), [])
    parts = [*found, ranks_section("extension", rows, ranked, colour), numbers, _trainings(rows, settings, colour)]
    return [part for part in parts if part.html]


def _numbers(rows: list[ExtensionRow], settings: ExtensionSettings, ranked: list[Standing]) -> str:
    look, parts = looks(rows), []
    for kind in KINDS:
        members = [row for row in rows if row.kind == kind]
        lines = []
        for row in members:
            _, *numbers, verdict = words.cells(row, ranked)
            name = frame.coloured_name(row.spec, look[row.spec][0])
            badge = frame.badge(verdict, verdict_colour(verdict))
            kind_of_line = "control" if row.control else ""
            lines.append(frame.table_row([name, *map(escape, numbers), badge], kind_of_line, row.spec))
        if members:
            table = frame.table(words.heads(settings, ranked), lines)
            parts.append(f'<h3>{escape(kind.capitalize())}</h3><div class="scroll">{table}</div>')
    notes = (words.protocol_text(settings), words.window_note(settings))
    return "\n".join([frame.note(words.CAUTION), *parts, *map(frame.note, notes)])


def _trainings(rows: list[ExtensionRow], settings: ExtensionSettings, colour: dict[str, str]) -> Section:
    own = [row for row in rows if row.own_training]
    return training_section("extension", own, colour, TRAINING_HEADS, words.training_cells, settings.clip)
