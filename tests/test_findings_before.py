"""The findings' numbers of the protocol before the present one are those of its records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")
TASKS = ("passkey", "recall", "flipflop", "counting", "copy")
TIMES = ("1×", "2×", "4×", "8×", "16×", "32×")
TUNED = ("yarn+tuned", "longrope+tuned", "ntk_by_parts+tuned", "llama3+tuned")
FIXED = ("pi+tuned", "clex+tuned", *TUNED)
# What is said of the extension: which rows at which length, less what, in how many digits.
SAID = [
    ("1.722 bits at every length", ["rope+window"], ["2×", "32×"], None),
    ("1.711 after as much more training", ["rope+continued+window"], ["2×", "32×"], None),
    *((f"{name} {bits}", [row], ["4×"], None) for name, bits, row in (
        ("YaRN", "1.93", "yarn"), ("LongRoPE", "1.96", "longrope"), ("NTK-by-parts", "1.95", "ntk_by_parts"),
        ("Llama-3", "1.92 bits", "llama3"), ("nothing at all gives", "4.37", "rope"), ("PI", "4.07", "pi"),
        ("NTK-aware", "3.20", "ntk"),
    )),
    *((f"{name} {bits}", [f"{row}@32"], ["1×"], "rope") for name, bits, row in (
        ("LongRoPE", "0.06", "longrope"), ("NTK", "0.25", "ntk"), ("YaRN", "0.44", "yarn"),
        ("Llama-3", "0.50", "llama3"), ("NTK-by-parts", "0.68", "ntk_by_parts"), ("PI", "3.1 bits", "pi"),
    )),
    ("YaRN, LongRoPE, NTK-by-parts and Llama-3 need 1.75 bits", TUNED, ["8×"], None),
    ("training without any scaling needs 1.78", ["rope+tuned"], ["8×"], None),
    ("PI 1.93", ["pi+tuned"], ["8×"], None),
    ("no scaling at all 2.4", ["rope+tuned"], ["16×"], None),
    ("YaRN stays whole: 1.77", ["dynamic_yarn+tuned"], ["16×"], None),
    ("1.91 at 32×", ["dynamic_yarn+tuned"], ["32×"], None),
    ("NTK 1.92", ["dynamic_ntk+tuned"], ["16×"], None),
    ("and 2.68", ["dynamic_ntk+tuned"], ["32×"], None),
    ("it gives 4.3 bits", ["yarn+tuned"], ["16×"], None),
    ("from 4.6", ["pi"], ["8×"], None),
    ("2.05 at 2×", ["ntk"], ["2×"], None),
    ("2.147", ["longrope"], ["8×"], None),
    ("2.162 at 8× without", ["yarn"], ["8×"], None),
    ("1.747", ["longrope+tuned"], ["8×"], None),
    ("1.748 with", ["yarn+tuned"], ["8×"], None),
    ("1.924", ["yarn+resonance"], ["4×"], None),
    ("1.933 at 4×", ["yarn"], ["4×"], None),
    ("2.207", ["yarn+resonance"], ["8×"], None),
    ("1.775 at 8×", ["clex+tuned"], ["8×"], None),
    ("4.56 at 16×", ["clex+tuned"], ["16×"], None),
]  # fmt: skip


def rows(folder: str) -> dict[str, Any]:
    lines = (DOCS / "results" / folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["encoding"]: row for row in map(json.loads, lines)}


def section(title: str) -> str:
    found = re.search(rf"^##+ {title}.*?(?=^## |\Z)", TEXT, re.M | re.S)
    assert found is not None
    return found[0]


def table(text: str, heads: str) -> list[list[str]]:
    lines = text[text.index(heads) :].splitlines()[2:]
    end = next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


@pytest.mark.parametrize("task", TASKS)
def test_the_table_of_tasks(task: str) -> None:
    found, column = rows(task), 1 + TASKS.index(task)
    said = {line[0]: line[column] for line in table(section("Tasks"), "| encoding | passkey")}
    assert said.keys() == found.keys()
    for name, row in found.items():
        first, last = row["accuracy"]["1×"], row["accuracy"].get("16×")
        numbers = f"{percent(first['mean'])} → {percent(last and last['mean'])}"
        marks = {"holds": "**{}**", "not learnt": "({})"}.get(row["verdict"], "{}")
        assert said[name] == marks.format(numbers), name


def test_the_table_of_addition() -> None:
    found = rows("addition")
    said = {line[0]: line[1:] for line in table(section("Tasks"), "| encoding | sums at 1×")}
    assert said.keys() == found.keys()
    for name, row in found.items():
        digits = [sum(row["other_accuracy_of_seeds"][k]) / row["seeds"] for k in ("1×", "2×", "3×")]
        numbers = [percent(row["accuracy"][k]["mean"]) for k in ("1×", "2×", "3×")] + [percent(one) for one in digits]
        assert said[name] == numbers, name


@pytest.mark.parametrize(("words", "methods", "times", "less"), SAID, ids=[words for words, *_ in SAID])
def test_numbers_of_the_extension(words: str, methods: list[str], times: list[str], less: str | None) -> None:
    assert words in " ".join(section("Extension").split())
    (number,) = re.findall(r"(?<![\d-])\d\.\d+", words)
    digits, found = len(number) - 2, rows("extension")
    for method in methods:
        for k in times:
            bits, at = found[method]["bits_per_byte"], TIMES.index(k)
            value = bits[at] - (found[less]["bits_per_byte"][at] if less else 0)
            assert abs(value - float(number)) <= 0.5 * 10**-digits + 1e-3, (method, k, value)


def test_what_breaks_past_the_fine_tuned_length_and_what_beats_the_window() -> None:
    found = {name: row["bits_per_byte"] for name, row in rows("extension").items()}
    assert all(4.05 <= found[name][4] <= 4.95 for name in FIXED)
    assert "(16×: 4.1 to 4.9 bits; NTK 2.2 and 2.7" in section("Extension")
    lost = [found[name][4] - found[name][0] for name in ("yarn", "longrope")]
    assert "they lose {:.1f} and {:.1f} bits".format(*lost) in " ".join(TEXT.split())
    assert [round(found[name][4], 1) for name in ("ntk+resonance+tuned", "ntk+tuned")] == [2.2, 2.7]
    window, trained = found["rope+window"], found["rope+continued+window"]
    for name, bits in found.items():
        own = trained if "+tuned" in name or "+continued" in name else window
        assert all(each >= least - 1e-6 for each, least in zip(bits[1:], own[1:], strict=True)), name


def test_the_table_of_pictures_and_what_is_said_of_it() -> None:
    found, page = rows("images"), (DOCS / "images.md").read_text(encoding="utf-8")
    columns = ("trained", "token_shift", "+1", "+20", "finer_scaled", "finer_counted", "large_scaled")
    said = {line[0].split(",")[0]: line[1:] for line in table(page, "| encoding | trained | picture moved")}
    assert said.keys() == found.keys()
    for name, row in found.items():
        for column, cell in zip(columns, said[name], strict=True):
            one = row["accuracy"].get(column)
            written = "–" if one is None else "{} ({}–{})".format(*(percent(one[k]) for k in ("mean", "low", "high")))
            assert cell == written, (name, column)
    seeds = {name: row["accuracy_of_seeds"] for name, row in found.items()}
    for name in ("axial", "mixed", "comrope_ap", "comrope_ld"):
        assert seeds[name]["trained"] == seeds[name]["+1"] == seeds[name]["+20"], "a constant changes nothing"
    for name in seeds.keys() - {"nope", "learned_grid"}:
        pairs = zip(seeds[name]["finer_scaled"], seeds[name]["finer_counted"], strict=True)
        assert all(scaled > counted for scaled, counted in pairs), f"{name}: scaled above counted with every seed"
    for name in ("comrope_ap", "comrope_ld"):
        assert min(seeds["liere"]["finer_scaled"]) > max(seeds[name]["finer_scaled"]), "LieRE is above with every seed"


def test_what_a_learning_rate_decides() -> None:
    lines = table((DOCS / "results" / "tuning.md").read_text(encoding="utf-8"), "| encoding | × 1 ")
    (line,) = [each for each in lines if each[0] == "t5"]
    assert f"{float(line[1]) - float(line[3]):.2f} bit" in section("Learning rates")
