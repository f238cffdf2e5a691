"""Parts of table.md that all tasks share."""

from __future__ import annotations

from posenc.lab.record import RunRecord
from posenc.lab.tasks.task import Facts, Numbers


def markdown_table(heads: list[str], lines: list[list[str]], *, words: bool = False) -> list[str]:
    """The lines of a table, numbers to the right; of ``words``, to the left."""
    rule = ["---", *["---" if words else "---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines)]


def repetition(record: RunRecord[Numbers, Facts]) -> list[str]:
    """The lines that say how to repeat a run, and what may then differ."""
    return [
        f"Command: `{record.command}`  ",
        f"Corpus: {'; '.join(f'{k}: {v}' for k, v in record.facts.shown().items())}  ",
        f"Settings: {'; '.join(f'{k} {v}' for k, v in record.settings.shown().items())}  ",
        f"Versions: {', '.join(f'{k} {v}' for k, v in record.versions.items())}  ",
        f"Machine: {', '.join(f'{k} {v}' for k, v in record.machine.items())}",
    ]
