"""Reports of synthetic runs: their numbers, their files, the escaping of foreign text, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from tests.lab.report_page import Page, assert_numbers_are_recorded, first_number, read_page
from tests.lab.synthetic import LENGTHS, TASK, TEXT, TRAINED, UNIGRAM_BITS, Truth, run_of, written

from posenc.catalogue import list_encodings
from posenc.lab.commands import run as command
from posenc.lab.cost.costs import Costs
from posenc.lab.metrics import Curve
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.report.charts import run_charts
from posenc.lab.report.claims import judge
from posenc.lab.report.literature import CLAIMS
from posenc.lab.report.numbers import Table, build_table
from posenc.lab.report.render import claims_markdown, page, table_markdown, terminal_summary, write_report
from posenc.lab.report.summary import RunSummary, named_tables, run_labels, verdicts_record
from posenc.lab.report.tables import cells_frame, contrasts_frame, latex, main_table, terminal_table
from posenc.lab.run.folder import Run, pooled, read_run

FEW = {name: TEXT[name] for name in ("rope", "alibi", "nope")}
CUSTOM_CHART = '''"""A user's chart."""
import altair as alt
from posenc.lab.report.tables import cells_frame


def means(run, table):
    """All means."""
    return alt.Chart(cells_frame(table)).mark_point().encode(x="length:Q", y="mean:Q", color="encoding:N")
'''
HOSTILE = "<script>alert(1)</script> | [x](javascript:alert(1)) `a` **b** _c_ &lt; {{ 1234567 * 3 }} \\"


@pytest.fixture(scope="module")
def text() -> Run:
    return run_of()


@pytest.fixture(scope="module")
def table(text: Run) -> Table:
    return build_table(text)


def names(rows: object) -> list[str]:
    return [row.spec for row in rows]  # type: ignore[attr-defined]


def page_of(run: Run) -> str:
    """The page of one run without charts."""
    tables = named_tables([run])
    return page(tables, {label: [] for label in tables}, judge(CLAIMS, tables))


# ---- Numbers ----


def test_a_summary_groups_rows_by_verdict_and_names_the_extremes(text: Run, table: Table) -> None:
    summary = RunSummary(text, table)
    assert {kind: names(rows) for kind, rows in summary.verdicts.items()} == {
        "rises": ["rope", "nope", "t5", "rope+alibi"], "falls": ["fox"], "flat": ["alibi"], "no value": ["learned"],
    }  # fmt: skip
    assert {kind: len(rows) for kind, rows in summary.far.items()} == {"shown": 7, "not shown": 0}
    assert {length: set(names(rows)) for length, rows in summary.practical_lengths.items()} == {
        2048: {"fox", "alibi"}, 256: {"rope+alibi", "t5"}, TRAINED: {"rope", "nope"},
    }  # fmt: skip
    assert names(summary.beyond_ngram[False]) == ["nope"]
    beyond = summary.beyond_window
    assert (names(beyond["better"]), set(names(beyond["worse"]))) == (["fox"], {"t5", "rope+alibi", "nope", "rope"})
    assert (summary.seeds, summary.parameters, summary.tokens) == ((4, 4), (866_256, 866_256), 1200 * 32 * TRAINED)


def test_verdicts_json_has_both_verdicts_with_interval_and_condition(text: Run, table: Table) -> None:
    record = verdicts_record(text, table)
    assert (record["intervals_cover"], record["entropy_of_single_tokens"]) == ("trainings and texts", UNIGRAM_BITS)
    for spec, each in record["encodings"].items():
        row = table.row(spec)
        assert row is not None
        beyond, far = each["beyond_training_length"], each["far_context"]
        assert beyond["condition"] == {"better_than": UNIGRAM_BITS, "met": True}
        if beyond["verdict"] == "no value":
            assert (spec, each["practical_context_length"]) == ("learned", None)
            continue
        regions = {"rises": beyond["low"] > 0.02, "falls": beyond["high"] < -0.02}
        regions["flat"] = beyond["low"] > -0.02 and beyond["high"] < 0.02
        assert [kind for kind, inside in regions.items() if inside] == [beyond["verdict"]]
        assert beyond["mean"] == pytest.approx(row.cells[2048].mean - row.cells[TRAINED].mean)
        assert (far["verdict"], far["above"]) == ("shown", 0.02)
        assert far["low"] > far["above"]
        assert each["practical_context_length"] in (TRAINED, 256, 2048)


def test_rows_of_one_seed_are_named() -> None:
    run = run_of({"rope": Truth(1.0, 0.1), "alibi": Truth(1.0)}, task="passkey", seeds=1, documents=6, lengths=(1, 16))
    summary = RunSummary(run, build_table(run))
    assert names(summary.single_seed) == names(summary.rows)
    assert verdicts_record(run, summary.table)["intervals_cover"] == "texts"
    released = dataclasses.replace(run, numbers={**run.numbers, "steps": 0})
    assert not RunSummary(released, build_table(released)).single_seed


def test_several_runs_are_labelled_and_answered_together_texts_first() -> None:
    texts = [run_of(TEXT, steps=steps, seeds=2, lengths=(1, 16)) for steps in (400, 4800)]
    runs = [run_of({"rope": Truth(1.0, 0.6), "alibi": Truth(1.0)}, task="passkey", lengths=(1, 16)), *texts]
    assert list(named_tables(runs)) == run_labels(runs) == ["passkey", "text, steps 400", "text, steps 4800"]
    lines = terminal_summary(runs)
    for run in runs:
        for line in terminal_summary([run]):
            assert line in lines
    assert lines[:2] == [terminal_summary([run])[0] for run in texts]


# ---- The page, table.md and the terminal ----


def test_every_number_of_the_page_is_the_record_s(text: Run) -> None:
    shown = read_page(page_of(text))
    assert assert_numbers_are_recorded(shown, text.records, "bits", TRAINED) > 60
    assert {"t5", "rope", "fox"} <= {spec for spec, _, _ in shown.numbers}, "sentences have numbers, too"


def test_counts_in_sentences_are_the_run_s(text: Run) -> None:
    counts = set(re.findall(r"\d[\d.,]*\d|\d", " ".join(terminal_summary([text]))))
    ngram = text.baselines[text.baselines["metric"] == "ngram"]["value"].mean()
    parameters = text.records[text.records["metric"] == "parameters"]["value"].iloc[0]
    expected = [f"{parameters:,.0f}", "1,200", "4", f"{1200 * 32 * TRAINED / 1e6:.3g}", f"{TRAINED}", "2,048"]
    expected += [f"{TRAINED // 4}", str(len(TEXT)), "0.02", f"{ngram:.3f}", f"{UNIGRAM_BITS:.3f}"]
    assert set(expected) <= counts
    changed = dataclasses.replace(text, numbers={**text.numbers, "steps": 1201})
    assert not {"1,200"} & set(re.findall(r"\d[\d.,]*\d", " ".join(terminal_summary([changed]))))


@pytest.mark.parametrize(("spec", "view", "length"), [("t5", "full", TRAINED), ("fox", "window", 16 * TRAINED)])
def test_a_number_of_the_page_that_differs_from_the_record_is_noticed(
    text: Run, spec: str, view: str, length: int
) -> None:
    changed = text.records.copy()
    place = (changed["spec"] == spec) & (changed["view"] == view) & (changed["length"] == length)
    changed.loc[place & (changed["metric"] == "bits"), "value"] += 0.002
    with pytest.raises(AssertionError):
        assert_numbers_are_recorded(read_page(page_of(text)), changed, "bits", TRAINED)


def test_page_markdown_and_terminal_have_the_same_sentences_in_one_order(text: Run, table: Table) -> None:
    lines = terminal_summary([text])
    shown, markdown = read_page(page_of(text)).text, unescape(table_markdown(text, table))
    for place in (shown, markdown.replace("\\", "")):
        at = [place.find(line) for line in lines]
        assert -1 not in at
        assert at == sorted(at)


def test_tables_have_the_numbers_of_the_records(text: Run, table: Table) -> None:
    lines = text.records[text.records["metric"] == "bits"].astype({"spec": str, "view": str})
    means = lines.groupby(["spec", "view", "length"])["value"].mean()
    cells = cells_frame(table).set_index(["encoding", "view", "length"])["mean"]
    for key, mean in means.items():
        assert cells[key] == pytest.approx(mean), key
    contrasts = contrasts_frame(table).set_index(["encoding", "view", "against"])
    window = means["rope", "full", 2048] - means["rope", "window", 2048]
    assert contrasts.loc[("rope", "full", "own window"), "mean"] == pytest.approx(window)
    row = next(line for line in table_markdown(text, table).splitlines() if line.startswith("| rope |"))
    assert f"| {means['rope', 'full', 128]:.3f} ± " in row
    assert f"| +{window:.3f} ± 0.003 (ν 3) |" in row
    assert text.command in table_markdown(text, table)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(terminal_table(text, table))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"^ rope\+alibi +1\.6\d\d +1\.7\d\d .* rises +256 *$", shown, re.M), "no name or number is broken"


def test_shares_are_percent() -> None:
    run = run_of(TASK, task="passkey", lengths=(1, 16))
    share = run.records.query("metric == 'right' and spec == 'nope' and length == 128")["value"].mean()
    (line,) = (line for line in main_table(run, build_table(run)).lines if line[0] == "nope")
    assert first_number(line[3]) == pytest.approx(100 * share, abs=0.06)


def test_the_page_is_one_file_in_which_every_name_leads_to_its_formula() -> None:
    run = dataclasses.replace(run_of(FEW, seeds=2, lengths=(1, 16)), curves=())
    table = build_table(run)
    html = page({"text": (run, table)}, {"text": list(run_charts(run, table))}, [])
    shown = read_page(html)
    links = [value for _, attributes in shown.elements for key, value in attributes.items() if key in ("src", "href")]
    assert all(re.match(r"#|data:|https://arxiv\.org/abs/", link) for link in links)
    ids = [attributes["id"] for _, attributes in shown.elements if "id" in attributes]
    targets = {link[1:] for link in links if link.startswith("#formula-")}
    assert targets == {f"formula-{name}" for name in FEW} <= set(ids)
    assert len(ids) == len(set(ids))
    assert "q, k ← R(p) q, R(p) k" in shown.text
    assert [tag for tag, _ in shown.elements if tag == "figure"] == ["figure"] * 3


def hostile_run() -> Run:
    """A run whose every text from a file tries to break out of the format it is printed in."""
    run = run_of(FEW, seeds=2, lengths=(1, 16))
    metric = dataclasses.replace(run.decides, unit=f"bits {HOSTILE}")
    words = dataclasses.replace(run.words, title=HOSTILE, question=HOSTILE, shows=HOSTILE)
    return dataclasses.replace(
        run, metrics=(metric,), words=words, command=f"posenc\n```\n{HOSTILE}", remarks=(HOSTILE,),
        curves=(Curve("by_position", HOSTILE, "bits"),), facts={HOSTILE: f"1.5 {metric.unit}"},
        versions={"torch": HOSTILE}, machine={HOSTILE: "x"}, shown={**run.shown, "dim": HOSTILE},
        rates={"rope": HOSTILE},
    )  # fmt: skip


@pytest.mark.parametrize("several", [False, True])
def test_no_text_of_a_run_becomes_an_element_of_the_page(several: bool) -> None:
    def elements(run: Run) -> Page:
        runs = [run, dataclasses.replace(run, facts={**run.facts, "size": "other"}, shown={})] if several else [run]
        tables = named_tables(runs)
        charts = {label: list(run_charts(*part))[:1] for label, part in tables.items()}
        return read_page(page(tables, charts, judge(CLAIMS, tables)))

    shown, expected = elements(hostile_run()), elements(run_of(FEW, seeds=2, lengths=(1, 16)))
    assert HOSTILE in shown.text
    assert shown.count("script") == 1
    assert {tag for tag, _ in shown.elements} <= {tag for tag, _ in expected.elements}
    assert not [tag for tag, attributes in shown.elements if "javascript" in attributes.get("href", "")]
    assert str(1234567 * 3) not in shown.text, "a text is no template"


def test_no_text_of_a_run_is_markup_in_markdown() -> None:
    run = hostile_run()
    tables = named_tables([run])
    ordinary = run_of(FEW, seeds=2, lengths=(1, 16))
    ordinary = dataclasses.replace(ordinary, metrics=(dataclasses.replace(ordinary.decides, unit="bits a line"),))
    render = MarkdownIt("commonmark", {"html": True}).enable("table").render
    sources = {
        table_markdown(run, build_table(run)): table_markdown(ordinary, build_table(ordinary)),
        claims_markdown(judge(CLAIMS, tables)): claims_markdown(judge(CLAIMS, named_tables([ordinary]))),
    }
    for hostile, ordinary_text in sources.items():
        shown, expected = read_page(render(hostile)), read_page(render(ordinary_text))
        assert {tag for tag, _ in shown.elements} == {tag for tag, _ in expected.elements}
        assert [shown.count(tag) for tag in ("table", "td", "th", "pre", "h1", "h2", "a", "code", "em")] == [
            expected.count(tag) for tag in ("table", "td", "th", "pre", "h1", "h2", "a", "code", "em")
        ]
    assert HOSTILE in read_page(render(next(iter(sources)))).text


def test_the_table_for_a_paper_has_the_cells_of_the_page_and_no_character_of_latex() -> None:
    run = run_of(FEW, lengths=(1, 16))
    table = main_table(run, build_table(run))
    lines = latex(table).splitlines()
    assert [line.split(" & ")[0] for line in lines[4:-2]] == [line[0] for line in table.lines]
    assert all(line.endswith(r" \\") and line.count(" & ") == len(table.heads) - 1 for line in lines[4:-2])
    assert not re.search(r"(?<!\\)[_%#]|[^\x00-\x7f]", "\n".join(lines))


def test_views_take_the_place_of_lengths() -> None:
    run = run_of({"axial": Truth(0.97), "liere": Truth(0.96)}, task="images", seeds=3, lengths=(1,))
    lines = run.records[(run.records["view"] == "full") & run.records["length"].isin([0, TRAINED])].astype(
        {"view": str}
    )
    moved = lines[lines["metric"] == "right"].assign(view="+20")
    moved.loc[moved["spec"] == "liere", "value"] = 0.0
    run = dataclasses.replace(run, records=pd.concat([lines, moved, moved.assign(view="+3")]), curves=())
    table = build_table(run)
    ((views, rows),) = RunSummary(run, table).stable_views
    assert (views, names(rows)) == (["+3", "+20"], ["axial"])
    assert not table.omissions, "nothing is missing: a task without lengths has no baselines"
    assert [chart.id for chart in run_charts(run, table)] == ["views", "training"]
    heads, *lines_of = [main_table(run, table).heads, *main_table(run, table).lines]
    liere = dict(zip(heads, next(line for line in lines_of if line[0] == "liere"), strict=True))
    assert re.fullmatch(r"0\.0 ± 0\.0 \(ν \d+\) falls", liere["+20"])


# ---- Files ----


@pytest.mark.slow
def test_several_runs_and_costs_are_written_to_one_page_and_a_folder_each(tmp_path: Path) -> None:
    runs = [run_of(FEW, steps=steps, seeds=2, lengths=(1, 16)) for steps in (400, 1200)]
    lines = [("rope", "train", 256, 9.0), ("nope", "train", 1024, 1.0), ("rope", "train", 1024, 1.25)]
    frame = pd.DataFrame(lines, columns=["spec", "pass", "length", "relative"]).assign(low=0.9, high=1.6)
    paths = write_report(runs, tmp_path, costs=Costs(frame, {"seconds": "3"}, {}, 1, {}, {}, "posenc cost --seconds 3"))
    relative = {path.relative_to(tmp_path).as_posix() for path in paths}
    assert relative >= {"report.html", "claims.md"} | {
        f"{folder}/{name}"
        for folder in ("1-text-steps-400", "2-text-steps-1200")
        for name in ("charts", "table.md", "table.tex", "verdicts.json", "cells.csv", "contrasts.csv")
    }
    assert {path.stem for path in (tmp_path / "charts").iterdir()} == {"across", "costs"}
    html = (tmp_path / "report.html").read_text()
    assert "posenc cost --seconds 3" in html
    assert "rope,train,1024,1.25,0.9,1.6" in html
    assert "rope,train,256" not in html, "the longest length alone"


@pytest.mark.slow
def test_forty_encodings_fit_into_a_megabyte(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    truths = {name: Truth(1.6 + 0.2 * draw.random(), float(draw.random())) for name in list_encodings()[:40]}
    write_report([run_of(truths)], tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 10**6


@pytest.mark.slow
def test_the_command_pools_seeds_and_draws_a_user_s_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # which processes of a test run are given
    (tmp_path / "my_charts.py").write_text(CUSTOM_CHART)
    run = dataclasses.replace(run_of(FEW, lengths=(1, 16)), curves=())
    run = dataclasses.replace(run, records=run.records[run.records["metric"] != "probe"])
    halves = []
    for name, seeds in (("a", [0, 1]), ("b", [2, 3])):
        records = run.records[run.records["seed"].isin(seeds)].reset_index(drop=True)
        halves.append(str(written(dataclasses.replace(run, path=tmp_path / name, records=records)).path))
    out = tmp_path / "out"
    options = ["--chart", "my_charts:means", "--classes-from", str(tmp_path), "--out", str(out)]
    assert command(["report", *halves, *options]) == 0
    printed = capsys.readouterr().out
    assert all(line in printed for line in terminal_summary([run]))
    assert (out / "table.md").read_text() == table_markdown(run, build_table(run))
    assert {path.name for path in (out / "charts").iterdir()} == {
        f"{name}.{kind}" for name in ("dots", "lengths", "means") for kind in ("svg", "png", "pdf")
    }
    assert ">All means</button>" in (out / "report.html").read_text()
    with allow_imports(ImportAllowlist()), pytest.raises(ValueError, match="my_charts:means"):
        list(run_charts(run, build_table(run), ["my_charts:means"]))


def test_a_folder_without_a_run_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of({"rope": Truth(1.7)}, seeds=1, lengths=(1, 16))
    empty = written(dataclasses.replace(run, records=run.records[:0], path=tmp_path / "empty"))
    broken = written(dataclasses.replace(run, path=tmp_path / "broken")).path
    (broken / "run.json").write_text('{"format": "posenc')
    for folder, name in ((tmp_path / "nowhere", "run.json"), (broken, "run.json"), (empty.path, "empty")):
        assert command(["report", str(folder)]) == 2
        error = capsys.readouterr().err
        assert name in error
        assert str(folder) in error


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = written(dataclasses.replace(run_of(FEW, seeds=2), path=tmp_path / "run"))
    (again,) = pooled([read_run(run.path)])
    assert table_markdown(again, build_table(again)) == table_markdown(run, build_table(run))
    assert again.lengths == tuple(TRAINED * k for k in LENGTHS)


def test_a_run_of_encodings_that_left_the_catalogue_is_reported(tmp_path: Path) -> None:
    """TAPE and KERPLE's weight kernel were entries once: their numbers stand in the report as any plugin's do."""
    gone = ("tape", "kerple_weight")
    assert not set(gone) & set(list_encodings())
    truths = {"rope": Truth(1.7), "tape": Truth(1.8), "kerple_weight": Truth(1.85), "tape+alibi": Truth(1.9)}
    run = written(dataclasses.replace(run_of(truths, seeds=2, lengths=(1, 16)), path=tmp_path / "run"))
    assert command(["report", str(run.path), "--out", str(tmp_path / "out")]) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    assert all(f"| {spec} |" in table for spec in truths)


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
