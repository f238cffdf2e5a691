"""A page for each entry of the catalogue: its facts, formula, code, picture, measurements and sources."""

from __future__ import annotations

import re
from pathlib import Path

from guide.claimed import claims_of
from guide.docstrings import described
from guide.examples import example_of
from guide.measured import measured, tables_of
from posenc.catalogue import Entry
from posenc.catalogue.studies import Contrast
from posenc.figures import in_page
from posenc.figures.mechanisms import figure_of
from posenc.figures.named import NAMED
from posenc.lab.report.render import claim_evidence

WRITTEN = Path(__file__).parents[1] / "docs" / "methods"
BASELINES = ("rope", "rope under its window", "alibi")  # not a row's own window, nor itself at the training length
PLACES = {
    "none": "nothing: the empty list",
    "embedding": "token embeddings (hook point 1)",
    "rotary": "queries and keys (hook point 2)",
    "bias": "scores, by positions alone (hook point 3)",
    "score": "scores, given queries, keys or tokens (hook point 4)",
    "weight": "weights, instead of softmax (hook point 5)",
}
_PICTURE = re.compile(r"^<!-- picture: ([\w-]+) -->$", re.M)
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")


def file_of(entry: Entry) -> str:
    """The page's file name."""
    return f"{entry.name}.md"


def page_of(entry: Entry) -> str:
    """The whole page, as Markdown."""
    problem, text = written(entry)
    parts = [f"# {entry.title}", problem, _opening(entry), _facts(entry), _code(entry), _picture(entry), text]
    parts += [_measured(entry), _claimed(entry), _sources(entry), _api(entry)]
    return "\n\n".join(part for part in parts if part) + "\n"


def written(entry: Entry) -> tuple[str, str]:
    """What was written by hand for a page: the problem that a method answers, and what follows from its first heading.

    Raises:
        FileNotFoundError: for a method that nobody has written about.
    """
    problem, mark, rest = (WRITTEN / file_of(entry)).read_text(encoding="utf-8").partition("## ")
    return problem.strip(), pictured(f"{mark}{rest}".strip())


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


def _opening(entry: Entry) -> str:
    docstring = described(entry)
    formula = f"```text\n{entry.formula}\n```"
    if docstring is None:
        return f"No encoding at all: scores depend on content, and the causal mask on the tokens' order.\n\n{formula}"
    return f"{escaped(docstring.first)}\n\n## Formula\n\n{formula}\n\nAs the code has it:\n\n{_body(docstring.body)}"


def _body(text: str) -> str:
    """Formulas, which docstrings indent, as text; the rest as it is."""
    parts = re.split(r"\n\n", text)
    return "\n\n".join(
        "```text\n" + "\n".join(line.removeprefix("    ") for line in part.splitlines()) + "\n```"
        if part.startswith("    ")
        else re.sub(r"([*_|<])", r"\\\1", part)
        for part in parts
    )


def _facts(entry: Entry) -> str:
    rows = {
        "name in posenc": f"`{entry.name}`",
        "acts on": PLACES[entry.hook_point],
        "reads": f"{entry.reads} ({entry.kind})",
        "parameters": escaped(entry.parameters),
        "cost": escaped(entry.cost),
        "past the trained length": escaped(entry.past_training),
        "extension": escaped(entry.extension),
        "extends the context of trained models": "yes" if entry.extends_context else "no",
        "one instance for all layers": "yes" if entry.shared else "no",
        "used in": linked(escaped(entry.used_in)),
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"## Facts\n\n| fact | {entry.name} |\n| --- | --- |\n{table}\n\n[All methods in one table](../table.md)."


def _code(entry: Entry) -> str:
    return f"## In code\n\n```python\n{example_of(entry)}```"


def _picture(entry: Entry) -> str:
    return f"## Picture\n\n{in_page(figure_of(entry))}"


def _measured(entry: Entry) -> str:
    parts = ["## Measured here"]
    for study, row in measured(entry.name):
        lengths = sorted(row.means)
        heads = " | ".join(f"{length:,}" for length in lengths)
        cells = " | ".join(
            f"{mean:.3f} ({low:.2f} to {high:.2f})" for mean, low, high in (row.means[n] for n in lengths)
        )
        trainings = "one training" if row.seeds == 1 else f"{row.seeds} trainings"
        parts.append(
            f"{study.title}, trained at {study.train_length:,} tokens, {trainings}; {study.unit}, "
            f"mean and 95 % interval by length: [{study.name}](../results/{study.name}/table.md). "
            f"Verdict: {row.verdict}.\n\n"
            f"| {heads} |\n|{' ---: |' * len(lengths)}\n| {cells} |"
        )
        parts += [
            text for text in (_contrasts(row.at_first, "1×"), _contrasts(row.contrasts, f"{study.longest}×")) if text
        ]
    tables = ", ".join(f"[{folder}](../results/{folder}/table.md)" for folder in tables_of(entry.name))
    parts.append(f"In the tables: {tables}." if tables else "In no recorded comparison yet.")
    return "\n\n".join(parts)


def _contrasts(contrasts: tuple[Contrast, ...], where: str) -> str:
    """Planned differences at one length, in words."""
    texts = [
        f"{c.mean:+.3f} ({c.low:.2f} to {c.high:.2f}) against {c.against}, "
        f"{'significant' if c.claimed else 'not significant'}"
        for c in contrasts if c.against in BASELINES
    ]  # fmt: skip
    return f"Difference at {where}: {'; '.join(texts)}." if texts else ""


def _claimed(entry: Entry) -> str:
    rows = [
        f"| {escaped(judged.claim.text)} | {linked(escaped(judged.claim.source))} | "
        f"{f'{judged.outcome}: {escaped(claim_evidence(judged))}' if judged.tested else 'no recorded run tests it'} |"
        for judged in claims_of(entry)
    ]
    if not rows:
        return ""
    head = (
        "## What is claimed\n\nHeld against the recorded runs, whose small models decide for their size and data alone"
    )
    table = "\n".join(["| claim | who says it | here |", "| --- | --- | --- |", *rows])
    return f"{head} ([how](../compare.md#which-differences-are-real)).\n\n{table}"


def _sources(entry: Entry) -> str:
    docstring = described(entry)
    lines = {"Source": entry.source} if docstring is None else docstring.fields
    return "## Sources\n\n" + "\n\n".join(f"**{name}:** {linked(escaped(text))}" for name, text in lines.items())


def _api(entry: Entry) -> str:
    cls = entry.scaling or entry.encoding
    if cls is None:
        return ""
    return f"## Reference\n\n::: {cls.__module__}.{cls.__name__}"
