"""Charts show the numbers of their table, at any width, as files and on a page; and what a new chart costs."""

from __future__ import annotations

import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import pytest
from tests.lab.synthetic import TEXT, TRAINED, run_of

from posenc.catalogue import list_encodings
from posenc.lab.report.charts import CHARTS, chart, draw_charts, run_charts
from posenc.lab.report.drawing import NARROW, PAGE, WIDE, DrawnChart, encoding_color, fitted, luminance
from posenc.lab.report.numbers import Table, build_table
from posenc.lab.report.render import write_report
from posenc.lab.report.tables import cells_frame
from posenc.lab.run.folder import Run


@pytest.fixture(scope="module")
def text() -> Run:
    return run_of()


@pytest.fixture(scope="module")
def table(text: Run) -> Table:
    return build_table(text)


@pytest.fixture(scope="module")
def drawn(text: Run, table: Table) -> dict[str, DrawnChart]:
    return {each.id: each for each in run_charts(text, table)}


def data_of(each: DrawnChart) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(each.csv()))


@pytest.mark.parametrize("paper", ["#ffffff", "#14171a"])
def test_every_encoding_has_its_own_color_that_is_readable_in_light_and_dark_mode(paper: str) -> None:
    names = [*list_encodings(), "rope+alibi", "my_module:MyClass"]
    for name in names:
        light, dark = sorted((luminance(encoding_color(name)), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, name
    assert len({encoding_color(name) for name in names}) == len(names)
    assert luminance("#ff0000") == pytest.approx(0.2126)


def test_charts_show_the_numbers_of_the_table(table: Table, drawn: dict[str, DrawnChart]) -> None:
    assert list(drawn) == ["dots", "lengths", "training", "by-position"]
    dots = data_of(drawn["dots"]).set_index(["panel", "encoding"])
    for row in table.full_rows:
        first, change, window = row.cells[TRAINED], row.change, row.contrasts.get("own window")
        for panel, value in (("first", first), ("change", change), ("window", window)):
            assert ((panel, row.spec) in dots.index) == (value is not None)
            if value is not None:
                shown = dots.loc[(panel, row.spec)]
                assert (shown["value"], shown["low"], shown["high"]) == pytest.approx(
                    (value.mean, value.low, value.high), rel=1e-4
                )
                assert (shown["learned"], shown["verdict"]) == (row.learned, row.verdict.kind)
    lengths = data_of(drawn["lengths"]).set_index(["encoding", "view", "x"])["value"]
    cells = cells_frame(table)
    assert len(lengths) == len(cells)
    for line in cells.itertuples():
        assert lengths[line.encoding, line.view, line.length / TRAINED] == pytest.approx(line.mean, rel=1e-4)


def test_a_curve_is_thinned_to_points_that_lie_on_it(drawn: dict[str, DrawnChart]) -> None:
    curve = data_of(drawn["by-position"])
    places, t5 = 8 + 16 * np.arange(128), curve[curve["encoding"] == "t5"].sort_values("x")
    assert len(t5) <= 24
    assert 0.85 * places[-1] < t5["x"].max() <= places[-1]
    assert t5["value"].iloc[-1] == pytest.approx(TEXT["t5"].first + TEXT["t5"].loss + 8 / 1848, abs=0.005)


def test_a_chart_is_a_file_by_itself_and_a_part_of_the_page(drawn: dict[str, DrawnChart], tmp_path: Path) -> None:
    lengths = drawn["lengths"]
    svg, png, pdf = lengths.write(tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    alone = svg.read_text()
    assert ElementTree.fromstring(alone).attrib["width"]
    addresses = set(re.findall(r"https?://[^\"]+", alone))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    part = lengths.inline("here", linked=["rope", "rope+alibi"])
    ElementTree.fromstring(part)
    assert not [color for color in PAGE if f'"{color}"' in part], "text and axes follow the page"
    assert encoding_color("rope") in part
    assert part.count('href="#formula-rope"') == part.count('href="#formula-rope+alibi"') == 1
    assert part.count('href="#here-0"') == len(TEXT) - 1, "grey lines are drawn once"
    assert "<title>rope, 16× minus 1×: +3.00" in drawn["dots"].inline("there")


def test_a_chart_fits_a_desktop_and_a_telephone() -> None:
    panels = fitted({"hconcat": [{}, {}, {"width": 80}], "usermeta": {"label_width": 100}}, WIDE)["hconcat"]
    assert sum(part["width"] for part in panels) + 100 + 2 * 14 == WIDE
    assert len(fitted({"hconcat": [{}, {"width": 80}]}, NARROW)["hconcat"]) == 1
    assert fitted({"facet": {}, "spec": {}}, NARROW)["columns"] == 3
    assert fitted({"mark": "point", "width": 77}, WIDE)["width"] == 77


def test_a_new_chart_is_one_function(text: Run, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posenc.lab.report.charts.CHARTS", registry := dict(CHARTS))

    @chart("learning-time", title="Learning time", caption="Steps until an encoding learned the task.")
    def learning_time(run: Run, table: Table) -> alt.Chart:
        steps = [(row.spec, row.steps_to_learn) for row in table.full_rows if row.steps_to_learn]
        return alt.Chart(pd.DataFrame(steps, columns=["encoding", "steps"])).mark_bar().encode(x="steps", y="encoding")

    assert set(registry) - set(CHARTS) == {"learning-time"}
    (new,) = [each for each in run_charts(text, table) if each.id == "learning-time"]
    assert len(data_of(new)) == sum(row.steps_to_learn is not None for row in table.full_rows)
    for name in registry.keys() - {"learning-time"}:  # drawn by other tests, and slowly
        monkeypatch.delitem(registry, name)
    write_report([text], tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("Learning time") == 1
    assert "Steps until an encoding learned the task." in page
    assert len(list(tmp_path.rglob("learning-time*.svg"))) == 1


def test_a_curve_s_name_from_a_file_leads_to_no_other_folder(text: Run, table: Table, tmp_path: Path) -> None:
    (curve,) = text.curves
    records = text.records.astype({"metric": str})
    records.loc[records["metric"] == curve.name, "metric"] = "../../escaped"
    run = dataclasses.replace(text, records=records, curves=(dataclasses.replace(curve, name="../../escaped"),))
    folder = tmp_path / "a" / "charts"
    folder.mkdir(parents=True)
    written = next(each for each in run_charts(run, table) if "escaped" in each.id).write(folder)
    assert {path.resolve().parent for path in written} == {folder}
    assert not list(tmp_path.glob("*escaped*"))


def test_a_quote_in_the_name_of_a_pass_is_data() -> None:
    name = "train' || true || '"
    lines = [(spec, work, 1024, 1.25) for spec in ("rope", "nope") for work in (name, "forward")]
    frame = pd.DataFrame(lines, columns=["spec", "pass", "length", "relative"]).assign(low=0.9, high=1.6)
    (costs,) = draw_charts("costs", frame)
    marks = re.findall(r"mark-symbol role-mark[^>]*>(.*?)</g>", costs.svg())
    assert [group.count("<path") for group in marks] == [2, 2], "each panel has the points of its own pass"
