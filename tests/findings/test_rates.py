"""The page on learning rates and what the findings say of it, beside every trial."""

from __future__ import annotations

import csv
import re

import pytest

from posenc.catalogue import info
from posenc.lab.tune.trials import WORTHWHILE
from tests.findings.reading import DOCS, TEXT, named

RESULTS = DOCS / "results"
PAGE = (RESULTS / "tuning.md").read_text(encoding="utf-8")


def trials(folder: str) -> list[dict[str, str]]:
    with (RESULTS / folder / "trials.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def losses() -> dict[str, dict[str, float]]:
    """By encoding and the multiplier of its own rate as it is written."""
    found: dict[str, dict[str, float]] = {}
    for trial in trials("tuning"):
        found.setdefault(trial["spec"], {})[f"{float(trial['own']):.3g}"] = float(trial["train_loss"])
    return found


def table(begin: str) -> list[list[str]]:
    """Heads, then lines."""
    lines = PAGE[PAGE.index(begin) :].split("\n\n", 1)[0].splitlines()
    return [line.strip("| ").split(" | ") for line in (lines[0], *lines[2:])]


def told(values: dict[str, float]) -> list[str]:
    """As the tables have them, the best in bold."""
    best = min(values.values())
    return [f"**{value:.3f}**" if value == best else f"{value:.3f}" for value in values.values()]


def test_the_table_of_own_rates() -> None:
    heads, *lines = table("| encoding | × 1 ")
    shown = [head.removeprefix("× ") for head in heads[1:4]]
    assert {name: cells for name, *cells in lines} == {
        name: [*told({head: one[head] for head in shown}), f"{info(name).encoding.lr_multiplier:g}"]
        for name, one in losses().items()
    }


def test_where_the_multiplier_of_the_catalogue_is_not_the_best() -> None:
    gains = {}
    for name, one in losses().items():
        given = one[f"{info(name).encoding.lr_multiplier:g}".replace("30", "31.6")]
        gains[name] = (given - min(one.values())) / given
    assert {name for name, gain in gains.items() if gain > WORTHWHILE} == {"shaw", "data_alibi"}
    for name, multiplier in (("shaw", "31.6"), ("data_alibi", "10")):
        assert min(losses()[name].values()) == losses()[name][multiplier]
        assert f"`{name}`, which × {multiplier} gives {100 * gains[name]:.1f} %" in PAGE


def test_the_table_of_common_rates() -> None:
    heads, *lines = table("| encoding | 0.0005 ")
    assert {name for name, *_ in lines} == {"rope", "alibi"}
    for name, *cells in lines:
        of_it = {float(one["lr"]): float(one["train_loss"]) for one in trials("methods") if one["spec"] == name}
        ordered = dict(sorted(of_it.items()))
        assert [float(head) for head in heads[1:]] == pytest.approx([0.002 * lr for lr in ordered], abs=1e-5)
        assert cells == told(ordered)


def test_what_a_learning_rate_decides() -> None:
    section = " ".join(TEXT[TEXT.index("## Learning rates") :].split("\n## ", 1)[0].split())
    t5 = losses()["t5"]
    gain = f"{t5['1'] - t5['31.6']:.2f} bits"
    learnt = [row.means[64][0] for row in named("text").rows.values() if row.learnt]
    between = max(learnt) - min(learnt)
    assert t5["1"] - t5["31.6"] > between
    assert f"learns {gain} between" in section
    assert f"of the lists that learn ({between:.2f})" in section
    assert f"it decides {gain}" in " ".join(PAGE.split())
    assert all(min(losses()[name].values()) == losses()[name]["1"] for name in ("fox", "path"))


def test_the_text_is_that_of_the_first_table() -> None:
    (there,) = re.findall(r"SHA-256 ([0-9a-f]{64})", PAGE)
    assert there in (RESULTS / "text" / "run.json").read_text(encoding="utf-8")
