"""The page of what engines compute, and texts for their issue trackers, from the records of `posenc engines check`.

    engine_page()     docs/engine-table.md: engine, rope type and keys with figures, versions, dates and remedies
    issue_texts()     docs/upstream/NAME.md: for each engine what it computes differently, as facts that can be repeated

``engine_causes.json`` has, by engine, version and rows, the line of the engine's source that decides, and what it does;
everything else comes from the records. `guide.pages` writes the pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from guide.engine_evidence import evidence
from guide.engine_table import REFERENCE, cases_by_name, tried
from posenc.engines.adapters import NAMES as ADAPTERS
from posenc.engines.check import Cell, Engine, committed, worst
from posenc.hf.serving.engines import SPELLINGS, title

CAUSES = Path(__file__).with_name("engine_causes.json")
_WRONG = ("off", "ignored", "refused")
_FOLDER = "upstream"
_LONGEST = 120  # letters of a flag; lists of factors are longer


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


# ----------------------------------------------------------------------------------------------------------- the page


def engine_page() -> str:
    """Markdown of docs/engine-table.md."""
    heads, cells = _newest()
    parts = [_introduction(), "## Versions", _versions(heads, cells), "## The table", _legend(), _table(heads, cells)]
    parts += ["## What is wrong, and what to do instead", _remedies_introduction()]
    for head in heads:
        mine = [cell for cell in cells if cell.engine == head.engine and cell.state in _WRONG]
        if mine:
            parts += [f"### {title(head.engine)} {head.version}", _wrong_table(mine)]
    parts += evidence(cells)
    parts += ["## Read it in a program", _program()]
    return "\n\n".join(parts) + "\n"


def _introduction() -> str:
    return (
        "# Which engine computes which rotation right?\n\n"
        "Each engine's own code ran on tiny configurations of every rope type, key and spelling, and its answer was "
        "compared with transformers. [Engines](engines.md) says how the check works, how to run it on your engine or "
        "your config, and how to add an engine. A figure is the largest difference: of gain · cos and gain · sin for "
        "rotary classes, of logits over the largest logit for whole models."
    )


def _versions(heads: Iterable[Engine], cells: Sequence[Cell]) -> str:
    lines = [
        "| engine | version | what ran | compared | date | right | wrong | disputed | not asked |",
        "|" + "---|" * 9,
    ]
    for head in heads:
        counts = {
            state: sum(cell.engine == head.engine and cell.state in states for cell in cells)
            for state, states in (("right", ("right",)), ("wrong", _WRONG), ("disputed", ("disputed",)),
                                  ("not asked", ("not run",)))
        }  # fmt: skip
        numbers = " | ".join(str(count) for count in counts.values())
        what = "logits" if head.measures == "logits" else "gain · cos, gain · sin"
        lines.append(f"| {title(head.engine)} | {head.version} | {head.code} | {what} | {head.date} | {numbers} |")
    reference = " · ".join(dict.fromkeys(head.reference for head in heads))
    return "\n".join(lines) + (
        f"\n\nThe truth: {reference}, where these agree to 1e-6 with each other and with the code of the rope type's "
        "authors ([who says what is right](#who-says-what-is-right))."
    )


def _legend() -> str:
    return (
        "✓ right. A number: off by so much. *ignored*: the answer is right for the same config without that key, or "
        "without any scaling. *refused*: the engine raises an error. *disputed*: posenc, transformers and the authors' "
        "code differ, so that there is no truth ([all values](#disputed)). –: not asked. A cell is the worst of the "
        "model types that were asked; the types that are wrong stand behind it where others are right. Keys: v4 are "
        "`rope_theta` and `rope_scaling`, v5 is `rope_parameters`."
    )


def _table(heads: Sequence[Engine], cells: Sequence[Cell]) -> str:
    """Rows by keys; spellings that all engines answer alike share a line."""
    names = [f"{title(head.engine)}" for head in heads]
    lines = ["| rope type | keys | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 2)]
    for row in dict.fromkeys(cell.row for cell in cells):
        fields: dict[tuple[str, ...], list[str]] = {}
        for spelling in SPELLINGS:
            here = [cell for cell in cells if (cell.row, cell.spelling) == (row, spelling)]
            if here:
                answers = tuple(_field([cell for cell in here if cell.engine == head.engine]) for head in heads)
                fields.setdefault(answers, []).append(spelling)
        lines += [f"| {row} | {', '.join(keys)} | " + " | ".join(answers) + " |" for answers, keys in fields.items()]
    return "\n".join(lines)


def _field(cells: Sequence[Cell]) -> str:
    asked = [cell for cell in cells if cell.state != "not run"]
    if not asked:
        return "–"
    cell = worst(asked)
    if cell.state == "right":
        return "✓"
    number = "" if cell.gap is None else f"{cell.gap:.2g}"
    words = {"off": number or "*other width*", "ignored": f"*ignored* {number}".rstrip()}.get(
        cell.state, f"*{cell.state}*"
    )
    wrong = dict.fromkeys(other.model for other in asked if other.state != "right")
    return words if len(wrong) == len({other.model for other in asked}) else f"{words} ({', '.join(wrong)})"


def _remedies_introduction() -> str:
    return (
        "A remedy was itself run in the engine, on the same case, and the figure behind it is what is then left of the "
        "difference from transformers. Other keys go into config.json, or behind the flag that stands with them; *both "
        "spellings* is the block with version 4's and version 5's keys. *No "
        "way by flags or other keys* means that what was tried is named and none of it was right. Lengths and numbers "
        "belong to the tiny cases, whose original length is 256. `posenc serve-flags`, `posenc extend` with its "
        "SERVING.md, and `posenc recommend --engine` print no command for these cells."
    )


def _wrong_table(cells: Sequence[Cell]) -> str:
    lines = ["| rope type | keys | model types | what it does | instead | why |", "|" + "---|" * 6]
    groups: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.row, _what(cell), remedy_words(cell), _why(cell)), []).append(cell)
    for (row, what, remedy, why), members in groups.items():
        keys = ", ".join(dict.fromkeys(cell.spelling for cell in members))
        models = ", ".join(dict.fromkeys(cell.model for cell in members))
        left = max(((cell.remedy or {}).get("gap") or 0.0 for cell in members), default=0.0)
        figure = f" ({left:.1e} off)" if left else ""
        lines.append(f"| {row} | {keys} | {models} | {what} | {remedy}{figure} | {why} |")
    return "\n".join(lines)


def _what(cell: Cell) -> str:
    number = "" if cell.gap is None else f"{cell.gap:.2g} off"
    words = {
        "off": ", ".join(filter(None, (number or "off", cell.text))),
        "ignored": f"ignores {cell.text}: {number}",
        "refused": f"refuses: {_code(cell.text)}",
    }
    return words[cell.state]


def remedy_words(cell: Cell) -> str:
    """What makes a wrong cell right, without its figure; or what was tried in vain."""
    remedy: Mapping[str, Any] | None = cell.remedy
    if not remedy:
        return "not tried"
    if remedy["how"] == "none":
        return f"**no way by flags or other keys** (tried: {tried(remedy)})"
    limit = f", for texts of {remedy['only']} only" if remedy.get("only") else ""
    words = [str(word) for word in remedy.get("flags", ())]
    if remedy["how"] == "config":  # the flag takes the changed keys as JSON
        flags = f", in config.json or by {_code(words[0])}" if words else ""
    else:
        flags = f": {_code(' '.join(_shortened(word) for word in words))}" if words else ""
    return f"{remedy['what']}{flags}{limit}"


def _shortened(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[:_LONGEST]}…"


def _why(cell: Cell) -> str:
    cause = cause_of(cell)
    return "" if cause is None else f"{cause['cause']} ([{_line(cause)}]({_url(cause)}))"


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


def _program() -> str:
    return (
        "```python\n"
        "from posenc.hf.serving.engines import engine_result, verdict\n\n"
        'engine_result("sglang", "yarn: attention_factor", "v5", "llama")  # state, gap, version, date, remedy\n'
        'block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}\n'
        'print(verdict("vllm", [block], model_type="llama"))\n'
        "```\n\n"
        "The records, a line for each case, are in `src/posenc/engines/records`; its README names the fields. "
        "`python -m guide.engine_table` makes the table that posenc carries, `python -m guide.pages` this page and the "
        f"texts in [{_FOLDER}](upstream/README.md)."
    )


# ------------------------------------------------------------------------------------------------------- issue texts


def issue_texts() -> dict[str, str]:
    """Markdown by file name below docs: a page for each engine with something to report, and their list."""
    heads, cells = _newest()
    pages, listed = {}, []
    for head in heads:
        wrong = [cell for cell in cells if cell.engine == head.engine and cell.state in _WRONG]
        sections = list(_issues(wrong))
        if sections:
            name = title(head.engine)
            listed.append(f"- [{name} {head.version}]({head.engine}.md): {len(sections)}")
            pages[f"{_FOLDER}/{head.engine}.md"] = "\n\n".join(
                [f"# {name} {head.version}: differences from transformers", _setting(head), *sections]
            ) + "\n"  # fmt: skip
    introduction = (
        "# Texts for the engines' issue trackers\n\nFacts alone, from the [records](../engine-table.md): the "
        "configuration, the difference from transformers, and the line that decides. None of them was filed by this "
        "project: search the tracker first, and run the command again with the engine's newest version. The number "
        "counts the texts."
    )
    pages[f"{_FOLDER}/README.md"] = "\n\n".join([introduction, "\n".join(listed)]) + "\n"
    return pages


def _setting(head: Engine) -> str:
    return (
        f"Measured on {head.date} with {head.requirement} ({head.machine}). What ran: {head.code}. "
        f"Compared with: {head.reference}."
    )


def _issues(wrong: Sequence[Cell]) -> Iterator[str]:
    """A section for each cause, with one case that shows it."""
    groups: dict[str, list[Cell]] = {}
    for cell in wrong:
        cause = cause_of(cell)
        if cause is not None:
            groups.setdefault(json.dumps(cause), []).append(cell)
    for text, cells in groups.items():
        cause, shown = json.loads(text), worst(cells)
        rows = list(dict.fromkeys(cell.row for cell in cells))
        config = json.dumps(_block(shown))
        models = ", ".join(dict.fromkeys(cell.model for cell in cells))
        keys = ", ".join(SPELLINGS[spelling] for spelling in dict.fromkeys(cell.spelling for cell in cells))
        yield "\n\n".join([
            f"## {', '.join(rows)}",
            f"{cause['cause']} Source: [{_line(cause)}]({_url(cause)}).",
            f"Model types: {models}. Written with {keys}.",
            f"The case with the largest difference, `{shown.case}`, {_what(shown)}:",
            f"```json\n{config}\n```",
            f"To repeat it: `posenc engines check --engine {shown.engine} --rope \"{shown.case.split('/')[1]}\"`",
        ])  # fmt: skip


def _block(cell: Cell) -> dict[str, Any]:
    """What of the config decides: its length and the keys of its rotation."""
    keys = ("max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    config = cases_by_name()[cell.case].config
    return {"model_type": cell.model, **{key: config[key] for key in keys if config.get(key) is not None}}
