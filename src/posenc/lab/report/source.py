"""Where a report's numbers come from: the folder of a run with its jobs, or a results.jsonl alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from posenc.lab.files import read_json
from posenc.lab.jobs import RUN_FORMAT, code_in
from posenc.lab.rates import in_words, read_tuned
from posenc.lab.results import FORMAT, read_measured
from posenc.lab.tasks import from_record, task_of
from posenc.lab.tasks.task import Facts, Measured, Numbers

RESULTS = "results.jsonl"
UNKNOWN = "not written down"


@dataclass(frozen=True)
class Source:
    """What was measured in one run, and what is known of it."""

    path: Path
    settings: Numbers
    facts: Facts
    versions: dict[str, str]
    machine: dict[str, str]
    command: str
    rates: dict[str, str]
    measured: dict[str, list[Measured]]


def read_source(path: Path) -> Source:
    """Read the folder of a run, or a results.jsonl or the folder that it lies in.

    Raises:
        ValueError: nothing to report there, or files that another version wrote; each names the path.
    """
    if (path / "run.json").exists() and any((path / "jobs").glob("*/result.json")):
        return _of_run(path)
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"{path}: nothing to report; the folder of a run, or its {RESULTS}, is needed")
    return _of_results(file)


def _of_run(out: Path) -> Source:
    run = read_json(out / "run.json", ("format", "settings", "corpus", "versions"))
    if run["format"] != RUN_FORMAT:
        raise ValueError(f"{out}: written in the format {run['format']}; this version reads {RUN_FORMAT}")
    settings = _settings(out / "run.json", run["settings"])
    measured, last = read_measured(out), _lines(out / RESULTS)[:1] if (out / RESULTS).exists() else []
    known = last[0] if last else {}
    machine: dict[str, str] = next((run["machine"] for runs in measured.values() for run in runs if run["machine"]), {})
    code = {name: f"SHA-256 {digest}" for name, digest in code_in(out).items()}
    return Source(
        path=out,
        settings=settings,
        facts=task_of(settings).load(out).facts,
        versions={**run["versions"], **code},
        machine=known.get("machine", machine),
        command=known.get("command", UNKNOWN),
        rates={spec: in_words(tuned) for spec, tuned in read_tuned(out).items() if spec in measured},
        measured=measured,
    )


def _of_results(file: Path) -> Source:
    lines = _lines(file)
    if not lines:
        raise ValueError(f"{file}: it is empty")
    for line in lines:
        if line.get("format") != FORMAT:
            raise ValueError(
                f"{file}: written in the format {line.get('format', 'of an older version')}; this version reads "
                f"{FORMAT}: posenc report on the folder of the run itself writes it"
            )
    first, measured = lines[0], {line["encoding"]: line["runs"] for line in lines}
    settings = _settings(file, first["settings"])
    return Source(
        path=file,
        settings=settings,
        facts=_facts(file, task_of(settings).facts, first["corpus"]),
        versions=first["versions"],
        machine=first["machine"],
        command=first["command"],
        rates=first["rates"],
        measured=measured,
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; a ValueError naming it if it is broken."""
    try:
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise ValueError(f"{file} is truncated or not JSON: make it again with posenc report") from error
    if not all(isinstance(line, dict) and {"encoding", "settings", "corpus"} <= set(line) for line in found):
        raise ValueError(f"{file} was not written by posenc compare")
    return found


def _settings(path: Path, record: dict[str, Any]) -> Numbers:
    try:
        return from_record(record)
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} was written by another version of posenc: its settings are others") from error


def _facts(file: Path, kind: type[Any], record: dict[str, Any]) -> Facts:
    """What is known of the data, from plain data; JSON has no tuples."""
    names = {field.name for field in fields(kind)}
    if set(record) != names:
        raise ValueError(f"{file} was written by another version of posenc: its facts about the data are others")
    found: Facts = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()})
    return found
