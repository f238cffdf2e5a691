"""The findings' sentences of the present protocol say what the recorded comparisons say."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from guide.claimed import outcomes
from guide.orders import table as orders

from posenc.catalogue.studies import Study, studies
from posenc.lab.runs import read_run

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")
RATED = re.compile(r"`([^`]+)` \(([+−]\d+\.\d+)\)")  # a row and its difference


HEADS = {  # sections
    "text": "Text", "text-more": "The slowest to train", "methods": "The newest encodings",
    "prose": "Prose instead of Python", "extension": "Extension of a trained model", "smollm2": "A real model",
}  # fmt: skip
BASELINES = {
    "text": ("rope", "alibi"),
    "text-more": ("rope",),
    "methods": ("rope", "alibi"),
    "prose": ("rope", "alibi"),
}  # at the trained length


def named(name: str) -> Study:
    return next(study for study in studies() if study.name == name)


def lines_about(name: str) -> str:
    """All that is said of a comparison."""
    found = re.search(rf"^## {HEADS[name]}: .*?(?=^## )", TEXT, re.M | re.S)
    assert found is not None
    return found[0]


def about(name: str) -> str:
    """The same on one line."""
    return " ".join(lines_about(name).split())


@pytest.fixture(scope="module")
def text() -> Study:
    return named("text")


@pytest.fixture(scope="module")
def section() -> str:
    return about("text")


def point(section: str, begin: str) -> str:
    """The point of a list that begins with some words in bold."""
    (found,) = re.findall(rf"- \*\*{begin}.*?(?= - \*\*| ###|$)", section)
    return found


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(
    ("begin", "verdict"),
    [("Hold", "holds"), ("Decline", "declines"), ("Fail", "fails"), ("Undecided", "undecided"), ("Gain", "gains")],
)
def test_each_verdict_names_its_rows_and_their_changes(name: str, begin: str, verdict: str) -> None:
    study, section = named(name), about(name)
    rows = {
        spec: signed(next(one.mean for one in row.contrasts if one.against == "1x"))
        for spec, row in study.rows.items()
        if row.verdict == verdict
    }
    said = dict(RATED.findall(point(section, begin))) if rows or f"**{begin}" in section else {}
    assert said == rows


@pytest.mark.parametrize("name", HEADS)
def test_what_has_not_learnt_is_named(name: str) -> None:
    study, section = named(name), about(name)
    said = re.findall(r"`([^`]+)`", point(section, "Not learnt")) if "**Not learnt" in section else []
    assert set(said) == {spec for spec, row in study.rows.items() if row.verdict == "not learnt"}
    assert set(said) == {spec for spec, row in study.rows.items() if not row.learnt}


@pytest.mark.parametrize("name", BASELINES)
def test_means_at_the_trained_length_are_those_of_the_first(name: str) -> None:
    study, section = named(name), about(name)
    said = [float(number) for number in re.findall(r"\d\.\d{3}", point(section, "At the trained length"))]
    first, others = said[: -len(BASELINES[name])], said[-len(BASELINES[name]) :]
    assert first == [round(row.means[64][0], 3) for row in study.ranked(1)[: len(first)]]
    assert others == [round(study.rows[spec].means[64][0], 3) for spec in BASELINES[name]]


def test_nothing_is_better_than_under_its_own_window(text: Study, section: str) -> None:
    said = point(section, "A window of the trained length")
    for name in ("rope", "t5", "shaw", "xpos", "fire", "proportional", "ssmax", "sinusoidal"):
        assert f"{text.rows[name].window[1024][0]:.3f}" in said, name
    for row in text.rows.values():
        assert all(one.mean > -0.02 for one in row.contrasts if one.against == "own window"), row.name
    names = {"fire", "proportional", "ssmax", "sinusoidal"}
    risen = {name: row.window[1024][0] - row.means[64][0] for name, row in text.rows.items() if row.window}
    assert names == {name for name, bits in risen.items() if bits > 0.3}


@pytest.mark.parametrize("name", HEADS)
def test_what_beats_rope_under_its_window_is_beyond_chance(name: str) -> None:
    study, section = named(name), about(name)
    rows = {
        spec: signed(one.mean)
        for spec, row in study.rows.items()
        for one in row.contrasts
        if one.against == "rope under its window" and one.claimed and one.mean < 0
    }
    assert dict(RATED.findall(point(section, "Better than RoPE under its window"))) == rows


@pytest.mark.parametrize("name", HEADS)
def test_claims_are_told_as_they_were_judged(name: str) -> None:
    section = about(name)
    judged = (DOCS / "results" / name / "claims.md").read_text(encoding="utf-8")
    lines = [line for line in judged.splitlines() if line.startswith("| ") and "arXiv" in line]
    points = [line for line in TEXT.splitlines() if "arXiv" in line]
    for line in lines:
        _, source, outcome, measured = (cell.strip() for cell in line.strip("| ").split(" | "))
        (number,) = re.findall(r"arXiv (\d{4}\.\d{5})", source)
        numbers = re.findall(r"[+−]\d\.\d{3} ± \d\.\d{3}", measured)
        assert all(each in section for each in numbers), (number, numbers)
        told = [each for each in points if number in each]
        assert not told or any(f"**{outcome}**" in each or f"{outcome} here" in each for each in told), line


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
    assert all(each in section for each in re.findall(r"[+−]\d\.\d{3} ± \d\.\d{3}", dape.words))


GRID = {  # the comparisons of one table, by its columns
    "Python, 400 steps": "text", "Python, 1,600 steps": "text-long",
    "prose, 400 steps": "prose", "prose, 1,600 steps": "prose-long",
}  # fmt: skip


def test_the_table_of_texts_and_budgets() -> None:
    lines = re.findall(r"^\| (.+) \|$", lines_about("prose"), re.M)
    _, *columns = lines[0].split(" | ")
    recorded = {one.name for one in studies()}
    assert columns == [column for column, name in GRID.items() if name in recorded]
    shown = {"holds": "**{}**", "gains": "**{}**", "not learnt": "({})"}
    told = [line.split(" | ") for line in lines[2:] if "→" in line]
    assert {first.strip("`") for first, *_ in told} == {*named("prose").rows, "rope` under its window"}
    for first, *cells in told:
        for column, cell in zip(columns, cells, strict=True):
            row = named(GRID[column]).rows[first.split("`")[1]]
            windowed = "under its window" in first
            last = (row.window if windowed else row.means)[1024][0]
            form = "{}" if windowed else shown.get(row.verdict, "{}")
            assert cell == form.format(f"{row.means[64][0]:.3f} → {last:.3f}"), (first, column)


def test_what_is_said_of_prose(text: Study) -> None:
    prose, section = named("prose"), about("prose")
    assert all(row.seeds == 5 for row in prose.rows.values())
    assert all(row.verdict == text.rows[name].verdict for name, row in prose.rows.items()), "every verdict"
    assert (
        f"({prose.rows['rope'].window[1024][0]:.3f} at 16×), and FIRE not ({prose.rows['fire'].window[1024][0]:.3f})"
        in section
    )


def test_the_table_of_orders() -> None:
    assert orders() in TEXT


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


def test_the_table_of_the_extension() -> None:
    study = named("extension")
    lines = re.findall(r"^\| `([^`]+)`( under its window)? \|(.+)\|$", lines_about("extension"), re.M)
    assert len(lines) >= 14
    for name, windowed, cells in lines:
        row = study.rows[name]
        means = row.window if windowed else row.means
        said = [cell.strip() for cell in cells.split("|")]
        there = [means.get(times * study.train_length) for times in (1, 2, 4, 8, 16)]
        assert said == ["–" if one is None else f"{one[0]:.3f}" for one in there], name


def test_what_is_said_of_the_extension() -> None:
    study, section = named("extension"), about("extension")
    length, rows = study.train_length, study.rows
    window = rows["rope"].window[16 * length][0]
    least = min(one.means[k * length][0] for one in rows.values() for k in (2, 4, 8, 16))
    assert window - least < 0.002, "nothing beats the window"
    lost = [rows[name].means[16 * length][0] - rows[name].means[length][0] for name in ("yarn", "longrope")]
    assert "they lose {:.1f} and {:.1f} bits".format(*lost) in " ".join(TEXT.split())
    at = {name: one.means[4 * length][0] for name, one in rows.items() if "+tuned" not in name and "@" not in name}
    scaled = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", "longrope")
    assert max(at[name] for name in ("self_extend", "leaky_rerope", "dual_chunk")) < min(at[name] for name in scaled)
    assert min(scaled, key=at.__getitem__) == "longrope"
    for times, names in (
        (4, ("self_extend", "leaky_rerope", "dual_chunk", *scaled[:4], "longrope")),
        (16, ("clipped",)),
    ):
        assert all(f"{rows[name].means[times * length][0]:.3f}" in section for name in names)
    for name, times in (
        ("yarn+tuned", 8), ("longrope+tuned", 8), ("ntk_by_parts+tuned", 8), ("rope+tuned", 8), ("pi+tuned", 8),
        ("yarn+tuned", 16), ("dynamic_yarn+tuned", 16), ("clex+tuned", 8), ("clex+tuned", 16),
    ):  # fmt: skip
        assert f"{rows[name].means[times * length][0]:.3f}" in section
    assert f"costs {rows['rerope'].means[length][0] - rows['rope'].means[length][0]:.3f} bits" in section


def test_the_table_of_the_real_model() -> None:
    study, records = named("smollm2"), read_run(DOCS / "results" / "smollm2").records
    trained, cut = study.train_length, study.rows["rope"].means[study.train_length][0]
    lengths = sorted({n for row in study.rows.values() for n in row.means if n >= trained})
    lines = re.findall(r"^\| `([^`]+)`( under its window)? \|(.+)\|$", lines_about("smollm2"), re.M)
    assert {name for name, _, _ in lines} == set(study.rows)
    for name, windowed, cells in lines:
        row = study.rows[name]
        means = {trained: row.means[trained], **row.window} if windowed else row.means
        own = records[(records["spec"] == name) & (records["view"] == ("window" if windowed else "full"))]
        keys = own[own["metric"] == "passkey_by_depth"]
        every = [keys[keys["length"] == n]["value"] for n in lengths[1:]]
        far = [keys[(keys["length"] == n) & keys["item"].isin([10, 30])]["value"] for n in lengths[1:]]
        losses = [signed(means[n][0] - cut) if n in means else "–" for n in lengths]
        there = [*losses, *(f"{100 * part.mean():.0f}" if len(part) else "–" for part in (*every, *far))]
        assert [cell.strip() for cell in cells.split("|")] == there, (name, windowed)
    assert f"with its last {trained:,} tokens alone ({cut:.3f})" in about("smollm2")


def test_what_is_said_of_the_real_model() -> None:
    study, section = named("smollm2"), about("smollm2")
    trained, rows = study.train_length, study.rows
    cut = rows["rope"].means[trained][0]
    yarn = rows["yarn"].means[trained * 3 // 2][0] - cut
    assert yarn < 0.05, "YaRN without training, at one and a half trained lengths"
    assert f"YaRN at 12,288 tokens costs {signed(yarn)}" in section
    window = rows["rope"].window[trained * 3 // 2][0] - cut
    small = named("extension").rows["rope"]
    less = small.window[128][0] - small.means[64][0]
    assert f"costs {signed(window)} here and {signed(less)} bits" in section
    for name in ("yarn", "llama3", "dynamic_ntk"):
        assert f"{signed(rows[name].means[4 * trained][0] - cut)} ±" in section, name
    records = read_run(DOCS / "results" / "smollm2").records
    header = records[(records["metric"] == "nats_headers") & (records["view"] == "full")]
    whole = header[(header["spec"] == "self_extend") & (header["length"] == 4 * trained)]["value"].item()
    alone = header[(header["spec"] == "rope") & (header["length"] == trained)]["value"].item()
    assert f"the C++ header ({whole:.3f} nats against {alone:.3f} of the text that is cut)" in section


def test_what_is_said_of_the_progressive_extension() -> None:
    record = json.loads((DOCS / "results" / "smollm2" / "progressive.json").read_text(encoding="utf-8"))
    before, after = (
        {n: sum(one["windows"]) / len(one["windows"]) for n, one in record[when].items()}
        for when in ("before", "after")
    )
    section, cut = about("smollm2"), before["8192"]
    assert f"had {cut:.3f} nats at 8,192 tokens and {before['12288']:.3f} at 12,288" in section
    said = [f"{after[n]:.3f} ({signed(after[n] - cut)}" for n in ("8192", "12288")]
    assert f"afterwards it has {said[0]}) and {said[1]} against the text that is cut)" in section
    assert f"the longer text costs {signed(after['12288'] - after['8192'])}." in section
    recipe = record["request"]["recipe"]
    assert (recipe["intermediate"], recipe["steps"], recipe["tokens"], recipe["seed"]) == (10240, 40, 1024, 0)
