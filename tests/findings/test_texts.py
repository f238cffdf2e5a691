"""What is said of texts beyond the verdicts: windows, sizes, costs, prose, and who agrees with whom."""

from __future__ import annotations

import csv
import math
import re

import pytest
from guide.claimed import outcomes
from guide.orders import orders as pairs
from guide.orders import table as orders

from posenc.catalogue.studies import Study, studies
from posenc.lab.report.render import claim_evidence
from posenc.lab.runs import read_run
from tests.findings.reading import DOCS, MARKS, TEXT, about, named, point, signed


@pytest.fixture(scope="module")
def text() -> Study:
    return named("text")


@pytest.fixture(scope="module")
def section() -> str:
    return about("text")


def test_nothing_is_better_than_under_its_own_window(text: Study, section: str) -> None:
    said = point(section, "A window of the trained length")
    for name in ("rope", "t5", "shaw", "xpos", "fire", "proportional", "ssmax", "sinusoidal"):
        assert f"{text.rows[name].window[1024][0]:.3f}" in said, name
    for row in text.rows.values():
        assert all(one.mean > -0.02 for one in row.contrasts if one.against == "own window"), row.name
    names = {"fire", "proportional", "ssmax", "sinusoidal"}
    risen = {name: row.window[1024][0] - row.means[64][0] for name, row in text.rows.items() if row.window}
    assert names == {name for name, bits in risen.items() if bits > 0.3}


def test_the_size_that_is_stated(text: Study, section: str) -> None:
    assert f"## Text: {len(text.rows)} lists" in section
    fewer = {name for name, row in text.rows.items() if row.seeds != 3}
    assert fewer == {"transformer_xl"}
    assert "Transformer-XL has one seed in this table and three in" in section
    assert text.rows["transformer_xl"].seeds == 1
    assert f"it has hardly learnt ({text.rows['nope'].means[64][0]:.3f} bits)" in section
    four = [f"{text.rows[name].means[length][0]:.3f}" for name in ("rope", "sinusoidal") for length in (64, 256)]
    assert "`rope` from {} to {} and `sinusoidal` from {} to {}".format(*four) in " ".join(TEXT.split())


def test_what_is_said_of_the_slowest_to_train(text: Study) -> None:
    more, section = named("text-more"), about("text-more")
    assert {row.seeds for row in more.rows.values()} == {3}
    records = [read_run(DOCS / "results" / name).records for name in ("text", "text-more")]
    bits = [one.query("spec == 'rope' and metric == 'bits'") for one in records]
    keys = ["seed", "view", "length", "item", "document"]
    both = bits[0].astype({"view": str}).merge(bits[1].astype({"view": str}), on=keys)
    assert f"each of its {len(both):,} numbers is within 0.0001 bits" in section
    assert (both["value_x"] - both["value_y"]).abs().max() < 0.0001
    path = more.rows["path"]
    (worse,) = [one for one in path.contrasts if one.against == "rope under its window"]
    assert f"({signed(worse.mean)} ± {(worse.high - worse.low) / 2:.3f})" in section
    assert f"of its own it loses {path.window[1024][0] - path.means[64][0]:.3f} bits" in section
    (dape,) = [one for one in outcomes() if one.claim.source.startswith("Zheng")]
    assert f"**{dape.outcome}**: at 16×" in section
    assert all(each in section for each in re.findall(r"[+−]\d\.\d{3} ± \d\.\d{3}", claim_evidence(dape)))


def test_what_the_newest_encodings_do_under_a_window() -> None:
    rows, section = named("methods").rows, about("methods")
    said = point(section, "What is added to the scores")
    for name in ("pope", "rope_pp", "clipped", "tape", "fope"):
        assert f"{rows[name].window[1024][0]:.3f}" in said, name
    turning = {name for name, row in rows.items() if row.verdict == "fails"}
    lost = {name: rows[name].window[1024][0] - rows[name].means[64][0] for name in turning}
    assert round(max(bits for name, bits in lost.items() if name != "fope"), 3) == 0.033
    assert lost["fope"] > 0.2
    beyond = {name for name, row in rows.items() for one in row.contrasts if one.against == "alibi" and one.claimed}
    assert {name for name in beyond if rows[name].means[1024][0] < rows["alibi"].means[1024][0]} == {
        "fox", "kerple+kerple_weight", "grape_a",
    }  # fmt: skip


GRIDS = {  # the comparisons of each table, by its columns
    "| encoding | Python, 400 steps": {
        "Python, 400 steps": "text", "Python, 1,600 steps": "text-long",
        "prose, 400 steps": "prose", "prose, 1,600 steps": "prose-long",
    },
    "| encoding | 0.25 million": {"0.25 million": "text", "0.87 million": "text-1M", "4.15 million": "text-4M"},
}  # fmt: skip
GRID = GRIDS["| encoding | Python, 400 steps"]


@pytest.mark.parametrize("begin", GRIDS)
def test_the_tables_of_texts_budgets_and_sizes(begin: str) -> None:
    lines = re.findall(r"^\| (.+) \|$", TEXT[TEXT.index(begin) :].split("\n\n", 1)[0], re.M)
    _, *columns = lines[0].split(" | ")
    recorded = {one.name for one in studies()}
    assert columns == [column for column, name in GRIDS[begin].items() if name in recorded]
    told = [line.split(" | ") for line in lines if "→" in line]
    last_of_all = named(GRIDS[begin][columns[-1]])
    assert {first.strip("`") for first, *_ in told} == {*last_of_all.rows, "rope` under its window"}
    for first, *cells in told:
        for column, cell in zip(columns, cells, strict=True):
            row = named(GRIDS[begin][column]).rows[first.split("`")[1]]
            windowed = "under its window" in first
            last = (row.window if windowed else row.means)[1024][0]
            form = "{}" if windowed else MARKS.get(row.verdict, "{}")
            assert cell == form.format(f"{row.means[64][0]:.3f} → {last:.3f}"), (first, column)


def test_what_is_said_of_prose(text: Study) -> None:
    prose, section = named("prose"), about("prose")
    assert all(row.seeds == 5 for row in prose.rows.values())
    assert all(row.verdict == text.rows[name].verdict for name, row in prose.rows.items()), "every verdict"
    assert (
        f"({prose.rows['rope'].window[1024][0]:.3f} at 16×), and FIRE not ({prose.rows['fire'].window[1024][0]:.3f})"
        in section
    )


def test_what_is_said_of_prose_at_four_times_the_steps() -> None:
    prose, long, section = named("prose"), named("prose-long"), about("prose-long")
    assert all(row.seeds == 5 and row.learnt for row in long.rows.values())
    ahead = [
        {name: c.mean for name, row in one.rows.items() for c in row.contrasts if c.claimed and c.mean < 0
         if c.against == "rope under its window"}
        for one in (prose, long)
    ]  # fmt: skip
    assert ahead[0].keys() == ahead[1].keys()
    assert len(ahead[0]) == 4
    assert "the same four as after 400 steps" in section
    assert f"{-min(ahead[0].values()):.3f} to {-max(ahead[0].values()):.3f} ahead" in section
    table = (DOCS / "results" / "prose-long" / "table.md").read_text(encoding="utf-8")
    assert "| nope | 5 of 5 |" in table
    open_there = {"2108.12409": "alibi", "2212.10554": "xpos"}
    for number, name in open_there.items():
        of_it = [one for one in claims_of("text-long") if number in one and f" {name} " in one]
        assert [one.split(" | ")[2] for one in of_it] == ["not found here"]
    for here in ("supported", "contradicted"):
        assert count(here, "prose-long") == count(here, "text-long") + (2 if here == "supported" else 0)


def claims_of(name: str) -> list[str]:
    lines = (DOCS / "results" / name / "claims.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and "arXiv" in line]


def count(outcome: str, name: str) -> int:
    return sum(f" | {outcome} | " in line for line in claims_of(name))


def test_what_four_times_the_steps_change(text: Study) -> None:
    long, section = named("text-long"), about("text-long")
    assert all(row.seeds == 5 and row.learnt for row in long.rows.values())
    said = point(section, "What others had before RoPE")
    for name in ("fox", "kerple", "t5", "stick-breaking"):
        first, last = (s.rows["rope"].means[64][0] - s.rows[name].means[64][0] for s in (text, long))
        apart = r"(?: bits before it at the trained length, after 1,600 it is| and)"
        assert re.search(rf"{first:.3f}{apart} {last:.3f}", said), name
    beyond = {name: c for name, row in long.rows.items() for c in row.at_first if c.against == "rope" and c.claimed}
    assert {name for name, c in beyond.items() if c.mean < 0} == {"t5", "stick-breaking"}
    assert not text.rows["nope"].learnt
    lines = (DOCS / "results" / "text-long" / "table.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("| nope | 3 of 5 |") for line in lines)
    assert "Of five NoPE models three come within 0.5 bits" in said
    said = point(section, "What breaks, breaks more")
    for name in ("rope", "xpos", "fire", "rope+alibi"):
        before, after = (next(c.mean for c in s.rows[name].contrasts if c.against == "1x") for s in (text, long))
        assert after > before
        assert f"by {after:.3f}" in said
        assert f"{before:.3f}" in said


def test_the_table_of_orders(text: Study) -> None:
    assert orders() in TEXT
    part = " ".join(TEXT[TEXT.index("## Do other texts") :].split("\n## ", 1)[0].split())
    least = min(min(each.first.value, each.last.value) for each in pairs())
    assert f"in no pair is τ below {math.floor(100 * least) / 100:.2f}" in part
    gaps = [
        one.rows["rope"].window[1024][0] - one.ranked(16)[0].means[1024][0]
        for one in (text, named("text-long"), named("prose"), named("prose-long"))
    ]
    assert "shrinks from {:.3f} to {:.3f} bits on Python, and from {:.3f} to {:.3f} in prose".format(*gaps) in part


def test_what_a_larger_model_changes(text: Study) -> None:
    million, section = named("text-1M"), about("text-1M")
    assert {row.seeds for row in million.rows.values()} == {3}
    table = (DOCS / "results" / "text-1M" / "table.md").read_text(encoding="utf-8")
    (least, most), *_ = re.findall(r"models of ([\d,]+) to ([\d,]+) parameters", table)
    assert [f"{int(one.replace(',', '')) / 1e6:.2f} million" for one in (least, most)] == ["0.87 million"] * 2
    assert "models of 0.87 million parameters" in section
    assert "models of 4.15 million parameters" in (DOCS / "results" / "text-4M" / "table.md").read_text(
        encoding="utf-8"
    )
    changed = {name for name, row in million.rows.items() if row.verdict != text.rows[name].verdict}
    assert changed == {"t5"}
    assert text.rows["t5"].verdict == "holds"
    assert "which holds in the small models" in section


def test_what_the_largest_models_show(text: Study) -> None:
    largest, section = named("text-4M"), about("text-4M")
    assert {row.seeds for row in largest.rows.values()} == {2}
    baselines = ("alibi", "rope under its window")
    planned = [one for row in largest.rows.values() for one in row.contrasts if one.against in baselines]
    assert planned
    assert not any(one.claimed for one in planned)
    changes = [
        signed(next(one.mean for one in study.rows["t5"].contrasts if one.against == "1x"))
        for study in (text, named("text-1M"), largest)
    ]
    assert "({}, {} and {} at 16×); the last two are undecided".format(*changes) in section
    assert named("text-1M").rows["t5"].verdict == largest.rows["t5"].verdict == "undecided"
    found = {(each.one.name, each.other.name): each for each in pairs()}
    part = " ".join(TEXT[TEXT.index("## Do other texts") :].split("\n## ", 1)[0].split())
    quick, small = found["quick", "text-4M"], found["text", "text-4M"]
    assert f"at the trained length (τ = {quick.first.value:.2f}) and nearly at 16× ({quick.last.value:.2f})" in part
    assert f"nearly theirs ({small.first.value:.2f} and {small.last.value:.2f}, of eight)" in part
    assert [quick.first.encodings, small.first.encodings] == [7, 8]
    least = min(min(one.first.value, one.last.value) for one in pairs() if one.one.name == "quick")
    minutes = TEXT[TEXT.index("## Minutes instead") :].split("\n## ", 1)[0]
    assert f"{math.floor(100 * least) / 100:.2f} or more" in minutes


def test_who_holds_at_both_budgets_and_on_both_texts(text: Study) -> None:
    every = [named(name) for name in GRID.values() if name in {one.name for one in studies()}]
    hold = {name for name in named("prose").rows if all(one.rows[name].verdict == "holds" for one in every)}
    assert hold == {"stick-breaking", "fox", "kerple"}
    assert "stick-breaking, FoX or KERPLE where the whole text counts" in " ".join(TEXT.split())
    for name in ("t5", "alibi"):
        assert [one.rows[name].verdict for one in every] == ["holds", "undecided", "holds", "holds"]


def test_what_encodings_cost() -> None:
    lines = csv.DictReader((DOCS / "results" / "quick" / "cost.csv").read_text(encoding="utf-8").splitlines())
    there = {
        line["spec"]: float(line["relative"]) for line in lines if (line["pass"], line["length"]) == ("forward", "1024")
    }
    said = re.findall(r"(\d+) % (more|less) with ([\w-]+)", " ".join(TEXT.split()))
    names = {"RoPE": "rope", "ALiBi": "alibi", "stick-breaking": "stick-breaking", "FoX": "fox"}
    assert {names[name]: int(percent) * (1 if word == "more" else -1) for percent, word, name in said} == {
        name: round(100 * (there[name] - 1)) for name in names.values()
    }
    assert ("less time than FoX" in " ".join(TEXT.split())) == (there["stick-breaking"] < there["fox"])
