"""Where a report's numbers come from: the folder of a run with its jobs, or a results.jsonl alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc.lab.files import MOST_RESULTS, read_bytes, read_json
from posenc.lab.foreign import check_seed, check_spec, check_words, dataclass_of, is_number, shown
from posenc.lab.jobs import RUN_FORMAT, code_in
from posenc.lab.rates import in_words, read_tuned
from posenc.lab.results import FORMAT, read_measured
from posenc.lab.tasks import read_settings, task_of
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
    settings = read_settings(run["settings"], out / "run.json")
    versions = check_words(run["versions"], "versions", out / "run.json")
    measured, last = read_measured(out), _lines(out / RESULTS)[:1] if (out / RESULTS).exists() else []
    known = last[0] if last else {}
    machine: dict[str, str] = next((run["machine"] for runs in measured.values() for run in runs if run["machine"]), {})
    code = {name: f"SHA-256 {digest}" for name, digest in code_in(out).items()}
    return Source(
        path=out,
        settings=settings,
        facts=task_of(settings).load(out).facts,
        versions={**versions, **code},
        machine=check_words(known.get("machine", machine), "machine", out / RESULTS),
        command=str(known.get("command", UNKNOWN)),
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
    first = lines[0]
    settings = read_settings(first["settings"], file)
    measured = {check_spec(line["encoding"], file): _runs(file, line.get("runs")) for line in lines}
    return Source(
        path=file,
        settings=settings,
        facts=dataclass_of(task_of(settings).facts, first["corpus"], file),
        versions=check_words(first.get("versions"), "versions", file),
        machine=check_words(first.get("machine"), "machine", file),
        command=str(first.get("command", UNKNOWN)),
        rates=check_words(first.get("rates"), "rates", file),
        measured=measured,
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; a ValueError naming it if it is broken."""
    try:
        found = [json.loads(line) for line in read_bytes(file, MOST_RESULTS).decode().splitlines()]
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} is truncated or not JSON: make it again with posenc report") from error
    if not all(isinstance(line, dict) and {"encoding", "settings", "corpus"} <= set(line) for line in found):
        raise ValueError(f"{file} was not written by posenc compare")
    return found


def _runs(file: Path, runs: object) -> list[Measured]:
    """What was measured with each seed."""
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise ValueError(f"{file}: runs must be a list of what was measured with each seed, got {shown(runs)}")
    for run in runs:
        check_seed(run.get("seed"), file)
        check_words(run.get("machine", {}), "machine", file)
        training = run.get("training")
        if not isinstance(training, dict) or not all(map(is_number, training.values())):
            raise ValueError(f"{file}: training must be an object of numbers, got {shown(training)}")
    return runs
