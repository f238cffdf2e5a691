"""A page for each entry of the catalogue: its facts, formula, code, picture, measurements and sources."""

from __future__ import annotations

import re
from pathlib import Path

from guide.docstrings import described, example_of
from guide.records import measured, tables_of
from posenc.catalogue import Entry
from posenc.catalogue.studies import Contrast, Study, StudyRow
from posenc.figures import in_page
from posenc.figures.mechanisms import figure_of
from posenc.figures.named import NAMED
from posenc.frequencies.modules import home_of

WRITTEN = Path(__file__).parents[1] / "methods"
PLACES = {
    "none": "nothing: the empty list",
    "embedding": "token embeddings (hook point 1)",
    "rotary": "queries and keys (hook point 2)",
    "bias": "attention logits, by positions alone (hook point 3)",
    "score": "attention logits, given queries, keys or tokens (hook point 4)",
    "weight": "attention weights, instead of softmax (hook point 5)",
}
BASELINES = ("rope", "rope under its window", "alibi")  # of the planned contrasts, those with another encoding
_TITLE_LENGTH = 45  # characters that a line of the navigation holds
_PICTURE = re.compile(r"^<!-- picture: ([\w-]+) -->$", re.M)
_COMPARISON = (
    "comparison", "trained at", "at 1×", "at the longest", "difference at the longest", "verdict",
)  # fmt: skip
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")


def file_of(entry: Entry) -> str:
    """The page's file name."""
    return f"{entry.name}.md"


def title_of(entry: Entry) -> str:
    """The title for headings and links.

    >>> from posenc.catalogue import CATALOGUE
    >>> title_of(CATALOGUE["path"])
    'PaTH: accumulated Householder reflections'
    >>> title_of(CATALOGUE["data_alibi"]), title_of(CATALOGUE["xpos"]).partition(":")[0]
    ('Data-dependent ALiBi', 'xPos')
    """
    first = entry.title.split()[0]
    return entry.title[0].upper() + entry.title[1:] if first.islower() else entry.title


def short_title(entry: Entry) -> str:
    """The title for the navigation: without what follows its name where all of it is too long for a line.

    >>> from posenc.catalogue import CATALOGUE
    >>> short_title(CATALOGUE["alibi"]), short_title(CATALOGUE["yarn"])
    ('ALiBi: attention with linear biases', 'YaRN')
    """
    title = title_of(entry)
    return title if len(title) <= _TITLE_LENGTH else re.split(r"[:,] ", title)[0]


def page_of(entry: Entry) -> str:
    """The whole page, as Markdown: the formula on top, then the problem that it solves."""
    problem, text = written(entry)
    avoid = f"**When not to use it:** {linked(escaped(entry.avoid))}."
    parts = [f"# {title_of(entry)}", _formula(entry), problem, avoid, _code(entry), _picture(entry), text]
    parts += [_facts(entry), _definition(entry), _measured(entry), _sources(entry), _api(entry)]
    return "\n\n".join(part for part in parts if part) + "\n"


def written(entry: Entry) -> tuple[str, str]:
    """What was written by hand for a page: the problem that a method answers, and what follows from its first heading.

    Raises:
        FileNotFoundError: for a method that nobody has written about.
    """
    _, _, text = (
        (WRITTEN / file_of(entry)).read_text(encoding="utf-8").partition("\n\n")
    )  # the first line is for a clone
    problem, mark, rest = text.partition("## ")
    return problem.strip(), f"{mark}{rest}".strip()


def pictured(text: str) -> str:
    """A text with the drawings that its comments name."""
    return _PICTURE.sub(lambda match: in_page(NAMED[match[1]]()), text)


def linked(text: str) -> str:
    """A text whose arXiv ids lead to the papers.

    >>> linked("Su et al., arXiv 2104.09864")
    'Su et al., [arXiv 2104.09864](https://arxiv.org/abs/2104.09864)'
    """
    return _ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def escaped(text: str) -> str:
    """A text in which Markdown and tables read no sign as their own."""
    return re.sub(r"([\\*_|<\[\]])", r"\\\1", text)


def _formula(entry: Entry) -> str:
    return "```text\n" + re.sub(r"(?<=[,;])\s{2,}", "\n", entry.formula) + "\n```"


def _definition(entry: Entry) -> str:
    """The formula as the code implements it, with its symbols and units."""
    docstring = described(entry)
    if docstring is None:
        return ""
    return f"## Definition in the code\n\n{escaped(docstring.first)}\n\n{_body(docstring.body)}"


def _body(text: str) -> str:
    """Formulas, which docstrings indent, as text; the rest as it is."""
    parts = re.split(r"\n\n", text)
    return "\n\n".join(
        "```text\n" + "\n".join(line.removeprefix("    ") for line in part.splitlines()) + "\n```"
        if part.startswith("    ")
        else re.sub(r"(`+[^`]+`+)|([*_|<])", lambda match: match[1] or f"\\{match[2]}", part)
        for part in parts
    )


def _facts(entry: Entry) -> str:
    rows = {
        "name in posenc": f"`{entry.name}`",
        "acts on": PLACES[entry.hook_point],
        "reads": f"{entry.reads} ({entry.kind})",
        "parameters": escaped(entry.parameters),
        "cost": escaped(entry.cost),
        "beyond the training length": escaped(entry.past_training),
        "extension": escaped(entry.extension),
        "extends the context of trained models": "yes" if entry.extends_context else "no",
        "one instance for all layers": "yes" if entry.shared else "no",
        "used in": linked(escaped(entry.used_in)),
    }
    from guide.models import released_models, rotating_with  # whose tables are written with the functions above

    if names := rotating_with(entry):
        listed = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        rows["released models"] = f"{len(names)} of the {len(released_models())} in [the table](../models.md): {listed}"
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"## Facts\n\n| fact | {entry.name} |\n| --- | --- |\n{table}\n\n[All methods in one table](../table.md)."


def _code(entry: Entry) -> str:
    return f"## In code\n\n```python\n{example_of(entry)}```"


def _picture(entry: Entry) -> str:
    return f"## Picture\n\n{in_page(figure_of(entry))}"


def _measured(entry: Entry) -> str:
    """One table: a row for each recorded comparison that has the encoding."""
    rows = [f"| {' | '.join(_comparison(study, row))} |" for study, row in measured(entry.name)]
    tables = ", ".join(f"[{folder}](../results/{folder}/table.md)" for folder in tables_of(entry.name))
    if not tables:
        return "## Measured here\n\nIn no recorded comparison yet."
    listed = f"In the tables: {tables}."
    if not rows:
        return f"## Measured here\n\n{listed}"
    return (
        "## Measured here\n\nMeans with 95 % intervals, at the training length (1×) and at the longest measured "
        "length. Small models: their order may differ on other models and data "
        "([how they were compared](../compare.md)).\n\n"
        f"| {' | '.join(_COMPARISON)} |\n|{' --- |' * len(_COMPARISON)}\n" + "\n".join(rows) + f"\n\n{listed}"
    )


def _comparison(study: Study, row: StudyRow) -> list[str]:
    """The cells of one comparison."""
    last = max(row.means)
    cells = [_interval(row.means[study.train_length]) if study.train_length in row.means else ""]
    cells += [f"{_interval(row.means[last])} at {last / study.train_length:g}×" if last > study.train_length else ""]
    return [
        f"[{escaped(study.title)}](../results/{study.name}/table.md), {study.unit}",
        f"{study.train_length:,} tokens, {row.seeds} {'seed' if row.seeds == 1 else 'seeds'}",
        *cells, _contrasts(row.contrasts), row.verdict,
    ]  # fmt: skip


def _interval(mean: tuple[float, float, float]) -> str:
    return f"{mean[0]:.3f} ({mean[1]:.2f} to {mean[2]:.2f})"


def _contrasts(contrasts: tuple[Contrast, ...]) -> str:
    """Planned differences at one length, in words."""
    return "; ".join(
        f"{c.mean:+.3f} ({c.low:.2f} to {c.high:.2f}) from {c.against}, "
        f"{'significant' if c.claimed else 'not significant'}"
        for c in contrasts if c.against in BASELINES
    )  # fmt: skip


def _sources(entry: Entry) -> str:
    docstring = described(entry)
    lines = {"Source": entry.source} if docstring is None else docstring.fields
    return "## Sources\n\n" + "\n\n".join(f"**{name}:** {linked(escaped(text))}" for name, text in lines.items())


def _api(entry: Entry) -> str:
    cls = entry.scaling or entry.encoding
    if cls is None:
        return ""
    return f"## Reference\n\n::: {home_of(cls)}.{cls.__name__}"
