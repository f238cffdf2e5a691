"""The table of tasks, and what is said of it."""

from __future__ import annotations

import re

import pytest

from posenc.catalogue.studies import Study, StudyRow
from tests.findings.reading import DOCS, MARKS, TEXT, named

TASKS = ("passkey", "recall", "flipflop", "counting", "copy")
LINES = TEXT[TEXT.index("## Tasks: ") :].split("\n## ", 1)[0]
SECTION = " ".join(LINES.split())


def cell(study: Study, row: StudyRow) -> str:
    """Per cent at the trained length and at the longest, marked by the verdict."""
    first, last = (row.means.get(times * study.train_length) for times in (1, study.longest))
    assert first is not None
    told = f"{100 * first[0]:.0f} → {'–' if last is None else f'{100 * last[0]:.0f}'}"
    return MARKS.get(row.verdict, "{}").format(told)


def last(task: str, name: str) -> str:
    """Per cent at the longest length."""
    return f"{100 * named(task).rows[name].means[1024][0]:.0f}"


def first(task: str, name: str) -> str:
    """Per cent at the trained length."""
    return f"{100 * named(task).rows[name].means[64][0]:.0f}"


def window(task: str, name: str) -> str:
    """Per cent at the longest length under the row's own window."""
    return f"{100 * named(task).rows[name].window[1024][0]:.0f}"


def with_verdict(task: str, *verdicts: str) -> set[str]:
    return {row.name for row in named(task).rows.values() if row.verdict in verdicts}


@pytest.mark.parametrize("task", TASKS)
def test_the_table_of_tasks(task: str) -> None:
    study = named(task)
    heads, _, *lines = [line.strip("| ").split(" | ") for line in re.findall(r"^\|.+\|$", LINES, re.M)]
    column = heads.index(task)
    said = {line[0]: line[column] for line in lines if len(line) == len(heads)}
    assert said == {name: cell(study, row) for name, row in study.rows.items()}
    assert {row.seeds for row in study.rows.values()} == {3, 5 if task == "passkey" else 10}


def test_what_a_window_gives() -> None:
    near = ("flipflop", "counting", "copy")
    under, bare = ([of(task, "rope") for task in near] for of in (window, last))
    assert (
        f"RoPE under its window of 64 tokens has {under[0]}, {under[1]} and {under[2]} % at 16×, as it is "
        f"{bare[0]}, {bare[1]} and {bare[2]} %"
    ) in SECTION
    far = [named(task).rows.values() for task in ("passkey", "recall")]
    most = [max(row.window[1024][0] for row in rows if row.window) for rows in far]
    assert f"nobody has more than {100 * most[0]:.0f} and {100 * most[1]:.0f} %, guessing 10 and 6 %" in SECTION
    fire = f"FIRE has {window('copy', 'fire')} % of copy and {window('counting', 'fire')} % of counting"
    fire = fire.replace(" of counting", " of counting at 16×")
    assert f"{fire}, sinusoids {window('copy', 'sinusoidal')} and {window('counting', 'sinusoidal')} %" in SECTION
    assert named("recall").rows["fire"].verdict == "holds"


def test_who_keeps_what() -> None:
    assert all("rope" in with_verdict(task, "fails") for task in TASKS)
    kept = [task for task in TASKS if "xpos" in with_verdict(task, "holds", "gains")]
    assert kept == ["copy"]
    unlearnt = {"data_alibi": {"copy"}, "dape": {"passkey"}, "stick-breaking": {"passkey", "copy"}}
    for name, tasks in unlearnt.items():
        assert all(name in with_verdict(task, "holds", "not learnt") for task in TASKS), name
        assert {task for task in TASKS if name in with_verdict(task, "not learnt")} == tasks
    assert {
        name
        for name in named("recall").rows
        if all(name in with_verdict(task, "holds", "not learnt") for task in TASKS)
    } == {*unlearnt, "nope"}
    assert all("nope" in with_verdict(task, "not learnt") for task in TASKS)


def test_rotations_beside_biases() -> None:
    keys, recall, count = (last(task, "alibi") for task in ("passkey", "recall", "counting"))
    bias = f"ALiBi has {keys} % of the pass key, {recall} % of recall and counts to {count} %"
    keys, recall, count = (last(task, "rope+alibi") for task in ("passkey", "recall", "counting"))
    both = f"RoPE + ALiBi {keys}, {recall} and {count} %"
    gate = f"FoX has {last('recall', 'fox')} % of recall, RoPE + FoX {last('recall', 'rope+fox')} %"
    assert f"{bias}, {both}; {gate}" in SECTION
    assert f"ALiBi {first('copy', 'alibi')} % and FoX {first('copy', 'fox')} %" in SECTION
    assert first("copy", "rope+alibi") == first("copy", "rope+fox") == "100"


def test_who_finds_the_pass_key() -> None:
    assert with_verdict("passkey", "holds") == {"data_alibi"}
    assert named("passkey").rows["data_alibi"].seeds == 3
    kept = f"({first('passkey', 'data_alibi')} → {last('passkey', 'data_alibi')} %, three seeds)"
    few = f"KERPLE declines to {last('passkey', 'kerple')} %, ALiBi to {last('passkey', 'alibi')} %"
    assert f"holds the pass key** {kept}; {few}, T5's bias fails ({last('passkey', 't5')} %)" in SECTION
    names = {"Sandwich": "sandwich", "Shaw": "shaw", "and Transformer-XL": "transformer_xl"}
    assert set(names.values()) == with_verdict("passkey", "undecided")
    for words, name in names.items():
        assert f"{words} ({last('passkey', name)} %)" in SECTION
    assert {"kerple", "alibi"} <= with_verdict("passkey", "declines")
    assert "t5" in with_verdict("passkey", "fails")
    table = (DOCS / "results" / "passkey" / "table.md").read_text(encoding="utf-8")
    assert "| fox | 1 of 5 |" in table
    assert "| cope | 1 of 5 |" in table


def steps(task: str, name: str) -> str:
    """The median of the steps that seeds took to learn the task."""
    table = (DOCS / "results" / task / "table.md").read_text(encoding="utf-8")
    return next(line.split(" | ")[2] for line in table.splitlines() if line.startswith(f"| {name} | "))


def test_how_long_it_took() -> None:
    counting = named("counting").rows
    kept = f"({first('counting', 'alibi')} → {last('counting', 'alibi')} %)"
    said = f"half of ALiBi's seeds after {steps('counting', 'alibi')}, and it holds {kept}, half of FoX's after "
    assert said + steps("counting", "fox") in SECTION
    assert "alibi" in with_verdict("counting", "holds")
    told = {name: int(steps("counting", name).replace(",", "")) for name, row in counting.items() if row.learnt}
    assert min(told, key=lambda name: told[name]) == "cope"
    assert f"after {told['cope']} steps" in SECTION
    table = (DOCS / "results" / "recall" / "table.md").read_text(encoding="utf-8")
    assert "| cope | 3 of 10 |" in table


def test_exact_offsets_take_more_steps() -> None:
    long = {
        "stick-breaking": "stick-breaking has",
        "fox": "FoX",
        "kerple": "KERPLE",
        "alibi": "ALiBi",
        "nope": "NoPE stays at",
    }
    for name, words in long.items():
        more, less = first("copy-long", name), first("copy", name)
        assert re.search(rf"{words} {more} %[^(]*\({less} %", SECTION), name
        assert named("copy-long").rows[name].seeds == 3
    ends = [last("copy-long", name) for name in list(long)[:4]]
    assert "at 16× {}, {}, {} and {} %".format(*ends) in SECTION


def test_claims_are_told_as_they_were_judged() -> None:
    lines = [line for line in LINES.splitlines() if line.startswith("| ") and "arXiv" in line]
    told = 0
    for task in TASKS:
        judged = (DOCS / "results" / task / "claims.md").read_text(encoding="utf-8")
        for line in (each for each in judged.splitlines() if each.startswith("| ") and "arXiv" in each):
            _, source, outcome, measured = (cell.strip() for cell in line.strip("| ").split(" | "))
            numbers = re.findall(r"[+−]\d+\.\d ± \d+\.\d", measured)
            (found,) = [each for each in lines if all(number in each for number in numbers)]
            assert source.split(",")[0] in found
            assert f"**{outcome}**" in found
            told += 1
    assert told == sum("**" in line for line in lines)
