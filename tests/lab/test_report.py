"""What a report says, shows and writes, of runs that are made of numbers."""

from __future__ import annotations

import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from tests.lab.synthetic import LENGTHS, TASK, TEXT, TRAINED, Made, run_of, written

from posenc.catalogue import list_encodings
from posenc.lab.commands import run as command
from posenc.lab.cost.costs import Costs
from posenc.lab.own import Permission, permitted
from posenc.lab.report.charts import charts_of
from posenc.lab.report.drawing import NARROW, WIDE, Drawn, fitted
from posenc.lab.report.latex import latex
from posenc.lab.report.page import page
from posenc.lab.report.palette import PAGE, colour, luminance
from posenc.lab.report.rows import Table, rows_of
from posenc.lab.report.sentences import across, called, caveat, sentences
from posenc.lab.report.table import cells_frame, contrasts_frame, main_table, markdown, note, terminal_table
from posenc.lab.report.writing import parts_of, summary, write
from posenc.lab.runs import Run, pooled, read_run

FEW = {name: TEXT[name] for name in ("rope", "alibi", "nope")}
OWN = '''"""A chart of one's own."""
import altair as alt
from posenc.lab.report.table import cells_frame


def means(run, table):
    """All means."""
    return alt.Chart(cells_frame(table)).mark_point().encode(x="length:Q", y="mean:Q", color="encoding:N")
'''


@pytest.fixture(scope="module")
def text() -> Run:
    return run_of()


@pytest.fixture(scope="module")
def table(text: Run) -> Table:
    return rows_of(text)


@pytest.fixture(scope="module")
def drawn(text: Run, table: Table) -> dict[str, Drawn]:
    return {chart.id: chart for chart in charts_of(text, table)}


@pytest.mark.parametrize("paper", ["#ffffff", "#14171a"])
def test_every_encoding_has_a_colour_of_its_own_that_is_seen_by_day_and_night(paper: str) -> None:
    names = [*list_encodings(), "rope+alibi", "my_module:MyClass"]
    for name in names:
        light, dark = sorted((luminance(colour(name)), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, name
    assert len({colour(name) for name in names}) == len(names)
    assert luminance("#ff0000") == pytest.approx(0.2126)


def test_three_sentences_say_what_was_found(text: Run, table: Table) -> None:
    made, learnt, kept = sentences(text, table)
    tokens = 1200 * 32 * TRAINED / 1e6
    assert made == (
        f"7 encodings in models of 866,256 parameters, each trained from 4 seeds for 1,200 steps or {tokens:.3g} "
        "million tokens, at up to 128 tokens a time and judged at up to 2,048 (16×)."
    )
    lines = text.records[(text.records["metric"] == "bits") & (text.records["view"] == "full")]
    means = lines.groupby(["spec", "length"], observed=True)["value"].mean()
    first = means.xs(TRAINED, level="length")
    assert "nope did not (within 0.1 bits per byte of the best)" in learnt
    assert f"{first.idxmin()} has the best mean there, {first.min():.3f} bits per byte" in learnt
    change = means["t5", 2048] - means["t5", 128]
    assert kept.startswith("At 16×, fox (−0.060) gains, alibi holds, ")
    assert f"t5 ({change:+.3f})" in kept
    assert "rope (+3.001) fails and learned has no number. Better than under its own window of 128 tokens by " in kept
    assert kept.endswith("more than 0.02 bits per byte: fox; worse: t5, rope+alibi and rope.")
    assert "nope" not in kept, "who has not learnt the task is not judged by length"
    facts = {"zlib": "2.02 bits per byte", "lzma": "1.53 bits per byte", "size": "3 MB"}
    assert "may with more" in caveat(text, table)
    assert caveat(dataclasses.replace(text, facts=facts), table).endswith("any model, lzma: 1.53 bits per byte.")
    assert summary([text]) == [made, learnt, kept, caveat(text, table)]


def test_one_seed_and_little_to_see_are_said() -> None:
    run = run_of({"rope": Made(1.0, 0.1), "alibi": Made(1.0)}, task="passkey", seeds=1, documents=6, lengths=(1, 16))
    said = caveat(run, rows_of(run))
    assert "these very models" in said
    assert said.endswith("Too little was seen to judge rope.")


def test_several_runs_are_told_apart_and_compared() -> None:
    later = {**TEXT, "rope": Made(1.7), "nope": Made(1.7)}
    texts = [run_of(made, steps=steps, seeds=2, lengths=(1, 16)) for made, steps in ((TEXT, 400), (later, 4800))]
    runs = [*texts, run_of({"rope": Made(1.0, 0.6), "alibi": Made(1.0)}, task="passkey", seeds=3, lengths=(1, 16))]
    parts = parts_of(runs)
    assert list(parts) == called(runs) == ["text, steps 400", "text, steps 4800", "passkey"]
    change, everywhere = across(parts)
    assert "rope (fails → holds)" in change
    assert "nope (not learnt → holds)" in change
    assert "Kendall's τ" in change
    assert everywhere.endswith("kept by alibi.")
    said = summary(runs)
    assert said[-2:] == [change, everywhere]
    assert said[:2] == ["text, steps 400:", sentences(*parts["text, steps 400"])[0]]


def test_tables_have_the_numbers_of_the_records(text: Run, table: Table) -> None:
    lines = text.records[text.records["metric"] == "bits"].astype({"spec": str, "view": str})
    means = lines.groupby(["spec", "view", "length"])["value"].mean()
    cells = cells_frame(table).set_index(["encoding", "view", "length"])["mean"]
    for place, mean in means.items():
        assert cells[place] == pytest.approx(mean), place
    contrasts = contrasts_frame(table).set_index(["encoding", "view", "against"])
    own = means["rope", "full", 2048] - means["rope", "window", 2048]
    assert contrasts.loc[("rope", "full", "own window"), "mean"] == pytest.approx(own)
    row = next(line for line in markdown(text, table, ["said"]).splitlines() if line.startswith("| rope |"))
    assert f"| {means['rope', 'full', 128]:.3f} ± " in row
    assert f"| +{own:.3f} ± 0.003 (ν 3) |" in row
    assert "posenc compare --task text" in markdown(text, table, [])
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(terminal_table(text, table))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"^ rope\+alibi +1\.6\d\d +1\.7\d\d .* declines $", shown, re.M), "no name or number is broken"


def test_shares_are_percent() -> None:
    run = run_of(TASK, task="passkey", lengths=(1, 16))
    table = rows_of(run)
    share = run.records.query("metric == 'right' and spec == 'nope' and length == 128")["value"].mean()
    assert f"| {100 * share:.1f} ± " in markdown(run, table, [])
    assert "(95 % answers right)" in sentences(run, table)[1]


def test_a_chart_shows_the_numbers_of_the_table(table: Table, drawn: dict[str, Drawn]) -> None:
    assert list(drawn) == ["dots", "lengths", "training", "by-position"]
    found = pd.read_csv(io.StringIO(drawn["dots"].csv())).set_index(["panel", "encoding"])
    row = next(row for row in table.rows if row.spec == "t5" and row.view == "full" and row.change)
    assert found.loc[("learnt", "t5"), "high"] == pytest.approx(row.cells[128].high, rel=1e-4)
    assert found.loc[("kept", "t5"), "low"] == pytest.approx(row.change.low, rel=1e-4)
    assert found.loc[("window", "t5"), "value"] == pytest.approx(row.against["own window"].mean, rel=1e-4)
    assert set(found.loc["kept"].index) == set(TEXT) - {"nope", "learned"}, "not learnt, and past its table"
    curve = pd.read_csv(io.StringIO(drawn["by-position"].csv()))
    places, t5 = 8 + 16 * np.arange(128), curve[curve["encoding"] == "t5"].sort_values("x")
    assert len(t5) <= 24
    assert 0.85 * places[-1] < t5["x"].max() <= places[-1]
    assert t5["value"].iloc[-1] == pytest.approx(TEXT["t5"].first + TEXT["t5"].loss + 8 / 1848, abs=0.005)


def test_a_chart_is_a_file_by_itself_and_a_part_of_the_page(drawn: dict[str, Drawn], tmp_path: Path) -> None:
    chart = drawn["lengths"]
    svg, png, pdf = chart.write(tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    alone = svg.read_text()
    assert ElementTree.fromstring(alone).attrib["width"]
    assert set(re.findall(r"https?://[^\"]+", alone)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    part = chart.inline("here", linked=["rope", "rope+alibi"])
    ElementTree.fromstring(part)
    assert not [hue for hue in PAGE if f'"{hue}"' in part], "text and axes follow the page"
    assert colour("rope") in part
    assert part.count('href="#formula-rope"') == part.count('href="#formula-rope+alibi"') == 1
    assert part.count('href="#here-0"') == len(TEXT) - 1, "what is grey is drawn once"
    assert "<title>rope, 16× minus 1×: +3.00" in drawn["dots"].inline("there")


def test_a_chart_fits_a_desktop_and_a_telephone() -> None:
    panels = fitted({"hconcat": [{}, {}, {"width": 80}], "usermeta": {"beside": 100}}, WIDE)["hconcat"]
    assert sum(part["width"] for part in panels) + 100 + 2 * 14 == WIDE
    assert len(fitted({"hconcat": [{}, {"width": 80}]}, NARROW)["hconcat"]) == 1
    assert fitted({"facet": {}, "spec": {}}, NARROW)["columns"] == 3
    assert fitted({"mark": "point", "width": 77}, WIDE)["width"] == 77


def test_the_page_is_one_file_in_which_every_name_leads_to_its_formula() -> None:
    run = run_of(FEW, seeds=2, lengths=(1, 16))
    odd = {"metrics": (dataclasses.replace(run.decides, unit="<i>bits"),), "remarks": ("a <b> & c",)}
    run = dataclasses.replace(run, curves=(), command="posenc compare '<script>'", **odd)
    table = rows_of(run)
    html = page({"text": (run, table)}, {"text": list(charts_of(run, table))}, [])
    assert "&lt;script&gt;" in html
    assert "a &lt;b&gt; &amp; c" in html
    assert "<i>bits" not in html
    assert not re.search(r"(?:src|href)=\"(?!#|data:|https://arxiv\.org/abs/)", html)
    targets, ids = set(re.findall(r'href="#(formula-[^"]+)"', html)), re.findall(r' id="([^"]+)"', html)
    assert targets == {f"formula-{name}" for name in FEW} <= set(ids)
    assert len(ids) == len(set(ids))
    assert "q, k ← R(p) q, R(p) k" in html
    for sentence in (*sentences(run, table), caveat(run, table)):
        assert sentence in unescape(html)


def test_the_table_for_a_paper_has_the_cells_of_the_page_and_no_sign_that_latex_reads() -> None:
    run = run_of(FEW, lengths=(1, 16))
    heads, rows = main_table(run, rows_of(run))
    lines = latex(heads, rows).splitlines()
    assert [line.split()[0] for line in lines[4:-2]] == [row[0] for row in rows]
    assert all(line.endswith(r" \\") and line.count(" & ") == len(heads) - 1 for line in lines[4:-2])
    assert not re.search(r"(?<!\\)[_%#]|[^\x00-\x7f]", "\n".join(lines))


@pytest.mark.slow
def test_several_runs_and_costs_lie_beside_each_other(tmp_path: Path) -> None:
    runs = [run_of(FEW, steps=steps, seeds=2, lengths=(1, 16)) for steps in (400, 1200)]
    lines = [("rope", "train", 256, 9.0), ("nope", "train", 1024, 1.0), ("rope", "train", 1024, 1.25)]
    frame = pd.DataFrame(lines, columns=["spec", "pass", "length", "relative"]).assign(low=0.9, high=1.6)
    paths = write(runs, tmp_path, costs=Costs(frame, {"seconds": "3"}, {}, 1, {}, {}, "posenc cost --seconds 3"))
    assert {path.relative_to(tmp_path).as_posix() for path in paths} >= {
        "1-text-steps-400/charts",
        "2-text-steps-1200/table.md",
    }
    assert {path.stem for path in (tmp_path / "charts").iterdir()} == {"across", "costs"}
    html = (tmp_path / "report.html").read_text()
    assert "posenc cost --seconds 3" in html
    assert "rope,train,1024,1.25,0.9,1.6" in html
    assert "rope,train,256" not in html, "the longest length alone"


@pytest.mark.slow
def test_forty_encodings_fit_into_a_megabyte(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    made = {name: Made(1.6 + 0.2 * draw.random(), float(draw.random())) for name in list_encodings()[:40]}
    write([run_of(made)], tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 10**6


@pytest.mark.slow
def test_the_command_pools_seeds_and_draws_ones_own_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # which processes of a test run are given
    (tmp_path / "my_charts.py").write_text(OWN)
    whole = dataclasses.replace(run_of(FEW, lengths=(1, 16)), curves=())
    whole = dataclasses.replace(whole, records=whole.records[whole.records["metric"] != "probe"])
    halves = []
    for name, seeds in (("a", [0, 1]), ("b", [2, 3])):
        records = whole.records[whole.records["seed"].isin(seeds)].reset_index(drop=True)
        halves.append(str(written(dataclasses.replace(whole, path=tmp_path / name, records=records)).path))
    out = tmp_path / "out"
    given = ["--chart", "my_charts:means", "--classes-from", str(tmp_path), "--out", str(out)]
    assert command(["report", *halves, *given]) == 0
    printed = capsys.readouterr().out
    assert sentences(whole, rows_of(whole))[2] in printed
    assert (out / "table.md").read_text() == markdown(whole, rows_of(whole), summary([whole]))
    assert {path.name for path in (out / "charts").iterdir()} == {
        f"{name}.{kind}" for name in ("dots", "lengths", "means") for kind in ("svg", "png", "pdf")
    }
    assert ">All means</button>" in (out / "report.html").read_text()
    with permitted(Permission()), pytest.raises(ValueError, match="my_charts:means"):
        list(charts_of(whole, rows_of(whole), ["my_charts:means"]))


def test_folders_that_hold_nothing_of_ours_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of({"rope": Made(1.7)}, seeds=1, lengths=(1, 16))
    empty = written(dataclasses.replace(run, records=run.records[:0], path=tmp_path / "empty"))
    broken = written(dataclasses.replace(run, path=tmp_path / "broken")).path
    (broken / "run.json").write_text('{"format": "posenc')
    for folder, said in ((tmp_path / "nowhere", "nothing to report"), (broken, "run.json"), (empty.path, "no job")):
        assert command(["report", str(folder)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert str(folder) in error


def test_views_take_the_place_of_lengths() -> None:
    run = run_of({"axial": Made(0.97), "liere": Made(0.96)}, task="images", seeds=3, lengths=(1,))
    lines = run.records[(run.records["view"] == "full") & run.records["length"].isin([0, TRAINED])].astype(
        {"view": str}
    )
    moved = lines[lines["metric"] == "right"].assign(view="+20")
    moved.loc[moved["spec"] == "liere", "value"] = 0.0
    run = dataclasses.replace(run, records=pd.concat([lines, moved, moved.assign(view="+3")]), curves=())
    table = rows_of(run)
    assert sentences(run, table)[2] == "What was learnt is kept under +3 and +20 by axial."
    assert not table.remarks, "nothing is missing: there are no baselines"
    assert "Own window" not in note(table)
    assert [chart.id for chart in charts_of(run, table)] == ["views", "training"]
    assert re.search(r"\| liere \| .* 0\.0 ± 0\.0 \(ν \d+\) fails \|", markdown(run, table, []))


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = written(dataclasses.replace(run_of(FEW, seeds=2), path=tmp_path / "run"))
    (again,) = pooled([read_run(run.path)])
    assert markdown(again, rows_of(again), []) == markdown(run, rows_of(run), [])
    assert again.lengths == tuple(TRAINED * k for k in LENGTHS)


def test_a_metric_without_a_record_is_named_with_its_file(tmp_path: Path) -> None:
    run = written(dataclasses.replace(run_of(FEW, seeds=2), path=tmp_path / "run"))
    file = run.path / "run.json"
    file.write_text(file.read_text().replace('"name": "bits"', '"name": "absent"'))
    with pytest.raises(ValueError, match=r"run\.json.*absent"):
        pooled([read_run(run.path)])


def test_garbage_records_are_named(tmp_path: Path) -> None:
    run = written(dataclasses.replace(run_of(FEW, seeds=2), path=tmp_path / "run"))
    (run.path / "records.parquet").write_bytes(b"PAR1" + b"garbage" * 9 + b"PAR1")
    with pytest.raises(ValueError, match=r"records\.parquet"):
        read_run(run.path)
