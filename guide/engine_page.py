"""The page of engines' measured rotations, and texts for their issue trackers, from the bench's records.

    engine_page()     docs/engine-table.md: engine, rope type and keys with figures, versions, dates and remedies
    issue_texts()     docs/upstream/NAME.md: for each engine its reproducible differences from transformers

``engine_causes.json`` has, by engine, version and rows, the line of the engine's source that decides, and what it does;
everything else comes from the records. `guide.pages` writes the pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import NAMES as ADAPTERS
from benchmarks.engines.check import Cell, Engine, committed, lengths, worst
from benchmarks.engines.table import REFERENCE, cases_by_name, tried

from guide.engine_evidence import evidence
from guide.records import ROOT
from posenc.hf.serving.table import SPELLINGS, title

COMMAND = "python -m benchmarks.engines"
LINES = ROOT / "benchmarks" / "results" / "engine_lines.jsonl"
DRAFTS = ROOT / "benchmarks" / "results" / "draft_heads.json"
CAUSES = Path(__file__).with_name("engine_causes.json")
_WRONG = ("off", "ignored", "refused")
_FOLDER = "upstream"
_LONGEST = 120  # letters of a flag; lists of factors are longer
_UNTESTED = "–"


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
        wrong = [cell for cell in cells if cell.engine == head.engine and cell.state in _WRONG]
        if wrong:
            parts += [f"### {title(head.engine)} {head.version}", _wrong_table(wrong)]
    parts += [
        "## The commands that posenc prints",
        *_printed_lines(),
        "## The length that a server grants",
        _lengths(cells),
    ]
    parts += ["## Draft models and multi-token prediction", _drafts()]
    parts += evidence(cells)
    parts += ["## Read it in a program", _program()]
    return "\n\n".join(parts) + "\n"


def _introduction() -> str:
    return (
        "# Which engine computes which rotation right?\n\n"
        "Each engine's own code ran on tiny configurations of every rope type, key and spelling, on a CPU, and the "
        "result was compared with transformers. [Engines](engines.md) describes the check, how to run it on your "
        "engine or your config, and how to add an engine.\n\n"
        "A figure is the largest difference from the reference. For rotary classes it is the difference of gain · cos "
        "and gain · sin, so 2 is the most that a gain of 1 allows. For whole models with random weights it is the "
        "difference of logits, divided by the largest logit."
    )


def _versions(heads: Iterable[Engine], cells: Sequence[Cell]) -> str:
    lines = [
        "| engine | version | what ran | compared | date | right | wrong | disputed | not tested |",
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
        lines.append(f"| {title(head.engine)} | {head.version} | {head.code} | {what} | {head.date} | {numbers} |")
    reference = " · ".join(dict.fromkeys(head.reference for head in heads))
    return "\n".join(lines) + (
        f"\n\nReference: {reference}, where these agree to 1e-6 with each other and with the formula of the rope "
        "type's authors ([reference values](#reference-values)). The last four columns count configurations. "
        "For llama.cpp the version belongs to the package llama_cpp_python, whose vendored llama.cpp ran."
    )


def _legend() -> str:
    return (
        "- ✓: equal to the reference within 3e-4 (cos and sin) or 1e-3 (logits).\n"
        "- A number: the largest difference. *other width*: another number of channels is rotated.\n"
        "- *ignored*: the result is right for the same config without that key, or without any scaling.\n"
        "- *refused*: the engine raises an error.\n"
        "- *disputed*: posenc, transformers and the authors' code differ ([all values](#disputed)).\n"
        "- –: not tested.\n\n"
        "Each cell shows the worst result of the model types tested; if only some are wrong, their names follow in "
        "brackets. Keys: v4 is `rope_theta` with `rope_scaling`, v5 is `rope_parameters`, both has the two; *nested* "
        "blocks are in `text_config`. Rows that no engine was tested on are left out."
    )


def _table(heads: Sequence[Engine], cells: Sequence[Cell]) -> str:
    """Rows by keys; spellings with the same results share a line, and rows without a result are left out."""
    names = [f"{title(head.engine)}" for head in heads]
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


def _remedies_introduction() -> str:
    return (
        "Every remedy was run in the engine on the same case; the figure in brackets is the remaining difference from "
        "transformers. Changed keys go into config.json, or into the flag that is named with them. *Both versions' "
        "keys* is the block with version 4's and version 5's keys. *No remedy found*: none of the listed changes was "
        "right; another may exist. Lengths and numbers belong to the tiny cases, whose original length is 256 tokens. "
        "`posenc serve`, `posenc extend` with its SERVING.md, and `posenc recommend --engine` print no command "
        "for these cells."
    )


def _wrong_table(cells: Sequence[Cell]) -> str:
    lines = ["| rope type | keys | model types | what it does | remedy | cause |", "|" + "---|" * 6]
    groups: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.row, _what(cell), remedy_words(cell), _why(cell)), []).append(cell)
    for (row, what, remedy, why), members in groups.items():
        keys = ", ".join(dict.fromkeys(cell.spelling for cell in members))
        models = ", ".join(dict.fromkeys(cell.model for cell in members))
        left = max(((cell.remedy or {}).get("gap") or 0.0 for cell in members), default=0.0)
        figure = f" (remaining difference {left:.1e})" if left else ""
        lines.append(f"| {row} | {keys} | {models} | {what} | {remedy}{figure} | {why} |")
    return "\n".join(lines)


def _what(cell: Cell) -> str:
    number = "" if cell.gap is None else f"differs by {cell.gap:.2g}"
    words = {
        "off": ", ".join(filter(None, (number or "differs", cell.text))),
        "ignored": ", ".join(filter(None, (f"ignores {cell.text}", number))),
        "refused": f"refuses: {_code(cell.text)}",
    }
    return words[cell.state]


def remedy_words(cell: Cell) -> str:
    """What makes a wrong cell right, without its figure; or what was tried without success."""
    remedy: Mapping[str, Any] | None = cell.remedy
    if not remedy:
        return "not tried"
    if remedy["how"] == "none":
        return f"**no remedy found** (tried: {tried(remedy)})"
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


_LINE_STATES = ("right", "parsed", "wrong", "refused", "not built", "not parsed")


def _printed_lines() -> Iterator[str]:
    """Results of the engines' own code for the commands that posenc prints for published configs."""
    entries = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    heads = [entry for entry in entries if "model" not in entry]
    lines = [entry for entry in entries if "model" in entry]
    models = len({line["model"] for line in lines})
    yield (
        f"Every command that `posenc serve` (also by flags and with `--exact`), `posenc extend --config-only` and its "
        f"SERVING.md print for {models} published configs went through the engine's own argument parser, and the "
        "engine's own configuration code applied the overrides. Then the engine's model class was built with few "
        "layers but the released heads and rope block. Its rotary modules were compared with posenc and transformers "
        "at positions 0, 1, L/2, L, 2 L and 4 L − 1, as far as the served length reaches. Of llama.cpp the parsers "
        "alone ran here; its column *flags* above has whole models. `posenc recommend` prints no engine command."
    )
    table = ["| engine | version | date | commands | configs | " + " | ".join(_LINE_STATES) + " |", "|" + "---|" * 11]
    for head in heads:
        of_engine = [line for line in lines if line["engine"] == head["engine"]]
        counts = " | ".join(str(sum(line["state"] == state for line in of_engine)) for state in _LINE_STATES)
        configs = len({line["model"] for line in of_engine})
        name = {"llama_cpp": "llama.cpp (llama_cpp_python)"}.get(head["engine"], title(head["engine"]))
        table.append(f"| {name} | {head['version']} | {head['date']} | {len(of_engine)} | {configs} | {counts} |")
    yield "\n".join(table)
    right = {line["model"] for line in lines if line["state"] == "right"}
    yield (
        f"For {len(right)} configs at least one engine built a command and computed it right. *Not built*: the "
        "arguments were parsed, but the model class needs compiled kernels, the repository's own code or an image "
        "processor, or is transformers' own, which vLLM wraps; the rotation was not checked then. "
        "[The record](../benchmarks/results/engine_lines.jsonl) has every command; `python -m benchmarks.engines.lines "
        "vllm` makes it. A command that posenc prints in another form since that date has not been run."
    )
    failed = [line for line in lines if line["state"] in ("wrong", "refused", "not parsed")]
    if failed:
        yield "\n".join(
            f"- {line['model']}, {title(line['engine'])}, {line['command']}: {line['state']}. "
            f"{_code(line.get('text', ''))}"
            for line in failed
        )


def _lengths(cells: Sequence[Cell]) -> str:
    known = list(cases_by_name().values())
    table = ["| engine | original length | declared | granted | rope types |", "|" + "---|" * 5]
    for (engine, original, declared, granted), group in sorted(lengths(cells, known).items()):
        rows = "; ".join(dict.fromkeys(cell.row for cell in group))
        table.append(f"| {title(engine)} | {original:,} | {declared:,} | {granted:,} | {rows} |")
    return (
        "The context length in tokens that the engine's own configuration code sets if no option gives one. *Declared* "
        "is `max_position_embeddings`. Other engines were not tested.\n\n" + "\n".join(table)
    )


def _drafts() -> str:
    content = json.loads(DRAFTS.read_text(encoding="utf-8"))
    table = ["| engine | version | date | draft | YaRN in the files | YaRN by override |", "|" + "---|" * 6]
    for engine, entry in content.items():
        for kind, ways in entry["drafts"].items():
            fields = " | ".join(_draft(ways[way]) for way in ("in the files", "by override"))
            table.append(f"| {title(engine)} | {entry['version']} | {entry['date']} | {kind} | {fields} |")
    return (
        "Which rope block a draft model gets when the model is served with YaRN for four times its original length "
        "(1,024 tokens). vLLM applies a dictionary of `--hf-overrides` to the model alone "
        "([speculative.py:1400](https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/config/speculative.py#L1400)), "
        "so multi-token prediction layers draft under another rotation than the model's. Write the block into "
        "config.json instead.\n\n"
        "Checked was the config object that each engine's own code makes for the draft; no draft model was built and "
        "no token drafted ([record](../benchmarks/results/draft_heads.json), `python -m benchmarks.engines.draft_heads "
        "vllm`). Other engines were not tested.\n\n" + "\n".join(table)
    )


def _draft(way: Mapping[str, Any]) -> str:
    if "refused" in way:
        return f"refused: {_code(way['refused'])}"
    return f"{'the same block' if way['same'] else way['rope_type']}, {way['granted']:,} tokens"


def _program() -> str:
    return (
        "```python\n"
        "from posenc.hf.serving.table import engine_result, verdict\n\n"
        'engine_result("sglang", "yarn: attention_factor", "v5", "llama")  # state, gap, version, date, remedy\n'
        'block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}\n'
        'print(verdict("vllm", [block], model_type="llama"))\n'
        "```\n\n"
        "The records, a line for each case, are in `benchmarks/engines/records`; its README names the fields. "
        "`python -m benchmarks.engines.table` makes the table that posenc carries, `python -m guide.pages` this page "
        f"and the texts in [{_FOLDER}](upstream/README.md)."
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
        "# Texts for the engines' issue trackers\n\nEach text has the configuration, the difference from transformers "
        "and the line of source that causes it, from the [records](../engine-table.md). This project filed none of "
        "them. Search the tracker first, and run the command again with the engine's newest version. The number is the "
        "count of texts."
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
            f"## {'; '.join(rows)}",
            f"{cause['cause']} Source: [{_line(cause)}]({_url(cause)}).",
            f"Model types: {models}. Written with {keys}.",
            f"The case with the largest difference, `{shown.case}`, {_what(shown)}:",
            f"```json\n{config}\n```",
            f"To reproduce: `{COMMAND} --engine {shown.engine} --rope \"{shown.case.split('/')[1]}\"`",
        ])  # fmt: skip


def _block(cell: Cell) -> dict[str, Any]:
    """What of the config decides: its length and the keys of its rotation."""
    keys = ("max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    config = cases_by_name()[cell.case].config
    return {"model_type": cell.model, **{key: config[key] for key in keys if config.get(key) is not None}}
