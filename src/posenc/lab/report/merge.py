"""Runs put together: of one task, rows and seeds of several folders in one table; of several tasks, a page with parts.

Numbers belong together if whatever decides them is equal: data, settings, formats, own classes, tuned rates. Machines
may differ, then times stand apart. Versions of libraries may differ, then the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posenc.lab.cost import Costs, read_cost
from posenc.lab.files import write_atomically
from posenc.lab.record import RunRecord
from posenc.lab.report.claims_page import claims_markdown
from posenc.lab.report.page import Page, Part
from posenc.lab.report.source import Source, read_source
from posenc.lab.results import machine_in_words
from posenc.lab.tasks import NAMES, task_of, to_record
from posenc.lab.tasks.task import Measured
from posenc.lab.words import join

# What says how a training was run and not what it computes; it may differ between machines.
_ELSEWHERE = ("device", "threads", "processes", "checkpoint_every")


def merge(paths: Sequence[Path]) -> Page:
    """Everything that lies at some paths: folders of runs and of costs, or files of results.

    Raises:
        ValueError: for a path with nothing to report, and for runs that do not belong together, naming the difference.
    """
    sources, costs = list[Source](), list[Costs]()
    for path in dict.fromkeys(Path(path) for path in paths):
        has_cost = (path / "cost.jsonl").exists()
        if has_cost:
            costs.append(read_cost(path))
        if not has_cost or (path / "run.json").exists() or (path / "results.jsonl").exists():
            with understood(path):
                sources.append(read_source(path))
    found = {source.settings.task for source in sources}
    tasks = sorted(found, key=lambda name: NAMES.index(name) if name in NAMES else len(NAMES))
    parts = [_part([source for source in sources if source.settings.task == name]) for name in tasks]
    return Page(parts, costs)


def _part(sources: list[Source]) -> Part:
    first, *others = sources
    for other in others:
        _refuse_difference(first, other)
    measured, remarks = _measured(sources)
    task = task_of(first.settings)
    machines = {machine_in_words(run.get("machine", {})) for runs in measured.values() for run in runs}
    if len(machines) > 1:
        remarks.append(f"Trained on {len(machines)} machines: times stand apart, losses are put together.")
    for package in sorted({name for source in sources for name in source.versions}):
        found = {source.versions.get(package, "none") for source in sources}
        if len(found) > 1 and ":" not in package:  # own classes differ in name, too
            remarks.append(f"Trained with different versions of {package}: {join(sorted(found))}.")
    with understood(*(source.path for source in sources)):
        return Part(list(task.rows(measured)), _record(sources), tuple(remarks))


@contextmanager
def understood(*paths: Path) -> Iterator[None]:
    """Files that are none of ours are refused by name, whatever it is that they lack."""
    try:
        yield
    except (TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
        where = join([str(path) for path in paths])
        raise ValueError(f"{where}: not what posenc compare writes ({type(error).__name__}: {error})") from error


def _refuse_difference(first: Source, other: Source) -> None:
    """Raise a ValueError unless the numbers of both can stand in one table."""
    both = [spec for spec in first.measured if spec in other.measured]
    own = [name for name in first.versions if ":" in name and name in other.versions]
    kinds: dict[str, Callable[[Source], dict[str, Any]]] = {
        "corpus": lambda source: source.facts.identity(),
        "settings": lambda source: _deciding(to_record(source.settings)),
        "tuned rates": lambda source: {spec: source.rates.get(spec, "not tuned") for spec in both},
        "own classes": lambda source: {name: source.versions[name] for name in own},
    }
    for name, kind in kinds.items():
        before, after = kind(first), kind(other)
        differing = [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]
        if differing:
            shown = "; ".join(f"{key}: {_short(before.get(key))} and {_short(after.get(key))}" for key in differing)
            raise ValueError(
                f"{first.path} and {other.path} differ in {name} ({shown}), so their numbers cannot stand in one "
                "table: report them apart"
            )


def _measured(sources: Sequence[Source]) -> tuple[dict[str, list[Measured]], list[str]]:
    """Of each spec with each seed, the first that is found; remarks name what lies in several folders."""
    chosen: dict[tuple[str, int], tuple[Measured, Source]] = {}
    twice: dict[tuple[Path, Path], list[str]] = {}
    for source in sources:
        for spec, runs in source.measured.items():
            for run in runs:
                there = chosen.setdefault((spec, run["seed"]), (run, source))[1]
                if there is not source:
                    twice.setdefault((there.path, source.path), []).append(f"{spec} (seed {run['seed']})")
    measured: dict[str, list[Measured]] = {}
    for (spec, _), (run, _) in sorted(chosen.items(), key=lambda found: found[0][1]):
        measured.setdefault(spec, []).append(run)
    remarks = [f"{join(names)}: in {a} and in {b}; that of {a} is shown." for (a, b), names in twice.items()]
    return measured, remarks


def _record(sources: Sequence[Source]) -> RunRecord[Any, Any]:
    """What the report states about all of them together."""
    first = sources[0]
    rates = {spec: words for source in sources for spec, words in source.rates.items()}
    if len(sources) == 1:
        return RunRecord(first.settings, first.facts, first.versions, first.machine, first.command, rates)
    machines = dict.fromkeys(machine_in_words(source.machine) for source in sources)
    machine = first.machine if len(machines) == 1 else {f"machine {n + 1}": words for n, words in enumerate(machines)}
    commands = "\n".join(dict.fromkeys(source.command for source in sources))
    return RunRecord(first.settings, first.facts, _joined([s.versions for s in sources]), machine, commands, rates)


def _joined(parts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """All values of each key."""
    keys = dict.fromkeys(key for part in parts for key in part)
    return {key: " and ".join(dict.fromkeys(part[key] for part in parts if key in part)) for key in keys}


def _deciding(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _ELSEWHERE}


def _short(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"


def write_reports(page: Page, out: Path) -> list[Path]:
    """Write page and claims; table, results and pictures of one task into ``out``, of several each into its folder."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for part in page.parts:
        folder = out if len(page.parts) == 1 else out / part.task
        folder.mkdir(exist_ok=True)
        paths += task_of(part.record.settings).write_report(folder, part.rows, part.record)
    if page.parts:
        write_atomically(out / "claims.md", claims_markdown(page.evidence).encode())
        paths.append(out / "claims.md")
    return [*paths, page.write(out)]
