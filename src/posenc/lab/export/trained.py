"""The trained model of a job, found by a folder and, in a run with several, by its encoding and seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.jobs import Job, check_member, job_folders, read_job, read_result
from posenc.lab.model import Decoder
from posenc.lab.specs import is_control, normal, own_names, trained
from posenc.lab.text.profiles import Settings


@dataclass(frozen=True)
class TrainedJob:
    """A job that was trained to its end."""

    job: Job
    settings: Settings
    decoder: Decoder
    result: dict[str, Any] | None  # what was measured; None if that is still to come


def find_job(folder: Path, spec: str | None, seed: int | None) -> Path:
    """The folder of one job: ``folder`` itself, or the one in this run that has this encoding and seed.

    Raises:
        ValueError: for a folder that is neither, and where no job or more than one fits; it names what there is.
    """
    wanted = None if spec is None else normal(spec)
    if wanted is not None and is_control(wanted):
        raise ValueError(f"--spec {spec}: a control has no model of its own; export {trained(wanted)}")
    if (folder / "run.json").exists():
        there = job_folders(folder)
    elif (folder / "config.json").exists() and not (folder / "model.safetensors").exists():
        there = [folder]
    else:
        raise ValueError(f"{folder} is neither the folder of a run of posenc compare nor that of one of its jobs")
    jobs = {path: read_job(path) for path in there}
    fitting = [p for p, job in jobs.items() if wanted in (None, job.spec) and seed in (None, job.seed)]
    if len(fitting) != 1:
        known = ", ".join(f"--spec {job.spec} --seed {job.seed}" for job in jobs.values()) or "none"
        asked = " ".join(f"--{k} {v}" for k, v in {"spec": spec, "seed": seed}.items() if v is not None)
        count = "no job" if not fitting else f"{len(fitting)} jobs"
        raise ValueError(f"{folder}: {count} for {asked or 'this folder alone'}; there are: {known}")
    if there != [folder]:
        check_member(folder, jobs[fitting[0]])
    return fitting[0]


def load_job(folder: Path) -> TrainedJob:
    """The model of a job's checkpoint, in float32 and ready to run.

    Raises:
        ValueError: for a job of another task, one that is not at its end, and one of own classes.
    """
    job = read_job(folder)
    if not isinstance(job.settings, Settings):
        raise ValueError(f"{folder} is a job of --task {job.settings.task}: only models of text are language models")
    own = own_names([job.spec])
    if own or job.code:
        raise ValueError(
            f"{job.spec}: whoever loads an exported model has posenc, but not {', '.join(own or job.code)}; only "
            "encodings of the catalogue are exported"
        )
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    if state is None or state.step < job.settings.steps:
        done = 0 if state is None else state.step
        raise ValueError(
            f"{folder} was trained for {done} of {job.settings.steps} steps: the command of its run goes on with it"
        )
    decoder = Decoder(job.spec, job.settings.shape, hidden=job.settings.hidden, seed=job.seed)
    try:
        decoder.load_state_dict(state.model)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'checkpoint.pt'} does not hold the weights of {job.spec}: {error}") from error
    return TrainedJob(job, job.settings, decoder.eval(), read_result(folder, job))
