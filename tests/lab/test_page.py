"""The page of one task and of several."""

from __future__ import annotations

import json
import re

import pytest
from tests.lab.made_up import BITS, MANY, RECORD, costs, made_up, rows
from tests.lab.test_report import Page as Reader
from tests.lab.test_sequences_report import RECORD as COPY
from tests.lab.test_sequences_report import ROWS as COPY_ROWS

from posenc.lab.cost import Costs
from posenc.lab.report.bubbles import front, name_where_there_is_room
from posenc.lab.report.overview import across
from posenc.lab.report.page import Page, Part
from posenc.lab.report.palette import NAMED, colours, grouped, shades, verdict_colour
from posenc.lab.report.training import training_markdown
from posenc.lab.text.table import rows_of
from posenc.lab.words import TRAINING_HEADS, training_cells


def render(parts: list[Part], measured: list[Costs] | None = None) -> tuple[str, dict[str, object], str]:
    """HTML, data, and the text that is shown."""
    text = Page(parts, measured or []).render()
    reader = Reader(text)
    return text, json.loads(reader.scripts[0]), " ".join(reader.text)


def ids(text: str) -> list[str]:
    return re.findall(r' id="([^"]+)"', text)


@pytest.mark.parametrize("bits", [BITS, MANY], ids=["few", "many"])
def test_each_chart_has_its_place_and_each_link_leads_somewhere(bits: dict[str, tuple[float | None, ...]]) -> None:
    text, data, _ = render([Part(rows(bits), RECORD), Part(COPY_ROWS, COPY)], [costs()])
    found, charts = ids(text), data["charts"]
    assert isinstance(charts, list)
    assert len(found) == len(set(found))
    assert {chart["id"] for chart in charts} <= set(found)
    assert text.count('class="chart"') == len(charts)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(found)


def test_one_task_has_ranks_curves_numbers_costs_claims_and_how_to_repeat_it() -> None:
    text, data, shown = render([Part(rows(), RECORD)], [costs()])
    links = re.findall(r'<a href="#([^"]+)"', text)
    assert links == [
        "text-glance", "text-ranks", "text-length", "text-position", "text-numbers", "text-cost", "text-training",
        "cost", "claims", "repeat",
    ]  # fmt: skip
    assert "At 16×, fox is ahead of all others" in shown
    assert "posenc cost" in shown
    charts = {chart["id"]: chart for chart in data["charts"]}  # type: ignore[attr-defined]
    assert [view["name"] for view in charts["text-ranking"]["views"]] == ["at 16×", "at 1×"]
    pairs = charts["text-pairs"]["traces"][0]
    assert pairs["z"][0] == [None, *[1] * (len(pairs["x"]) - 1)]
    assert pairs["z"][-1] == [*[-1] * (len(pairs["x"]) - 1), None]
    bands = [trace for trace in charts["text-by-length"]["traces"] if trace["meta"].get("band")]
    assert {trace["name"] for trace in bands} == set(BITS)
    assert charts["text-by-length"]["views"][1]["yaxis"]["range"][1] < 2.5


def test_with_one_seed_there_are_no_bands() -> None:
    _, data, _ = render([Part(rows(seeds=(0,)), RECORD)])
    charts = {chart["id"]: chart for chart in data["charts"]}  # type: ignore[attr-defined]
    assert not [trace for trace in charts["text-by-length"]["traces"] if trace["meta"].get("band")]


def test_several_tasks_are_parts_of_one_page() -> None:
    text, data, shown = render([Part(rows(), RECORD, ("one remark",)), Part(COPY_ROWS, COPY)])
    assert "Positional encodings compared: text and copy" in shown
    assert {"overview", "task-text", "task-copy", "claims", "repeat"} <= set(ids(text))
    assert "one remark" in shown
    assert text.count("<details><summary>Show</summary>") == 2  # the trainings of both
    assert "posenc compare --task copy" in shown
    assert set(data["results"]) == {"text", "copy"}  # type: ignore[call-overload]


def test_costs_alone_make_a_page() -> None:
    text, data, shown = render([], [costs(), costs(alibi=1.1)])
    assert "What positional encodings cost" in shown
    assert [chart["id"] for chart in data["charts"]] == [  # type: ignore[attr-defined]
        "cost-time", "cost-memory", "cost-2-time", "cost-2-memory",
    ]  # fmt: skip
    assert "do not mix" in shown
    assert 'id="claims"' not in text


def test_a_sentence_says_who_holds_everywhere() -> None:
    assert "Wherever measured, rope+window (2 tasks) loses nothing" in across({"text": rows(), "copy": COPY_ROWS})
    assert "None of these keeps" in across({"text": rows({"rope": BITS["rope"]}), "copy": COPY_ROWS})
    assert across({"text": rows()}) == "1 tasks; 0 encodings stand in more than one."


def test_times_of_two_machines_are_never_averaged() -> None:
    here, there = made_up({"rope": BITS["rope"]}, (0,)), made_up({"rope": BITS["rope"]}, (1,), machine="slow")
    slow = there["rope"][0]
    slow["training"] = {**slow["training"], "bytes_per_second": 1000.0}
    mixed = rows_of({"rope": here["rope"] + there["rope"], **made_up({"alibi": BITS["alibi"]}, (0, 1))})
    lines = training_markdown(mixed, TRAINING_HEADS, training_cells)
    speeds = {line.split(" | ")[0]: line.split(" | ")[3] for line in lines if line.startswith("| ")}
    assert speeds["| rope, machine 1"] == "13.0" or speeds["| rope, machine 2"] == "13.0"
    assert {speeds["| rope, machine 1"], speeds["| rope, machine 2"]} == {"13.0", "1.0"}
    assert "no common mean" in lines[-1]
    assert "slow, 4 cores" in lines[-1]
    _, data, shown = render([Part(mixed, RECORD)])
    assert "no common mean" in shown
    chart = next(c for c in data["charts"] if c["id"] == "text-against-cost")  # type: ignore[attr-defined]
    assert sorted(trace["x"][0] for trace in chart["traces"] if trace["name"] == "rope") == [1.0, 13.0]
    assert "machine" not in "".join(training_markdown(rows(), TRAINING_HEADS, training_cells))


def test_many_encodings_have_the_colours_of_their_verdicts_few_have_their_own() -> None:
    few, many = rows(), rows(MANY)
    assert set(colours(few).values()) <= set(NAMED)
    assert len(set(colours(many).values())) == len(many)
    assert list(grouped(many)) == ["flat", "degrades", "fails", "past its table"]
    assert verdict_colour("never heard of") == verdict_colour("not learnt")
    for shade in shades("#d1495b", 9):
        light = sum(int(shade[i : i + 2], 16) for i in (1, 3, 5)) / 3
        assert 60 < light < 190, "neither lost on white nor on black"


def test_the_front_is_beaten_by_nobody_and_names_do_not_overlap() -> None:
    points = {
        "slow": (1.0, 1.5),
        "middle": (2.0, 1.7),
        "beaten": (1.5, 1.8),
        "beside": (2.01, 1.701),
        "fast": (4.0, 3.0),
    }
    traces = [{"name": name, "x": [x], "y": [y], "text": [name]} for name, (x, y) in points.items()]
    (line,) = front(traces, faster=1)
    assert sorted(zip(line["x"], line["y"], strict=True)) == [(1.0, 1.5), (2.0, 1.7), (2.01, 1.701), (4.0, 3.0)]
    assert front(traces, faster=-1) == [], "one of them is best in both"
    name_where_there_is_room(traces)
    assert {trace["name"] for trace in traces if not trace["text"][0]} == {"beside"}
    assert traces[0]["name"] == "beside"
