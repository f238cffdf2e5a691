"""One training is a job: a folder with its configuration, checkpoint and records.

OUT/run.json, OUT/records.parquet     see `posenc.lab.run.folder`
OUT/data/                             what is trained on and measured with; the task says what lies where
OUT/jobs/<spec>-seed<k>/              job.json  checkpoint.pt  records.parquet  progress.json  log.txt  lock
OUT/tuned.json                        learning rates that `posenc tune` chose, as factors, which posenc compare reads

    lr(model) = configured lr · lr factor          lr(encoding's parameters) = lr(model) · own factor

``own`` is the class's ``lr_multiplier`` unless it was tuned. Factors found at one size serve at another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired

import pandas as pd
from pydantic import Field, PlainValidator
from typing_extensions import TypedDict

from posenc.lab.config import Config, config_of
from posenc.lab.files import MOST_SEEDS, Factors, Facts, Spec, read_json, read_record, validated, write_json
from posenc.lab.plugins import ImportAllowlist
from posenc.lab.run.folder import JOB_FILE, RECORDS
from posenc.lab.run.records import read_records, write_records
from posenc.lab.specs import plugin_hashes
from posenc.lab.tasks import task_named

FORMAT: Final = "posenc-lab-job/3"
FILE = JOB_FILE
LOCK_SECONDS = 60  # a worker whose parent was killed needs up to a step to notice
# Raised by hand whenever the numbers of an unchanged configuration change: an initialisation, a batch, a loss, an
# encoding's formula, a metric. Moving code, renaming it or rewording it leaves it alone.
PROTOCOL = 1


@dataclass(frozen=True)
class Job:
    """Everything that decides the numbers of one training; job.json holds it."""

    spec: Spec
    seed: Annotated[int, Field(ge=0, lt=MOST_SEEDS)]
    config: Annotated[Config, PlainValidator(lambda record: record)]  # read by `config_of`
    data: Facts  # names and SHA-256 of the data
    versions: Facts  # of the libraries that compute: `posenc.lab.run.machine.library_versions`
    protocol: int = PROTOCOL
    code: Facts = field(default_factory=dict)  # hashes of the files of a user's classes that it uses
    tuned: Factors = field(default_factory=dict)  # what is absent is as without tuning
    # Of `posenc tune`, which judges it by its training loss alone; tells jobs of one spec and seed apart.
    trial: Annotated[str, Field(pattern=r"^(trial[0-9]{1,9})?$")] = ""
    format: Literal["posenc-lab-job/3"] = FORMAT

    @property
    def name(self) -> str:
        """Also the name of its folder; not every file system and tool takes a colon."""
        return f"{folder_name(self.spec)}-seed{self.seed}" + (f"-{self.trial}" if self.trial else "")

    @property
    def identity(self) -> str:
        """A hash of everything that decides the numbers."""
        return hashlib.sha256(json.dumps(self.deciding(), sort_keys=True).encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        """The job as plain data, as job.json has it."""
        return {**asdict(self), "config": self.config.record()}

    def deciding(self) -> dict[str, Any]:
        """What `identity` is a hash of, as JSON has it."""
        numbers = {**self.config.deciding(), **self.config.rounding()}
        return json.loads(json.dumps({**self.record(), "config": numbers}))  # type: ignore[no-any-return]


class Work(NamedTuple):
    """A job that is not finished: what an executor needs to run it."""

    name: str
    folder: Path
    plugins: ImportAllowlist = ImportAllowlist()  # the plugins that it needs, and their folder
    trackers: tuple[str, ...] = ()  # see `posenc.lab.run.tracking`

    def elsewhere(self) -> Work:
        """The same for a process that may stand in another folder."""
        plugins = self.plugins._replace(folder=self.plugins.folder.resolve())
        return self._replace(folder=self.folder.resolve(), plugins=plugins)


def folder_name(spec: str) -> str:
    """A spec as part of a folder's name on any system."""
    return spec.replace(":", ".").replace("/", "~")


def job_folders(out: Path) -> list[Path]:
    """The folders of all jobs of a run that have a configuration."""
    return [path.parent for path in sorted((out / "jobs").glob(f"*/{FILE}"))]


def open_job(out: Path, job: Job) -> Path:
    """The folder of a job, created if needed; a ValueError if it holds another configuration."""
    folder = out / "jobs" / job.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    if path.exists():
        refuse_difference(path, read_job(folder).deciding(), job.deciding())
    else:
        write_json(path, job.record())
    return folder


def read_job(folder: Path) -> Job:
    """The job of a folder, from its job.json; every name in it is checked, and none is imported."""
    path = folder / FILE
    job = validated(path, Job, read_json(path))
    return replace(job, config=config_of(job.config, lambda task: task_named(task).options, path))


def read_results(folder: Path, job: Job) -> pd.DataFrame | None:
    """Records of a job; None if it has none yet, a foreign file is a ValueError."""
    path = folder / RECORDS
    if not path.exists():
        return None
    frame, facts = read_records(path)
    if facts.get("identity") != job.identity:
        raise ValueError(
            f"{path} is the result of another configuration or corpus; it was left as it is: "
            "move it away to run this job"
        )
    return frame


def write_results(folder: Path, job: Job, frame: pd.DataFrame) -> None:
    """Write what was measured of a job."""
    write_records(folder / RECORDS, frame, {"identity": job.identity})


def check_code(job: Job) -> None:
    """Raise a ValueError unless a job's plugins and the protocol are those that it was planned with."""
    if job.code and plugin_hashes(job.code) != job.code:
        raise ValueError(f"{', '.join(job.code)}: changed after this job was planned; run the same command again")
    if job.protocol != PROTOCOL:
        raise ValueError(
            f"{job.name} was planned with protocol {job.protocol}, this version of posenc computes by {PROTOCOL}: "
            "choose another --out"
        )


def refuse_difference(path: Path, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise a ValueError that names each difference between a stored configuration and the current one."""
    before, now = _flat(stored), _flat(current)
    differing = [
        f"{key} {_short(before.get(key))} there, {_short(now.get(key))} here"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]
    if differing:
        raise ValueError(
            f"{path.parent} holds a run of another configuration ({'; '.join(differing)}): choose another --out"
        )


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers under their own names, other parts' entries under the part's name."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if not isinstance(value, dict):
            flat[key] = value
            continue
        flat.update({(k if key in ("config", "numbers", "rounding") else f"{key} {k}"): v for k, v in value.items()})
    return flat


def _short(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 24 else text[:12] + "…"


TUNED_FORMAT, TUNED, TRIALS = "posenc-lab-tuned/1", "tuned.json", "trials.csv"


class TunedRecord(TypedDict):
    """What tuned.json holds; whoever writes it by hand may leave out how the factors were found."""

    format: Literal["posenc-lab-tuned/1"]
    encodings: dict[Spec, Factors]
    numbers: NotRequired[dict[str, Any]]
    data: NotRequired[Facts]
    procedures: NotRequired[Facts]  # by spec, also of those whose default rates were best


def read_tuned(folder: Path) -> TunedRecord:
    """A folder's tuned.json; without entries if there is none."""
    path = folder / TUNED
    return read_record(path, TunedRecord) if path.exists() else {"format": "posenc-lab-tuned/1", "encodings": {}}


def factors_of(folder: Path) -> dict[str, Factors]:
    """The factors by spec."""
    return read_tuned(folder)["encodings"]


def write_tuned(folder: Path, tuned: Mapping[str, Factors], facts: Mapping[str, object]) -> None:
    """Write tuned.json; ``facts`` say how it was found."""
    write_json(folder / TUNED, {"format": TUNED_FORMAT, "encodings": dict(tuned), **facts})


def describe_factors(tuned: Factors) -> str:
    """``learning rate × 2, own parameters × 10``."""
    parts: dict[Literal["lr", "own"], str] = {"lr": "learning rate", "own": "own parameters"}
    return ", ".join(f"{words} × {tuned[key]:g}" for key, words in parts.items() if key in tuned)
