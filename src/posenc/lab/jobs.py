"""One (encoding, seed) is a job: a folder with its configuration, metrics, checkpoint and result.

OUT/run.json                      what all jobs share: settings, corpus, versions
OUT/corpus/                       what is trained on and measured with; the task says what lies where
OUT/jobs/<spec>-seed<k>/          config.json  metrics.jsonl  checkpoint.pt  result.json  progress.json  log.txt
OUT/replaced/<spec>-seed<k>-<id>/ the same of an own class as it was before its file changed; it serves again if the
                                  file changes back
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import filelock

from posenc.lab.files import read_json, write_json
from posenc.lab.foreign import (
    check_digests,
    check_factors,
    check_seed,
    check_spec,
    check_trial,
    check_words,
    is_number,
    refuse_links,
    shown,
)
from posenc.lab.specs import code_of
from posenc.lab.tasks import NAMES, read_settings, to_record
from posenc.lab.tasks.task import Facts, Numbers

RUN_FORMAT = "posenc-lab-run/1"
RESULT_FORMAT = "posenc-lab-result/1"
LOCK_SECONDS = 60  # a worker whose parent was killed needs up to a step to notice
TUNER = ("tune", "tuned.json")  # what posenc tune leaves in a run's folder, before the run or after it
WRITTEN = ("config.json", "metrics.jsonl", "checkpoint.pt", "result.json", "progress.json", "log.txt", "lock")
_UNDECIDING = ("checkpoint_every", "max_epochs")
_LATER = {"compile": False, "shard": False}  # what came after runs had been made, and what it was in those
_OPTIONAL = ("code", "tuned", "trial")  # what most jobs have none of


@dataclass(frozen=True)
class Job:
    """What decides the numbers of one training, all of it."""

    spec: str
    seed: int
    settings: Numbers
    corpus: dict[str, str]  # names and SHA-256 of the data
    versions: dict[str, str]
    code: dict[str, str] = field(default_factory=dict)  # SHA-256 of the files of own classes
    tuned: dict[str, float] = field(default_factory=dict)  # see `posenc.lab.rates`
    trial: str = ""  # tells jobs of one spec and seed apart, where a folder holds several

    @property
    def name(self) -> str:
        """Also the name of its folder; not every file system and tool takes a colon."""
        return f"{self.spec.replace(':', '.')}-seed{self.seed}" + (f"-{self.trial}" if self.trial else "")

    @property
    def identity(self) -> str:
        """A hash of everything that decides the numbers."""
        return hashlib.sha256(json.dumps(_deciding(self.record()), sort_keys=True).encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        """The job as plain data."""
        return {**asdict(self), "settings": to_record(self.settings)}


def corpus_identity(facts: Facts) -> dict[str, str]:
    """What tells one corpus from another."""
    return facts.identity()


def job_folders(out: Path) -> list[Path]:
    """The folders of all jobs of a run that have a configuration; one that leads elsewhere is a ValueError."""
    folders = [path.parent for path in sorted((out / "jobs").glob("*/config.json"))]
    refuse_links([out / "jobs", *folders])
    return folders


def open_run(out: Path, settings: Numbers, corpus: dict[str, str], versions: dict[str, str]) -> None:
    """Begin a run folder, or make sure that this one holds exactly such results."""
    refuse_links(out / name for name in ("jobs", "corpus", "replaced", "slurm", "run.json"))
    path = out / "run.json"
    wanted = {"settings": to_record(settings), "corpus": corpus, "versions": versions}
    if path.exists():
        found = read_json(path, ("format", *wanted))
        there = found["settings"].get("task", "text") if isinstance(found["settings"], dict) else None
        if there != settings.task:
            kind = there if there in NAMES else shown(there)
            raise ValueError(f"{out} holds a run of --task {kind}, not {settings.task}: choose another --out")
        for part in ("corpus", "versions"):
            check_words(found[part], part, path)
        refuse_difference(path, {part: found[part] for part in wanted}, wanted)
        return
    if any(path.name not in TUNER for path in out.iterdir()):
        raise ValueError(f"--out {out}: the folder is not empty and holds no run of posenc compare; choose another one")
    write_json(path, {"format": RUN_FORMAT, **wanted})


def check_member(out: Path, job: Job) -> None:
    """Make sure that a job belongs to the run in whose folder it lies; it may have been copied there."""
    run = read_json(out / "run.json", ("settings", "corpus", "versions"))
    found = {"settings": to_record(job.settings), "corpus": job.corpus, "versions": job.versions}
    refuse_difference(out / "jobs" / job.name / "config.json", found, {part: run[part] for part in found})


def stored_settings(out: Path) -> dict[str, Any]:
    """The settings of the run in a folder, empty if there is none: what a probe chose must not be chosen again."""
    path = out / "run.json"
    return dict(read_json(path, ("settings",))["settings"]) if path.exists() else {}


def open_job(out: Path, job: Job) -> Path:
    """The folder of a job, made if need be; one that belongs to another configuration is refused."""
    folder, kept = out / "jobs" / job.name, _kept(out, job)
    refuse_links([folder, kept, *(folder / name for name in WRITTEN)])
    if kept.exists() and not folder.exists():
        kept.rename(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    if path.exists():
        refuse_difference(path, read_job(folder).record(), job.record())
    else:
        write_json(path, job.record())
    return folder


def set_aside(out: Path, code: dict[str, str]) -> list[Path]:
    """Move jobs of own classes that ``code`` has in another version to OUT/replaced; returns their new folders."""
    moved = []
    for folder in job_folders(out) if code else ():
        job = read_job(folder)
        if all(code.get(name, digest) == digest for name, digest in job.code.items()):
            continue
        kept = _kept(out, job)
        kept.parent.mkdir(exist_ok=True)
        refuse_links([kept.parent, kept, folder / "lock"])
        try:
            with filelock.FileLock(folder / "lock", timeout=LOCK_SECONDS):
                folder.rename(kept)
        except filelock.Timeout:
            raise ValueError(f"{folder} is in use by another process: wait for it or stop it") from None
        moved.append(kept)
    return moved


def code_in(out: Path) -> dict[str, str]:
    """SHA-256 of the files of all own classes that jobs of a run were trained with."""
    jobs = map(read_job, job_folders(out))
    return {name: digest for job in jobs for name, digest in job.code.items()}


def check_code(job: Job) -> None:
    """Make sure that a job's own classes are still those that it was planned with."""
    if job.code and code_of([job.spec]) != job.code:
        raise ValueError(f"{', '.join(job.code)}: changed after this job was planned; run the same command again")


def read_job(folder: Path) -> Job:
    """The job of a folder, from its config.json; every name in it is checked, and none is imported."""
    path = folder / "config.json"
    record = read_json(path, tuple(f.name for f in dataclasses.fields(Job) if f.name not in _OPTIONAL))
    settings = read_settings(record["settings"], path)
    corpus, versions = (check_words(record[name], name, path) for name in ("corpus", "versions"))
    spec, seed = check_spec(record["spec"], path), check_seed(record["seed"], path)
    code, tuned = check_digests(record.get("code", {}), path), check_factors(record.get("tuned", {}), path)
    return Job(spec, seed, settings, corpus, versions, code, tuned, check_trial(record.get("trial", ""), path))


def read_result(folder: Path, job: Job) -> dict[str, Any] | None:
    """The result of a job, None if it has none yet; a foreign one is a ValueError naming it."""
    path = folder / "result.json"
    if not path.exists():
        return None
    result = read_json(path, ("format", "identity", "training", "rows"))
    check_result(result, path)
    if result["format"] != RESULT_FORMAT or result["identity"] != job.identity:
        raise ValueError(
            f"{path} is the result of another configuration or corpus; it was left as it is: "
            "move it away to run this job"
        )
    return result


def refuse_difference(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise a ValueError that names what a stored configuration and the one of this command differ in."""
    before, now = _flat(_deciding(found)), _flat(_deciding(wanted))
    differing = [
        f"{key} {_short(before.get(key))} there, {_short(now.get(key))} here"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]
    if differing:
        raise ValueError(
            f"{path.parent} holds a run of another configuration ({'; '.join(differing)}): choose another --out"
        )


def check_result(result: dict[str, Any], path: Path) -> None:
    """Make sure that a result holds names, numbers and words where it should."""
    rows, training = result["rows"], result["training"]
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise ValueError(f"{path}: rows must be an object of what was measured, got {shown(rows)}")
    if not isinstance(training, dict) or not all(map(is_number, training.values())):
        raise ValueError(f"{path}: training must be an object of numbers, got {shown(training)}")
    for spec in rows:
        check_spec(spec, path)
    check_words(result.get("machine", {}), "machine", path)


def _kept(out: Path, job: Job) -> Path:
    return out / "replaced" / f"{job.name}-{job.identity[:12]}"


def _deciding(record: dict[str, Any]) -> dict[str, Any]:
    settings = {
        name: value
        for name, value in record["settings"].items()
        if name not in _UNDECIDING and (name not in _LATER or value != _LATER[name])
    }
    record = {key: value for key, value in record.items() if key not in _OPTIONAL or value}
    return json.loads(json.dumps({**record, "settings": settings}))  # type: ignore[no-any-return]


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        flat.update(
            {f"{key} {k}" if key != "settings" else k: v for k, v in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return flat


def _short(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 24 else text[:12] + "…"
