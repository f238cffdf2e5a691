"""docs/engine-table.md: which rotations each engine computes correctly, from the records of the bench.

``engine_causes.json`` has, by engine, version and rows, the line of the engine's source that decides, and what it does;
everything else comes from the records, which have every case, remedy and figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import NAMES as ADAPTERS
from benchmarks.engines.check import Cell, Engine, committed, worst
from benchmarks.engines.table import REFERENCE

from guide.records import ROOT
from posenc.hf.serving.table import SPELLINGS, TITLES

CAUSES = Path(__file__).with_name("engine_causes.json")
RESULTS = ROOT / "benchmarks" / "results"
_WRONG = ("off", "ignored", "refused")
_UNTESTED = "–"
_REMEDIES = 3  # of a cause that the page names; the records have all


@cache
def _causes() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(CAUSES.read_text(encoding="utf-8")))


def cause_of(cell: Cell) -> dict[str, Any] | None:
    """The entry of ``engine_causes.json`` for a wrong cell: the first whose conditions all hold."""
    conditions = {
        "rows": cell.row, "spellings": cell.spelling, "states": cell.state, "texts": cell.text, "models": cell.model,
    }  # fmt: skip
    for cause in _causes():
        if (cause["engine"], cause["version"]) == (cell.engine, cell.version) and all(
            value in cause.get(key, (value,)) for key, value in conditions.items()
        ):
            return cause
    return None


def _newest() -> tuple[list[Engine], list[Cell]]:
    """Heads and cells of each engine's newest record, in the order of the adapters, without transformers' own."""
    heads, cells = committed()
    newest: dict[str, Engine] = {}
    for head in sorted(heads, key=lambda head: head.date):
        newest[head.engine] = head
    chosen = [newest[name] for name in ADAPTERS if name in newest and name != REFERENCE]
    known = {head[:2] for head in chosen}
    return chosen, [cell for cell in cells if (cell.engine, cell.version) in known]


def wrong_cells() -> list[Cell]:
    """The cells of the newest records in which an engine differs from transformers."""
    return [cell for cell in _newest()[1] if cell.state in _WRONG]


def engine_page() -> str:
    """Markdown of docs/engine-table.md."""
    heads, cells = _newest()
    matrix = f'<div class="matrix" markdown="1">\n\n{_table(heads, cells)}\n\n</div>'
    parts = [_INTRODUCTION, "## The table", _legend(), matrix, "## Versions", _versions(heads, cells)]
    parts += ["## What is wrong, and what to do instead", _REMEDIES_INTRODUCTION]
    for head in heads:
        wrong = [cell for cell in cells if cell.engine == head.engine and cell.state in _WRONG]
        if wrong:
            parts += [f"### {TITLES.get(head.engine, head.engine)} {head.version}", _causes_of(wrong)]
    return "\n\n".join([*parts, _evidence(cells)]) + "\n"


_INTRODUCTION = (
    "# Which rotations does each engine compute correctly?\n\n"
    "Each engine's own code ran on tiny configurations of every rope type, key and spelling, on a CPU, and the "
    "result was compared with transformers. [Engines](engines.md) describes the check, how to run it on your "
    "engine or your config, and how to add an engine.\n\n"
    "**A number is the largest error.** For a rotary class, the error of gain · cos and gain · sin: at a gain of 1 it "
    "is at most 2. For a whole model with random weights, the error of the logits, divided by the largest logit."
)
_REMEDIES_INTRODUCTION = (
    "One line per cause: the rope types, the model types and keys that were wrong, what the engine's source does, and "
    "the remedy that was correct when it was run in that engine on the same case. Changed keys go into config.json, or "
    "into the flag that is named. `posenc serve`, `posenc extend` and `posenc recommend --engine` print no "
    "command for these cells; `posenc engines check --checkpoint MODEL` lists the cells of your model."
)


def _versions(heads: Iterable[Engine], cells: Sequence[Cell]) -> str:
    lines = [
        "| engine | version | what ran | compared | date | correct | wrong | disputed | not tested |",
        "|" + "---|" * 9,
    ]
    for head in heads:
        counts = {
            state: sum(cell.engine == head.engine and cell.state in states for cell in cells)
            for state, states in (("right", ("right",)), ("wrong", _WRONG), ("disputed", ("disputed",)),
                                  ("not tested", ("not run",)))
        }  # fmt: skip
        numbers = " | ".join(str(count) for count in counts.values())
        what = "logits" if head.measures == "logits" else "gain · cos, gain · sin"
        name = TITLES.get(head.engine, head.engine)
        lines.append(f"| {name} | {head.version} | {head.code} | {what} | {head.date} | {numbers} |")
    reference = " · ".join(dict.fromkeys(head.reference for head in heads))
    return "\n".join(lines) + (
        f"\n\nReference: {reference}, where these agree to 1e-6 with each other and with the formula of the rope "
        "type's authors ([reference values](#reference-values)). The last four columns count configurations. "
        "For llama.cpp the version belongs to the package llama_cpp_python, whose vendored llama.cpp ran."
    )


def _legend() -> str:
    return (
        "- ✓: equal to the reference within 3e-4 (cos and sin) or 1e-3 (logits).\n"
        "- A number: the largest error. *other width*: another number of channels is rotated.\n"
        "- *ignored*: the result is correct for the same config without that key, or without any scaling.\n"
        "- *refused*: the engine raises an error.\n"
        "- *disputed*: posenc, transformers and the authors' code differ ([which](#reference-values)).\n"
        "- –: not tested.\n\n"
        "Each cell shows the worst result of the model types tested; if only some are wrong, their names follow in "
        "brackets. Keys: v4 is `rope_theta` with `rope_scaling`, v5 is `rope_parameters`, both is a config "
        "with both; *nested* blocks are in `text_config`. Rows that no engine was tested on are left out."
    )


def _table(heads: Sequence[Engine], cells: Sequence[Cell]) -> str:
    """Rows by keys; spellings with the same results share a line, and rows without a result are left out."""
    names = [TITLES.get(head.engine, head.engine) for head in heads]
    lines = ["| rope type | keys | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 2)]
    for row in dict.fromkeys(cell.row for cell in cells):
        fields: dict[tuple[str, ...], list[str]] = {}
        for spelling in SPELLINGS:
            here = [cell for cell in cells if (cell.row, cell.spelling) == (row, spelling)]
            if here:
                answers = tuple(_field([cell for cell in here if cell.engine == head.engine]) for head in heads)
                fields.setdefault(answers, []).append(spelling)
        lines += [
            f"| {row} | {', '.join(keys)} | " + " | ".join(answers) + " |"
            for answers, keys in fields.items() if set(answers) != {_UNTESTED}
        ]  # fmt: skip
    return "\n".join(lines)


def _field(cells: Sequence[Cell]) -> str:
    answered = [cell for cell in cells if cell.state != "not run"]
    if not answered:
        return _UNTESTED
    cell = worst(answered)
    if cell.state == "right":
        return "✓"
    number = "" if cell.gap is None else f"{cell.gap:.2g}"
    words = {"off": number or "*other width*", "ignored": f"*ignored* {number}".rstrip()}.get(
        cell.state, f"*{cell.state}*"
    )
    wrong = dict.fromkeys(other.model for other in answered if other.state != "right")
    return words if len(wrong) == len({other.model for other in answered}) else f"{words} ({', '.join(wrong)})"


def _causes_of(cells: Sequence[Cell]) -> str:
    """A line for each cause of an engine's wrong cells."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(json.dumps(cause_of(cell)), []).append(cell)
    return "\n".join(_cause_line(json.loads(text), members) for text, members in groups.items())


def _cause_line(cause: Mapping[str, Any] | None, cells: Sequence[Cell]) -> str:
    rows = "; ".join(dict.fromkeys(cell.row for cell in cells))
    models = ", ".join(dict.fromkeys(cell.model for cell in cells))
    keys = ", ".join(dict.fromkeys(cell.spelling for cell in cells))
    figure = worst(cells).gap
    number = "" if figure is None else f"; up to {figure:.2g}"
    why = "" if cause is None else f" {cause['cause']} ([{_line(cause)}]({_url(cause)}))"
    remedies = remedies_of(cells)
    more = f"; and {len(remedies) - _REMEDIES} more" if len(remedies) > _REMEDIES else ""
    alternatives = f" Instead: {'; or '.join(remedies[:_REMEDIES])}{more}." if remedies else ""
    left = sum((cell.remedy or {"how": "none"})["how"] == "none" for cell in cells)
    nothing = f" No remedy found for {f'{left} of the cases' if remedies else 'it'}." if left else ""
    return f"- **{rows}** ({models}; {keys}{number}):{why}{alternatives}{nothing}"


def remedies_of(cells: Iterable[Cell]) -> list[str]:
    """What makes wrong cells right, with the lengths of texts where it holds for these alone."""
    lengths: dict[str, list[str]] = {}
    for cell in cells:
        remedy = cell.remedy or {"how": "none"}
        if remedy["how"] != "none":
            flag = next(iter(remedy.get("flags", ())), "posenc")
            what = f"{remedy['what']}{'' if flag == 'posenc' else f' ({_code(flag)})'}"
            lengths.setdefault(what, []).append(remedy.get("only") or "")
    return [
        what if "" in only else f"{what}, for texts of {' or '.join(dict.fromkeys(only))} only"
        for what, only in lengths.items()
    ]


def _url(cause: Mapping[str, Any]) -> str:
    return f"https://github.com/{cause['link']}"


def _line(cause: Mapping[str, Any]) -> str:
    """The name of the line that a link leads to."""
    if "package_line" in cause:  # a line of the package, in a file of which no release is tagged
        return f"line {cause['package_line'].rpartition(':')[2]} of the package"
    path, _, lines = cause["link"].partition("#L")
    return f"{path.rpartition('/')[2]}:{lines.replace('-L', '-')}"


def _code(text: str) -> str:
    return f"`{text.replace('|', '/').replace('`', '')}`"


def _evidence(cells: Sequence[Cell]) -> str:
    """What the records say of more than the table, one sentence each."""
    entries = [json.loads(line) for line in (RESULTS / "engine_lines.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [entry for entry in entries if "model" in entry]
    right = sum(line["state"] == "right" for line in lines)
    wrong = sum(line["state"] in ("wrong", "refused", "not parsed") for line in lines)
    disputed = ", ".join(dict.fromkeys(cell.row for cell in cells if cell.state == "disputed"))
    return (
        "## Reference values\n\n"
        "A result counts as correct or wrong only where three references agree to 1e-6: posenc, transformers, and the "
        "formula of the rope type's authors, which `benchmarks/engines/reference_formulas.py` implements again in "
        "plain Python with the commit of each. Where a key that decides the gain exists in transformers but not in the "
        f"authors' code, the gain has two references. Disputed: {disputed}.\n\n"
        "## The records\n\n"
        "`benchmarks/engines/records` has a line for each case, with every remedy that was tried, and its README names "
        "the fields; `python -m benchmarks.engines.table` makes the table in the package from them "
        "(`posenc.hf.serving.table.engine_result`), `python docs/build.py --pages` this page. Also recorded:\n\n"
        f"- [The commands that posenc prints](../benchmarks/results/engine_lines.jsonl): of {len(lines)} for published "
        f"configs the engine's own parser and model class ran {right + wrong}, {right} correctly; the others were "
        "parsed, but their model classes need compiled kernels or more than a config.\n"
        "- [Which rope block a draft model gets](../benchmarks/results/draft_heads.json): vLLM applies a dictionary of "
        "`--hf-overrides` to the model alone, so its draft layers keep another rotation; write the block into "
        "config.json instead."
    )
